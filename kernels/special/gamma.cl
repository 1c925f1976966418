// Derivatives and incomplete forms of the gamma function, Hurwitz's zeta function, gradients of gamma and beta
// variates.
#define GAMMA_TABLES
#include "special/special.h"
#include "special/special_tables.h"

// The recurrence leads to x >= 10, where the asymptotic series is used (DLMF 5.11.2); x < 0 uses reflection (DLMF
// 5.5.4).
static inline ST digamma_scalar(ST x) {
  if (x == 0) return copysign((ST)INFINITY, -x);
  ST sum = 0;
  if (x < 0) {
    if (x == floor(x)) return (ST)NAN;
    sum = -PI / tan(PI * (x - rint(x)));
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  const ST z = 1 / (x * x);
  const ST high = K(1.) / 240 - z * (K(1.) / 132 - z * (K(691.) / 32760 - z / 12));
  const ST tail = z * (K(1.) / 12 - z * (K(1.) / 120 - z * (K(1.) / 252 - z * high)));
  return isinf(x) ? x : sum + (log(x) - K(0.5) / x - tail);
}

// The derivative of digamma, by the same ways: DLMF 5.15.5, 5.15.6 and 5.15.8.
static inline VT trigamma(VT x) {
  const VT sine = sin(PI * (x - rint(x)));
  VT a = x < K(0.5) ? 1 - x : x, sum = (VT)(0);
  for (int k = 0; k < 10; k++) {
    const VT more = a < 10 ? (VT)(1) : (VT)(0);
    sum += more / (a * a);
    a += more;
  }
  const VT z = 1 / (a * a);
  const VT high = K(1.) / 30 - z * (K(5.) / 66 - z * (K(691.) / 2730 - z * (K(7.) / 6)));
  sum += (1 + K(0.5) / a + z * (K(1.) / 6 - z * (K(1.) / 30 - z * (K(1.) / 42 - z * high)))) / a;
  const VT reflected = x == floor(x) ? (VT)(INFINITY) : PI * PI / (sine * sine) - sum;
  return x < K(0.5) ? reflected : sum;
}

// The sum of (q + k)^-s over k = 0, 1, … for s > 1 and q > 0: nine terms, then the Euler-Maclaurin formula (DLMF
// 25.11.28).
static inline ST zeta_positive(ST s, ST q) {
  // 1 / (B_2k / (2 k)!), k = 1 … 12
  const ST divisor[12] = {K(12.),
                          K(-720.),
                          K(30240.),
                          K(-1209600.),
                          K(47900160.),
                          K(-1892437580.3183791606),
                          K(74724249600.),
                          K(-2950130727918.1642245),
                          K(116467828143500.67249),
                          K(-4597978722407472.6105),
                          K(181521054019435467.73),
                          K(-7166165256175667011.3)};
  ST sum = 0, a = q;
  for (int k = 0; k < 9; k++, a += 1) {
    const ST term = pow(a, -s);
    sum += term;
    if (term <= EPSILON * sum * K(1e-2)) return sum;
  }
  ST power = pow(a, -s), factor = 1;
  sum += power * a / (s - 1) + power / 2;
  for (int k = 0; k < 12; k++) {
    factor *= s + 2 * k;
    power /= a;
    const ST term = factor * power / divisor[k];
    sum += term;
    if (fabs(term) < EPSILON * fabs(sum)) break;
    factor *= s + 2 * k + 1;
    power /= a;
  }
  return sum;
}
static inline ST zeta_scalar(ST s, ST q) {
  if (isnan(s) || isnan(q)) return s + q;
  if (s == 1) return (ST)INFINITY;
  if (s < 1) return (ST)NAN;
  if (q > 0) return isinf(q) ? (ST)0 : zeta_positive(s, q);
  if (q == floor(q)) return (ST)INFINITY;
  if (s != floor(s)) return (ST)NAN;
  // The terms with a negative base are the difference of two sums, which begin at r and at r + m; it works for any m.
  const ST m = ceil(-q), r = -q - (m - 1);  // 1 - (q + m) would make a tiny -q 0
  const ST below = zeta_positive(s, r) - zeta_positive(s, r + m);
  return zeta_positive(s, 1 - r) + (fmod(s, (ST)2) == 0 ? below : -below);
}

// x^a exp(-x) / gamma(a). For a large a it uses Stirling's formula, since lgamma would lose digits.
static inline ST gamma_density(ST a, ST x) {
  if (a < 10) return exp(a * log(x) - x - lgamma(a));
  const ST z = 1 / (a * a);
  const ST high = K(1.) / 1188 - z * (K(691.) / 360360 - z / 156);
  const ST stirling = (K(1.) / 12 - z * (K(1.) / 360 - z * (K(1.) / 1260 - z * (K(1.) / 1680 - z * high)))) / a;
  return sqrt(a / (2 * PI)) * exp(a * log1p_minus((x - a) / a) - stirling);
}
// This is enough for a < 100 near x = a (about 8 sqrt(a) are needed), and for any a away from it.
#define GAMMA_TERMS 500
// P(a, x) by DLMF 8.11.4.
static inline ST gamma_series(ST a, ST x) {
  ST term = 1 / a, sum = term;
  for (int k = 1; k < GAMMA_TERMS && term > EPSILON * sum; k++) {
    term *= x / (a + k);
    sum += term;
  }
  return sum * gamma_density(a, x);
}
// Q(a, x) by the continued fraction 8.9.2, evaluated by Lentz's method.
static inline ST gamma_fraction(ST a, ST x) {
  ST b = x + 1 - a, c = K(1e30), d = 1 / b, h = d;
  for (int k = 1; k < GAMMA_TERMS; k++) {
    const ST n = k * (a - k);
    b += 2;
    d = 1 / (n * d + b);
    c = b + n / c;
    h *= c * d;
    if (fabs(c * d - 1) < EPSILON) break;
  }
  return h * gamma_density(a, x);
}
// Temme's uniform expansion for a large a and x near it (DLMF 8.12): Q(a, x), or P(a, x) if `lower`.
#if defined(ACC_DOUBLE)
#define GAMMA_UNIFORM 100
#else
#define GAMMA_UNIFORM 20
#endif
static inline ST gamma_uniform(ST a, ST x, int lower) {
  const ST half_square = -log1p_minus((x - a) / a);
  const ST eta = copysign(sqrt(2 * half_square), x - a), z = 1 / a;
  ST sum = POLYNOMIAL(temme7, eta);
  sum = sum * z + POLYNOMIAL(temme6, eta);
  sum = sum * z + POLYNOMIAL(temme5, eta);
  sum = sum * z + POLYNOMIAL(temme4, eta);
  sum = sum * z + POLYNOMIAL(temme3, eta);
  sum = sum * z + POLYNOMIAL(temme2, eta);
  sum = sum * z + POLYNOMIAL(temme1, eta);
  sum = sum * z + POLYNOMIAL(temme0, eta);
  const ST rest = exp(-a * half_square) / sqrt(2 * PI * a) * sum, y = eta * sqrt(a / 2);
  return lower ? erfc(-y) / 2 - rest : erfc(y) / 2 + rest;
}
static inline ST gamma_incomplete(ST a, ST x, int lower) {
  if (isnan(a) || isnan(x) || a < 0 || x < 0) return (ST)NAN;
  const ST all = lower ? 1 : 0, none = 1 - all;
  if (a == 0) return x > 0 ? all : (ST)NAN;
  if (x == 0) return none;
  if (isinf(a)) return isinf(x) ? (ST)NAN : none;
  if (isinf(x)) return all;
  if (a > GAMMA_UNIFORM && fabs(x - a) < K(0.3) * a) return gamma_uniform(a, x, lower);
  if (x < a + 1) return lower ? gamma_series(a, x) : 1 - gamma_series(a, x);
  return lower ? 1 - gamma_fraction(a, x) : gamma_fraction(a, x);
}
static inline ST gamma_lower(ST a, ST x) { return gamma_incomplete(a, x, 1); }
static inline ST gamma_upper(ST a, ST x) { return gamma_incomplete(a, x, 0); }

// Reparameterised gradients: the change of a variate with its distribution's parameter at a fixed quantile, which is
// -(dF/da) / (dF/dx). The expansions of numerator and denominator are both divided by the density, so it cancels.
// Gamma(a): below the mean, the series of P; above it, the continued fraction of Q, each quantity with its derivative.
// For a large a, the leading terms of Temme's expansion, whose error is of order a^-1.5.
#if defined(ACC_DOUBLE)
#define GRADIENT_UNIFORM 10000
#else
#define GRADIENT_UNIFORM 1000
#endif
static inline ST gamma_gradient(ST a, ST x) {
  if (!(a > 0) || !(x > 0) || isinf(x)) return x == 0 ? (ST)0 : (ST)NAN;
  if (a > GRADIENT_UNIFORM) {
    const ST u = (x - a) / a;
    return (u == 0 ? (ST)1 : (1 + u) * log1p(u) / u) + 1 / (6 * a);
  }
  const ST start = log(x) - digamma_scalar(a);
  if (x < a + 1) {
    ST term = 1 / a, change = start - 1 / a, sum = term * change;
    for (int k = 1; k < 4 * GAMMA_TERMS && term > 0; k++) {
      term *= x / (a + k);
      change -= 1 / (a + k);
      sum += term * change;
      if (fabs(term * change) < EPSILON * fabs(sum)) break;
    }
    return -x * sum;
  }
  ST b = x + 1 - a, c = K(1e30), d = 1 / b, h = d, dc = 0, dd = d * d, dh = dd;
  for (int k = 1; k < 4 * GAMMA_TERMS; k++) {
    const ST n = k * (a - k);
    b += 2;
    dd = n * dd + k * d - 1;
    d = 1 / (n * d + b);
    dd *= -d * d;
    dc = -1 + k / c - n * dc / (c * c);
    c = b + n / c;
    const ST change = dc * d + c * dd;
    dh = dh * c * d + h * change;
    h *= c * d;
    if (fabs(c * d - 1) < EPSILON && fabs(change) < EPSILON) break;
  }
  return x * (h * start + dh);
}
// The same for Beta(a, total - a), divided by 1 - x: below the mean the series of F in x, above it the series in 1 - x
// (DLMF 8.17.8).
static inline ST dirichlet_gradient(ST x, ST a, ST total) {
  const ST b = total - a;
  if (!(x > 0 && x < 1 && a > 0 && b > 0)) return x == 0 ? (ST)0 : (ST)NAN;
  const int low = x * total < a;
  const ST y = low ? x : 1 - x, base = low ? a : b;
  ST term = 1 / base, change = log(x) - digamma_scalar(a) + digamma_scalar(total) - (low ? 1 / a : (ST)0);
  ST sum = term * change;
  for (int k = 0; k < 8 * GAMMA_TERMS; k++) {
    term *= y * (total + k) / (base + 1 + k);
    change += 1 / (total + k) - (low ? 1 / (a + 1 + k) : (ST)0);
    sum += term * change;
    if (fabs(term * change) < EPSILON * fabs(sum) && y * (total + k) < base + 1 + k) break;
  }
  return low ? -x * sum : x * sum;
}

NETCL_MAP1(digamma_scalar)
NETCL_MAP2(zeta_scalar)
NETCL_MAP2(gamma_lower)
NETCL_MAP2(gamma_upper)
NETCL_MAP2(gamma_gradient)
NETCL_MAP3(dirichlet_gradient)
#define OP_digamma(x) map_digamma_scalar(x)
#define OP_trigamma(x) trigamma(x)
// s0 = n + 1, s1 = (-1)^(n + 1) n!, for n > 1.
#define OP_polygamma(x) (s1 * map_zeta_scalar(s0, x))
#define OP_zeta(s, q) map_zeta_scalar(s, q)
#define OP_igamma(a, x) map_gamma_lower(a, x)
#define OP_igammac(a, x) map_gamma_upper(a, x)
#define OP_standard_gamma_grad(a, x) map_gamma_gradient(a, x)
#define OP_dirichlet_grad(x, a, total) map_dirichlet_gradient(x, a, total)

#include "common/pointwise_body.h"
