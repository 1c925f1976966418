// The normal distribution, for vectors VT of the compute type.
#define NORMAL_PDF(x) (exp((x) * (x) * (VT)(-0.5)) * (VT)(M_2_SQRTPI * M_SQRT1_2 * 0.5))

#if defined(ACC_DOUBLE)
#define NORMAL_CDF(x) ((VT)0.5 * erfc((x) * (VT)(-M_SQRT1_2)))
#else
#define NORMAL_CDF(x) normal_cdf(x)
// The cumulative distribution without branches; PoCL's erf branches for each element. -log(erfc(a)) / a is smooth. Its
// polynomial of degree 9 for 0 <= a <= 3.95 (least squares weighted by erfc(a), reweighted to minimise the maximum)
// gives an error of at most 8e-8. Beyond 3.95 the polynomial grows, so the tail ends in 0. NaN stays NaN.
static inline VT normal_cdf(VT x) {
  const VT a = fabs(x) * (VT)M_SQRT1_2_F;
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
  const VT tail = (VT)0.5f * exp(-q * a);
  return x < 0 ? tail : 1 - tail;
}
#endif
