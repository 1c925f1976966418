// Bessel functions, modified Bessel functions, Airy's function, Kaiser's window. Near 0 they use an expansion of the
// function's regular part; beyond, the asymptotic form (DLMF 10.17, 10.40 and 9.7), whose slowly varying factors are
// expanded in 1/x.
#define BESSEL_TABLES
#define AIRY_TABLES
#include "special/special.h"
#include "special/special_tables.h"

// exp(-|x|) I0(x); then I1.
static inline ST i0_scaled(ST x) {
  const ST a = fabs(x);
  return a <= 8 ? CHEBYSHEV(i0_small, a / 4 - 1) : CHEBYSHEV(i0_large, 16 / a - 1) / sqrt(a);
}
static inline ST i1_scaled(ST x) {
  const ST a = fabs(x);
  const ST r = a <= 8 ? CHEBYSHEV(i1_small, a / 4 - 1) * a : CHEBYSHEV(i1_large, 16 / a - 1) / sqrt(a);
  return x < 0 ? -r : r;
}
// exp(x) overflows before the functions do, so it is multiplied as two factors.
static inline ST bessel_i0(ST x) {
  const ST e = exp(fabs(x) / 2);
  return isinf(x) ? (ST)INFINITY : e * i0_scaled(x) * e;
}
static inline ST bessel_i1(ST x) {
  const ST e = exp(fabs(x) / 2);
  return isinf(x) ? x : e * i1_scaled(x) * e;
}

// log(x / 2), since half of the least denormal number is 0.
static inline ST log_half(ST x) { return log(x) - K(0.69314718055994530942); }
// K0 and K1, times exp(x) if `scaled`.
static inline ST bessel_k0(ST x, int scaled) {
  if (!(x > 0)) return x == 0 ? (ST)INFINITY : (ST)NAN;
  if (x > 2) return CHEBYSHEV(k0_large, 4 / x - 1) / sqrt(x) * (scaled ? 1 : exp(-x));
  const ST k = CHEBYSHEV(k0_small, x * x / 2 - 1) - log_half(x) * bessel_i0(x);
  return scaled ? k * exp(x) : k;
}
static inline ST bessel_k1(ST x, int scaled) {
  if (!(x > 0)) return x == 0 ? (ST)INFINITY : (ST)NAN;
  if (x > 2) return CHEBYSHEV(k1_large, 4 / x - 1) / sqrt(x) * (scaled ? 1 : exp(-x));
  const ST k = CHEBYSHEV(k1_small, x * x / 2 - 1) / x + log_half(x) * bessel_i1(x);
  return scaled ? k * exp(x) : k;
}
static inline ST k0_plain(ST x) { return bessel_k0(x, 0); }
static inline ST k1_plain(ST x) { return bessel_k1(x, 0); }
static inline ST k0_times_exp(ST x) { return bessel_k0(x, 1); }
static inline ST k1_times_exp(ST x) { return bessel_k1(x, 1); }

// x^2 - z^2 for a zero z = head + rest, to full precision near z.
#define FROM_ZERO(x, head, rest) ((((x) - (head)) - (rest)) * ((x) + ((head) + (rest))))
#define SMALL(table, x) CHEBYSHEV(table, (x) * (x) / 32 - 1)
// sqrt(2 / (pi x)) (p cos(x - phase) - q sin(x - phase)), where the cosine and the sine are c / sqrt(2) and s /
// sqrt(2). Subtracting the phase from x itself would lose digits.
static inline ST oscillation(ST x, ST p, ST q, ST c, ST s) { return (p * c - q * 8 / x * s) / sqrt(PI * x); }
#define LARGE(table, x) CHEBYSHEV(table, 128 / ((x) * (x)) - 1)

static inline ST bessel_j0(ST signed_x) {
  const ST x = fabs(signed_x);
  if (x <= 8) {
    return SMALL(j0_small, x) * FROM_ZERO(x, J0_ZERO0, J0_REST0) * FROM_ZERO(x, J0_ZERO1, J0_REST1);
  }
  if (isinf(x)) return 0;
  const ST c = cos(x), s = sin(x);
  return oscillation(x, LARGE(p0_large, x), LARGE(q0_large, x), s + c, s - c);
}
static inline ST bessel_j1(ST signed_x) {
  const ST x = fabs(signed_x);
  ST r = 0;
  if (x <= 8) {
    r = x * SMALL(j1_small, x) * FROM_ZERO(x, J1_ZERO0, J1_REST0) * FROM_ZERO(x, J1_ZERO1, J1_REST1);
  } else if (!isinf(x)) {
    const ST c = cos(x), s = sin(x);
    r = oscillation(x, LARGE(p1_large, x), LARGE(q1_large, x), s - c, -s - c);
  }
  return isnan(signed_x) ? signed_x : signed_x < 0 ? -r : r;
}
static inline ST bessel_y0(ST x) {
  if (!(x > 0)) return x == 0 ? (ST)(-INFINITY) : (ST)NAN;
  if (x <= 8) return SMALL(y0_small, x) + 2 / PI * log(x) * bessel_j0(x);
  if (isinf(x)) return 0;
  const ST c = cos(x), s = sin(x);
  return oscillation(x, LARGE(p0_large, x), LARGE(q0_large, x), s - c, -s - c);
}
static inline ST bessel_y1(ST x) {
  if (!(x > 0)) return x == 0 ? (ST)(-INFINITY) : (ST)NAN;
  if (x <= 8) return SMALL(y1_small, x) * x + 2 / PI * (log(x) * bessel_j1(x) - 1 / x);
  if (isinf(x)) return 0;
  const ST c = cos(x), s = sin(x);
  return oscillation(x, LARGE(p1_large, x), LARGE(q1_large, x), -s - c, c - s);
}

static inline ST spherical_bessel_j0(ST x) {
  const ST y = x * x;
  if (isinf(x)) return 0;
  if (y > K(0.25)) return sin(x) / x;
  return 1 - y / 6 * (1 - y / 20 * (1 - y / 42 * (1 - y / 72 * (1 - y / 110 * (1 - y / 156)))));
}

static inline ST airy_ai(ST x) {
  if (isinf(x)) return (ST)NAN;
  if (x >= K(-4.5) && x <= 2) return CHEBYSHEV(airy_middle, (x + K(1.25)) / K(3.25));
  const ST a = fabs(x), zeta = a * sqrt(a) * 2 / 3, root = sqrt(sqrt(a));
  if (x > 2) return exp(-zeta) / (root * 2 * sqrt(PI)) * CHEBYSHEV(airy_right, K(3.7712361663282534635) / zeta - 1);
  const ST t = K(6.3639610306789277196) / zeta, u = 2 * t * t - 1, c = cos(zeta), s = sin(zeta);
  return SQRT1_2 / (sqrt(PI) * root) * ((c + s) * CHEBYSHEV(airy_p, u) + (s - c) * t * CHEBYSHEV(airy_q, u));
}

// I0(beta r) / I0(beta) at position k of a window around `middle`, without overflow for a large beta.
static inline ST kaiser(ST k, ST middle, ST beta) {
  const ST t = (k - middle) / middle, r = sqrt(fmax(1 - t * t, (ST)0));
  return exp(fabs(beta) * (r - 1)) * i0_scaled(beta * r) / i0_scaled(beta);
}

NETCL_MAP1(i0_scaled)
NETCL_MAP1(i1_scaled)
NETCL_MAP1(bessel_i0)
NETCL_MAP1(bessel_i1)
NETCL_MAP1(k0_plain)
NETCL_MAP1(k1_plain)
NETCL_MAP1(k0_times_exp)
NETCL_MAP1(k1_times_exp)
NETCL_MAP1(bessel_j0)
NETCL_MAP1(bessel_j1)
NETCL_MAP1(bessel_y0)
NETCL_MAP1(bessel_y1)
NETCL_MAP1(spherical_bessel_j0)
NETCL_MAP1(airy_ai)
NETCL_MAP3(kaiser)
#define OP_i0(x) map_bessel_i0(x)
#define OP_special_i0e(x) map_i0_scaled(x)
#define OP_special_i1(x) map_bessel_i1(x)
#define OP_special_i1e(x) map_i1_scaled(x)
#define OP_special_modified_bessel_k0(x) map_k0_plain(x)
#define OP_special_modified_bessel_k1(x) map_k1_plain(x)
#define OP_special_scaled_modified_bessel_k0(x) map_k0_times_exp(x)
#define OP_special_scaled_modified_bessel_k1(x) map_k1_times_exp(x)
#define OP_special_bessel_j0(x) map_bessel_j0(x)
#define OP_special_bessel_j1(x) map_bessel_j1(x)
#define OP_special_bessel_y0(x) map_bessel_y0(x)
#define OP_special_bessel_y1(x) map_bessel_y1(x)
#define OP_special_spherical_bessel_j0(x) map_spherical_bessel_j0(x)
#define OP_special_airy_ai(x) map_airy_ai(x)
#define OP_kaiser_window(x) map_kaiser(x, s0, s1)

#include "common/pointwise_body.h"
