// The instructions for products of matrices that a device may have: a CPU's (kernels/gemm/gemm_engine.h), or a GPU's
// (kernels/gemm/gemm_units.h).
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
  kMmaSm75,     // NVIDIA's tensor cores, from compute capability 7.5 on: half
  kMmaSm80,     // from 8.0 on: also bfloat16 and tf32
  kWmma,        // AMD's RDNA 3
  kMfmaCdna1,   // AMD's CDNA 1
  kMfmaCdna2,   // from CDNA 2 on
  kDpas,        // Intel's XMX, for sub-groups of 8
};
constexpr MatrixEngine kFirstUnit = MatrixEngine::kMmaSm75;  // this and the later ones are a GPU's matrix units

struct EngineChoice {
  MatrixEngine engine = MatrixEngine::kNone;
  bool emulated = false;  // a GPU's unit without its instruction, for tests
};

// The engine that products on `device` use: one that the device has and the operating system permits. First a product
// on it is compared with the CPU's own; if it is wrong, or if the driver's compiler refuses the instructions, no engine
// is used. A CPU's engine is then named in a warning, a GPU's only if the user chose it. NETCL_MATRIX_ENGINE=none uses
// none. A CPU under NETCL_DEVICE_CLASS=gpu may use an emulated unit.
EngineChoice matrix_engine(const Device& device);

// Whether the units of a GPU multiply numbers of this type rightly; the first call for a type tries it.
bool units_multiply(const Device& device, c10::ScalarType type);

// Whether `check` finds that the units compute numbers of this type rightly. Its first call for a type runs it, during
// which the answer is yes. An error counts as a wrong result.
using UnitCheck = bool (*)(const Device& device, c10::ScalarType type);
bool units_pass(const Device& device, c10::ScalarType type, UnitCheck check);

// The checks of products, which EngineCheck.cpp sets when the library is loaded: products use engines, so this file
// cannot name them.
struct EngineChecks {
  UnitCheck cpu = nullptr, units = nullptr;  // of a CPU's engine, and of a GPU's units
};
EngineChecks& engine_checks();

// How the device's engine multiplies numbers of one dtype by numbers of another and sums the products in float.
struct EngineTile {
  int64_t rows;                                      // rows of a tile, which has 2 vectors of 16 columns
  int64_t kc;                                        // largest depth of a panel
  int64_t parts;                                     // bfloat16 numbers per number
  const char* define;                                // -D for the kernels, with PARTS
  bool in_place;                                     // whether it reads rows of bfloat16 where they are
  static constexpr int64_t kVec = 16, kUnroll = 32;  // a panel's depth is a multiple of kUnroll
};
// Nothing if the CPU has no engine, or if it would not pay. bfloat16 is used as it is. half becomes the exact sum of
// two parts, which pays only with AMX and in products of matrices. float (in products of matrices) follows
// torch.set_float32_matmul_precision.
std::optional<EngineTile> engine_tile(const Device& device, c10::ScalarType a, c10::ScalarType b);

}  // namespace netcl
