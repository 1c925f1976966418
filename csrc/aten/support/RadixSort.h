// Sorting the rows of a tensor along a dimension. Here groups of work-items sort; for CPUs, csrc/aten/Sort.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include "aten/support/Dimensions.h"

namespace netcl {

// What is sorted, and where the first `take` elements of every row go. `values` and `indices` have the dimensions of
// `self`, but `dim` may have any size.
struct SortTask {
  const char* aten;  // the operator's name
  const at::Tensor &self, &values, &indices;
  int64_t dim;
  bool descending;

  int64_t n() const { return self.dim() > 0 ? self.size(dim) : 1; }
  // The bytes between neighbours of a row.
  int64_t stride_of(const at::Tensor& t) const { return t.dim() > 0 ? t.stride(dim) * t.element_size() : 0; }
  // The other dimensions.
  Dims rows() const;

  // Sets what kernels know of it.
  template <class Params>
  void describe(Params& params) const {
    params.n = n();
    params.rows = self.numel() / params.n;
    params.in_stride = stride_of(self);
    params.out0_stride = stride_of(values);
    params.out1_stride = stride_of(indices);
    params.flip = descending ? -1 : 0;
    params.dims = as_dimensions(rows());
  }
};

// Whether the task's device sorts by digits.
bool sorts_by_digits(const SortTask& task);
// Sorts by the lowest `bits` bits of the elements at least, for integers of which the others are equal.
void radix_sort(const SortTask& task, int64_t take, int64_t bits = 64);
// As radix_sort() with any `take`, followed by the choice of one element of each row: the nth, or what `which` of
// kernels/sort/radix_results.cl names.
void radix_pick(const SortTask& task, const char* which, int64_t nth);

}  // namespace netcl
