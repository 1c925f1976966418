// gather, scatter and their reductions. ATen's structured classes check shapes and dtypes and call these stubs.
#include <ATen/core/Tensor.h>  // first, since other headers of ATen rely on its includes

#include <ATen/NativeFunctions.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/ops/scatter_reduce.h>

#include "aten/support/IndexSpace.h"
#include "aten/support/Library.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::Tensor;

// The space of `index`, which selects along dimension `dim` of the operand `looked_up`.
void look_up(IndexSpace& space, const Tensor& looked_up, int64_t dim, const Tensor& index) {
  space.index(index.const_data_ptr(), index.strides(), index.scalar_type(), looked_up.size(dim),
              looked_up.stride(dim) * looked_up.itemsize());
}

void gather_kernel(const Tensor& result_, const Tensor& self_, int64_t dim, const Tensor& index_) {
  const Tensor result = at_least_1d(result_), self = at_least_1d(self_), index = at_least_1d(index_);
  IndexSpace space("aten::gather");
  space.shape(index.sizes());
  space.destination(result.data_ptr(), result.strides(), result.itemsize());
  space.source(self.const_data_ptr(), strides_without(self, dim), self.itemsize());
  look_up(space, self, dim, index);
  space.gather(netcl::device_of(result), result.itemsize());
}

// If `src` is undefined, a scalar is written.
IndexSpace scatter_space(const char* op, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  IndexSpace space(op);
  space.shape(index.sizes());
  space.destination(self.data_ptr(), strides_without(self, dim), self.itemsize());
  if (src.defined()) space.source(src.const_data_ptr(), src.strides(), src.itemsize());
  look_up(space, self, dim, index);
  space.conflicts_along(dim);
  return space;
}

void scatter_kernel(const Tensor& self_, int64_t dim, const Tensor& index_, const Tensor& src_) {
  const Tensor self = at_least_1d(self_), index = at_least_1d(index_), src = at_least_1d(src_);
  scatter_space("aten::scatter", self, dim, index, src).scatter(netcl::device_of(self), self.itemsize());
}

void scatter_fill_kernel(const Tensor& self_, int64_t dim, const Tensor& index_, const at::Scalar& value) {
  const Tensor self = at_least_1d(self_), index = at_least_1d(index_);
  scatter_space("aten::scatter", self, dim, index, {})
      .fill(netcl::device_of(self), self.itemsize(), scalar_bits(value, self.scalar_type()));
}

const char* reduction_name(const at::native::ReductionType& type) {
  switch (type) {
    case at::native::ReductionType::SUM:
    case at::native::ReductionType::MEAN:  // ATen divides by the counts afterwards
      return "sum";
    case at::native::ReductionType::PROD:
      return "prod";
    case at::native::ReductionType::MAX:
      return "amax";
    case at::native::ReductionType::MIN:
      return "amin";
  }
  return "sum";
}

void scatter_add_kernel(const Tensor& self_, int64_t dim, const Tensor& index_, const Tensor& src_) {
  const Tensor self = at_least_1d(self_), index = at_least_1d(index_), src = at_least_1d(src_);
  scatter_space("aten::scatter_add", self, dim, index, src)
      .reduce(netcl::device_of(self), self.scalar_type(), "sum", 1);
}

void scatter_reduce_kernel(const Tensor& self_, const int64_t dim, const Tensor& index_, const Tensor& src_,
                           const at::native::ReductionType& reduce) {
  const Tensor self = at_least_1d(self_), index = at_least_1d(index_), src = at_least_1d(src_);
  scatter_space("aten::scatter_reduce", self, dim, index, src)
      .reduce(netcl::device_of(self), self.scalar_type(), reduction_name(reduce), 1);
}

void scatter_scalar_reduce_kernel(const Tensor& self_, const int64_t dim, const Tensor& index_, const at::Scalar& value,
                                  const at::native::ReductionType& reduce) {
  const Tensor self = at_least_1d(self_), index = at_least_1d(index_);
  scatter_space("aten::scatter", self, dim, index, {})
      .reduce(netcl::device_of(self), self.scalar_type(), reduction_name(reduce), value, /*fill=*/true);
}

// ATen divides a rounded sum by a rounded count.
struct ScatterReduce : at::native::structured_scatter_reduce_two {
  void impl(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, c10::string_view reduce,
            bool include_self, const Tensor& out) {
    const auto wide = compute_type(self.scalar_type());
    if (reduce != "mean" || wide == self.scalar_type() || !at::isFloatingType(self.scalar_type())) {
      return at::native::structured_scatter_reduce_two::impl(self, dim, index, src, reduce, include_self, out);
    }
    out.copy_(at::scatter_reduce(self.to(wide), dim, index, src.to(wide), reduce, include_self));
  }
};

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace at::native;
  structured<structured_gather_out>(m, "gather", nullptr, "gather.out");
  structured<structured_scatter_src_out>(m, "scatter.src", "scatter_.src", "scatter.src_out");
  structured<structured_scatter_value_out>(m, "scatter.value", "scatter_.value", "scatter.value_out");
  structured<structured_scatter_reduce_out>(m, "scatter.reduce", "scatter_.reduce", "scatter.reduce_out");
  structured<structured_scatter_value_reduce_out>(m, "scatter.value_reduce", "scatter_.value_reduce",
                                                  "scatter.value_reduce_out");
  structured<structured_scatter_add>(m, "scatter_add", "scatter_add_", "scatter_add.out");
  structured<ScatterReduce>(m, "scatter_reduce.two", "scatter_reduce_.two", "scatter_reduce.two_out");
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(gather_stub, &netcl::gather_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_stub, &netcl::scatter_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_fill_stub, &netcl::scatter_fill_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_add_stub, &netcl::scatter_add_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_reduce_stub, &netcl::scatter_reduce_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_reduce_two_stub, &netcl::scatter_reduce_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_scalar_reduce_stub, &netcl::scatter_scalar_reduce_kernel)
}  // namespace at::native
