// The foreach operators on lists of floating-point tensors of one dtype and layout, each in one launch. Other lists go
// to ATen's own loop over the tensors.
#include <ATen/MemoryOverlap.h>
#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_foreach_abs_native.h>
#include <ATen/ops/_foreach_add_native.h>
#include <ATen/ops/_foreach_addcdiv_native.h>
#include <ATen/ops/_foreach_addcmul_native.h>
#include <ATen/ops/_foreach_clamp_max_native.h>
#include <ATen/ops/_foreach_clamp_min_native.h>
#include <ATen/ops/_foreach_copy_native.h>
#include <ATen/ops/_foreach_div_native.h>
#include <ATen/ops/_foreach_exp_native.h>
#include <ATen/ops/_foreach_lerp_native.h>
#include <ATen/ops/_foreach_log_native.h>
#include <ATen/ops/_foreach_mul_native.h>
#include <ATen/ops/_foreach_neg_native.h>
#include <ATen/ops/_foreach_norm_native.h>
#include <ATen/ops/_foreach_pow_native.h>
#include <ATen/ops/_foreach_reciprocal_native.h>
#include <ATen/ops/_foreach_rsqrt_native.h>
#include <ATen/ops/_foreach_sqrt_native.h>
#include <ATen/ops/_foreach_sub_native.h>
#include <ATen/ops/_foreach_zero_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "aten/support/Library.h"
#include "aten/support/MultiTensor.h"
#include "aten/support/Scalars.h"

namespace netcl {
namespace {

using at::ArrayRef;
using at::Scalar;
using at::Tensor;
using at::TensorList;
using Scalars = ArrayRef<Scalar>;
using Tensors = std::vector<Tensor>;

// A device without cl_khr_fp64 stores doubles, but has no kernels for them.
bool has_kernels(const Tensor& t) {
  return t.is_privateuseone() && (t.scalar_type() != at::kDouble || netcl::device_of(t).info().has_fp64);
}

// Whether one launch can serve the lists: one floating dtype, one device, dense and alike in layout, and a result of
// that dtype. Raises for lists that PyTorch refuses.
bool native(ArrayRef<TensorList> lists, Scalars scalars = {}, bool scalar_each = false) {
  const TensorList self = lists[0];
  at::native::check_foreach_api_restrictions(self);
  for (const TensorList other : lists.slice(1)) at::native::check_foreach_api_restrictions(self, other);
  if (scalar_each) at::native::check_foreach_api_restrictions(self, scalars);
  // A bool is no number for sub(), which the loop over the tensors calls.
  if (std::any_of(scalars.begin(), scalars.end(), [](const Scalar& s) { return s.isBoolean(); })) return false;
  return has_kernels(self[0]) && at::isFloatingType(self[0].scalar_type()) &&
         at::native::check_fast_path_restrictions(lists, scalars);
}

Tensors empty_like(TensorList self) {
  Tensors out;
  out.reserve(self.size());
  for (const Tensor& t : self) out.push_back(at::empty_like(t));
  return out;
}

// out[i] = OP_<op>(in[0][i], in[1][i], …, scalar). The scalar is one for all tensors, one per tensor, or a tensor's
// element.
void map(const char* name, const char* op, TensorList out, ArrayRef<TensorList> in, Scalars scalars = {},
         const Tensor& scalar_tensor = {}) {
  const c10::DeviceGuard guard(out[0].device());
  const auto out_type = out[0].scalar_type(), in_type = in[0][0].scalar_type();
  MultiTensor tensors(name, out[0].device(), in.size() + 1, compute_type(in_type));
  c10::SmallVector<const Tensor*, 4> row(in.size() + 1);
  // Of these, the operators for one tensor convert the number to the tensor's dtype.
  constexpr std::array<std::string_view, 5> convert{"OP_maximum", "OP_minimum", "OP_pow", "OP_add_list", "OP_sub_list"};
  const bool converts = std::find(convert.begin(), convert.end(), op) != convert.end();
  for (size_t i = 0; i < out.size(); i++) {
    row[0] = &out[i];
    for (size_t k = 0; k < in.size(); k++) row[k + 1] = &in[k][i];
    const Scalar scalar = scalars.empty() ? Scalar(0) : scalars[scalars.size() == 1 ? 0 : i];
    tensors.add(out[i].numel(), row, converts ? in_dtype(scalar, in_type) : scalar);
  }
  Defs defs;
  defs.set("OP", op).set("NIN", static_cast<int64_t>(in.size()));
  defs.set("IN", dtype_tag(in_type)).set("OUT", dtype_tag(out_type));
  tensors.launch("foreach.cl", "map", defs, buf_or_null(scalar_tensor));
}

// The same for new tensors like those of in[0].
Tensors mapped(const char* name, const char* op, ArrayRef<TensorList> in, Scalars scalars = {},
               const Tensor& scalar_tensor = {}) {
  Tensors out = empty_like(in[0]);
  map(name, op, out, in, scalars, scalar_tensor);
  return out;
}

// Autograd has no wrapper for operators that return nothing, so these increment the version themselves.
void increment_version(TensorList tensors) {
  for (const Tensor& t : tensors) t.unsafeGetTensorImpl()->bump_version();
}

const void* storage_of(const Tensor& t) { return t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(); }

void map_(const char* name, const char* op, TensorList self, ArrayRef<TensorList> in, Scalars scalars = {},
          const Tensor& scalar_tensor = {}) {
  for (const TensorList list : in) {
    if (list.data() == self.data()) continue;
    for (size_t i = 0; i < self.size(); i++) {
      if (storage_of(self[i]) == storage_of(list[i])) at::assert_no_partial_overlap(self[i], list[i]);
    }
  }
  map(name, op, self, in, scalars, scalar_tensor);
  increment_version(self);
}

// --- one input --------------------------------------------------------------------------------------------

#define NETCL_FOREACH_UNARY(op)                                                \
  Tensors op(TensorList self) {                                                \
    if (!native({self})) return at::native::foreach_tensor_##op##_slow(self);  \
    return mapped("aten::_foreach_" #op, "OP_" #op, {self});                   \
  }                                                                            \
  void op##_(TensorList self) {                                                \
    if (!native({self})) return at::native::foreach_tensor_##op##_slow_(self); \
    map_("aten::_foreach_" #op "_", "OP_" #op, self, {self});                  \
  }
NETCL_FOREACH_UNARY(abs)
NETCL_FOREACH_UNARY(exp)
NETCL_FOREACH_UNARY(log)
NETCL_FOREACH_UNARY(neg)
NETCL_FOREACH_UNARY(reciprocal)
NETCL_FOREACH_UNARY(rsqrt)
NETCL_FOREACH_UNARY(sqrt)

// --- a list and scalars -----------------------------------------------------------------------------------

// `aten` is the operator's name in ATen's functions, `op` the one in foreach.cl and in the schema.
#define NETCL_FOREACH_SCALAR(op, aten)                                                                         \
  Tensors op##_scalar(TensorList self, const Scalar& s) {                                                      \
    if (!native({self}, s)) return at::native::foreach_tensor_##aten##_scalar_kernel_slow(self, s);            \
    return mapped("aten::_foreach_" #op, "OP_" #op, {self}, s);                                                \
  }                                                                                                            \
  void op##_scalar_(TensorList self, const Scalar& s) {                                                        \
    if (!native({self}, s)) return at::native::foreach_tensor_##aten##_scalar_kernel_slow_(self, s);           \
    map_("aten::_foreach_" #op "_", "OP_" #op, self, {self}, s);                                               \
  }                                                                                                            \
  Tensors op##_scalars(TensorList self, Scalars s) {                                                           \
    if (!native({self}, s, true)) return at::native::foreach_tensor_##aten##_scalarlist_kernel_slow(self, s);  \
    return mapped("aten::_foreach_" #op, "OP_" #op, {self}, s);                                                \
  }                                                                                                            \
  void op##_scalars_(TensorList self, Scalars s) {                                                             \
    if (!native({self}, s, true)) return at::native::foreach_tensor_##aten##_scalarlist_kernel_slow_(self, s); \
    map_("aten::_foreach_" #op "_", "OP_" #op, self, {self}, s);                                               \
  }
NETCL_FOREACH_SCALAR(add, add)
NETCL_FOREACH_SCALAR(sub, sub)
NETCL_FOREACH_SCALAR(mul, mul)
NETCL_FOREACH_SCALAR(div, div)
NETCL_FOREACH_SCALAR(pow, pow)
NETCL_FOREACH_SCALAR(maximum, clamp_min)
NETCL_FOREACH_SCALAR(minimum, clamp_max)

// scalar ** tensors
Tensors pow_of(const Scalar& self, TensorList exponent) {
  if (!native({exponent}, self)) return at::native::foreach_scalar_pow_list_kernel_slow(self, exponent);
  return mapped("aten::_foreach_pow", "OP_pow_of", {exponent}, self);
}

// --- two lists --------------------------------------------------------------------------------------------

#define NETCL_FOREACH_LIST(op, aten)                                                                       \
  Tensors op##_list(TensorList self, TensorList other) {                                                   \
    if (!native({self, other})) return at::native::foreach_tensor_##aten##_list_kernel_slow(self, other);  \
    return mapped("aten::_foreach_" #op, "OP_" #op "_list", {self, other});                                \
  }                                                                                                        \
  void op##_list_(TensorList self, TensorList other) {                                                     \
    if (!native({self, other})) return at::native::foreach_tensor_##aten##_list_kernel_slow_(self, other); \
    map_("aten::_foreach_" #op "_", "OP_" #op "_list", self, {self, other});                               \
  }
NETCL_FOREACH_LIST(mul, mul)
NETCL_FOREACH_LIST(div, div)
NETCL_FOREACH_LIST(pow, pow)
NETCL_FOREACH_LIST(maximum, clamp_min)
NETCL_FOREACH_LIST(minimum, clamp_max)

#define NETCL_FOREACH_LIST_ALPHA(op)                                                                                   \
  Tensors op##_list(TensorList self, TensorList other, const Scalar& alpha) {                                          \
    if (!native({self, other}, alpha)) return at::native::foreach_tensor_##op##_list_kernel_slow(self, other, alpha);  \
    return mapped("aten::_foreach_" #op, "OP_" #op "_list", {self, other}, alpha);                                     \
  }                                                                                                                    \
  void op##_list_(TensorList self, TensorList other, const Scalar& alpha) {                                            \
    if (!native({self, other}, alpha)) return at::native::foreach_tensor_##op##_list_kernel_slow_(self, other, alpha); \
    map_("aten::_foreach_" #op "_", "OP_" #op "_list", self, {self, other}, alpha);                                    \
  }
NETCL_FOREACH_LIST_ALPHA(add)
NETCL_FOREACH_LIST_ALPHA(sub)

// --- a list and a tensor of one element ---------------------------------------------------------------------

// Whether map() can take `other`, a tensor of one element on the device, as the scalar.
bool native_with(TensorList self, const Tensor& other) {
  return native({self}) && other.numel() == 1 && other.dim() == 0 && other.device() == self[0].device() &&
         other.scalar_type() == self[0].scalar_type();
}

#define NETCL_FOREACH_TENSOR(op)                                                                              \
  Tensors op##_tensor(TensorList self, const Tensor& other) {                                                 \
    if (!native_with(self, other)) return at::native::foreach_tensor_##op##_tensor_kernel_slow(self, other);  \
    return mapped("aten::_foreach_" #op, "OP_" #op, {self}, {}, other);                                       \
  }                                                                                                           \
  void op##_tensor_(TensorList self, const Tensor& other) {                                                   \
    if (!native_with(self, other)) return at::native::foreach_tensor_##op##_tensor_kernel_slow_(self, other); \
    map_("aten::_foreach_" #op "_", "OP_" #op, self, {self}, {}, other);                                      \
  }
NETCL_FOREACH_TENSOR(mul)
NETCL_FOREACH_TENSOR(div)

// --- three lists --------------------------------------------------------------------------------------------

#define NETCL_FOREACH_POINTWISE(op)                                                                               \
  Tensors op##_scalar(TensorList self, TensorList a, TensorList b, const Scalar& s) {                             \
    if (!native({self, a, b}, s)) return at::native::foreach_tensor_##op##_scalar_slow(self, a, b, s);            \
    return mapped("aten::_foreach_" #op, "OP_" #op, {self, a, b}, s);                                             \
  }                                                                                                               \
  void op##_scalar_(TensorList self, TensorList a, TensorList b, const Scalar& s) {                               \
    if (!native({self, a, b}, s)) return at::native::foreach_tensor_##op##_scalar_slow_(self, a, b, s);           \
    map_("aten::_foreach_" #op "_", "OP_" #op, self, {self, a, b}, s);                                            \
  }                                                                                                               \
  Tensors op##_scalars(TensorList self, TensorList a, TensorList b, Scalars s) {                                  \
    if (!native({self, a, b}, s, true)) return at::native::foreach_tensor_##op##_scalarlist_slow(self, a, b, s);  \
    return mapped("aten::_foreach_" #op, "OP_" #op, {self, a, b}, s);                                             \
  }                                                                                                               \
  void op##_scalars_(TensorList self, TensorList a, TensorList b, Scalars s) {                                    \
    if (!native({self, a, b}, s, true)) return at::native::foreach_tensor_##op##_scalarlist_slow_(self, a, b, s); \
    map_("aten::_foreach_" #op "_", "OP_" #op, self, {self, a, b}, s);                                            \
  }
#define NETCL_FOREACH_POINTWISE_TENSOR(op)                                                      \
  Tensors op##_tensor(TensorList self, TensorList a, TensorList b, const Tensor& s) {           \
    return op##_scalars(self, a, b, at::native::convert_tensor_to_scalar_list(s, self.size())); \
  }                                                                                             \
  void op##_tensor_(TensorList self, TensorList a, TensorList b, const Tensor& s) {             \
    op##_scalars_(self, a, b, at::native::convert_tensor_to_scalar_list(s, self.size()));       \
  }
NETCL_FOREACH_POINTWISE(addcmul)
NETCL_FOREACH_POINTWISE_TENSOR(addcmul)
NETCL_FOREACH_POINTWISE(addcdiv)
NETCL_FOREACH_POINTWISE_TENSOR(addcdiv)

Tensors lerp_list(TensorList self, TensorList end, TensorList weight) {
  if (!native({self, end, weight})) return at::native::foreach_tensor_ternary_lerp_slow(self, end, weight);
  return mapped("aten::_foreach_lerp", "OP_lerp_list", {self, end, weight});
}
void lerp_list_(TensorList self, TensorList end, TensorList weight) {
  if (!native({self, end, weight})) return at::native::foreach_tensor_ternary_lerp_slow_(self, end, weight);
  map_("aten::_foreach_lerp_", "OP_lerp_list", self, {self, end, weight});
}
Tensors lerp_scalar(TensorList self, TensorList end, const Scalar& s) {
  if (!native({self, end}, s)) return at::native::foreach_tensor_lerp_list_kernel_slow(self, end, s);
  return mapped("aten::_foreach_lerp", "OP_lerp", {self, end}, s);
}
void lerp_scalar_(TensorList self, TensorList end, const Scalar& s) {
  if (!native({self, end}, s)) return at::native::foreach_tensor_lerp_list_kernel_slow_(self, end, s);
  map_("aten::_foreach_lerp_", "OP_lerp", self, {self, end}, s);
}
Tensors lerp_scalars(TensorList self, TensorList end, Scalars s) {
  if (!native({self, end}, s, true)) return at::native::foreach_tensor_lerp_scalarlist_kernel_slow(self, end, s);
  return mapped("aten::_foreach_lerp", "OP_lerp", {self, end}, s);
}
void lerp_scalars_(TensorList self, TensorList end, Scalars s) {
  if (!native({self, end}, s, true)) return at::native::foreach_tensor_lerp_scalarlist_kernel_slow_(self, end, s);
  map_("aten::_foreach_lerp_", "OP_lerp", self, {self, end}, s);
}

// --- copy, zero, norm ---------------------------------------------------------------------------------------

void copy_(TensorList self, TensorList src, bool non_blocking) {
  at::native::check_foreach_api_restrictions(self, src);
  const auto to = self[0].scalar_type(), from = src[0].scalar_type();
  const bool one_launch =
      has_kernels(self[0]) && has_kernels(src[0]) && self[0].device() == src[0].device() &&
      at::native::check_fast_path_restrictions({self}) && at::native::check_fast_path_restrictions({src}) &&
      at::native::_check_tensors_share_sizes_and_strides({self, src}) &&
      (to == from || (at::isFloatingType(to) && at::isFloatingType(from))) && !at::isComplexType(to);
  if (!one_launch) return at::native::foreach_tensor_copy_list_kernel_slow_(self, src, non_blocking);
  map_("aten::_foreach_copy_", "OP_copy", self, {src});
}

void zero_(TensorList self) {
  at::native::check_foreach_api_restrictions(self);
  const auto type = self[0].scalar_type();
  if (!has_kernels(self[0]) || at::isComplexType(type) || !at::native::check_fast_path_restrictions({self})) {
    return at::native::foreach_tensor_zero_slow_(self);
  }
  map_("aten::_foreach_zero_", "OP_zero", self, {self});
}

Tensors norm(TensorList self, const Scalar& ord, std::optional<at::ScalarType> dtype) {
  const double p = ord.isIntegral(false)   ? static_cast<double>(ord.to<int64_t>())
                   : ord.isFloatingPoint() ? ord.to<double>()
                                           : -1;
  const bool infinite = p == std::numeric_limits<double>::infinity();
  const bool one_launch = native({self}) && (p == 1 || p == 2 || infinite) &&
                          (!dtype || *dtype == self[0].scalar_type()) &&
                          // For an empty tensor, the maximum is an error; ATen raises it.
                          !(infinite && std::any_of(self.begin(), self.end(), [](auto& t) { return !t.numel(); }));
  if (!one_launch) return at::native::foreach_tensor_norm_slow(self, ord, dtype);
  constexpr const char* kOp = "aten::_foreach_norm";
  const c10::DeviceGuard guard(self[0].device());
  const auto type = self[0].scalar_type(), compute = compute_type(type);
  MultiTensor tensors(kOp, self[0].device(), 2, compute);
  Tensors out;
  out.reserve(self.size());
  for (const Tensor& t : self) {
    out.push_back(at::empty({}, t.options()));
    const Tensor* row[] = {&out.back(), &t};
    tensors.add(t.numel(), row, 0, /*keep_empty=*/true);
  }
  const Tensor partial = at::empty({std::max<int64_t>(tensors.chunks(), 1)}, self[0].options().dtype(compute));
  Defs defs;
  defs.set("IN", dtype_tag(type)).set("OUT", dtype_tag(type)).set("OP", infinite ? "linf" : p == 1 ? "l1" : "l2");
  tensors.launch("foreach.cl", "norm_chunks", defs, buf(partial));
  tensors.launch_rows("foreach.cl", "norm_rows", defs, buf(partial));
  return out;
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define NETCL_UNARY(op)         \
  m.impl("_foreach_" #op, &op); \
  m.impl("_foreach_" #op "_", &op##_);
  NETCL_UNARY(abs)
  NETCL_UNARY(exp)
  NETCL_UNARY(log)
  NETCL_UNARY(neg)
  NETCL_UNARY(reciprocal)
  NETCL_UNARY(rsqrt)
  NETCL_UNARY(sqrt)
#undef NETCL_UNARY

#define NETCL_FORMS(name, overload, form)                  \
  m.impl("_foreach_" #name "." #overload, &name##_##form); \
  m.impl("_foreach_" #name "_." #overload, &name##_##form##_);
#define NETCL_BINARY(name)               \
  NETCL_FORMS(name, Scalar, scalar)      \
  NETCL_FORMS(name, ScalarList, scalars) \
  NETCL_FORMS(name, List, list)
  NETCL_BINARY(add)
  NETCL_BINARY(sub)
  NETCL_BINARY(mul)
  NETCL_BINARY(div)
  NETCL_BINARY(pow)
  NETCL_BINARY(maximum)
  NETCL_BINARY(minimum)
  NETCL_BINARY(lerp)
#undef NETCL_BINARY
  NETCL_FORMS(mul, Tensor, tensor)
  NETCL_FORMS(div, Tensor, tensor)
  NETCL_FORMS(addcmul, Scalar, scalar)
  NETCL_FORMS(addcmul, ScalarList, scalars)
  NETCL_FORMS(addcmul, Tensor, tensor)
  NETCL_FORMS(addcdiv, Scalar, scalar)
  NETCL_FORMS(addcdiv, ScalarList, scalars)
  NETCL_FORMS(addcdiv, Tensor, tensor)
  // The same functions under other names.
  m.impl("_foreach_clamp_min.Scalar", &maximum_scalar);
  m.impl("_foreach_clamp_min_.Scalar", &maximum_scalar_);
  m.impl("_foreach_clamp_max.Scalar", &minimum_scalar);
  m.impl("_foreach_clamp_max_.Scalar", &minimum_scalar_);
#undef NETCL_FORMS
  m.impl("_foreach_pow.ScalarAndTensor", &pow_of);
  m.impl("_foreach_copy_", &copy_);
  m.impl("_foreach_zero_", &zero_);
  m.impl("_foreach_norm.Scalar", &norm);
}

}  // namespace
}  // namespace netcl
