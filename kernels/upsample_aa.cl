// Anti-aliased resampling along one dimension: x is (outer, in, inner), y is (outer, out, inner). Row o of a table with
// `taps` columns has the weights of output o; starts[2 o] is the first input, starts[2 o + 1] the number of inputs.
// -D: IN, OUT (read and written), ACC; aa_forward: WT (weights); aa_weights: FILTER 1 linear, 2 cubic, 3 lanczos, which
// is also its reach.
#include "args/upsample.h"
#include "common/vector.h"

#ifdef FILTER
static inline ST filter(ST x) {
  x = fabs(x);
  if (x >= FILTER) return 0;
  if (FILTER == 1) return 1 - x;
  const ST a = -0.5f, pi = acos((ST)-1);
  if (FILTER == 2) return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((x - 5) * x + 8) * x * a - 4 * a;
  return x == 0 ? (ST)1 : sinpi(x) * sinpi(x / 3) * 3 / (pi * x * pi * x);
}

// A work-item takes one output.
__kernel void aa_weights(BUF(weights), BUF(starts), long in, long out, long taps, float scale_high, float scale_low) {
  const long o = get_global_id(0);
  if (o >= out) return;
  const ST scale = (ST)scale_high + (ST)scale_low, shrink = scale > 1 ? 1 / scale : 1;
  const ST support = FILTER * (scale > 1 ? scale : (ST)1), centre = scale * (o + (ST)0.5f);
  const long first = clamp((long)(centre - support + (ST)0.5f), 0L, in - 1);
  const long count = clamp((long)(centre + support + (ST)0.5f), first + 1, in) - first;
  const long n = count < taps ? count : taps;
  __global ST* w = PTR(weights, ST) + o * taps;
  ST total = 0;
  for (long i = 0; i < n; i++) total += w[i] = filter((i + first - centre + (ST)0.5f) * shrink);
  for (long i = 0; i < n && total != 0; i++) w[i] /= total;
  PTR(starts, long)[2 * o] = first;
  PTR(starts, long)[2 * o + 1] = n;
}
#else

// y from x. A work-item takes some elements of the tensor that is written. If P.precision is not 0, weights are
// integers with so many bits after the binary point, and so is the sum, which is rounded to a byte.
__kernel void aa_forward(BUF(y), BUF(x), BUF(weights), BUF(starts), const AntialiasParams P) {
  const long begin = get_global_id(0) * P.per_item, end = min(begin + P.per_item, P.total);
  for (long k = begin; k < end; k++) {
    const long o = k / P.inner % P.out, block = k / P.inner / P.out;
    const long first = PTR(starts, const long)[2 * o], count = PTR(starts, const long)[2 * o + 1];
    __global const STORAGE(WT)* w = PTR(weights, const STORAGE(WT)) + o * P.taps;
    __global const STORAGE(IN)* p = PTR(x, const STORAGE(IN)) + (block * P.in + first) * P.inner + k % P.inner;
    ST sum = P.precision ? (ST)(1 << (P.precision - 1)) : (ST)0;
    for (long i = 0; i < count; i++) sum += w[i] * LOAD(IN, ACC, 1, p, i * P.inner);
    if (P.precision) sum = (ST)convert_uchar_sat((int)sum >> P.precision);
    STORE(OUT, ACC, 1, PTR(y, STORAGE(OUT)), k, sum);
  }
}

// x's gradient from y's: an input sums over the outputs that have it among their taps.
__kernel void aa_backward(BUF(gx), BUF(gy), BUF(weights), BUF(starts), const AntialiasParams P) {
  const long begin = get_global_id(0) * P.per_item, end = min(begin + P.per_item, P.total);
  for (long k = begin; k < end; k++) {
    const long i = k / P.inner % P.in, block = k / P.inner / P.in;
    // The outputs whose centres are within the support of i, with a margin of one for rounding.
    const float low = (i - P.support - 1) / P.scale - 1.5f, high = (i + P.support + 2) / P.scale + 1.5f;
    const long first = (long)clamp(low, 0.0f, (float)P.out), last = (long)clamp(high, 0.0f, (float)P.out);
    __global const STORAGE(IN)* g = PTR(gy, const STORAGE(IN)) + block * P.out * P.inner + k % P.inner;
    ST sum = 0;
    for (long o = first; o < min(last + 1, P.out); o++) {
      const long tap = i - PTR(starts, const long)[2 * o];
      if (tap >= 0 && tap < PTR(starts, const long)[2 * o + 1])
        sum += PTR(weights, const ST)[o * P.taps + tap] * LOAD(IN, ACC, 1, g, o * P.inner);
    }
    STORE(OUT, ACC, 1, PTR(gx, STORAGE(OUT)), k, sum);
  }
}
#endif
