// Special functions, element-wise. Each has its name here, in one line, and its function in bessel.cl, erf.cl, gamma.cl
// or polynomials.cl.
#include <ATen/native/BinaryOps.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/digamma_native.h>
#include <ATen/ops/erfinv_native.h>
#include <ATen/ops/frexp_native.h>
#include <ATen/ops/i0_native.h>
#include <ATen/ops/igamma_native.h>
#include <ATen/ops/igammac_native.h>
#include <ATen/ops/mvlgamma_native.h>
#include <ATen/ops/polygamma_native.h>
#include <ATen/ops/special_airy_ai_native.h>
#include <ATen/ops/special_bessel_j0_native.h>
#include <ATen/ops/special_bessel_j1_native.h>
#include <ATen/ops/special_bessel_y0_native.h>
#include <ATen/ops/special_bessel_y1_native.h>
#include <ATen/ops/special_chebyshev_polynomial_t_native.h>
#include <ATen/ops/special_chebyshev_polynomial_u_native.h>
#include <ATen/ops/special_chebyshev_polynomial_v_native.h>
#include <ATen/ops/special_chebyshev_polynomial_w_native.h>
#include <ATen/ops/special_erfcx_native.h>
#include <ATen/ops/special_hermite_polynomial_h_native.h>
#include <ATen/ops/special_hermite_polynomial_he_native.h>
#include <ATen/ops/special_i0e_native.h>
#include <ATen/ops/special_i1_native.h>
#include <ATen/ops/special_i1e_native.h>
#include <ATen/ops/special_laguerre_polynomial_l_native.h>
#include <ATen/ops/special_legendre_polynomial_p_native.h>
#include <ATen/ops/special_log_ndtr_native.h>
#include <ATen/ops/special_modified_bessel_i0_native.h>
#include <ATen/ops/special_modified_bessel_i1_native.h>
#include <ATen/ops/special_modified_bessel_k0_native.h>
#include <ATen/ops/special_modified_bessel_k1_native.h>
#include <ATen/ops/special_ndtri_native.h>
#include <ATen/ops/special_scaled_modified_bessel_k0_native.h>
#include <ATen/ops/special_scaled_modified_bessel_k1_native.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_t_native.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_u_native.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_v_native.h>
#include <ATen/ops/special_shifted_chebyshev_polynomial_w_native.h>
#include <ATen/ops/special_spherical_bessel_j0_native.h>
#include <ATen/ops/special_zeta_native.h>

#include "aten/support/Library.h"
#include "aten/support/Pointwise.h"
#include "aten/support/Structured.h"

// Structured operators of one tensor: stub <op>_stub, expression OP_<op> of the file.
#define NETCL_SPECIAL_UNARY(_)                              \
  _("special/bessel.cl", special_airy_ai)                   \
  _("special/bessel.cl", special_bessel_j0)                 \
  _("special/bessel.cl", special_bessel_j1)                 \
  _("special/bessel.cl", special_bessel_y0)                 \
  _("special/bessel.cl", special_bessel_y1)                 \
  _("special/bessel.cl", special_i0e)                       \
  _("special/bessel.cl", special_i1)                        \
  _("special/bessel.cl", special_i1e)                       \
  _("special/bessel.cl", special_modified_bessel_k0)        \
  _("special/bessel.cl", special_modified_bessel_k1)        \
  _("special/bessel.cl", special_scaled_modified_bessel_k0) \
  _("special/bessel.cl", special_scaled_modified_bessel_k1) \
  _("special/bessel.cl", special_spherical_bessel_j0)       \
  _("special/erf.cl", special_erfcx)                        \
  _("special/erf.cl", special_log_ndtr)                     \
  _("special/erf.cl", special_ndtri)
// The same with an in-place form.
#define NETCL_SPECIAL_UNARY_INPLACE(_) \
  _("special/bessel.cl", i0)           \
  _("special/erf.cl", erfinv)          \
  _("special/gamma.cl", digamma)

// Operators of x and a degree: operator special_<op>, stub <op>_stub.
#define NETCL_POLYNOMIALS(_)        \
  _(chebyshev_polynomial_t)         \
  _(chebyshev_polynomial_u)         \
  _(chebyshev_polynomial_v)         \
  _(chebyshev_polynomial_w)         \
  _(hermite_polynomial_h)           \
  _(hermite_polynomial_he)          \
  _(laguerre_polynomial_l)          \
  _(legendre_polynomial_p)          \
  _(shifted_chebyshev_polynomial_t) \
  _(shifted_chebyshev_polynomial_u) \
  _(shifted_chebyshev_polynomial_v) \
  _(shifted_chebyshev_polynomial_w)

namespace netcl {

namespace {

// These functions exist only for real numbers, and igamma does not promote integers.
void special(at::TensorIteratorBase& iter, const char* file, const char* op, c10::ArrayRef<c10::Scalar> scalars = {}) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(iter.common_dtype()), op, " is not implemented for ",
                              iter.common_dtype());
  pointwise(iter, file, op, scalars);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
#define NETCL_IMPL(file, op) structured<at::native::structured_##op##_out>(m, #op, nullptr, #op ".out");
  NETCL_SPECIAL_UNARY(NETCL_IMPL)
  NETCL_IMPL("special/gamma.cl", special_zeta)
  NETCL_IMPL("special/bessel.cl", special_modified_bessel_i0)
  NETCL_IMPL("special/bessel.cl", special_modified_bessel_i1)
#undef NETCL_IMPL
#define NETCL_IMPL(file, op) structured<at::native::structured_##op##_out>(m, #op, #op "_", #op ".out");
  NETCL_SPECIAL_UNARY_INPLACE(NETCL_IMPL)
  NETCL_IMPL("special/gamma.cl", igamma)
  NETCL_IMPL("special/gamma.cl", igammac)
#undef NETCL_IMPL
#define NETCL_IMPL(op) \
  structured<at::native::structured_special_##op##_out>(m, "special_" #op, nullptr, "special_" #op ".out");
  NETCL_POLYNOMIALS(NETCL_IMPL)
#undef NETCL_IMPL
  structured<at::native::structured_polygamma_out>(m, "polygamma", nullptr, "polygamma.out");
  m.impl("frexp.Tensor_out", &at::native::frexp_out);
  m.impl("mvlgamma.out", &at::native::mvlgamma_out);
}

void polygamma_kernel(at::TensorIteratorBase& iter, int64_t n) {
  if (n == 0) {
    special(iter, "special/gamma.cl", "digamma");
  } else if (n == 1) {
    special(iter, "special/gamma.cl", "trigamma");
  } else {
    // (-1)^(n + 1) n! zeta(n + 1, x), DLMF 25.11.12
    const double factorial = std::tgamma(static_cast<double>(n) + 1);
    special(iter, "special/gamma.cl", "polygamma", {static_cast<double>(n) + 1, n % 2 ? factorial : -factorial});
  }
}
void kaiser_window_kernel(at::TensorIteratorBase& iter, int64_t length, double beta) {
  pointwise(iter, "special/bessel.cl", "kaiser_window", {(static_cast<double>(length) - 1) / 2, beta});
}

}  // namespace

}  // namespace netcl

namespace at::native {
namespace {
#define NETCL_STUB(file, op)                                                     \
  void netcl_##op(TensorIteratorBase& iter) { netcl::special(iter, file, #op); } \
  REGISTER_PRIVATEUSE1_DISPATCH(op##_stub, &netcl_##op)
NETCL_SPECIAL_UNARY(NETCL_STUB)
NETCL_SPECIAL_UNARY_INPLACE(NETCL_STUB)
NETCL_STUB("special/gamma.cl", zeta)
NETCL_STUB("special/gamma.cl", igamma)
NETCL_STUB("special/gamma.cl", igammac)
NETCL_STUB("unary.cl", frexp)
#define NETCL_POLYNOMIAL_STUB(op) NETCL_STUB("special/polynomials.cl", op)
NETCL_POLYNOMIALS(NETCL_POLYNOMIAL_STUB)
#undef NETCL_POLYNOMIAL_STUB
#undef NETCL_STUB
// The same functions under other names.
REGISTER_PRIVATEUSE1_DISPATCH(special_modified_bessel_i0_stub, &netcl_i0)
REGISTER_PRIVATEUSE1_DISPATCH(special_modified_bessel_i1_stub, &netcl_special_i1)
REGISTER_PRIVATEUSE1_DISPATCH(polygamma_stub, &netcl::polygamma_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(kaiser_window_stub, &netcl::kaiser_window_kernel)
}  // namespace
}  // namespace at::native
