// Element-wise operators of three and more inputs, one line each.
#include "common/pointwise.h"

#if defined(ACC_COMPLEX)
#include "common/complex.h"
#define OP_where(c, a, b) ((c).x != 0 ? (a) : (b))
#define OP_addcmul(x, a, b) ((x) + c_mul(s0, c_mul(a, b)))
#define OP_addcdiv(x, a, b) ((x) + c_mul(s0, c_div(a, b)))
#define OP_cross(a, b, c, d) (c_mul(a, b) - c_mul(c, d))
#define OP_lerp_tensor(x, y, w) \
  (c_abs(w) < (R)0.5 ? (x) + c_mul(w, (y) - (x)) : (y) - c_mul((y) - (x), (VT)(1, 0) - (w)))
#define OP_mse_backward(x, y, g) c_mul(s0, c_mul((x) - (y), g))
#else
#define OP_where(c, x, y) ((c) != (VT)0 ? (x) : (y))
#if !defined(ACC_BOOL)
#define OP_addcmul(x, a, b) ((x) + s0 * (a) * (b))
#define OP_cross(a, b, c, d) ((a) * (b) - (c) * (d))
#endif
#endif

#if defined(ACC_INTEGRAL)
#if !defined(ACC_BOOL)
#define OP_clamp_tensor(x, lo, hi) min(max(x, lo), hi)
#endif
#elif defined(ACC_FLOATING)
#define OP_clamp_tensor(x, lo, hi) (isnan(x) ? (x) : isnan(lo) ? (lo) : isnan(hi) ? (hi) : fmin(fmax(x, lo), hi))
#define OP_addcdiv(x, a, b) ((x) + s0 * ((a) / (b)))
#define OP_lerp_tensor(x, y, w) (fabs(w) < (VT)0.5 ? (x) + (w) * ((y) - (x)) : (y) - ((y) - (x)) * (1 - (w)))
#define OP_mse_backward(x, y, g) (s0 * ((x) - (y)) * (g))
// s0 = norm, s1 = beta or delta
#define OP_smooth_l1_backward(x, y, g) \
  ((x) - (y) <= -s1 ? -s0 * (g) : (x) - (y) >= s1 ? s0 * (g) : s0 * ((x) - (y)) * (g) / s1)
#define OP_huber_backward(x, y, g) \
  ((x) - (y) <= -s1 ? -s0 * (g) * s1 : (x) - (y) >= s1 ? s0 * (g) * s1 : s0 * ((x) - (y)) * (g))
#define OP_binary_cross_entropy_backward(g, x, y) ((g) * ((x) - (y)) / fmax((1 - (x)) * (x), (VT)1e-12))
#define OP_glu_backward_halves(g, a, b) glu_backward_halves(g, a, b, &r1)
static inline VT glu_backward_halves(VT g, VT a, VT b, VT* second) {
  const VT s = 1 / (1 + exp(-b));
  *second = g * a * s * (1 - s);
  return g * s;
}
#define OP_glu_jvp(y, b, da, db) glu_jvp(y, 1 / (1 + exp(-(b))), da, db)
#define glu_jvp(y, s, da, db) ((da) * (s) + (y) * (1 - (s)) * (db))
#define OP_prelu_backward(x, w, g) prelu_backward(x, w, g, &r1)
static inline VT prelu_backward(VT x, VT w, VT g, VT* weight) {
  *weight = x > (VT)0 ? (VT)0 : x * g;
  return x > (VT)0 ? g : w * g;
}
#endif

#include "common/pointwise_body.h"
