// Copies and casts within a device, between host and device, and between devices; reads of one element.
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/_copy_from.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Pointwise.h"
#include "runtime/Copies.h"
#include "runtime/OpName.h"
#include "runtime/Waits.h"

namespace netcl {

namespace {

// Whether corresponding elements lie at the same positions of one block of memory, so that a byte copy suffices.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.strides() == b.strides() ? a.is_non_overlapping_and_dense() : a.is_contiguous() && b.is_contiguous());
}

bool better_by_kernel(const at::Tensor& t) {
  return static_cast<int64_t>(t.nbytes()) >= tuning(netcl::device_of(t)).copied_bytes;
}

// The same memory as integers, if there are integers of that size. Integers need no arithmetic and no cl_khr_fp64;
// unlike complex numbers they have vectors; and one kernel serves all dtypes of a size.
at::Tensor bits(const at::Tensor& t) {
  switch (t.element_size()) {
    case 1:
      return t.view(at::kByte);
    case 2:
      return t.view(at::kShort);
    case 4:
      return t.view(at::kInt);
    case 8:
      return t.view(at::kLong);
    default:
      return t;
  }
}

void copy_within(const at::Tensor& dst, const at::Tensor& src) {
  const auto from = src.scalar_type(), to = dst.scalar_type();
  if (same_layout(dst, src) && !better_by_kernel(dst)) {
    at::assert_no_partial_overlap(dst, src);
    copy_on_device(dst.mutable_data_ptr(), src.const_data_ptr(), dst.nbytes(), queue_of(dst));
    return;
  }
  const bool moved = from == to;
  auto iter = at::TensorIteratorConfig()
                  .add_owned_output(moved ? bits(dst) : dst)
                  .add_owned_const_input(moved ? bits(src) : src)
                  .resize_outputs(false)
                  .check_all_same_dtype(false)
                  .check_all_same_device(true)
                  .build();
  std::optional<c10::ScalarType> compute;
  if (c10::isComplexType(from) && !c10::isComplexType(to)) {
    compute = to == c10::kBool ? c10::kBool : c10::toRealValueType(from);
  }
  pointwise(iter, "unary.cl", "copy", {}, compute);
}

// A tensor whose bytes can be copied as one block: dense, with any order of dimensions.
at::Tensor dense(const at::Tensor& t) { return t.is_non_overlapping_and_dense() ? t : t.contiguous(); }

void copy_from_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const at::Tensor source = dense(src.scalar_type() == dst.scalar_type() ? src : src.to(dst.scalar_type()));
  Queue& queue = queue_of(dst);
  if (same_layout(dst, source)) {
    copy_to_device(dst.mutable_data_ptr(), source.const_data_ptr(), dst.nbytes(), queue, non_blocking);
    return;
  }
  const at::Tensor staged = at::empty_strided(source.sizes(), source.strides(), source.options().device(dst.device()));
  copy_to_device(staged.mutable_data_ptr(), source.const_data_ptr(), staged.nbytes(), queue, non_blocking);
  copy_within(dst, staged);
}

void copy_from_device(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const at::Tensor source = dense(src);
  Queue& queue = queue_of(src);
  if (same_layout(dst, source)) {
    copy_to_host(dst.mutable_data_ptr(), source.const_data_ptr(), dst.nbytes(), queue, non_blocking);
    return;
  }
  const at::Tensor staged = at::empty_strided(source.sizes(), source.strides(), source.options().device(at::kCPU));
  copy_to_host(staged.mutable_data_ptr(), source.const_data_ptr(), staged.nbytes(), queue);
  dst.copy_(staged);
}

void copy_between_devices(const at::Tensor& dst, const at::Tensor& src) {
  const at::Tensor cast = dense(src.scalar_type() == dst.scalar_type() ? src : src.to(dst.scalar_type()));
  const bool direct = same_layout(dst, cast);
  const at::Tensor target =
      direct ? dst : at::empty_strided(cast.sizes(), cast.strides(), cast.options().device(dst.device()));
  copy_across(target.mutable_data_ptr(), queue_of(dst), cast.const_data_ptr(), queue_of(cast), cast.nbytes());
  if (!direct) copy_within(dst, target);
}

// Whether both are the same elements in the same order. Then nothing needs to be done, even if some share an address.
bool same_view(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) || (a.is_alias_of(b) && a.storage_offset() == b.storage_offset() && a.strides() == b.strides() &&
                          a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
                          a.is_neg() == b.is_neg());
}

// The same memory without lazy conjugation and negation. An operator that writes to a view with both bits would resolve
// the first one by a copy, which is such an operator itself, and so recurse forever.
at::Tensor plain(const at::Tensor& t) {
  const at::Tensor u = t.is_conj() ? t.conj() : t;
  return u.is_neg() ? at::_neg_view(u) : u;
}

// A copy between devices would have the bytes of the capture in each replay. What operators upload themselves depends
// on the call alone, and is part of the graph.
void check_capture(const at::Tensor& to, const at::Tensor& src) {
  const auto captures = [](const at::Tensor& t) { return t.is_privateuseone() && current_capture(t.device().index()); };
  TORCH_CHECK(!captures(to) && !captures(src), "netcl: a copy from ", src.device(), " to ", to.device(),
              " cannot be captured in a graph. Copy into a tensor that the graph reads, before replay().");
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  TORCH_CHECK(self.defined() && dst.defined(), "copy_: both tensors must be defined");
  const at::Tensor sized = self.sizes() == dst.sizes() ? self : self.expand(dst.sizes());  // or raises
  if (dst.numel() == 0 || same_view(self, dst)) return dst;
  const OpName scope("aten::copy_");
  if (self.sizes() != dst.sizes()) at::assert_no_partial_overlap(dst, self);  // expand() would hide the overlap
  // Negate before the conversion: the other dtype has other limits, and bool has no negation.
  const at::Tensor from = sized.scalar_type() == dst.scalar_type() ? sized : sized.resolve_neg();
  const bool conj = from.is_conj() != dst.is_conj(), neg = from.is_neg() != dst.is_neg();
  const at::Tensor src = plain(from);
  const at::Tensor to = plain(dst);
  if (src.device() != to.device()) check_capture(to, src);
  non_blocking = non_blocking && !conj && !neg;
  if (!to.is_privateuseone() && !to.is_cpu()) {  // another backend's device: through the host
    to.copy_(src.cpu());
  } else if (!src.is_privateuseone() && !src.is_cpu()) {
    copy_from_host(to, src.cpu(), /*non_blocking=*/false);
  } else if (!to.is_privateuseone()) {
    copy_from_device(to, src, non_blocking);
  } else if (!src.is_privateuseone()) {
    copy_from_host(to, src, non_blocking);
  } else if (src.device() == to.device()) {
    copy_within(to, src);
  } else {
    copy_between_devices(to, src);
  }
  if (conj) to.conj_physical_();
  if (neg) to.neg_();
  // What other streams read after a blocking copy is complete, and so is what an event of the source's stream stands
  // for.
  if (to.is_privateuseone() && src.device() != to.device()) {
    Queue& queue = queue_of(to);
    if (src.is_privateuseone()) {
      if (!queue.idle()) synchronize(queue);
    } else if (!non_blocking) {
      synchronize_for_others(queue);
    }
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.sizes() != self.sizes()) dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  const OpName scope("aten::_local_scalar_dense");
  const at::Tensor host = at::empty(self.sizes(), self.options().device(at::kCPU));
  copy_to_host(host.mutable_data_ptr(), self.const_data_ptr(), self.dtype().itemsize(), queue_of(self));
  return host.item();
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
}

// copy_from handles these bits itself. Resolving them first would call it again, forever.
NETCL_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
NETCL_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace

}  // namespace netcl
