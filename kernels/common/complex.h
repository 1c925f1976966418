// Arithmetic of complex numbers, which are pairs; R is the real type of the compute type.
#include "common/vector.h"

#if defined(ACC_DOUBLE)
typedef double R;
#else
typedef float R;
#endif

static inline VT c_mul(VT a, VT b) { return C_MUL(VT, a, b); }
static inline VT c_conj(VT a) { return (VT)(a.x, -a.y); }
static inline VT c_scale(VT a, R s) { return a * s; }
// Smith's scaling, so that neither large nor small parts overflow or vanish.
static inline VT c_div(VT a, VT b) {
  if (fabs(b.x) >= fabs(b.y)) {
    if (b.x == 0 && b.y == 0) return (VT)(a.x / fabs(b.x), a.y / fabs(b.y));
    const R r = b.y / b.x, d = b.x + b.y * r;
    return (VT)((a.x + a.y * r) / d, (a.y - a.x * r) / d);
  }
  const R r = b.x / b.y, d = b.x * r + b.y;
  return (VT)((a.x * r + a.y) / d, (a.y * r - a.x) / d);
}
static inline R c_abs(VT a) { return hypot(a.x, a.y); }
static inline R c_arg(VT a) { return atan2(a.y, a.x); }
static inline VT c_real(R r) { return (VT)(r, 0); }
// e^x (cos y, sin y). e^x may overflow although its product with a small sine does not, so e^(x / 2) is multiplied
// twice. If x is infinite, the result is infinite or 0 even if y is no finite angle.
static inline VT c_exp(VT a) {
  const R e = exp(a.x);
  if (a.y == 0) return (VT)(e, a.y);
  if (isinf(a.x) && !isfinite(a.y)) return a.x < 0 ? (VT)(0, copysign((R)0, a.y)) : (VT)(a.x, NAN);
  if (!isinf(e) || isinf(a.x)) return (VT)(e * cos(a.y), e * sin(a.y));
  const R root = exp(a.x / 2);
  return (VT)(root * cos(a.y) * root, root * sin(a.y) * root);
}
// The magnitude may overflow or lose digits although its logarithm would not, so the number is scaled first.
static inline VT c_log(VT a) {
  const R most = fmax(fabs(a.x), fabs(a.y));
  if (most > (R)1e30f && !isinf(most)) return (VT)(log(c_abs(a * (R)0x1p-4f)) + 4 * (R)M_LN2, c_arg(a));
  if (most < (R)1e-30f && most > 0) return (VT)(log(c_abs(a * (R)0x1p48f)) - 48 * (R)M_LN2, c_arg(a));
  return (VT)(log(c_abs(a)), c_arg(a));
}
// Near 0, 1 + a and e^a - 1 would lose digits of a.
static inline VT c_log1p(VT a) {
  if (fabs(a.x) + fabs(a.y) > (R)0.5) return c_log((VT)(1 + a.x, a.y));
  return (VT)(log1p(a.x * (2 + a.x) + a.y * a.y) / 2, atan2(a.y, 1 + a.x));
}
static inline VT c_expm1(VT a) {
  const R s = sin(a.y / 2);
  const VT e = c_exp(a);
  return fabs(a.x) + fabs(a.y) > (R)0.5 ? e - (VT)(1, 0) : (VT)(expm1(a.x) * cos(a.y) - 2 * s * s, e.y);
}
static inline VT c_sqrt(VT a) {
  const R most = fmax(fabs(a.x), fabs(a.y));
  if (a.x == 0 && a.y == 0) return (VT)(0, a.y);
  if (isinf(a.y)) return (VT)(INFINITY, a.y);
  // The scale is a power of 4. With it the sum cannot overflow, and its half cannot vanish.
  const R scale = most > (R)1e30f ? (R)0x1p-4f : most < (R)1e-30f ? (R)0x1p48f : (R)1;
  const R back = most > (R)1e30f ? (R)4 : most < (R)1e-30f ? (R)0x1p-24f : (R)1;
  const VT z = a * scale;
  const R t = sqrt((c_abs(z) + fabs(z.x)) / 2);
  return (z.x >= 0 ? (VT)(t, z.y / (2 * t)) : (VT)(fabs(z.y) / (2 * t), copysign(t, z.y))) * back;
}
static inline VT c_pow(VT a, VT b) {
  if (b.x == 0 && b.y == 0) return (VT)(1, 0);
  if (a.x == 0 && a.y == 0) return (VT)(0, 0);
  return c_exp(c_mul(b, c_log(a)));
}
// (sinh x cos y, cosh x sin y). A zero part stays 0, since its product with an infinite or NaN factor would be NaN. For
// a large x, e^(x / 2) is multiplied twice, as in c_exp.
static inline VT c_sinh(VT a) {
  if (a.y == 0) return (VT)(sinh(a.x), a.y);
  if (a.x == 0) return (VT)(a.x, sin(a.y));
  if (isinf(a.x) && !isfinite(a.y)) return (VT)(a.x, NAN);
  const R c = cos(a.y), s = sin(a.y);
  if (fabs(a.x) < 80 || isinf(a.x)) return (VT)(sinh(a.x) * c, cosh(a.x) * s);
  const R root = exp(fabs(a.x) / 2);
  return (VT)(copysign(root / 2, a.x) * c * root, root / 2 * s * root);
}
// (cosh x cos y, sinh x sin y)
static inline VT c_cosh(VT a) {
  if (a.y == 0) return (VT)(cosh(a.x), copysign((R)0, a.x) * copysign((R)1, a.y));
  const R c = cos(a.y), s = sin(a.y);
  if (a.x == 0) return (VT)(c, isfinite(a.y) ? a.x * s : (R)0);
  if (isinf(a.x) && !isfinite(a.y)) return (VT)(INFINITY, NAN);
  if (fabs(a.x) < 80 || isinf(a.x)) return (VT)(cosh(a.x) * c, sinh(a.x) * s);
  const R root = exp(fabs(a.x) / 2);
  return (VT)(root / 2 * c * root, copysign(root / 2, a.x) * s * root);
}
// sin(z) = -i sinh(i z), cos(z) = cosh(i z).
static inline VT c_sin(VT a) {
  const VT w = c_sinh((VT)(-a.y, a.x));
  return (VT)(w.y, -w.x);
}
static inline VT c_cos(VT a) { return c_cosh((VT)(-a.y, a.x)); }
static inline VT c_tanh(VT a) {
  // For large x, cosh overflows although tanh is 1.
  if (fabs(a.x) > 20) {
    if (!isfinite(a.y)) return isinf(a.x) ? (VT)(copysign((R)1, a.x), 0) : (VT)(NAN, NAN);
    return (VT)(copysign((R)1, a.x), 4 * sin(a.y) * cos(a.y) * exp(-2 * fabs(a.x)));
  }
  if (a.x == 0) return (VT)(a.x, tan(a.y));
  const R c = cos(a.y), s = sinh(a.x), d = s * s + c * c;
  return (VT)(s * cosh(a.x) / d, a.y == 0 ? a.y : sin(a.y) * c / d);
}
static inline VT c_tan(VT a) {
  const VT t = c_tanh((VT)(-a.y, a.x));
  return (VT)(t.y, -t.x);
}
static inline bool c_nonzero(VT a) { return a.x != 0 || a.y != 0; }
static inline VT c_times_i(VT a) { return (VT)(-a.y, a.x); }
static inline VT c_over_i(VT a) { return (VT)(a.y, -a.x); }
static inline VT c_asinh(VT a) {
  // log(z + sqrt(z^2 + 1)) loses digits in the left half-plane; asinh is odd.
  const VT z = signbit(a.x) ? -a : a;
  const R most = fmax(fabs(a.x), fabs(a.y));
  if (most < (R)1e-4f) {
    const VT r = a - c_mul(c_mul(a, a), a) / 6;
    return (VT)(copysign(r.x, a.x), copysign(r.y, a.y));  // a zero keeps its sign
  }
  if (most > (R)1e9f) {
    const VT far = c_log(z) + (VT)(M_LN2, 0);
    return signbit(a.x) ? -far : far;
  }
  // z^2 + 1 is written out: a sum of complex numbers would lose the sign of a zero part, which selects the side of the
  // cut.
  const VT r = c_log(z + c_sqrt((VT)(1 + (z.x - z.y) * (z.x + z.y), 2 * z.x * z.y)));
  return signbit(a.x) ? -r : r;
}
static inline VT c_atanh(VT a) {
  const R most = fmax(fabs(a.x), fabs(a.y));
  if (most < (R)1e-4f) return a + c_mul(c_mul(a, a), a) / 3;
  if (isinf(most)) return (VT)(copysign((R)0, a.x), copysign((R)M_PI_2, a.y));
  if (most > (R)1e9f) return (VT)(c_div((VT)(1, 0), a).x, copysign((R)M_PI_2, a.y));
  const VT z = signbit(a.x) ? -a : a;  // near -1 the logarithm's argument would be near -1 as well; atanh is odd
  const R rest = 1 - z.x;
  // y^2 vanishes before its logarithm does.
  const R re = rest == 0 && fabs(z.y) < (R)1e-4f ? (49 * (R)M_LN2 - log(fabs(z.y) * (R)0x1p48f)) / 2
                                                 : log1p(4 * z.x / (rest * rest + z.y * z.y)) / 4;
  const VT r = (VT)(re, atan2(2 * z.y, rest * (1 + z.x) - z.y * z.y) / 2);
  return signbit(a.x) ? -r : r;
}
// By Kahan's formulas, whose square roots keep the digits near 1 and -1 and the sides of the cuts.
static inline VT c_acos(VT a) {
  if (fmax(fabs(a.x), fabs(a.y)) > (R)1e9f) {
    const R far = c_log(a).x + (R)M_LN2;
    return (VT)(fabs(c_arg(a)), signbit(a.y) ? far : -far);
  }
  const VT p = c_sqrt((VT)(1 + a.x, a.y)), m = c_sqrt((VT)(1 - a.x, -a.y));
  return (VT)(2 * atan2(m.x, p.x), asinh(p.x * m.y - p.y * m.x));
}
static inline VT c_acosh(VT a) {
  const VT w = c_acos(a);
  return (VT)(fabs(w.y), copysign(w.x, a.y));
}
static inline VT c_asin(VT a) { return c_over_i(c_asinh(c_times_i(a))); }
static inline VT c_atan(VT a) { return c_over_i(c_atanh(c_times_i(a))); }
static inline VT c_sigmoid(VT a) { return c_div((VT)(1, 0), (VT)(1, 0) + c_exp(-a)); }
static inline VT c_log_add_exp(VT a, VT b) {
  const VT top = a.x > b.x ? a : b, low = a.x > b.x ? b : a;
  return isinf(top.x) && a.x == b.x ? top : top + c_log1p(c_exp(low - top));
}
static inline bool c_eq(VT a, VT b) { return a.x == b.x && a.y == b.y; }
static inline VT c_sgn(VT a) {
  const R m = c_abs(a);
  return m == 0 ? (VT)(0, 0) : (VT)(a.x / m, a.y / m);
}
