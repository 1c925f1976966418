// The exponentials of a softmax, of a vector of VEC floats.
#include "common/dtypes.h"

#define below_f32 1
#if defined(DEVICE_CPU) && VEC > 1 && (CAT(below_, ACC) || defined(NETCL_COMPILED))
#define EXP_BELOW(x) exp_below(x)
// exp(x) for x <= 0 or NaN: 2^k times a polynomial of x - k * ln 2, within 1 unit in the last place. Subnormal results
// become 0. It takes about half the instructions of a library's exp, which handles more cases.
static inline VTYPE(f32, VEC) exp_below(VTYPE(f32, VEC) x) {
  typedef VTYPE(f32, VEC) floats;
  const floats shifted = fma(x, (floats)(1.44269504f), (floats)(12582912.0f));  // 1.5 * 2^23: k in the low bits
  const floats k = shifted - 12582912.0f;
  const floats f = fma(k, (floats)(-1.42860677e-6f), fma(k, (floats)(-0.693145752f), x));
  floats q = fma(f, (floats)(0.00138145394f), (floats)(0.00836874545f));
  q = fma(q, f, (floats)(0.041668389f));
  q = fma(q, f, (floats)(0.166665211f));
  q = fma(q, f, (floats)(0.49999994f));
  q = fma(q, f * f, f) + 1;
  const floats r = q * CAT(as_float, VEC)((CAT(as_int, VEC)(shifted) << 23) + 0x3f800000);  // keeps NaN
  return x < -87.33654f ? (floats)(0) : r;
}
#else
#define EXP_BELOW(x) exp(x)
#endif
