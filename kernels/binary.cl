// Element-wise operators of two inputs, one line each; x and y are vectors VT of the compute type.
#include "common/pointwise.h"

#if defined(ACC_COMPLEX)
#include "common/complex.h"
#define OP_add(x, y) ((x) + c_mul(s0, y))
#define OP_mul(x, y) c_mul(x, y)
#define OP_div_true(x, y) c_div(x, y)
#define OP_eq(x, y) AS_BOOL(c_eq(x, y))
#define OP_ne(x, y) AS_BOOL(!c_eq(x, y))
#define OP_logical_and(x, y) AS_BOOL(c_nonzero(x) && c_nonzero(y))
#define OP_logical_or(x, y) AS_BOOL(c_nonzero(x) || c_nonzero(y))
#define OP_logical_xor(x, y) AS_BOOL(c_nonzero(x) != c_nonzero(y))
#define OP_pow_tensor_tensor(x, y) c_pow(x, y)
#define OP_lerp_scalar(x, y) lerp_complex(x, y, s0)
#define OP_sigmoid_backward(g, y) c_mul(g, c_conj(c_mul((VT)(1, 0) - (y), y)))
#define OP_tanh_backward(g, y) c_mul(g, c_conj((VT)(1, 0) - c_mul(y, y)))
#define OP_xlogy(a, b) ((a).x == 0 && (a).y == 0 ? (VT)(0, 0) : c_mul(a, c_log(b)))
#define OP_complex(re, im) ((VT)((re).x, (im).x))
#define OP_polar(r, phi) ((VT)((r).x * cos((phi).x), (r).x * sin((phi).x)))
#define OP_logaddexp(x, y) c_log_add_exp(x, y)
// |weight| decides from which end to interpolate, as in ATen's lerp.
static inline VT lerp_complex(VT x, VT y, VT w) {
  return c_abs(w) < (R)0.5 ? x + c_mul(w, y - x) : y - c_mul(y - x, (VT)(1, 0) - w);
}

#else
#define OP_add(x, y) ((x) + s0 * (y))
#define OP_mul(x, y) ((x) * (y))
#define OP_masked_scale(x, m) ((x) * (m) * s0)
#define OP_lt(x, y) AS_BOOL((x) < (y))
#define OP_le(x, y) AS_BOOL((x) <= (y))
#define OP_gt(x, y) AS_BOOL((x) > (y))
#define OP_ge(x, y) AS_BOOL((x) >= (y))
#define OP_eq(x, y) AS_BOOL((x) == (y))
#define OP_ne(x, y) AS_BOOL((x) != (y))
#define OP_logical_and(x, y) AS_BOOL((x) != (VT)0 && (y) != (VT)0)
#define OP_logical_or(x, y) AS_BOOL((x) != (VT)0 || (y) != (VT)0)
#define OP_logical_xor(x, y) AS_BOOL(((x) != (VT)0) != ((y) != (VT)0))
#define OP_mse(x, y) (((x) - (y)) * ((x) - (y)))
#define OP_heaviside(x, y) ((x) == (VT)0 ? (y) : AS_BOOL((x) > (VT)0))
#if !defined(ACC_BOOL)
#define OP_threshold(x, y) ((x) <= s0 ? s1 : (y))
#endif
#endif

#if defined(ACC_INTEGRAL)
#include "common/integer_math.h"
NETCL_INTEGER_MATH(, VT, ST)
static inline ST gcd_int(ST a, ST b) {
  a = (ST)abs(a);  // not -a, which the compiler takes to be positive
  b = (ST)abs(b);
  while (a != 0) {
    const ST t = b % a;
    b = a;
    a = t;
  }
  return b;
}
NETCL_MAP2(gcd_int)
static inline ST lcm_int(ST a, ST b) {
  const ST g = gcd_int(a, b);
  if (g == 0) return 0;
  // Narrow integers are multiplied as int and wrap at the end, as on the CPU.
  return a / g * b < 0 ? -(a / g * b) : a / g * b;
}
NETCL_MAP2(lcm_int)
#define OP_maximum(x, y) max(x, y)
#define OP_minimum(x, y) min(x, y)
#define OP_fmax(x, y) max(x, y)
#define OP_fmin(x, y) min(x, y)
#define OP_bitwise_and(x, y) ((x) & (y))
#define OP_bitwise_or(x, y) ((x) | (y))
#define OP_bitwise_xor(x, y) ((x) ^ (y))
// Not defined for bool, as on CPU and CUDA.
#if !defined(ACC_BOOL)
#define OP_div_floor(x, y) floor_quotient(x, y)
#define OP_div_trunc(x, y) safe_quotient(x, y)
#define OP_remainder(x, y) floor_rest(x, y)
#define OP_fmod(x, y) safe_rest(x, y)
#define OP_pow_tensor_tensor(x, y) map_pow_int(x, y)
#define OP_clamp_min(x, y) max(x, y)
#define OP_clamp_max(x, y) min(x, y)
#define OP_add_clamp(x, y) min(max((x) + s0 * (y), s1), s2)
#define OP_lshift(x, y) map_left_shift(x, y)
#define OP_rshift(x, y) map_right_shift(x, y)
#define OP_gcd(x, y) map_gcd_int(x, y)
#define OP_lcm(x, y) map_lcm_int(x, y)
#endif

#elif defined(ACC_FLOATING)
#include "special/activations.h"
#include "special/normal.h"
static inline VT floor_rest(VT x, VT y) {
  const VT r = fmod(x, y);
  return r != (VT)0 && ((y < (VT)0) != (r < (VT)0)) ? r + y : r;
}
// CPU and CUDA round each step of a division of half or bfloat16 to that dtype, so this does too.
#define NARROW(v) ROUND(COMMON, ACC, VEC, v)
// Python's floor division, with ATen's correction of the last digit (c10::div_floor_floating).
static inline VT floor_quotient(VT x, VT y) {
  const VT r = fmod(x, y);
  VT q = NARROW(NARROW(x - r) / y);
  q = r != (VT)0 && ((y < (VT)0) != (r < (VT)0)) ? NARROW(q - 1) : q;
  VT f = floor(q);
  f = q - f > (VT)0.5 ? f + 1 : f;
  f = q == (VT)0 ? copysign((VT)0, x / y) : f;
  return y == (VT)0 ? x / y : f;
}
static inline VT log_add_exp(VT x, VT y) {
  const VT m = fmax(x, y);
  return isinf(x) && x == y ? x : isnan(x) || isnan(y) ? x + y : m + log1p(exp(-fabs(x - y)));
}
static inline VT log_add_exp2(VT x, VT y) {
  const VT m = fmax(x, y);
  return isinf(x) && x == y ? x : isnan(x) || isnan(y) ? x + y : m + log1p(exp2(-fabs(x - y))) * (VT)M_LOG2E;
}
#if !defined(ACC_DOUBLE)
// The neighbour of x in its narrow dtype, although x is held in a float. A unit in the last place is 1 << 16 of the
// float's bits for bfloat16, and 1 << 13 for half, whose denormal numbers and infinity differ.
static inline ST next_bfloat16(ST x, ST y) {
  if (isnan(x) || isnan(y)) return x + y;
  if (x == y) return y;
  if (x == 0) return copysign(as_float(0x10000), y);
  return as_float(as_int(x) + ((x < y) == (x > 0) ? 0x10000 : -0x10000));
}
static inline ST next_half(ST x, ST y) {
  if (isnan(x) || isnan(y)) return x + y;
  if (x == y) return y;
  if (isinf(x)) return copysign(65504.0f, x);
  const bool away = (x < y) == (x > 0);
  if (x == 0) return copysign(0x1p-24f, y);
  if (fabs(x) < 0x1p-14f || (fabs(x) == 0x1p-14f && !away)) return copysign(x < y ? x + 0x1p-24f : x - 0x1p-24f, x);
  return as_float(as_int(x) + (away ? 0x2000 : -0x2000));
}
NETCL_MAP2(next_bfloat16)
NETCL_MAP2(next_half)
#endif
#define OP_div_true(x, y) ((x) / (y))
#define OP_div_floor(x, y) floor_quotient(x, y)
#define OP_div_trunc(x, y) trunc(NARROW((x) / (y)))
#define OP_remainder(x, y) floor_rest(x, y)
#define OP_fmod(x, y) fmod(x, y)
#define OP_pow_tensor_tensor(x, y) pow(x, y)
#define OP_atan2(x, y) atan2(x, y)
// The result is NaN if either side is NaN.
#define OP_maximum(x, y) ((x) > (y) || isnan(x) ? (x) : (y))
#define OP_minimum(x, y) ((x) < (y) || isnan(x) ? (x) : (y))
#define OP_fmax(x, y) fmax(x, y)
#define OP_fmin(x, y) fmin(x, y)
#define OP_clamp_min(x, y) OP_maximum(x, y)
#define OP_clamp_max(x, y) OP_minimum(x, y)
#define OP_add_clamp(x, y) add_clamp((x) + s0 * (y), s1, s2)
#define add_clamp(v, lo, hi) (isnan(v) ? (v) : fmin(fmax(v, lo), hi))
#define OP_hypot(x, y) hypot(x, y)
#define OP_nextafter(x, y) CAT(nextafter_, COMMON)(x, y)
#define nextafter_f32(x, y) nextafter(x, y)
#define nextafter_f64(x, y) nextafter(x, y)
#define nextafter_f16(x, y) map_next_half(x, y)
#define nextafter_bf16(x, y) map_next_bfloat16(x, y)
#define OP_copysign(x, y) copysign(x, y)
#define OP_logaddexp(x, y) log_add_exp(x, y)
#define OP_logaddexp2(x, y) log_add_exp2(x, y)
#define OP_xlogy(x, y) (isnan(y) ? (y) : (x) == (VT)0 ? (VT)0 : (x) * log(y))
#define OP_xlog1py(x, y) (isnan(y) ? (y) : (x) == (VT)0 ? (VT)0 : (x) * log1p(y))
#define OP_smooth_l1(x, y) smooth_l1(fabs((x) - (y)), s0)
#define smooth_l1(z, beta) ((z) < (beta) ? (VT)0.5 * (z) * (z) / (beta) : (z) - (VT)0.5 * (beta))
#define OP_huber(x, y) huber(fabs((x) - (y)), s0)
#define huber(z, delta) ((z) <= (delta) ? (VT)0.5 * (z) * (z) : (delta) * ((z) - (VT)0.5 * (delta)))
#define OP_lerp_scalar(x, y) (fabs(s0) < (VT)0.5 ? (x) + s0 * ((y) - (x)) : (y) - ((y) - (x)) * (1 - s0))

// Backward passes: g is the gradient; the next argument is the input or output, whichever ATen passes.
#define OP_sigmoid_backward(g, y) ((g) * (1 - (y)) * (y))
#define OP_tanh_backward(g, y) ((g) * (1 - (y) * (y)))
#define OP_logit_backward(g, x) ((x) < (VT)0 || (x) > (VT)1 ? (VT)NAN : (g) / ((x) * (1 - (x))))
#define OP_logit_eps_backward(g, x) ((x) < s0 || (x) > 1 - s0 ? (VT)0 : (g) / ((x) * (1 - (x))))
#define OP_silu_backward(g, x) ((g) * SIGMOID(x) * (1 + (x) * (1 - SIGMOID(x))))
#define OP_gelu_backward(g, x) ((g) * (NORMAL_CDF(x) + (x) * NORMAL_PDF(x)))
#define OP_gelu_tanh_backward(g, x) ((g) * gelu_tanh_slope(x))
#define OP_mish_backward(g, x) ((g) * mish_slope(x))
#define OP_log_sigmoid_backward(x, g) ((g) * (1 / (1 + exp(x))))
// log is held at -100, as ATen holds it.
#define OP_elu_backward(g, x) ((x) <= (VT)0 ? (g) * s2 * (s0 * s1) * exp((x) * s2) : (g) * s1)
#define OP_elu_backward_result(g, y) ((y) <= (VT)0 ? (g) * s2 * ((y) + s0 * s1) : (g) * s1)
#define OP_leaky_relu_backward(x, g) ((x) > (VT)0 ? (g) : (g) * s0)
#define OP_softplus_backward(g, x) ((x) * s0 > s1 ? (g) : (g) * SIGMOID((x) * s0))
#define OP_shrink_backward(g, x) ((x) >= -s0 && (x) <= s0 ? (VT)0 : (g))
#define OP_hardtanh_backward(g, x) ((x) <= s0 || (x) >= s1 ? (VT)0 : (g))
#define OP_hardsigmoid_backward(g, x) ((x) > (VT)(-3) && (x) < (VT)3 ? (g) / 6 : (VT)0)
#define OP_hardswish_backward(g, x) ((x) <= (VT)(-3) ? (VT)0 : (x) < (VT)3 ? (g) * ((x) / 3 + (VT)0.5) : (g))
#define OP_glu(a, b) ((a) * SIGMOID(b))
#define OP_prelu(x, w) ((x) > (VT)0 ? (x) : (w) * (x))
#endif

#include "common/pointwise_body.h"
