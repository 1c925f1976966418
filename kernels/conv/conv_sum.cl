// Adds the slices of a product that was split along k, for the gradient of the weight:
// sum[i] = (first ? 0 : sum[i]) + part[0][i] + part[1][i] + …; the last sum goes to `out` in its own dtype.
#include "conv/conv.h"

__kernel void conv_sum(BUF(part), BUF(sum), BUF(out), const ConvSumParams P) {
  __global const ST* part = PTR(part, const ST);
  __global ST* sum = PTR(sum, ST);
  __global STORAGE(OUT)* out = PTR(out, STORAGE(OUT));
  const long begin = (long)get_global_id(0) * P.per_item, end = min(begin + P.per_item, P.n);
  long i = begin;
  for (; i + VEC <= end; i += VEC) {
    VT s = P.first ? (VT)(0) : LOAD(ACC, ACC, VEC, sum, i);
    for (long p = 0; p < P.parts; p++) s += LOAD(ACC, ACC, VEC, part, p * P.n + i);
    if (P.final)
      STORE(OUT, ACC, VEC, out, i, s);
    else
      STORE(ACC, ACC, VEC, sum, i, s);
  }
  for (; i < end; i++) {
    ST s = P.first ? 0 : sum[i];
    for (long p = 0; p < P.parts; p++) s += part[p * P.n + i];
    if (P.final)
      STORE(OUT, ACC, 1, out, i, s);
    else
      sum[i] = s;
  }
}

// out[channel][tap] = the sum of part[p][tap][channel] over all parts; VEC is at most the channels.
__kernel void conv_sum_taps(BUF(part), BUF(out), const ConvSumParams P) {
  const long begin = (long)get_global_id(0) * P.per_item, end = min(begin + P.per_item, P.n);
  __global STORAGE(OUT)* out = PTR(out, STORAGE(OUT));
  for (long c = begin; c < end; c += VEC) {
    const long first = min(c, P.n - VEC);  // the last vector overlaps the previous one
    for (long t = 0; t < P.taps; t++) {
      __global const ST* part = PTR(part, const ST) + t * P.n + first;
      lanes_t s;
      s.v = (VT)(0);
      for (long p = 0; p < P.parts; p++) s.v += CAT(VLOAD_, VEC)(0, part + p * P.taps * P.n);
      for (long l = c - first; l < VEC; l++) STORE(OUT, ACC, 1, out, (first + l) * P.taps + t, s.s[l]);
    }
  }
}
