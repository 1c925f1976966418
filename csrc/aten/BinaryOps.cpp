// Element-wise operators of two and three tensors. Each has its name here, in one line, and its expression in binary.cl
// or ternary.cl.
#include <ATen/native/BinaryOps.h>
#include <ATen/native/Cross.h>
#include <ATen/native/Lerp.h>
#include <ATen/native/PointwiseOps.h>
#include <ATen/native/Pow.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/ops/_add_relu_native.h>
#include <ATen/ops/add_meta.h>
#include <ATen/ops/addcdiv_native.h>
#include <ATen/ops/addcmul_native.h>
#include <ATen/ops/atan2_native.h>
#include <ATen/ops/bitwise_and_native.h>
#include <ATen/ops/bitwise_left_shift_native.h>
#include <ATen/ops/bitwise_or_native.h>
#include <ATen/ops/bitwise_right_shift_native.h>
#include <ATen/ops/bitwise_xor_native.h>
#include <ATen/ops/clamp_max_native.h>
#include <ATen/ops/clamp_min_native.h>
#include <ATen/ops/clamp_native.h>
#include <ATen/ops/copysign_native.h>
#include <ATen/ops/div_native.h>
#include <ATen/ops/eq_native.h>
#include <ATen/ops/floor_divide_native.h>
#include <ATen/ops/fmax_native.h>
#include <ATen/ops/fmin_native.h>
#include <ATen/ops/fmod_native.h>
#include <ATen/ops/gcd_native.h>
#include <ATen/ops/ge_native.h>
#include <ATen/ops/gt_native.h>
#include <ATen/ops/heaviside_native.h>
#include <ATen/ops/hypot_native.h>
#include <ATen/ops/lcm_native.h>
#include <ATen/ops/le_native.h>
#include <ATen/ops/lerp_native.h>
#include <ATen/ops/linalg_cross_native.h>
#include <ATen/ops/logaddexp2_native.h>
#include <ATen/ops/logaddexp_native.h>
#include <ATen/ops/logical_and_native.h>
#include <ATen/ops/logical_or_native.h>
#include <ATen/ops/logical_xor_native.h>
#include <ATen/ops/lshift_native.h>
#include <ATen/ops/lt_native.h>
#include <ATen/ops/maximum_native.h>
#include <ATen/ops/minimum_native.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/ne_native.h>
#include <ATen/ops/nextafter_native.h>
#include <ATen/ops/pow_native.h>
#include <ATen/ops/remainder_native.h>
#include <ATen/ops/rshift_native.h>
#include <ATen/ops/rsub_native.h>
#include <ATen/ops/special_xlog1py_native.h>
#include <ATen/ops/sub_native.h>
#include <ATen/ops/where_native.h>
#include <ATen/ops/xlogy_native.h>

#include "aten/support/Dtypes.h"
#include "aten/support/Library.h"
#include "aten/support/Pointwise.h"
#include "aten/support/Scalars.h"
#include "aten/support/Structured.h"

// Structured operators with the overload Tensor and an in-place form.
#define NETCL_BINARY_OPS(_) \
  _(mul)                    \
  _(div)
// The same, but out= is the overload Tensor_out.
#define NETCL_BINARY_OPS_TENSOR_OUT(_) \
  _(remainder)                         \
  _(fmod)                              \
  _(bitwise_and)                       \
  _(bitwise_or)                        \
  _(bitwise_xor)                       \
  _(bitwise_left_shift)                \
  _(bitwise_right_shift)

// Structured operators without overload names: some have an in-place form, the others only functional and out.
#define NETCL_BINARY_OPS_PLAIN(_) \
  _(atan2)                        \
  _(gcd)                          \
  _(heaviside)                    \
  _(hypot)                        \
  _(lcm)                          \
  _(nextafter)
#define NETCL_BINARY_OPS_NO_INPLACE(_) \
  _(fmax)                              \
  _(fmin)                              \
  _(logaddexp)                         \
  _(logaddexp2)                        \
  _(maximum)                           \
  _(minimum)

// Comparisons: structured operators with the overloads Tensor and Scalar.
#define NETCL_COMPARISONS(_) \
  _(eq)                      \
  _(ne)                      \
  _(lt)                      \
  _(le)                      \
  _(gt)                      \
  _(ge)

// Not structured: CPU and CUDA share ATen's <op>_out.
#define NETCL_LOGICAL_OPS(_) \
  _(logical_and)             \
  _(logical_or)              \
  _(logical_xor)

// Stubs without scalars, by the names of their expressions in binary.cl.
#define NETCL_BINARY_STUBS(_) \
  _(mul)                      \
  _(div_true)                 \
  _(div_floor)                \
  _(div_trunc)                \
  _(remainder)                \
  _(fmod)                     \
  _(bitwise_and)              \
  _(bitwise_or)               \
  _(bitwise_xor)              \
  _(lshift)                   \
  _(rshift)                   \
  _(atan2)                    \
  _(gcd)                      \
  _(lcm)                      \
  _(hypot)                    \
  _(nextafter)                \
  _(heaviside)                \
  _(copysign)                 \
  _(xlogy)                    \
  _(xlog1py)                  \
  _(fmax)                     \
  _(fmin)                     \
  _(maximum)                  \
  _(minimum)                  \
  _(logaddexp)                \
  _(logaddexp2)               \
  _(pow_tensor_tensor)        \
  _(sigmoid_backward)         \
  _(tanh_backward)            \
  _(mse)                      \
  NETCL_COMPARISONS(_)

namespace netcl {

namespace {

using at::Scalar;
using at::Tensor;
using at::TensorIterator;
using at::TensorIteratorBase;

// ATen generates add's class for CPU and CUDA (ufunc), so this one is ours; sub's class calls add_stub.
struct Add : at::meta::structured_add_Tensor {
  void impl(const Tensor&, const Tensor&, const Scalar& alpha, const Tensor&) {
    pointwise(*this, "binary.cl", "add", in_dtype(alpha, common_dtype()));
  }
};

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<Add>(m, "add.Tensor", "add_.Tensor", "add.out");
  structured<at::native::structured_sub_out>(m, "sub.Tensor", "sub_.Tensor", "sub.out");
#define NETCL_IMPL(op) structured<at::native::structured_##op##_out>(m, #op ".Tensor", #op "_.Tensor", #op ".out");
  NETCL_BINARY_OPS(NETCL_IMPL)
#undef NETCL_IMPL
#define NETCL_IMPL(op) \
  structured<at::native::structured_##op##_out>(m, #op ".Tensor", #op "_.Tensor", #op ".Tensor_out");
  NETCL_BINARY_OPS_TENSOR_OUT(NETCL_IMPL)
#undef NETCL_IMPL
#define NETCL_IMPL(op) structured<at::native::structured_##op##_out>(m, #op, #op "_", #op ".out");
  NETCL_BINARY_OPS_PLAIN(NETCL_IMPL)
#undef NETCL_IMPL
#define NETCL_IMPL(op) structured<at::native::structured_##op##_out>(m, #op, nullptr, #op ".out");
  NETCL_BINARY_OPS_NO_INPLACE(NETCL_IMPL)
  NETCL_IMPL(special_xlog1py)
#undef NETCL_IMPL
#define NETCL_IMPL(op)                                                                                       \
  structured<at::native::structured_##op##_Tensor_out>(m, #op ".Tensor", #op "_.Tensor", #op ".Tensor_out"); \
  structured<at::native::structured_##op##_Scalar_out>(m, #op ".Scalar", #op "_.Scalar", #op ".Scalar_out");
  NETCL_COMPARISONS(NETCL_IMPL)
#undef NETCL_IMPL
#define NETCL_IMPL(op) m.impl(#op ".out", &at::native::op##_out);
  NETCL_LOGICAL_OPS(NETCL_IMPL)
#undef NETCL_IMPL
  // Python's << and >>.
#define NETCL_IMPL(op)                                                                                         \
  m.impl("__" #op "__.Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::native::__##op##__)); \
  m.impl("__" #op "__.Scalar", static_cast<Tensor (*)(const Tensor&, const Scalar&)>(at::native::__##op##__)); \
  m.impl("__i" #op "__.Tensor", static_cast<Tensor& (*)(Tensor&, const Tensor&)>(at::native::__i##op##__));    \
  m.impl("__i" #op "__.Scalar", static_cast<Tensor& (*)(Tensor&, const Scalar&)>(at::native::__i##op##__));
  NETCL_IMPL(lshift)
  NETCL_IMPL(rshift)
#undef NETCL_IMPL
  structured<at::native::structured_div_out_mode>(m, "div.Tensor_mode", "div_.Tensor_mode", "div.out_mode");
  structured<at::native::structured_xlogy_out>(m, "xlogy.Tensor", "xlogy_.Tensor", "xlogy.OutTensor");
  structured<at::native::structured_copysign_out>(m, "copysign.Tensor", "copysign_.Tensor", "copysign.out");
  structured<at::native::structured_pow_Tensor_Tensor_out>(m, "pow.Tensor_Tensor", "pow_.Tensor",
                                                           "pow.Tensor_Tensor_out");
  structured<at::native::structured_pow_Tensor_Scalar_out>(m, "pow.Tensor_Scalar", "pow_.Scalar",
                                                           "pow.Tensor_Scalar_out");
  structured<at::native::structured_pow_Scalar_out>(m, "pow.Scalar", nullptr, "pow.Scalar_out");
  structured<at::native::structured_clamp_Tensor_out>(m, "clamp.Tensor", "clamp_.Tensor", "clamp.Tensor_out");
  structured<at::native::structured_clamp_min_Tensor_out>(m, "clamp_min.Tensor", "clamp_min_.Tensor",
                                                          "clamp_min.Tensor_out");
  structured<at::native::structured_clamp_max_Tensor_out>(m, "clamp_max.Tensor", "clamp_max_.Tensor",
                                                          "clamp_max.Tensor_out");
  structured<at::native::structured_lerp_Scalar>(m, "lerp.Scalar", "lerp_.Scalar", "lerp.Scalar_out");
  structured<at::native::structured_lerp_Tensor>(m, "lerp.Tensor", "lerp_.Tensor", "lerp.Tensor_out");
  structured<at::native::structured_addcmul_out>(m, "addcmul", "addcmul_", "addcmul.out");
  structured<at::native::structured_addcdiv_out>(m, "addcdiv", "addcdiv_", "addcdiv.out");
  structured<at::native::structured_linalg_cross_out>(m, "linalg_cross", nullptr, "linalg_cross.out");
  m.impl("floor_divide", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(at::native::floor_divide));
  m.impl("floor_divide_.Tensor", static_cast<Tensor& (*)(Tensor&, const Tensor&)>(at::native::floor_divide_));
  m.impl("floor_divide.out", &at::native::floor_divide_out);
  m.impl("_add_relu.Tensor",
         static_cast<Tensor (*)(const Tensor&, const Tensor&, const Scalar&)>(at::native::add_relu));
  m.impl("_add_relu_.Tensor", static_cast<Tensor& (*)(Tensor&, const Tensor&, const Scalar&)>(at::native::add_relu_));
  m.impl("_add_relu.Scalar",
         static_cast<Tensor (*)(const Tensor&, const Scalar&, const Scalar&)>(at::native::add_relu));
  m.impl("_add_relu_.Scalar", static_cast<Tensor& (*)(Tensor&, const Scalar&, const Scalar&)>(at::native::add_relu_));
  m.impl("_add_relu.out", &at::native::add_relu_out);
  m.impl("remainder.Scalar_Tensor", static_cast<Tensor (*)(const Scalar&, const Tensor&)>(at::native::remainder));
  m.impl("rsub.Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&, const Scalar&)>(at::native::rsub));
  m.impl("where.self", static_cast<Tensor (*)(const Tensor&, const Tensor&, const Tensor&)>(at::native::where));
  m.impl("where.self_out", &at::native::where_self_out);
}

void add_kernel(TensorIteratorBase& iter, const Scalar& alpha) {
  pointwise(iter, "binary.cl", "add", in_dtype(alpha, iter.common_dtype()));
}
void add_clamp_kernel(TensorIterator& iter, const Scalar& alpha, const Scalar& min, const Scalar& max) {
  const auto type = iter.common_dtype();
  pointwise(iter, "binary.cl", "add_clamp", {in_dtype(alpha, type), in_dtype(min, type), in_dtype(max, type)});
}
void clamp_tensor_kernel(TensorIteratorBase& iter) { pointwise(iter, "ternary.cl", "clamp_tensor"); }
void where_kernel(TensorIterator& iter) {  // the condition is read as the common dtype, and e8m0 has no 0
  const auto type = iter.dtype(0);
  pointwise(iter, "ternary.cl", "where", {}, type == at::kFloat8_e8m0fnu ? at::kFloat : type);
}
void addcmul_kernel(TensorIteratorBase& iter, const Scalar& value) {
  pointwise(iter, "ternary.cl", "addcmul", in_dtype(value, compute_type(iter.common_dtype())));
}
void addcdiv_kernel(TensorIteratorBase& iter, const Scalar& value) { pointwise(iter, "ternary.cl", "addcdiv", value); }
void lerp_scalar_kernel(TensorIteratorBase& iter, const Scalar& weight) {
  pointwise(iter, "binary.cl", "lerp_scalar", weight);
}
void lerp_tensor_kernel(TensorIteratorBase& iter) { pointwise(iter, "ternary.cl", "lerp_tensor"); }

// Common exponents do not need pow. CPU and CUDA do not check a float's exponent.
void pow_scalar_kernel(TensorIteratorBase& iter, const Scalar& number) {
  const auto type = iter.common_dtype();
  const Scalar exponent = type == at::kFloat ? as_element(number, type) : in_dtype(number, type);
  const bool floating = c10::isFloatingType(type);
  const auto is = [&](double value) { return !exponent.isComplex() && exponent.toDouble() == value; };
  const char* op = is(2)                  ? "square"
                   : is(3)                ? "cube"
                   : floating && is(0.5)  ? "sqrt"
                   : floating && is(-0.5) ? "rsqrt"
                   : floating && is(-1)   ? "reciprocal"
                   : floating && is(-2)   ? "inverse_square"
                                          : nullptr;
  if (op) {
    pointwise(iter, "unary.cl", op);
  } else if (floating || c10::isComplexType(type)) {
    pointwise(iter, "unary.cl", "pow_scalar", exponent);
  } else {
    pointwise(iter, "unary.cl", "pow_scalar_int", exponent);
  }
}

// Computes one coordinate of the product at a time; `dim` has size three.
void cross_kernel(const Tensor& result, const Tensor& a, const Tensor& b, int64_t dim) {
  for (int64_t i = 0; i < 3; i++) {
    const int64_t j = (i + 1) % 3, k = (i + 2) % 3;
    const Tensor out = result.select(dim, i);
    auto iter = at::TensorIteratorConfig()
                    .add_output(out)
                    .add_owned_const_input(a.select(dim, j))
                    .add_owned_const_input(b.select(dim, k))
                    .add_owned_const_input(a.select(dim, k))
                    .add_owned_const_input(b.select(dim, j))
                    .resize_outputs(false)
                    .build();
    pointwise(iter, "ternary.cl", "cross");
  }
}

void mse_backward_kernel(TensorIterator& iter, const Scalar& value) {
  pointwise(iter, "ternary.cl", "mse_backward", value);
}
void smooth_l1_kernel(TensorIteratorBase& iter, double beta) {
  pointwise(iter, "binary.cl", "smooth_l1", Scalar(beta));
}
void huber_kernel(TensorIterator& iter, double delta) { pointwise(iter, "binary.cl", "huber", Scalar(delta)); }
void smooth_l1_backward_kernel(TensorIterator& iter, const Scalar& norm, double beta) {
  pointwise(iter, "ternary.cl", "smooth_l1_backward", {norm, beta});
}
void huber_backward_kernel(TensorIterator& iter, const Scalar& norm, double delta) {
  pointwise(iter, "ternary.cl", "huber_backward", {norm, delta});
}
void logit_backward_kernel(TensorIteratorBase& iter, const Scalar& eps) {
  if (eps.toDouble() < 0) {
    pointwise(iter, "binary.cl", "logit_backward");
  } else {
    pointwise(iter, "binary.cl", "logit_eps_backward", eps);
  }
}

}  // namespace

}  // namespace netcl

namespace at::native {
namespace {
#define NETCL_STUB(op)                                                                    \
  void netcl_##op(TensorIteratorBase& iter) { netcl::pointwise(iter, "binary.cl", #op); } \
  REGISTER_PRIVATEUSE1_DISPATCH(op##_stub, &netcl_##op)
NETCL_BINARY_STUBS(NETCL_STUB)
#undef NETCL_STUB
#define NETCL_STUB(op)                                                                \
  void netcl_##op(TensorIterator& iter) { netcl::pointwise(iter, "binary.cl", #op); } \
  REGISTER_PRIVATEUSE1_DISPATCH(op##_stub, &netcl_##op)
NETCL_LOGICAL_OPS(NETCL_STUB)
#undef NETCL_STUB
REGISTER_PRIVATEUSE1_DISPATCH(add_stub, &netcl::add_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(add_clamp_stub, &netcl::add_clamp_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(clamp_stub, &netcl::clamp_tensor_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(where_kernel, &netcl::where_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(addcmul_stub, &netcl::addcmul_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(addcdiv_stub, &netcl::addcdiv_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(lerp_kernel_scalar_weight, &netcl::lerp_scalar_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(lerp_kernel_tensor_weight, &netcl::lerp_tensor_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(pow_tensor_scalar_stub, &netcl::pow_scalar_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(cross_stub, &netcl::cross_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(mse_backward_stub, &netcl::mse_backward_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(smooth_l1_stub, &netcl::smooth_l1_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(smooth_l1_backward_stub, &netcl::smooth_l1_backward_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(huber_stub, &netcl::huber_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(huber_backward_stub, &netcl::huber_backward_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(logit_backward_stub, &netcl::logit_backward_kernel)
}  // namespace
}  // namespace at::native
