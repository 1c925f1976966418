// How kernels that include kernels/common/rows.h are launched: one row per work-item (CPU) or per work-group (GPU).
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>

#include "aten/support/Launch.h"

namespace netcl {

constexpr int64_t kRowVec = 16;
constexpr size_t kRowGroup = 128;

// The vector width for rows of n elements. In vectors of 16, a short row would be all remainder.
inline int64_t row_vec(const Device& dev, int64_t n) { return std::min(n < kRowVec ? 4 : kRowVec, tuning(dev).lanes); }
inline size_t row_group(const Device& dev) { return group_of(dev, kRowGroup); }

// Raises NotImplementedError unless the type is float32, float64, float16 or bfloat16; also does check_dtype().
inline void check_floating(const Device& dev, c10::ScalarType type, const char* op) {
  TORCH_CHECK_NOT_IMPLEMENTED(type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16,
                              '"', op, "\" not implemented for '", c10::toString(type),
                              "' on netcl: it takes float32, float64, float16 and bfloat16");
  check_dtype(dev, type, op);
}

// The -D options that rows.h needs, for rows of n elements.
inline Defs& row_defs(Defs& d, const Device& dev, c10::ScalarType compute, int64_t n) {
  return d.set("ACC", dtype_tag(compute)).set("VEC", row_vec(dev, n)).set("GROUP", int64_t(row_group(dev)));
}

// Kernels of rows.h add longer sums in blocks: beyond 65536 elements of a row, 4096 of a column.
constexpr int64_t kLongRow = 65536, kLongColumn = 4096;

// Splits `rows` rows of n elements into `groups` of `rows_per`, so that a work-item has enough elements and every core
// has work.
struct RowSplit {
  int64_t rows_per;
  size_t groups;
};
inline RowSplit row_split(const Device& dev, int64_t rows, int64_t n) {
  const int64_t per = units_per_item(dev, rows, n, 4096 + n - 1);  // rounded up
  return {per, size_t(ceil_div(rows, per))};
}

// A double as the two floats that WIDE of kernels/common/rows.h takes.
inline float wide_high(double x) { return float(x); }
inline float wide_low(double x) { return std::isfinite(float(x)) ? float(x - double(float(x))) : 0.0f; }

}  // namespace netcl
