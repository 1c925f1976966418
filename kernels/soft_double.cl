// float64 in integer arithmetic, for devices without cl_khr_fp64: what torch.amp.GradScaler needs for
// scale.double().reciprocal().float(). All three are exact or rounded to nearest even, including subnormal numbers.
// -D: OP (widen, narrow, reciprocal), IN, OUT (u32 or u64: unsigned integers as large as the numbers).
#define WORK_GROUPS
#include "common/dtypes.h"

#define MANTISSA 0x000fffffffffffffUL
#define IMPLICIT 0x0010000000000000UL
#define INFINITE 0x7ff0000000000000UL
#define QUIET_NAN 0x7ff8000000000000UL

// x >> shift, rounded to nearest even; `sticky` says whether there are bits below x.
static inline ulong shift_round(ulong x, int shift, int sticky) {
  if (shift > 60) return 0;
  const ulong half_unit = 1UL << (shift - 1), rest = x & ((1UL << shift) - 1);
  const ulong r = x >> shift;
  return r + (rest > half_unit || (rest == half_unit && (sticky || (r & 1))));
}

static inline ulong widen_bits(uint u) {
  const ulong sign = (ulong)(u >> 31) << 63;
  int e = (u >> 23) & 0xff;
  ulong m = u & 0x7fffff;
  if (e == 0xff) return sign | (m ? QUIET_NAN | m << 29 : INFINITE);
  if (e == 0) {
    if (m == 0) return sign;
    const int up = (int)clz((uint)m) - 8;  // makes the leading bit implicit
    m = (m << up) & 0x7fffff;
    e = 1 - up;
  }
  return sign | (ulong)(e + 1023 - 127) << 52 | m << 29;
}

static inline uint narrow_bits(ulong u) {
  const uint sign = (uint)(u >> 63) << 31;
  const int e = (int)(u >> 52 & 0x7ff) - 1023 + 127;  // the exponent of a float
  const ulong m = u & MANTISSA;
  if ((u & INFINITE) == INFINITE) return sign | 0x7f800000u | (m ? 0x400000u | (uint)(m >> 29) : 0u);
  if (e > 254) return sign | 0x7f800000u;
  // The leading bit of the rounded mantissa carries into the exponent.
  if (e > 0) return sign | (((uint)(e - 1) << 23) + (uint)shift_round(m | IMPLICIT, 29, 0));
  return sign | (uint)shift_round(m | IMPLICIT, 30 - e, 0);
}

static inline ulong reciprocal_bits(ulong u) {
  const ulong sign = u & 0x8000000000000000UL;
  int e = (int)(u >> 52 & 0x7ff);
  ulong m = u & MANTISSA;
  if (e == 0x7ff) return m ? u | QUIET_NAN : sign;
  if (e == 0) {
    if (m == 0) return sign | INFINITE;
    const int up = (int)clz(m) - 11;
    m = (m << up) & MANTISSA;
    e = 1 - up;
  }
  if (m == 0) {  // a power of 2
    const int r = 2046 - e;
    return sign | (r > 2046 ? INFINITE : r > 0 ? (ulong)r << 52 : IMPLICIT >> 1);
  }
  // 2^107 / mantissa with 55 bits: the 53 of the result and two more. A remainder sets the sticky bit.
  const ulong d = m | IMPLICIT;
  ulong rest = IMPLICIT << 1, q = 0;
  for (int k = 0; k < 55; k++) {
    q <<= 1;
    if (rest >= d) {
      rest -= d;
      q |= 1;
    }
    rest <<= 1;
  }
  const int r = 2045 - e;
  if (r > 2046) return sign | INFINITE;
  if (r > 0) return sign | (((ulong)(r - 1) << 52) + shift_round(q, 2, rest != 0));
  return sign | shift_round(q, 3 - r, rest != 0);
}

__kernel void soft_double(BUF(out), BUF(in), const long n) {
  const long i = get_global_id(0);
  if (i < n) PTR(out, STORAGE(OUT))[i] = CAT(OP, _bits)(PTR(in, const STORAGE(IN))[i]);
}
