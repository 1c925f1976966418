// The normal distribution, for vectors VT of the compute type.
#define NORMAL_CDF(x) ((VT)0.5 * ERF_PLUS_ONE((x) * (VT)M_SQRT1_2))
#define NORMAL_PDF(x) (exp((x) * (x) * (VT)(-0.5)) * (VT)(M_2_SQRTPI * M_SQRT1_2 * 0.5))

#if defined(ACC_DOUBLE)
#define ERF_PLUS_ONE(x) erfc(-(x))
#define ERF(x) erf(x)
#else
#define ERF_PLUS_ONE(x) erf_plus_one(x)
// erfc(a) for a >= 0 without branches; PoCL's erf branches for each element. -log(erfc(a)) / a is smooth. Its
// polynomial of degree 9 for 0 <= a <= 3.95 (least squares weighted by erfc(a), reweighted to minimise the maximum)
// gives an error of at most 1.6e-7. Beyond 3.95 the polynomial grows, so the tail ends in 0. NaN stays NaN.
static inline VT erfc_of_positive(VT a) {
  VT q = (VT)1.3234362e-6f;
  q = fma(q, a, (VT)(-2.2693079e-5f));
  q = fma(q, a, (VT)1.7311335e-4f);
  q = fma(q, a, (VT)(-7.5324340e-4f));
  q = fma(q, a, (VT)1.8154019e-3f);
  q = fma(q, a, (VT)(-2.6492763e-4f));
  q = fma(q, a, (VT)(-1.9112835e-2f));
  q = fma(q, a, (VT)1.0277030e-1f);
  q = fma(q, a, (VT)6.3661993e-1f);
  q = fma(q, a, (VT)1.1283792f);
  return exp(-q * a);
}
// Does not cancel where erf(x) is near -1.
static inline VT erf_plus_one(VT x) {
  const VT tail = erfc_of_positive(fabs(x));
  return x < 0 ? tail : 2 - tail;
}
#if defined(NETCL_BUILTINS)  // PoCL
#define ERF(x) erf_without_branches(x)
// Near 0, the polynomial of degree 6 of erf(x) / x in x^2 (fitted the same way) has a relative error of 6e-10.
static inline VT erf_without_branches(VT x) {
  const VT a = fabs(x), t = a * a;
  VT p = (VT)8.1850747e-5f;
  p = fma(p, t, (VT)(-8.0976984e-4f));
  p = fma(p, t, (VT)5.1969518e-3f);
  p = fma(p, t, (VT)(-2.6857706e-2f));
  p = fma(p, t, (VT)1.1283664e-1f);
  p = fma(p, t, (VT)(-3.7612632e-1f));
  p = fma(p, t, (VT)1.1283792f);
  return a < (VT)0.95f ? x * p : copysign(1 - erfc_of_positive(a), x);
}
#else
#define ERF(x) erf(x)
#endif
#endif
