// The instructions for products of bfloat16 that a CPU device may have (kernels/gemm/gemm_engine.h).
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "runtime/Device.h"

namespace netcl {

enum class MatrixEngine {
  kNone,
  kAvx512Bf16,  // vdpbf16ps: products of pairs, twice the rate of float
  kAmx,         // tdpbf16ps: tiles of 16 x 32 times 32 x 16, some sixteen times that rate
};

// Which engine products on `device` use: what the CPU has and the operating system grants, once a product on it has
// been compared with the CPU's own; a wrong one, or a driver whose compiler refuses the instructions, gives a warning
// and none. NETCL_MATRIX_ENGINE=none does without. Never one for devices of other types, or with
// NETCL_DEVICE_CLASS=gpu.
MatrixEngine matrix_engine(const Device& device);

// How products of numbers of one dtype by those of another, summed in float, go through the device's engine.
struct EngineTile {
  int64_t rows;                                      // of a tile, with 2 vectors of 16 columns
  int64_t kc;                                        // most of k in a panel
  int64_t parts;                                     // bfloat16 numbers for each number
  const char* define;                                // -D for the kernels, with PARTS
  static constexpr int64_t kVec = 16, kUnroll = 32;  // the k of a panel is a multiple of kUnroll
};
// Nothing if there is no engine or it would not pay: bfloat16 goes in as it is; half as the exact sum of two parts,
// which only AMX makes up for; float (of products of matrices) as torch.set_float32_matmul_precision says.
std::optional<EngineTile> engine_tile(const Device& device, c10::ScalarType a, c10::ScalarType b);

}  // namespace netcl
