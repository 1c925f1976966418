// Anti-aliased resampling along one dimension: x is (outer, in, inner), y is (outer, out, inner). Row o of a table with
// `taps` columns has the weights of output o; starts[2 o] is the first input, starts[2 o + 1] the number of inputs.
// -D: IN, OUT (read and written), ACC; aa_weights: FILTER 1 linear, 2 cubic, 3 lanczos, which is also its reach.
#include "common/vector.h"

#ifdef FILTER
static inline ST filter(ST x) {
  x = fabs(x);
  if (x >= FILTER) return 0;
#if FILTER == 1
  return 1 - x;
#elif FILTER == 2
  const ST a = -0.5f;
  return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((x - 5) * x + 8) * x * a - 4 * a;
#else
  const ST pi = acos((ST)-1);
  return x == 0 ? (ST)1 : sinpi(x) * sinpi(x / 3) * 3 / (pi * x * pi * x);
#endif
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

// A work-item takes `per` of the n elements of y.
__kernel void aa_forward(BUF(y), BUF(x), BUF(weights), BUF(starts), long n, long per, long in, long out, long inner,
                         long taps) {
  const long begin = get_global_id(0) * per, end = min(begin + per, n);
  for (long k = begin; k < end; k++) {
    const long o = k / inner % out, block = k / inner / out;
    const long first = PTR(starts, const long)[2 * o], count = PTR(starts, const long)[2 * o + 1];
    __global const ST* w = PTR(weights, const ST) + o * taps;
    __global const STORAGE(IN)* p = PTR(x, const STORAGE(IN)) + (block * in + first) * inner + k % inner;
    ST sum = 0;
    for (long i = 0; i < count; i++) sum += w[i] * LOAD(IN, ACC, 1, p, i * inner);
    STORE(OUT, ACC, 1, PTR(y, STORAGE(OUT)), k, sum);
  }
}

// gx (outer, in, inner) from gy (outer, out, inner): an input sums over the outputs that have it among their taps.
__kernel void aa_backward(BUF(gx), BUF(gy), BUF(weights), BUF(starts), long n, long per, long in, long out, long inner,
                          long taps, float scale, float support) {
  const long begin = get_global_id(0) * per, end = min(begin + per, n);
  for (long k = begin; k < end; k++) {
    const long i = k / inner % in, block = k / inner / in;
    // The outputs whose centres are within the support of i, with a margin of one for rounding.
    const float low = (i - support - 1) / scale - 1.5f, high = (i + support + 2) / scale + 1.5f;
    const long first = (long)clamp(low, 0.0f, (float)out), last = (long)clamp(high, 0.0f, (float)out);
    __global const STORAGE(IN)* g = PTR(gy, const STORAGE(IN)) + block * out * inner + k % inner;
    ST sum = 0;
    for (long o = first; o < min(last + 1, out); o++) {
      const long tap = i - PTR(starts, const long)[2 * o];
      if (tap >= 0 && tap < PTR(starts, const long)[2 * o + 1])
        sum += PTR(weights, const ST)[o * taps + tap] * LOAD(IN, ACC, 1, g, o * inner);
    }
    STORE(OUT, ACC, 1, PTR(gx, STORAGE(OUT)), k, sum);
  }
}

// uint8 values with integer arithmetic: weights have `precision` bits after the binary point.
__kernel void bytes_forward(BUF(y), BUF(x), BUF(weights), BUF(starts), long n, long per, long in, long out, long inner,
                            long taps, int precision) {
  const long begin = get_global_id(0) * per, end = min(begin + per, n);
  for (long k = begin; k < end; k++) {
    const long o = k / inner % out, block = k / inner / out;
    const long first = PTR(starts, const long)[2 * o], count = PTR(starts, const long)[2 * o + 1];
    __global const short* w = PTR(weights, const short) + o * taps;
    __global const uchar* p = PTR(x, const uchar) + (block * in + first) * inner + k % inner;
    int sum = 1 << (precision - 1);
    for (long i = 0; i < count; i++) sum += w[i] * p[i * inner];
    PTR(y, uchar)[k] = convert_uchar_sat(sum >> precision);
  }
}
#endif
