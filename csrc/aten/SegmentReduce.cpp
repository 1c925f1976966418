// segment_reduce and its derivative. ATen checks the arguments and calls the stubs below.
#include <ATen/native/SegmentReduce.h>
#include <ATen/ops/_segment_reduce_backward_native.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/segment_reduce_native.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "args/reduce.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Rows.h"
#include "aten/support/Scalars.h"

namespace netcl {
namespace {

using at::Tensor;
using at::native::ReductionType;
using Initial = std::optional<at::Scalar>;

// The bounds of segments, (outer..., segments + 1), from their lengths.
Tensor offsets_of(const Tensor& lengths) {
  TORCH_CHECK(lengths.dim() > 0, "segment_reduce: expected lengths of at least one dimension");
  auto sizes = lengths.sizes().vec();
  sizes.back() += 1;
  Tensor offsets = at::zeros(sizes, lengths.options().dtype(at::kLong));
  Tensor ends = offsets.narrow(-1, 1, lengths.size(-1));
  at::cumsum_out(ends, lengths, -1, at::kLong);
  return offsets;
}

// A tensor as (outer, rows, inner) around the axis that is divided into segments, which is the last axis of `offsets`.
struct Segments {
  Tensor offsets;
  int64_t axis, outer = 1, rows, inner = 1, count;
  Defs defs;
  const char* op;
  Device& dev;

  Segments(const char* op, const Tensor& data, const Tensor& offsets_, ReductionType reduction)
      : offsets(offsets_.to(at::kLong).contiguous()),
        axis(at::maybe_wrap_dim(-1, offsets.dim(), /*wrap_scalar=*/false)),
        rows(data.size(axis)),
        count(offsets.size(axis) - 1),
        op(op),
        dev(netcl::device_of(data)) {
    check_floating(dev, data.scalar_type(), op);
    for (int64_t d = 0; d < axis; d++) outer *= data.size(d);
    for (int64_t d = axis + 1; d < data.dim(); d++) inner *= data.size(d);
    defs.set("IN", dtype_tag(data.scalar_type())).set("ACC", compute_tag(data.scalar_type()));
    defs.set("OP", reduction == ReductionType::MAX    ? "MAX"
                   : reduction == ReductionType::MIN  ? "MIN"
                   : reduction == ReductionType::MEAN ? "MEAN"
                   : reduction == ReductionType::PROD ? "PROD"
                                                      : "SUM");
  }
  // A work-item computes some elements of the result; in the derivative, all elements of their segments.
  int64_t per() const { return units_per_item(dev, outer * count * inner, ceil_div(rows, count), 4096); }
  Range items() const { return {size_t(ceil_div(outer * count * inner, per()))}; }
  Range local() const { return element_group(dev); }
  SegmentParams params(double start, bool given) const {
    return {outer, rows, inner, count, wide_high(start), wide_low(start), given, int32_t(per())};
  }
};

double start(ReductionType reduction, const Initial& initial, at::ScalarType type) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  if (initial.has_value()) return in_dtype(*initial, type).toDouble();
  return reduction == ReductionType::MAX    ? -inf
         : reduction == ReductionType::MIN  ? inf
         : reduction == ReductionType::PROD ? 1
                                            : 0;
}

Tensor forward(ReductionType reduction, const Tensor& data, const Tensor& offsets, const Initial& initial) {
  const Segments s("aten::segment_reduce", data, offsets, reduction);
  auto sizes = data.sizes().vec();
  sizes[s.axis] = s.count;
  Tensor out = at::empty(sizes, data.options());
  if (out.numel() == 0) return out;
  const double first = start(reduction, initial, data.scalar_type());
  kernel(s.dev, "segment_reduce.cl", "segment_reduce", s.defs)
      .launch(s.op, queue_of(out), s.items(), s.local(), buf(out), buf(data), buf(s.offsets),
              s.params(first, initial.has_value()));
  return out;
}

Tensor backward(const Tensor& grad, const Tensor& output, const Tensor& data, ReductionType reduction,
                const Tensor& offsets, const Initial& initial) {
  const Segments s("aten::_segment_reduce_backward", data, offsets, reduction);
  at::DimVector sizes(data.sizes());
  sizes[s.axis] = s.count;
  check_sizes(s.op, "grad", grad, sizes);
  check_sizes(s.op, "output", output, sizes);
  Tensor out = at::zeros(data.sizes(), grad.options());
  if (grad.numel() == 0 || out.numel() == 0) return out;
  const double first = start(reduction, initial, data.scalar_type());
  kernel(s.dev, "segment_reduce.cl", "segment_reduce_backward", s.defs)
      .launch(s.op, queue_of(out), s.items(), s.local(), buf(out), buf(grad), buf(output), buf(data), buf(s.offsets),
              s.params(first, initial.has_value()));
  return out;
}

// The stubs, for lengths and for offsets of segments.
template <bool lengths>
Tensor forward_stub(ReductionType reduction, const Tensor& data, const Tensor& t, int64_t, const Initial& initial) {
  return forward(reduction, data, lengths ? offsets_of(t) : t, initial);
}
template <bool lengths>
Tensor backward_stub(const Tensor& grad, const Tensor& output, const Tensor& data, ReductionType reduction,
                     const Tensor& t, int64_t, const Initial& initial) {
  return backward(grad, output, data, reduction, lengths ? offsets_of(t) : t, initial);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("segment_reduce", &OnOneDevice<&at::native::segment_reduce_kernel>::call);
  m.impl("_segment_reduce_backward", &OnOneDevice<&at::native::_segment_reduce_backward_kernel>::call);
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_lengths_stub, &netcl::forward_stub<true>)
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_offsets_stub, &netcl::forward_stub<false>)
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_lengths_backward_stub, &netcl::backward_stub<true>)
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_offsets_backward_stub, &netcl::backward_stub<false>)
}  // namespace at::native
