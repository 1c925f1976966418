// Inverse and scaled forms of the error function.
#define ERF_TABLES
#include "special/special.h"
#include "special/special_tables.h"

// exp(x^2) erfc(x); the variable is that of Shepherd and Laframboise (1981).
static inline ST erfcx_scalar(ST x) {
  if (isnan(x)) return x;
  const ST a = fabs(x);
  const ST r = isinf(x) ? (ST)0 : CHEBYSHEV(erfcx_scaled, (a - K(3.75)) / (a + K(3.75))) / (1 + 2 * a);
  if (x >= 0) return r;
  // exp(x^2), with x^2 as the sum of two numbers.
  const ST square = x * x, rest = fma(x, x, -square);
  const ST e = 2 * exp(square);
  return isinf(e) ? e : e * (1 + rest) - r;  // if e is infinite, rest may be any number
}

// In the tail of erf_inverse(), exp(y^2) overflows and erfc(y) vanishes. So three steps of Newton's method solve
// log(erfc(y)) = log(t) from Winitzki's y; they square an error of 0.05 three times.
static inline ST inverse_in_tail(ST t, ST y) {
  if (t >= K(1e-10)) return y;
  for (int k = 0; k < 3; k++) {
    const ST scaled = erfcx_scalar(y);
    y += (log(scaled) - y * y - log(t)) * scaled * (sqrt(PI) / 2);
  }
  return y;
}
NETCL_MAP2(inverse_in_tail)

// y with erf(y) = 1 - t for 0 < t <= 1. `x` is 1 - t, and is exact if t is not. Winitzki's formula (2008) has an error
// of 2e-3; each of two steps of Halley's method triples the digits.
static inline VT erf_inverse(VT x, VT t) {
  const ST a = K(0.147);
  const VT l = log(t * (2 - t)), b = 2 / (PI * a) + l / 2;
  VT y = sqrt(fmax(-l / a / (b + sqrt(b * b - l / a)), (VT)(0)));
  if (ANY_LANE(VEC, t < K(1e-10))) y = map_inverse_in_tail(t, y);
  for (int k = 0; k < 2; k++) {
    const VT miss = x < K(0.5) ? erf(y) - x : t - erfc(y);
    const VT step = miss * (sqrt(PI) / 2) * exp(y * y);
    y = t < K(1e-10) ? y : y - step / (1 + y * step);
  }
  return y;
}
// The first terms of the series: for a small x, the logarithm above would lose digits.
static inline VT small_or(VT x, VT y) { return fabs(x) < K(1e-4) ? x * (sqrt(PI) / 2) * (1 + PI / 12 * x * x) : y; }

static inline VT erfinv_of(VT x) {
  const VT a = fabs(x), y = small_or(x, copysign(erf_inverse(a, 1 - a), x));
  return a < 1 ? y : a == 1 ? copysign((VT)(INFINITY), x) : (VT)(NAN);
}
static inline VT ndtri_of(VT p) {
  const VT x = 2 * p - 1, a = fabs(x), tail = 2 * (p < K(0.5) ? p : 1 - p);
  const VT t = a < K(0.5) ? 1 - a : tail, y = erf_inverse(a < K(0.5) ? a : 1 - tail, t);
  const VT inside = small_or(x, copysign(y, x)) / SQRT1_2;
  return ((p > 0) & (p < 1)) ? inside : p == 0 ? (VT)(-INFINITY) : p == 1 ? (VT)(INFINITY) : (VT)(NAN);
}
// log(erfc(-x / sqrt(2)) / 2)
static inline ST log_ndtr_scalar(ST x) {
  const ST t = x * SQRT1_2;
  return x < -1 ? log(erfcx_scalar(-t) / 2) - t * t : log1p(-erfc(t) / 2);
}

NETCL_MAP1(erfcx_scalar)
NETCL_MAP1(log_ndtr_scalar)
#define OP_erfinv(x) erfinv_of(x)
#define OP_special_ndtri(x) ndtri_of(x)
#define OP_special_erfcx(x) map_erfcx_scalar(x)
#define OP_special_log_ndtr(x) map_log_ndtr_scalar(x)

#include "common/pointwise_body.h"
