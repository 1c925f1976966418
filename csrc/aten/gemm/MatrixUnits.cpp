#include "aten/gemm/MatrixUnits.h"

#include <ATen/Context.h>

#include <algorithm>

#include "aten/support/Launch.h"

namespace netcl {
namespace {

constexpr int64_t kLeastSide = 8;               // rows or columns; fewer leave most of a fragment empty
constexpr int64_t kLineBytes = 2 * kUnitDepth;  // of an operand's line in local memory
constexpr int64_t kFragmentElements = 512;      // of A and B together, at most

// The large tile of each engine keeps its sums in registers and fits in 32 KiB of local memory (tools/gpu_lab.py).
// Intel's compiler puts the arrays of any larger tile into memory. Nothing was measured.
UnitTile tile_of(MatrixEngine engine, bool large) {
  switch (engine) {
    case MatrixEngine::kMmaSm75:
    case MatrixEngine::kMmaSm80:
      return {"UNIT_MMA", engine == MatrixEngine::kMmaSm75 ? 75 : 80, 32, 16, 16, 2, {2, 2, 2, large ? 4 : 2, 0}};
    case MatrixEngine::kWmma:
      return {"UNIT_WMMA", 1, 32, 16, 16, 1, {2, 2, 2, large ? 4 : 2, 0}};
    case MatrixEngine::kMfmaCdna1:
      return {"UNIT_MFMA", 1, 64, 16, 16, 4, {2, 2, large ? 4 : 2, large ? 4 : 2, 0}};
    case MatrixEngine::kMfmaCdna2:
      return {"UNIT_MFMA", 2, 64, 16, 16, 4, {2, 2, large ? 4 : 2, large ? 4 : 2, 0}};
    default:
      return {"UNIT_DPAS", 1, 8, 8, 8, 1, {4, 8, 2, 1, 0}};
  }
}

bool fits(const Device& device, const UnitTile& t, int64_t element) {
  const int64_t exchange = t.emulated ? t.groups.x * t.groups.y * kFragmentElements * element : 0;
  return t.items() <= static_cast<int64_t>(device.info().max_work_group_size) &&
         2 * (t.width() + t.height()) * kLineBytes + exchange <= static_cast<int64_t>(device.info().local_mem_size);
}

}  // namespace

Defs& UnitTile::define_in(Defs& d) const {
  d.set(define, value).set("LANES", lanes).set("LVB", adjacent);
  return emulated ? d.set("EMULATED", 1) : d;
}

std::optional<UnitTile> unit_tile(const Device& device, c10::ScalarType type, int64_t m, int64_t n, int64_t batches) {
  if (std::min(m, n) < kLeastSide) return std::nullopt;
  if (type == c10::kFloat && at::globalContext().float32MatmulPrecision() == at::Float32MatmulPrecision::HIGHEST) {
    return std::nullopt;
  }
  if (!units_multiply(device, type)) return std::nullopt;
  const EngineChoice choice = matrix_engine(device);
  const auto element = static_cast<int64_t>(c10::elementSize(type));
  for (const bool large : {true, false}) {
    UnitTile t = tile_of(choice.engine, large);
    t.groups.kc = kLineBytes / element;
    t.emulated = choice.emulated;
    const bool fills = ceil_div(m, t.height()) * ceil_div(n, t.width()) * batches >= enough_items(device, 1);
    if (fits(device, t, element) && (fills || !large)) return t;
  }
  return std::nullopt;
}

}  // namespace netcl
