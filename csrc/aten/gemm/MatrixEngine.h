// The instructions for bfloat16 products that a CPU device may have (kernels/gemm/gemm_engine.h).
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "runtime/Device.h"

namespace netcl {

enum class MatrixEngine {
  kNone,
  kAvx512Bf16,  // vdpbf16ps: products of pairs, twice the rate of float
  kAmx,         // tdpbf16ps: tiles of 16 x 32 times 32 x 16, about sixteen times that rate
};

// The engine that products on `device` use: one that the CPU has and the operating system permits. First a product on
// it is compared with the CPU's own; if it is wrong, or if the driver's compiler refuses the instructions, a warning is
// given and no engine is used. NETCL_MATRIX_ENGINE=none uses none. Devices of other types, and NETCL_DEVICE_CLASS=gpu,
// never use one.
MatrixEngine matrix_engine(const Device& device);

// How the device's engine multiplies numbers of one dtype by numbers of another and sums the products in float.
struct EngineTile {
  int64_t rows;                                      // rows of a tile, which has 2 vectors of 16 columns
  int64_t kc;                                        // largest depth of a panel
  int64_t parts;                                     // bfloat16 numbers per number
  const char* define;                                // -D for the kernels, with PARTS
  static constexpr int64_t kVec = 16, kUnroll = 32;  // a panel's depth is a multiple of kUnroll
};
// Nothing if there is no engine, or if it would not pay. bfloat16 is used as it is. half becomes the exact sum of two
// parts, which pays only with AMX. float (in products of matrices) follows torch.set_float32_matmul_precision.
std::optional<EngineTile> engine_tile(const Device& device, c10::ScalarType a, c10::ScalarType b);

}  // namespace netcl
