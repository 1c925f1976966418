// How work is split among work-items. Nothing else in aten/ asks for the number of compute units, which are a CPU's
// threads.
#pragma once

#include <algorithm>

#include "runtime/Kernel.h"

namespace netcl {

template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}
template <class T>
constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

// Some work-items per compute unit, so that units that are done early take over from the others.
constexpr int64_t kItemsPerUnit = 4;

// Enough work-items to keep the device busy: so many per compute unit, or `gpu` in all on a GPU, unless that is 0.
inline int64_t enough_items(const Device& device, int64_t per_unit = kItemsPerUnit, int64_t gpu = 0) {
  return gpu && !device.is_cpu() ? gpu : per_unit * static_cast<int64_t>(device.compute_units());
}

// Of `n` units of work, as many per work-item as leave the device busy.
inline int64_t even_part(const Device& device, int64_t n, int64_t per_unit = kItemsPerUnit) {
  return ceil_div(n, enough_items(device, per_unit));
}

// On a CPU, as many units of work per work-item as have the cost `least` together, which pays for its start, but no
// more than even_part(). A GPU's work-item takes one.
inline int64_t units_per_item(const Device& device, int64_t n, int64_t cost, int64_t least) {
  if (!device.is_cpu()) return 1;
  return std::clamp<int64_t>(least / std::max<int64_t>(cost, 1), 1, std::max<int64_t>(even_part(device, n), 1));
}

// Elements per work-item of kernels that move elements or compute them from their position.
inline int64_t element_grain(const Device& device) { return device.is_cpu() ? 4096 : 16; }

// The work-group of a kernel whose work-items do not know each other.
constexpr size_t kElementGroup = 64;  // on a GPU
inline Range element_group(const Device& device) { return {device.is_cpu() ? size_t{1} : kElementGroup}; }

// The work-items of kernels that include kernels/common/row_elements.h, for `rows` rows of `width` elements: one per
// some rows on a CPU, one per element on a GPU.
inline Range row_elements(const Device& device, int64_t rows, int64_t rows_per_item, int64_t width) {
  return {static_cast<size_t>(device.is_cpu() ? ceil_div(rows, rows_per_item) : rows * width)};
}

}  // namespace netcl
