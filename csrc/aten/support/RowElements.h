// How kernels that include kernels/common/row_elements.h are launched: some rows per work-item (CPU), or one element
// (GPU).
#pragma once

#include "aten/support/Launch.h"

namespace netcl {

constexpr size_t kElementGroup = 64;  // work-items per work-group on a GPU

inline Range element_group(const Device& device) { return {device.is_cpu() ? size_t{1} : kElementGroup}; }

// The work-items for `rows` rows of `width` elements.
inline Range row_elements(const Device& device, int64_t rows, int64_t rows_per_item, int64_t width) {
  return {static_cast<size_t>(device.is_cpu() ? ceil_div(rows, rows_per_item) : rows * width)};
}

}  // namespace netcl
