// Element-wise operators of one input, one line each; x is a vector VT of the compute type.
#include "common/pointwise.h"

#if defined(ACC_COMPLEX)
#include "common/complex.h"
#define OP_copy(x) (x)
#define OP_neg(x) (-(x))
#define OP_abs(x) c_real(c_abs(x))
#define OP_angle(x) c_real(c_arg(x))
#define OP_conj_physical(x) c_conj(x)
#define OP_sgn(x) c_sgn(x)
#define OP_reciprocal(x) c_div((VT)(1, 0), x)
#define OP_sqrt(x) c_sqrt(x)
#define OP_rsqrt(x) c_div((VT)(1, 0), c_sqrt(x))
#define OP_exp(x) c_exp(x)
#define OP_exp2(x) c_exp((x) * (R)M_LN2)
#define OP_expm1(x) c_expm1(x)
#define OP_log(x) c_log(x)
#define OP_log2(x) (c_log(x) / (R)M_LN2)
#define OP_log10(x) (c_log(x) / (R)M_LN10)
#define OP_log1p(x) c_log1p(x)
#define OP_sin(x) c_sin(x)
#define OP_cos(x) c_cos(x)
#define OP_tan(x) c_tan(x)
#define OP_sinh(x) c_sinh(x)
#define OP_cosh(x) c_cosh(x)
#define OP_tanh(x) c_tanh(x)
#define OP_sigmoid(x) c_sigmoid(x)
#define OP_square(x) c_mul(x, x)
#define OP_cube(x) c_mul(c_mul(x, x), x)
#define OP_logical_not(x) AS_BOOL(!c_nonzero(x))
#define OP_asin(x) c_asin(x)
#define OP_acos(x) c_acos(x)
#define OP_atan(x) c_atan(x)
#define OP_asinh(x) c_asinh(x)
#define OP_acosh(x) c_acosh(x)
#define OP_atanh(x) c_atanh(x)
#define OP_silu(x) c_mul(x, c_sigmoid(x))
#define OP_sinc(x) (c_nonzero(x) ? c_div(c_sin((x) * (R)M_PI), (x) * (R)M_PI) : (VT)(1, 0))
#define OP_pow_scalar(x) c_pow(x, s0)

#elif defined(ACC_INTEGRAL)
#define OP_copy(x) (x)
#define OP_neg(x) (-(x))
#define OP_abs(x) ((x) < (VT)0 ? -(x) : (x))
#define OP_angle(x) (x)
#define OP_conj_physical(x) (x)
#define OP_sign(x) ((x) > (VT)0 ? (VT)1 : (x) < (VT)0 ? (VT)(-1) : (VT)0)
#define OP_sgn(x) OP_sign(x)
#define OP_signbit(x) AS_BOOL((x) < (VT)0)
#define OP_square(x) ((x) * (x))
#define OP_cube(x) ((x) * (x) * (x))
#define OP_logical_not(x) AS_BOOL((x) == (VT)0)
#if defined(ACC_BOOL)
#define OP_bitwise_not(x) AS_BOOL((x) == (VT)0)
#else
#define OP_bitwise_not(x) (~(x))
#define OP_ceil(x) (x)
#define OP_floor(x) (x)
#define OP_trunc(x) (x)
#define OP_round(x) (x)
#define OP_clamp_min(x) max(x, s0)
#define OP_clamp_max(x) min(x, s0)
#define OP_clamp(x) min(max(x, s0), s1)
#define OP_hardtanh(x) OP_clamp(x)
#define OP_threshold_scalar(x) ((x) <= s0 ? s1 : (x))
#endif
#define OP_isposinf(x) ((VT)0)
#define OP_isneginf(x) ((VT)0)
#define OP_nan_to_num(x) (x)
static inline ST pow_int(ST x, ST n) {
  ST r = 1;
  for (; n > 0; n >>= 1, x *= x) r *= n & 1 ? x : (ST)1;
  return r;
}
static inline VT pow_lanes(VT x, VT n) {
  lanes_t a, b, r;
  a.v = x;
  b.v = n;
  for (int k = 0; k < VEC; k++) r.s[k] = pow_int(a.s[k], b.s[k]);
  return r.v;
}
#define OP_pow_scalar_int(x) pow_lanes(x, s0)

#else
#include "special/activations.h"
#include "special/normal.h"
#include "special/tanh.h"
#define OP_copy(x) (x)
#define OP_neg(x) (-(x))
#define OP_abs(x) fabs(x)
#define OP_angle(x) (isnan(x) ? (x) : (x) < (VT)0 ? (VT)M_PI : (VT)0)
#define OP_conj_physical(x) (x)
#define OP_sign(x) ((x) > (VT)0 ? (VT)1 : (x) < (VT)0 ? (VT)(-1) : (VT)0)
#define OP_sgn(x) OP_sign(x)
#define OP_signbit(x) AS_BOOL(signbit(x))
#define OP_ceil(x) ceil(x)
#define OP_floor(x) floor(x)
#define OP_trunc(x) trunc(x)
#define OP_round(x) rint(x)
#define OP_round_decimals(x) (rint((x) * s0) / s0)
#define OP_round_decimals_negative(x) (rint((x) / s0) * s0)
#define OP_frac(x) ((x) - trunc(x))
#define OP_square(x) ((x) * (x))
#define OP_cube(x) ((x) * (x) * (x))
#define OP_inverse_square(x) (1 / ((x) * (x)))
#define OP_pow_scalar(x) pow(x, s0)
#define OP_sqrt(x) sqrt(x)
#define OP_rsqrt(x) (1 / sqrt(x))
#define OP_reciprocal(x) (1 / (x))
#define OP_exp(x) exp(x)
#define OP_exp2(x) exp2(x)
#define OP_expm1(x) expm1(x)
#define OP_log(x) log(x)
#define OP_log2(x) log2(x)
#define OP_log10(x) log10(x)
#define OP_log1p(x) log1p(x)
// If one lane of a float vector is large, infinite or NaN, PoCL reduces all lanes as large ones, with errors of 0.01
// for small ones. So the two kinds are computed separately.
#if defined(POCL_DEVICE_ADDRESS_BITS) && VEC > 1 && !defined(ACC_DOUBLE)
#define APART(f)                                                                                       \
  static inline VT f##_apart(VT x) {                                                                   \
    if (all(fabs(x) < (VT)125)) return f(x);                                                           \
    return fabs(x) < (VT)125 ? f(fabs(x) < (VT)125 ? x : (VT)0) : f(fabs(x) < (VT)125 ? (VT)1e3f : x); \
  }
APART(sin)
APART(cos)
APART(tan)
#define OP_sin(x) sin_apart(x)
#define OP_cos(x) cos_apart(x)
#define OP_tan(x) tan_apart(x)
#else  // Intel's cosine of a small number is an ulp off, which sinc's gradient divides by that number
#define OP_sin(x) sin(x)
#define OP_cos(x) (fabs(x) < (VT)1e-4 ? 1 - (x) * (x) / 2 : cos(x))
#define OP_tan(x) tan(x)
#endif
#define OP_asin(x) asin(x)
#define OP_acos(x) acos(x)
#define OP_atan(x) atan(x)
#define OP_sinh(x) sinh(x)
#define OP_cosh(x) cosh(x)
#define OP_tanh(x) TANH(x)
#define OP_asinh(x) asinh(x)
#define OP_acosh(x) acosh(x)
#define OP_atanh(x) atanh(x)
#define OP_erf(x) ERF(x)
#define OP_erf_plus_one(x) ERF_PLUS_ONE(x)  // of generated kernels
#define OP_erfc(x) erfc(x)
#if defined(DEVICE_CPU) && defined(HAVE_FP64) && !defined(ACC_DOUBLE) && !defined(POCL_DEVICE_ADDRESS_BITS)
#define OP_lgamma(x) CONVERT(f32, VEC, lgamma_wide(CONVERT(f64, VEC, x)))
// Intel's takes one lane after another. From 8 on by DLMF 5.11.1, below from that of 2 + z, |z| <= 1/2, by 5.7.3.
// 5.5.3 reflects a negative x. In double, since its terms cancel near its zeros.
static inline VTYPE(f64, VEC) lgamma_wide(VTYPE(f64, VEC) x) {
  const double series[14] = {0.42278433509846713, 0.3224670334241,    -0.0673523010532,    0.02058080842778,
                             -0.007385551028674,  0.002890510330742,  -0.001192753911703,  0.000509669524743,
                             -0.0002231547584536, 9.945751278181e-05, -4.492623673813e-05, 2.050721277567e-05,
                             -9.439488275268e-06, 4.374866789907e-06};
  const VTYPE(f64, VEC) a = x < 0 ? 1 - x : x, n = rint(a), z = a - n, r = 1 / a;
  VTYPE(f64, VEC) sum = 0, factor = n < 1 ? a * (a + 1) : n < 2 ? a : 1;
  for (int k = 13; k >= 0; k--) sum = sum * z + series[k];
  for (int k = 2; k < 8; k++) factor *= n > k ? z + k : 1;
  const VTYPE(f64, VEC) l = log(a < 8 ? factor : a), tail = r * (1 / 12. - r * r * (1 / 360. - r * r / 1260));
  const VTYPE(f64, VEC) up = a < 8 ? sum * z + (n < 2 ? -l : l) : (a - 0.5) * (l - 1) + 0.41893853320467274 + tail;
  return x < 0 && x > -INFINITY ? -log(fabs(sin(M_PI * (x - rint(x)))) / M_PI) - up : up;
}
#else
#define OP_lgamma(x) lgamma(x)
#endif
#define OP_sinc(x) ((x) == (VT)0 ? (VT)1 : OP_sin((VT)M_PI * (x)) / ((VT)M_PI * (x)))
#define OP_logit(x) log((x) / (1 - (x)))
#define OP_logit_eps(x) OP_logit(clamp_nan(x, s0, 1 - s0))
// The exponent of 0, infinity and NaN is 0.
#define OP_frexp(x) frexp_lanes(x, &r1)
static inline VT frexp_lanes(VT x, VT* exponents) {
  lanes_t a, r, e;
  a.v = x;
  for (int k = 0; k < VEC; k++) {
    int n = 0;
    r.s[k] = frexp(a.s[k], &n);
    e.s[k] = isfinite(a.s[k]) ? n : 0;
  }
  *exponents = e.v;
  return r.v;
}
#define OP_special_entr(x) (isnan(x) ? (x) : (x) > (VT)0 ? -(x) * log(x) : (x) == (VT)0 ? (VT)0 : (VT)(-INFINITY))
#define OP_logical_not(x) AS_BOOL((x) == (VT)0)
#define OP_isposinf(x) AS_BOOL((x) == (VT)INFINITY)
#define OP_isneginf(x) AS_BOOL((x) == (VT)(-INFINITY))
#define OP_nan_to_num(x) (isnan(x) ? s0 : (x) == (VT)INFINITY ? s1 : (x) == (VT)(-INFINITY) ? s2 : (x))
// NaN stays NaN; min and max alone would drop it.
#define clamp_nan(x, lo, hi) (isnan(x) ? (x) : fmin(fmax(x, lo), hi))
#define OP_clamp_min(x) (isnan(x) ? (x) : fmax(x, s0))
#define OP_clamp_max(x) (isnan(x) ? (x) : fmin(x, s0))
#define OP_clamp(x) clamp_nan(x, s0, s1)

// Activations.
#define OP_sigmoid(x) SIGMOID(x)
#define OP_log_sigmoid(x) (fmin(x, (VT)0) - log1p(exp(-fabs(x))))
#define OP_gelu(x) ((x) * NORMAL_CDF(x))
#define OP_gelu_tanh(x) GELU_TANH(x)
#define OP_silu(x) ((x) / (1 + exp(-(x))))
#define OP_mish(x) MISH(x)
#define OP_elu(x) ((x) < (VT)0 ? expm1((x) * s2) * (s0 * s1) : (x) * s1)
#define OP_leaky_relu(x) ((x) > (VT)0 ? (x) : (x) * s0)
#define OP_softplus(x) ((x) * s0 > s1 ? (x) : log1p(exp((x) * s0)) / s0)
// The bin of x among s1 equal ones of [s0, s3] of length s2, of which the last is closed, or s1 if it is in none.
#define OP_bin(x) ((x) >= s0 && (x) <= s3 ? fmin(trunc(((x) - s0) * s1 / s2), (VT)(s1 - 1)) : (VT)(s1))
#define OP_hardshrink(x) ((x) >= -s0 && (x) <= s0 ? (VT)0 : (x))
#define OP_softshrink(x) (isnan(x) ? (x) : (x) > s0 ? (x) - s0 : (x) < -s0 ? (x) + s0 : (x) * 0)
#define OP_hardsigmoid(x) (clamp_nan((x) + 3, (VT)0, (VT)6) / 6)
#define OP_hardswish(x) ((x) * clamp_nan((x) + 3, (VT)0, (VT)6) / 6)
#endif

#include "common/pointwise_body.h"
