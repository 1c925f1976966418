// Random fills. A group of sixteen Philox blocks has 64 values of 32 bits, or 32 of 64 bits, in the same order on every
// device (common/philox.h).
// -D: OP (a distribution, see below), OUT (storage tag), ACC (f32, f64 or i64), WIDE if a value takes two words.
#include "args/random.h"
#include "common/philox.h"
#define VEC BLOCKS
#include "common/scalar.h"

#ifdef WIDE
#define VALUES 2
#define LONGS(hi, lo) ((CONVERT(u64, VEC, hi) << 32) | CONVERT(u64, VEC, lo))
#ifdef HAVE_FP64
// Uniform numbers in [0, 1), (0, 1] and (-1/2, 1/2) with 53 bits.
typedef VTYPE(f64, VEC) doubles;
static inline doubles wide_closed_open(uints hi, uints lo) { return CONVERT(f64, VEC, LONGS(hi, lo) >> 11) * 0x1p-53; }
static inline doubles wide_open_closed(uints hi, uints lo) {
  return CONVERT(f64, VEC, (LONGS(hi, lo) >> 11) + 1) * 0x1p-53;
}
static inline doubles wide_centred(uints hi, uints lo) {
  return (CONVERT(f64, VEC, CONVERT(i64, VEC, LONGS(hi, lo) >> 11) - (1L << 52)) + 0.5) * 0x1p-53;
}
#define EPSILON_OVER_2 0x1p-53
#endif
#define UNIFORM(k) wide_closed_open(words.w[2 * (k)], words.w[2 * (k) + 1])
#define UNIFORM_POSITIVE(k) wide_open_closed(words.w[2 * (k)], words.w[2 * (k) + 1])
#define UNIFORM_CENTRED(k) wide_centred(words.w[2 * (k)], words.w[2 * (k) + 1])
#define BITS(k) CONVERT(i64, VEC, LONGS(words.w[2 * (k)], words.w[2 * (k) + 1]))
#else
#define VALUES 4
#define UNIFORM(k) uniform_closed_open(words.w[k])
#define UNIFORM_POSITIVE(k) uniform_open_closed(words.w[k])
#define UNIFORM_CENTRED(k) uniform_centred(words.w[k])
#define EPSILON_OVER_2 0x1p-24f
#define BITS(k) CONVERT(i64, VEC, words.w[k])
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
#define TAKES_TENSOR_bernoulli_tensor 1
// a + bits mod b; b = 0 means the full range of 64 bits.
#define DIST_integers(k) \
  ((VT)(a) + (b == 0 ? BITS(k) : CONVERT(i64, VEC, CONVERT(u64, VEC, BITS(k)) % (ulongs)((ulong)b))))

// The Box-Muller transform: two uniform numbers give two normal ones.
#ifndef ACC_INTEGRAL
static inline VT normal_pair(VT positive, VT angle, int second) {
  const VT r = sqrt(-2 * log(positive)), t = angle * (VT)(2 * M_PI);
  return r * (second ? sin(t) : cos(t));
}
// Rounding must not give the excluded upper end.
static inline VT uniform_between(VT u, ST from, ST to) {
  const VT v = u * (to - from) + from;
  return ROUND(OUT, ACC, VEC, v) >= (VT)to ? (VT)from : v;
}
#endif

static inline void put(__global STORAGE(OUT)* out, long i, long n, VT v) {
  if (i + VEC <= n) {
    STORE(OUT, ACC, VEC, out, i, v);
    return;
  }
  lanes_t lanes;
  lanes.v = v;
  for (int k = 0; k < VEC && i + k < n; k++) STORE(OUT, ACC, 1, out, i + k, lanes.s[k]);
}

static inline floats get(__global const float* p, long i, long n) {
  if (i + VEC <= n) return CAT(VLOAD_, VEC)(0, p + i);
  float r[VEC];
  for (int k = 0; k < VEC; k++) r[k] = p[min(i + k, n - 1)];
  return CAT(VLOAD_, VEC)(0, r);
}

__kernel void fill(BUF(out), BUF(prob), BUF(err), ulong seed, ulong offset, const RandomParams P) {
  const long n = P.n, first = (long)get_global_id(0) * P.per;
  const ST a = scalar_of(P.a), b = scalar_of(P.b);
  for (long g = first; g < first + P.per && PLACE(g, 0, VALUES) < n; g++) {
    const words_t words = philox_blocks(seed, offset + (ulong)g * BLOCKS);
    FOR_FEW(k, 0, VALUES, VALUES) {
      const long i = PLACE(g, k, VALUES);
      if (i >= n) break;
#if CAT(TAKES_TENSOR_, OP)
      const floats given = get(PTR(prob, float), i, n);
      if (ANY_LANE(VEC, isnan(given) | (given < 0) | (given > 1))) netcl_report(PTR(err, int), P.code, 0, 0);
      const VT p = CONVERT(ACC, VEC, given);
#endif
      put(PTR(out, STORAGE(OUT)), i, n, CAT(DIST_, OP)(k));
    }
  }
}
