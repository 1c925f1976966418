// Random fills. Sixteen Philox blocks form a group: 64 values of 32 bits, or 32 of 64 bits, in the same order on every
// device: value j of a group comes from block j % 16, word (or pair of words) j / 16.
// -D: DIST (see below), OUT (storage tag), ACC (f32, f64 or i64), WIDE if a value takes two words.
#define VEC 16
#include "common/philox.h"
#include "common/vector.h"

#ifdef WIDE
#define VALUES 2
#define LONG16(hi, lo) ((convert_ulong16(hi) << 32) | convert_ulong16(lo))
#ifdef HAVE_FP64
// Uniform numbers in [0, 1), (0, 1] and (-1/2, 1/2) with 53 bits.
static inline double16 wide_closed_open(uint16 hi, uint16 lo) {
  return convert_double16(LONG16(hi, lo) >> 11) * 0x1p-53;
}
static inline double16 wide_open_closed(uint16 hi, uint16 lo) {
  return convert_double16((LONG16(hi, lo) >> 11) + 1) * 0x1p-53;
}
static inline double16 wide_centred(uint16 hi, uint16 lo) {
  return (convert_double16(as_long16(LONG16(hi, lo) >> 11) - (1L << 52)) + 0.5) * 0x1p-53;
}
#define EPSILON_OVER_2 0x1p-53
#endif
#define UNIFORM(k) wide_closed_open(words.w[2 * (k)], words.w[2 * (k) + 1])
#define UNIFORM_POSITIVE(k) wide_open_closed(words.w[2 * (k)], words.w[2 * (k) + 1])
#define UNIFORM_CENTRED(k) wide_centred(words.w[2 * (k)], words.w[2 * (k) + 1])
#define BITS(k) as_long16(LONG16(words.w[2 * (k)], words.w[2 * (k) + 1]))
#else
#define VALUES 4
#define UNIFORM(k) uniform_closed_open(words.w[k])
#define UNIFORM_POSITIVE(k) uniform_open_closed(words.w[k])
#define UNIFORM_CENTRED(k) uniform_centred(words.w[k])
#define EPSILON_OVER_2 0x1p-24f
#define BITS(k) convert_long16(words.w[k])
#endif

// Value k (0 … VALUES - 1) of each block; a and b are the distribution's parameters. An exponential is never 0 (as on
// CUDA, the least one is half of epsilon, which is not 0 in half either), a geometric is at least 1, and a Cauchy is
// finite.
#define DIST_uniform(k) uniform_between(UNIFORM(k), a, b)
#define DIST_normal(k) (a + b * normal_pair(UNIFORM_POSITIVE((k) & ~1), UNIFORM((k) | 1), (k) & 1))
#define DIST_log_normal(k) exp(DIST_normal(k))
#define DIST_exponential(k) (fmax(-log(UNIFORM_POSITIVE(k)), (VT)(EPSILON_OVER_2)) / a)
#define DIST_cauchy(k) (a + b * tan((VT)M_PI * UNIFORM_CENTRED(k)))
#define DIST_geometric(k) fmax(ceil(log(UNIFORM_POSITIVE(k)) / log1p(-(VT)(a))), (VT)1)
#define DIST_bernoulli(k) (UNIFORM(k) < (VT)(a) ? (VT)1 : (VT)0)
#define DIST_bernoulli_tensor(k) (UNIFORM(k) < p ? (VT)1 : (VT)0)
// a + bits mod b; b = 0 means the full range of 64 bits.
#define DIST_integers(k) ((VT)(a) + (b == 0 ? BITS(k) : convert_long16(as_ulong16(BITS(k)) % (ulong16)((ulong)b))))

// The Box-Muller transform: two uniform numbers give two normal ones.
#ifndef ACC_INTEGRAL
static inline VT normal_pair(VT positive, VT angle, int second) {
  const VT r = sqrt(-2 * log(positive)), t = angle * (VT)(2 * M_PI);
  return r * (second ? sin(t) : cos(t));
}
// Rounding must not give the excluded upper end.
static inline VT uniform_between(VT u, ST from, ST to) {
  const VT v = u * (to - from) + from;
  return ROUND(OUT, ACC, 16, v) >= (VT)to ? (VT)from : v;
}
#endif

static inline void put(__global STORAGE(OUT)* out, long i, long n, VT v) {
  if (i + 16 <= n) {
    STORE(OUT, ACC, 16, out, i, v);
    return;
  }
  union {
    VT v;
    ST s[16];
  } lanes;
  lanes.v = v;
  for (int k = 0; k < 16 && i + k < n; k++) STORE(OUT, ACC, 1, out, i + k, lanes.s[k]);
}

static inline float16 get(__global const float* p, long i, long n) {
  if (i + 16 <= n) return vload16(0, p + i);
  float r[16];
  for (int k = 0; k < 16; k++) r[k] = p[min(i + k, n - 1)];
  return vload16(0, r);
}

__kernel void fill(BUF(out), BUF(prob), long n, long groups, ulong seed, ulong offset, ST a, ST b, BUF(err), int code) {
  const long first = (long)get_global_id(0) * groups;
  for (long g = first; g < first + groups && g * 16 * VALUES < n; g++) {
    const words_t words = philox16(seed, offset + (ulong)g * 16);
    for (int k = 0; k < VALUES; k++) {
      const long i = g * 16 * VALUES + k * 16;
      if (i >= n) break;
#ifdef WITH_TENSOR
      const float16 given = get(PTR(prob, float), i, n);
      if (any(isnan(given) | (given < 0) | (given > 1))) netcl_report(PTR(err, int), code, 0, 0);
      const VT p = CONVERT(ACC, 16, given);
#endif
      put(PTR(out, STORAGE(OUT)), i, n, CAT(DIST_, DIST)(k));
    }
  }
}
