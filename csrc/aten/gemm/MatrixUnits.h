// How a GPU's matrix units compute the tiles of gemm_gpu.cl (kernels/gemm/gemm_units.h).
#pragma once

#include <optional>

#include "aten/gemm/GroupTile.h"
#include "aten/gemm/MatrixEngine.h"
#include "runtime/Kernel.h"

namespace netcl {

constexpr int64_t kUnitDepth = 32;  // of the blocks of 16-bit elements in local memory

struct UnitTile {
  const char* define;  // -D of the instruction, and its value
  int64_t value;
  int64_t lanes, m, n;  // work-items of a sub-group; size of a fragment of C
  int64_t adjacent;     // neighbouring columns of a fragment that a lane has
  GroupTile groups;     // x, y: sub-groups; cols, rows: fragments of each
  bool emulated = false;

  int64_t width() const { return groups.width() * n; }
  int64_t height() const { return groups.height() * m; }
  int64_t items() const { return groups.x * groups.y * lanes; }
  Defs& define_in(Defs& d) const;
};

// The tile for `batches` products of m x n of one type, with sums in float. Nothing if the device has no units for it,
// or if few rows or columns make memory the limit.
std::optional<UnitTile> unit_tile(const Device& device, c10::ScalarType type, int64_t m, int64_t n, int64_t batches);

}  // namespace netcl
