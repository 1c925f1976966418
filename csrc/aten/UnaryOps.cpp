// Element-wise operators of one tensor. Each has its name here, in one line, and its expression in unary.cl.
#include <ATen/native/TensorCompare.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/abs_native.h>
#include <ATen/ops/acos_native.h>
#include <ATen/ops/acosh_native.h>
#include <ATen/ops/angle_native.h>
#include <ATen/ops/asin_native.h>
#include <ATen/ops/asinh_native.h>
#include <ATen/ops/atan_native.h>
#include <ATen/ops/atanh_native.h>
#include <ATen/ops/bitwise_not_native.h>
#include <ATen/ops/ceil_native.h>
#include <ATen/ops/clamp_max_native.h>
#include <ATen/ops/clamp_min_native.h>
#include <ATen/ops/clamp_native.h>
#include <ATen/ops/conj_physical_native.h>
#include <ATen/ops/cos_native.h>
#include <ATen/ops/cosh_native.h>
#include <ATen/ops/erf_native.h>
#include <ATen/ops/erfc_native.h>
#include <ATen/ops/exp2_native.h>
#include <ATen/ops/exp_native.h>
#include <ATen/ops/expm1_native.h>
#include <ATen/ops/floor_native.h>
#include <ATen/ops/frac_native.h>
#include <ATen/ops/isnan_native.h>
#include <ATen/ops/isneginf_native.h>
#include <ATen/ops/isposinf_native.h>
#include <ATen/ops/lgamma_native.h>
#include <ATen/ops/log10_native.h>
#include <ATen/ops/log1p_native.h>
#include <ATen/ops/log2_native.h>
#include <ATen/ops/log_native.h>
#include <ATen/ops/logical_not_native.h>
#include <ATen/ops/logit_native.h>
#include <ATen/ops/nan_to_num_native.h>
#include <ATen/ops/neg_native.h>
#include <ATen/ops/reciprocal_native.h>
#include <ATen/ops/round_native.h>
#include <ATen/ops/rsqrt_native.h>
#include <ATen/ops/sgn_native.h>
#include <ATen/ops/sigmoid_native.h>
#include <ATen/ops/sign_native.h>
#include <ATen/ops/signbit_native.h>
#include <ATen/ops/sin_native.h>
#include <ATen/ops/sinc_native.h>
#include <ATen/ops/sinh_native.h>
#include <ATen/ops/special_entr_native.h>
#include <ATen/ops/sqrt_native.h>
#include <ATen/ops/tan_native.h>
#include <ATen/ops/tanh_native.h>
#include <ATen/ops/trunc_native.h>

#include <cmath>
#include <limits>

#include "aten/support/Library.h"
#include "aten/support/Pointwise.h"
#include "aten/support/Scalars.h"
#include "aten/support/Structured.h"

// Structured operators: functional, in-place and out forms, stub <op>_stub, expression OP_<op>.
#define NETCL_UNARY_OPS(_) \
  _(acos)                  \
  _(acosh)                 \
  _(asin)                  \
  _(asinh)                 \
  _(atan)                  \
  _(atanh)                 \
  _(bitwise_not)           \
  _(ceil)                  \
  _(cos)                   \
  _(cosh)                  \
  _(erf)                   \
  _(erfc)                  \
  _(exp)                   \
  _(exp2)                  \
  _(expm1)                 \
  _(floor)                 \
  _(frac)                  \
  _(lgamma)                \
  _(log)                   \
  _(log10)                 \
  _(log1p)                 \
  _(log2)                  \
  _(neg)                   \
  _(reciprocal)            \
  _(round)                 \
  _(rsqrt)                 \
  _(sgn)                   \
  _(sigmoid)               \
  _(sign)                  \
  _(sin)                   \
  _(sinc)                  \
  _(sinh)                  \
  _(sqrt)                  \
  _(tan)                   \
  _(tanh)                  \
  _(trunc)

// The same without an in-place form.
#define NETCL_UNARY_OPS_NO_INPLACE(_) \
  _(isneginf)                         \
  _(isposinf)                         \
  _(signbit)                          \
  _(special_entr)

// Not structured: ATen's <op>_out is shared and calls <op>_stub.
#define NETCL_UNARY_OPS_OUT(_) \
  _(abs)                       \
  _(angle)                     \
  _(conj_physical)             \
  _(logical_not)

namespace netcl {

namespace {

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define NETCL_IMPL(op) structured<at::native::structured_##op##_out>(m, #op, #op "_", #op ".out");
  NETCL_UNARY_OPS(NETCL_IMPL)
#undef NETCL_IMPL
#define NETCL_IMPL(op) structured<at::native::structured_##op##_out>(m, #op, nullptr, #op ".out");
  NETCL_UNARY_OPS_NO_INPLACE(NETCL_IMPL)
#undef NETCL_IMPL
#define NETCL_IMPL(op) m.impl(#op ".out", &at::native::op##_out);
  NETCL_UNARY_OPS_OUT(NETCL_IMPL)
#undef NETCL_IMPL
  m.impl("angle", &at::native::angle);
  m.impl("isnan", &at::native::isnan);
  m.impl("nan_to_num.out", &at::native::nan_to_num_out);
  m.impl("logit", &at::native::logit);
  m.impl("logit_", &at::native::logit_);
  m.impl("logit.out", &at::native::logit_out);
  structured<at::native::structured_round_decimals_out>(m, "round.decimals", "round_.decimals", "round.decimals_out");
  structured<at::native::structured_clamp_out>(m, "clamp", "clamp_", "clamp.out");
  structured<at::native::structured_clamp_min_out>(m, "clamp_min", "clamp_min_", "clamp_min.out");
  structured<at::native::structured_clamp_max_out>(m, "clamp_max", "clamp_max_", "clamp_max.out");
}

// The largest value of a real dtype, with which nan_to_num replaces infinities.
double highest(c10::ScalarType type) {
  switch (type) {
    case c10::kHalf:
      return 65504.0;
    case c10::kBFloat16:
      return static_cast<double>(std::numeric_limits<c10::BFloat16>::max());
    case c10::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

void nan_to_num_kernel(at::TensorIteratorBase& iter, std::optional<double> nan, std::optional<double> posinf,
                       std::optional<double> neginf) {
  const double top = highest(iter.dtype(0));
  pointwise(iter, "unary.cl", "nan_to_num", {nan.value_or(0.0), posinf.value_or(top), neginf.value_or(-top)});
}

void logit_kernel(at::TensorIteratorBase& iter, const at::Scalar& eps) {
  if (eps.toDouble() < 0) {
    pointwise(iter, "unary.cl", "logit");
  } else {
    pointwise(iter, "unary.cl", "logit_eps", eps);
  }
}

void round_decimals_kernel(at::TensorIteratorBase& iter, int64_t decimals) {
  const double ten = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  pointwise(iter, "unary.cl", decimals < 0 ? "round_decimals_negative" : "round_decimals", at::Scalar(ten));
}

void clamp_kernel(at::TensorIteratorBase& iter, const at::Scalar& min, const at::Scalar& max) {
  pointwise(iter, "unary.cl", "clamp", {in_dtype(min, iter.common_dtype()), in_dtype(max, iter.common_dtype())});
}
void clamp_min_kernel(at::TensorIteratorBase& iter, at::Scalar min) {
  pointwise(iter, "unary.cl", "clamp_min", in_dtype(min, iter.common_dtype()));
}
void clamp_max_kernel(at::TensorIteratorBase& iter, at::Scalar max) {
  pointwise(iter, "unary.cl", "clamp_max", in_dtype(max, iter.common_dtype()));
}

}  // namespace

}  // namespace netcl

namespace at::native {
namespace {
#define NETCL_STUB(op)                                                                   \
  void netcl_##op(TensorIteratorBase& iter) { netcl::pointwise(iter, "unary.cl", #op); } \
  REGISTER_PRIVATEUSE1_DISPATCH(op##_stub, &netcl_##op)
NETCL_UNARY_OPS(NETCL_STUB)
NETCL_UNARY_OPS_NO_INPLACE(NETCL_STUB)
NETCL_UNARY_OPS_OUT(NETCL_STUB)
#undef NETCL_STUB
REGISTER_PRIVATEUSE1_DISPATCH(nan_to_num_stub, &netcl::nan_to_num_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(logit_stub, &netcl::logit_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(round_decimals_stub, &netcl::round_decimals_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(clamp_scalar_stub, &netcl::clamp_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(clamp_min_scalar_stub, &netcl::clamp_min_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(clamp_max_scalar_stub, &netcl::clamp_max_kernel)
}  // namespace
}  // namespace at::native
