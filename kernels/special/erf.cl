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

// y with erf(y) = 1 - t for 0 < t <= 1. `x` is 1 - t, and is exact if t is not. Winitzki's formula (2008) has an error
// of 2e-3; each of two steps of Halley's method triples the digits.
static inline ST erf_inverse(ST x, ST t) {
  const ST a = K(0.147), l = log(t * (2 - t)), b = 2 / (PI * a) + l / 2;
  ST y = sqrt(fmax(-l / a / (b + sqrt(b * b - l / a)), (ST)0));
  // In the tail, exp(y^2) overflows and erfc(y) vanishes. So three steps of Newton's method solve log(erfc(y)) =
  // log(t); they square an error of 0.05 three times.
  if (t < K(1e-10)) {
    for (int k = 0; k < 3; k++) {
      const ST scaled = erfcx_scalar(y);
      y += (log(scaled) - y * y - log(t)) * scaled * (sqrt(PI) / 2);
    }
    return y;
  }
  for (int k = 0; k < 2; k++) {
    const ST miss = x < K(0.5) ? erf(y) - x : t - erfc(y);
    const ST step = miss * (sqrt(PI) / 2) * exp(y * y);
    y -= step / (1 + y * step);
  }
  return y;
}
static inline ST erfinv_scalar(ST x) {
  const ST a = fabs(x);
  if (!(a < 1)) return a == 1 ? copysign((ST)INFINITY, x) : (ST)NAN;
  // The first terms of the series: for a small x, l above would lose digits.
  return a < K(1e-4) ? x * (sqrt(PI) / 2) * (1 + PI / 12 * x * x) : copysign(erf_inverse(a, 1 - a), x);
}
static inline ST ndtri_scalar(ST p) {
  if (!(p > 0 && p < 1)) return p == 0 ? (ST)(-INFINITY) : p == 1 ? (ST)INFINITY : (ST)NAN;
  if (p > K(0.25) && p < K(0.75)) return erfinv_scalar(2 * p - 1) / SQRT1_2;
  const ST tail = 2 * (p < K(0.5) ? p : 1 - p), y = erf_inverse(1 - tail, tail) / SQRT1_2;
  return p < K(0.5) ? -y : y;
}
// log(erfc(-x / sqrt(2)) / 2)
static inline ST log_ndtr_scalar(ST x) {
  const ST t = x * SQRT1_2;
  return x < -1 ? log(erfcx_scalar(-t) / 2) - t * t : log1p(-erfc(t) / 2);
}

NETCL_MAP1(erfinv_scalar)
NETCL_MAP1(ndtri_scalar)
NETCL_MAP1(erfcx_scalar)
NETCL_MAP1(log_ndtr_scalar)
#define OP_erfinv(x) map_erfinv_scalar(x)
#define OP_special_ndtri(x) map_ndtri_scalar(x)
#define OP_special_erfcx(x) map_erfcx_scalar(x)
#define OP_special_log_ndtr(x) map_log_ndtr_scalar(x)

#include "common/pointwise_body.h"
