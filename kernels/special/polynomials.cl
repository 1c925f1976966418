// Orthogonal polynomials of degree n at x by their three-term recurrences (DLMF 18.9). As in ATen, a degree is
// truncated to an integer (-0.5 is 0), and a negative one gives 0.
#include "special/special.h"

static inline long as_degree(ST n) { return isfinite(n) && n > -1 ? (long)fmin(n, (ST)4e18) : -1; }
static inline ST alternate(long n, ST v) { return n & 1 ? -v : v; }

// Chebyshev's recurrence from 1 and `first`; used only for |x| > 1, where it soon ends in infinities, or for a low
// degree.
static inline ST chebyshev_recurrence(ST x, ST first, long n) {
  ST p = 1, q = n == 0 ? (ST)1 : first;
  for (long k = 2; k <= n && !isnan(q); k++) {
    const ST r = 2 * x * q - p;
    p = q;
    q = r;
  }
  return q;
}
// Within [-1, 1], a high degree uses the closed form in the angle acos(x).
#define HIGH(x, n) ((n) > 8 && fabs(x) < 1)
static inline ST chebyshev_t(ST x, ST degree) {
  const long n = as_degree(degree);
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 ? (ST)1 : alternate(n, 1);
  return HIGH(x, n) ? cos(n * acos(x)) : chebyshev_recurrence(x, x, n);
}
static inline ST chebyshev_u(ST x, ST degree) {
  const long n = as_degree(degree);
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 ? (ST)(n + 1) : alternate(n, (ST)(n + 1));
  return HIGH(x, n) ? sin((n + 1) * acos(x)) / sin(acos(x)) : chebyshev_recurrence(x, 2 * x, n);
}
static inline ST chebyshev_v(ST x, ST degree) {
  const long n = as_degree(degree);
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 ? (ST)1 : alternate(n, 2 * (ST)n + 1);
  return HIGH(x, n) ? cos((n + K(0.5)) * acos(x)) / cos(acos(x) / 2) : chebyshev_recurrence(x, 2 * x - 1, n);
}
static inline ST chebyshev_w(ST x, ST degree) {
  const long n = as_degree(degree);
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 ? 2 * (ST)n + 1 : alternate(n, 1);
  return HIGH(x, n) ? sin((n + K(0.5)) * acos(x)) / sin(acos(x) / 2) : chebyshev_recurrence(x, 2 * x + 1, n);
}

// Beyond ATen's limit, the values overflow.
#if defined(ACC_DOUBLE)
#define HERMITE_LIMIT 512
#else
#define HERMITE_LIMIT 128
#endif
// H_n has step 2 x and weight 2 k; He_n has step x and weight k.
static inline ST hermite(ST step, long n, ST weight) {
  if (n < 0) return 0;
  if (n > HERMITE_LIMIT) return (ST)NAN;
  ST p = 1, q = n == 0 ? (ST)1 : step;
  for (long k = 1; k < n; k++) {
    const ST r = step * q - weight * k * p;
    p = q;
    q = r;
  }
  return q;
}
static inline ST hermite_h(ST x, ST n) { return hermite(2 * x, as_degree(n), 2); }
static inline ST hermite_he(ST x, ST n) { return hermite(x, as_degree(n), 1); }

static inline ST laguerre(ST x, ST degree) {
  const long n = as_degree(degree);
  if (n < 0) return 0;
  if (x == 0) return 1;
  ST p = 1, q = n == 0 ? (ST)1 : 1 - x;
  for (long k = 1; k < n && !isnan(q); k++) {
    const ST r = ((2 * k + 1 - x) * q - k * p) / (k + 1);
    p = q;
    q = r;
  }
  return q;
}
static inline ST legendre(ST x, ST degree) {
  const long n = as_degree(degree);
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 ? (ST)1 : alternate(n, 1);
  ST p = 1, q = n == 0 ? (ST)1 : x;
  for (long k = 1; k < n && !isnan(q); k++) {
    const ST r = ((2 * k + 1) * x * q - k * p) / (k + 1);
    p = q;
    q = r;
  }
  return q;
}

NETCL_MAP2(chebyshev_t)
NETCL_MAP2(chebyshev_u)
NETCL_MAP2(chebyshev_v)
NETCL_MAP2(chebyshev_w)
NETCL_MAP2(hermite_h)
NETCL_MAP2(hermite_he)
NETCL_MAP2(laguerre)
NETCL_MAP2(legendre)
#define OP_chebyshev_polynomial_t(x, n) map_chebyshev_t(x, n)
#define OP_chebyshev_polynomial_u(x, n) map_chebyshev_u(x, n)
#define OP_chebyshev_polynomial_v(x, n) map_chebyshev_v(x, n)
#define OP_chebyshev_polynomial_w(x, n) map_chebyshev_w(x, n)
#define OP_shifted_chebyshev_polynomial_t(x, n) map_chebyshev_t(2 * (x) - 1, n)
#define OP_shifted_chebyshev_polynomial_u(x, n) map_chebyshev_u(2 * (x) - 1, n)
#define OP_shifted_chebyshev_polynomial_v(x, n) map_chebyshev_v(2 * (x) - 1, n)
#define OP_shifted_chebyshev_polynomial_w(x, n) map_chebyshev_w(2 * (x) - 1, n)
#define OP_hermite_polynomial_h(x, n) map_hermite_h(x, n)
#define OP_hermite_polynomial_he(x, n) map_hermite_he(x, n)
#define OP_laguerre_polynomial_l(x, n) map_laguerre(x, n)
#define OP_legendre_polynomial_p(x, n) map_legendre(x, n)

#include "common/pointwise_body.h"
