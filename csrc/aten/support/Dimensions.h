// Dimensions that an input and its results have in common, as reductions, scans and sorting bring them to their
// kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "args/dimensions.h"
#include "runtime/Device.h"

namespace netcl {

// A dimension; strides count bytes.
struct Dim {
  int64_t size, in, out0, out1;
};
using Dims = c10::SmallVector<Dim, 8>;

// Makes one dimension of neighbours along which each operand goes on where it was. At least one dimension remains.
void merge_neighbours(Dims& dims);
// How many elements they have.
int64_t product(const Dims& dims);
// As kernels take them, at most kMaxDims.
Dimensions as_dimensions(const Dims& dims);
// A tensor that has these dimensions of an operand, by one of Dim's strides.
at::Tensor strided_view(const Device& device, const void* data, c10::ScalarType type, const Dims& dims,
                        int64_t Dim::* stride);

// Calls f with dense tensors like `a` and `b`, which may be undefined, and copies the results there.
template <class F>
void through_dense(const at::Tensor& a, const at::Tensor& b, const F& f) {
  const auto like = [](const at::Tensor& t) { return t.defined() ? at::empty(t.sizes(), t.options()) : t; };
  const at::Tensor dense_a = like(a), dense_b = like(b);
  f(dense_a, dense_b);
  a.copy_(dense_a);
  if (b.defined()) b.copy_(dense_b);
}

}  // namespace netcl
