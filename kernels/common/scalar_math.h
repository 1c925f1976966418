// Constants and functions of one number of the compute type ST (float or double).

#if defined(ACC_DOUBLE)
#define K(x) x
#define EPSILON 0x1p-53
#else
#define K(x) x##f
#define EPSILON 0x1p-24f
#endif
#define PI K(3.14159265358979323846)
#define SQRT1_2 K(0.70710678118654752440)

// log(1 + u) - u without cancellation for a small u: the logarithm's series in u / (2 + u).
static inline ST log1p_minus(ST u) {
  if (!(fabs(u) < K(0.5))) return log1p(u) - u;
  const ST r = u / (2 + u), s = r * r;
  ST sum = 0;
#if defined(ACC_DOUBLE)
  for (int k = 35; k > 2; k -= 2) sum = sum * s + 1 / (ST)k;
#else
  for (int k = 17; k > 2; k -= 2) sum = sum * s + 1 / (ST)k;
#endif
  return 2 * r * s * sum - r * u;
}
