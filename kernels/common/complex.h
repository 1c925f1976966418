// Arithmetic of complex numbers as pairs; R is the real type of the compute type.
#ifndef NETCL_COMPLEX_H
#define NETCL_COMPLEX_H

#if defined(ACC_DOUBLE)
typedef double R;
#else
typedef float R;
#endif

inline VT c_mul(VT a, VT b) { return (VT)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
inline VT c_conj(VT a) { return (VT)(a.x, -a.y); }
inline VT c_scale(VT a, R s) { return a * s; }
// Smith's scaling, so that large and small parts neither overflow nor vanish.
inline VT c_div(VT a, VT b) {
  if (fabs(b.x) >= fabs(b.y)) {
    if (b.x == 0 && b.y == 0) return (VT)(a.x / fabs(b.x), a.y / fabs(b.y));
    const R r = b.y / b.x, d = b.x + b.y * r;
    return (VT)((a.x + a.y * r) / d, (a.y - a.x * r) / d);
  }
  const R r = b.x / b.y, d = b.x * r + b.y;
  return (VT)((a.x * r + a.y) / d, (a.y * r - a.x) / d);
}
inline R c_abs(VT a) { return hypot(a.x, a.y); }
inline R c_arg(VT a) { return atan2(a.y, a.x); }
inline VT c_real(R r) { return (VT)(r, 0); }
inline VT c_exp(VT a) {
  const R e = exp(a.x);
  return a.y == 0 ? (VT)(e, a.y) : (VT)(e * cos(a.y), e * sin(a.y));
}
inline VT c_log(VT a) { return (VT)(log(c_abs(a)), c_arg(a)); }
// Near 0, where 1 + a and e^a - 1 would lose a's digits.
inline VT c_log1p(VT a) {
  if (fabs(a.x) + fabs(a.y) > (R)0.5) return c_log((VT)(1, 0) + a);
  return (VT)(log1p(a.x * (2 + a.x) + a.y * a.y) / 2, atan2(a.y, 1 + a.x));
}
inline VT c_expm1(VT a) {
  const R s = sin(a.y / 2);
  const VT e = c_exp(a);
  return fabs(a.x) + fabs(a.y) > (R)0.5 ? e - (VT)(1, 0) : (VT)(expm1(a.x) * cos(a.y) - 2 * s * s, e.y);
}
inline VT c_sqrt(VT a) {
  const R m = c_abs(a);
  if (m == 0) return (VT)(0, a.y);
  if (isinf(a.y)) return (VT)(INFINITY, a.y);
  const R t = sqrt((m + fabs(a.x)) / 2);
  return a.x >= 0 ? (VT)(t, a.y / (2 * t)) : (VT)(fabs(a.y) / (2 * t), copysign(t, a.y));
}
inline VT c_pow(VT a, VT b) {
  if (b.x == 0 && b.y == 0) return (VT)(1, 0);
  if (a.x == 0 && a.y == 0) return (VT)(0, 0);
  return c_exp(c_mul(b, c_log(a)));
}
inline VT c_sinh(VT a) { return (VT)(sinh(a.x) * cos(a.y), cosh(a.x) * sin(a.y)); }
inline VT c_cosh(VT a) { return (VT)(cosh(a.x) * cos(a.y), sinh(a.x) * sin(a.y)); }
inline VT c_sin(VT a) { return (VT)(sin(a.x) * cosh(a.y), cos(a.x) * sinh(a.y)); }
inline VT c_cos(VT a) { return (VT)(cos(a.x) * cosh(a.y), -sin(a.x) * sinh(a.y)); }
inline VT c_tanh(VT a) {
  // cosh overflows where tanh has long reached 1.
  if (fabs(a.x) > 20) return (VT)(copysign((R)1, a.x), 4 * sin(a.y) * cos(a.y) * exp(-2 * fabs(a.x)));
  return c_div(c_sinh(a), c_cosh(a));
}
inline VT c_tan(VT a) {
  const VT t = c_tanh((VT)(-a.y, a.x));
  return (VT)(t.y, -t.x);
}
inline bool c_nonzero(VT a) { return a.x != 0 || a.y != 0; }
inline VT c_times_i(VT a) { return (VT)(-a.y, a.x); }
inline VT c_over_i(VT a) { return (VT)(a.y, -a.x); }
inline VT c_asinh(VT a) {
  // log(z + sqrt(z^2 + 1)) loses digits on the left half-plane; asinh is odd.
  const VT z = a.x < 0 ? -a : a;
  const VT r = c_log(z + c_sqrt(c_mul(z, z) + (VT)(1, 0)));
  return a.x < 0 ? -r : r;
}
inline VT c_atanh(VT a) { return c_scale(c_log((VT)(1, 0) + a) - c_log((VT)(1, 0) - a), (R)0.5); }
inline VT c_acosh(VT a) { return c_log(a + c_mul(c_sqrt(a + (VT)(1, 0)), c_sqrt(a - (VT)(1, 0)))); }
inline VT c_asin(VT a) { return c_over_i(c_asinh(c_times_i(a))); }
inline VT c_acos(VT a) { return (VT)((R)M_PI_2, 0) - c_asin(a); }
inline VT c_atan(VT a) { return c_over_i(c_atanh(c_times_i(a))); }
inline VT c_sigmoid(VT a) { return c_div((VT)(1, 0), (VT)(1, 0) + c_exp(-a)); }
inline VT c_log_add_exp(VT a, VT b) {
  const VT top = a.x > b.x ? a : b, low = a.x > b.x ? b : a;
  return isinf(top.x) && a.x == b.x ? top : top + c_log1p(c_exp(low - top));
}
inline bool c_eq(VT a, VT b) { return a.x == b.x && a.y == b.y; }
inline VT c_sgn(VT a) {
  const R m = c_abs(a);
  return m == 0 ? (VT)(0, 0) : (VT)(a.x / m, a.y / m);
}

#endif
