// The tile that a work-group of gemm_gpu.cl or conv_gemm_gpu.cl computes, by device: the vendor's default, or what
// torch_netcl/tune.py found.
#pragma once

#include <c10/core/ScalarType.h>

#include "runtime/Device.h"

namespace netcl {

struct GroupTile {
  int64_t x, y;        // work-items
  int64_t cols, rows;  // elements per work-item, which lie x and y apart
  int64_t kc;          // depth of the panels in local memory

  int64_t width() const { return x * cols; }
  int64_t height() const { return y * rows; }
  friend bool operator==(const GroupTile&, const GroupTile&) = default;
};

// The tile for `batches` products of m x n with sums in `acc`; it is smaller if large ones would leave compute units
// idle.
GroupTile group_tile(const Device& device, c10::ScalarType acc, int64_t m, int64_t n, int64_t batches);

// The same for a convolution's products, whose columns may be few.
GroupTile conv_tile(const Device& device, c10::ScalarType acc, int64_t m, int64_t n, int64_t batches);

}  // namespace netcl
