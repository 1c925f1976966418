// Layer and group normalisation, forward and backward. Statistics take two passes; the second one corrects the mean, so
// a large mean costs no accuracy. -D: IN (input and its gradient), WT (weight and bias), ACC, VEC, LS; RMS: no mean, as
// in rms_norm. Weight and bias that are missing, and gradients that are not needed, are null.
#include "common/rows.h"

DEFINE_LANES(IN)
DEFINE_LANES(WT)
DEFINE_LANES(ACC)

// The mean and biased variance of n adjacent elements.
#define ADD_VALUE(i, lanes) s_ += LOAD_LANES(IN, x, i, lanes, 0);
#define ADD_SQUARE(i, lanes)                      \
  {                                               \
    const VT v_ = LOAD_LANES(IN, x, i, lanes, 0); \
    s_ += v_ * v_;                                \
  }
#define ADD_DEVIATION(i, lanes)                                              \
  {                                                                          \
    FETCH_AHEAD(x, i, n);                                                    \
    const VT d_ = KEEP_LANES(LOAD_LANES(IN, x, i, lanes, 0) - m_, lanes, 0); \
    d1_ += d_;                                                               \
    d2_ += d_ * d_;                                                          \
  }
#ifdef RMS
#define ROW_STATS(x, n, mean, var)    \
  SUMS(s_)                            \
  SUM_OF_ROW(ADD_SQUARE, FOLD(s_), n) \
  const ST mean = 0, var = row_sum(TOTAL(s_)) / n;
#else
#define ROW_STATS(x, n, mean, var)                                       \
  ST mean, var;                                                          \
  {                                                                      \
    SUMS(s_)                                                             \
    SUMS(d1_)                                                            \
    SUMS(d2_)                                                            \
    SUM_OF_ROW(ADD_VALUE, FOLD(s_), n)                                   \
    const ST m_ = row_sum(TOTAL(s_)) / n;                                \
    SUM_OF_ROW(ADD_DEVIATION, FOLD(d1_) FOLD(d2_), n)                    \
    const ST c_ = row_sum(TOTAL(d1_)) / n, v_ = row_sum(TOTAL(d2_)) / n; \
    mean = isfinite(c_) ? m_ + c_ : m_;                                  \
    var = isfinite(c_) ? (v_ > c_ * c_ ? v_ - c_ * c_ : 0) : v_;         \
    if (isnan(v_)) var = v_;                                             \
  }
#endif

#define TO_NORMAL(i, lanes)                              \
  {                                                      \
    VT z = (LOAD_LANES(IN, x, i, lanes, 0) - m) * r;     \
    if (weight_buf) z *= LOAD_LANES(WT, w, i, lanes, 0); \
    if (bias_buf) z += LOAD_LANES(WT, b, i, lanes, 0);   \
    STORE_LANES(IN, y, i, lanes, z);                     \
  }
__kernel void layer_norm(BUF(out), BUF(mean), BUF(rstd), BUF(in), BUF(weight), BUF(bias), long rows, long rows_per,
                         long n, WIDE(eps)) {
  ROW_SCRATCH
  const long first = (long)get_group_id(0) * rows_per;
  const long last = min(first + rows_per, rows);
  __global const STORAGE(WT)* w = PTR(weight, const STORAGE(WT));
  __global const STORAGE(WT)* b = PTR(bias, const STORAGE(WT));
  for (long row = first; row < last; row++) {
    __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + row * n;
    __global STORAGE(IN)* y = PTR(out, STORAGE(IN)) + row * n;
    ROW_STATS(x, n, m, v)
    const ST r = 1 / sqrt(v + WIDE_VALUE(eps));
    if (LID == 0) {
      if (mean_buf) PTR(mean, ST)[row] = m;
      PTR(rstd, ST)[row] = r;
    }
    EACH_OF_ROW(TO_NORMAL, n)
  }
  STORES_DONE();
}

#define TO_SUMS(i, lanes)                                                         \
  {                                                                               \
    VT gv = LOAD_LANES(IN, g, i, lanes, 0);                                       \
    const VT xv = KEEP_LANES((LOAD_LANES(IN, x, i, lanes, 0) - m) * r, lanes, 0); \
    if (wpart_buf) {                                                              \
      const VT p = row == first ? (VT)(0) : LOAD_LANES(ACC, wp, i, lanes, 0);     \
      STORE_SUMS(wp, i, lanes, p + gv * xv);                                      \
    }                                                                             \
    if (bpart_buf) {                                                              \
      const VT p = row == first ? (VT)(0) : LOAD_LANES(ACC, bp, i, lanes, 0);     \
      STORE_SUMS(bp, i, lanes, p + gv);                                           \
    }                                                                             \
    if (weight_buf) gv *= LOAD_LANES(WT, w, i, lanes, 0);                         \
    s1 += gv * xv;                                                                \
    s2 += gv;                                                                     \
  }
#define TO_GRAD(i, lanes)                                   \
  {                                                         \
    FETCH_AHEAD(g, i, n);                                   \
    FETCH_AHEAD(x, i, n);                                   \
    VT gv = LOAD_LANES(IN, g, i, lanes, 0);                 \
    const VT xv = (LOAD_LANES(IN, x, i, lanes, 0) - m) * r; \
    if (weight_buf) gv *= LOAD_LANES(WT, w, i, lanes, 0);   \
    STORE_LANES(IN, y, i, lanes, (gv - c2 - xv * c1) * r);  \
  }

// Each group sums its rows' parts of the weight's and bias's gradients in its own row of wpart and bpart.
__kernel void layer_norm_backward(BUF(gin), BUF(wpart), BUF(bpart), BUF(grad), BUF(in), BUF(mean), BUF(rstd),
                                  BUF(weight), long rows, long rows_per, long n) {
  ROW_SCRATCH
  const long group = get_group_id(0), first = group * rows_per;
  const long last = min(first + rows_per, rows);
  __global const STORAGE(WT)* w = PTR(weight, const STORAGE(WT));
  __global ST* wp = PTR(wpart, ST) + group * n;
  __global ST* bp = PTR(bpart, ST) + group * n;
  for (long row = first; row < last; row++) {
    __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + row * n;
    __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN)) + row * n;
    __global STORAGE(IN)* y = PTR(gin, STORAGE(IN)) + row * n;
#ifdef RMS
    const ST m = 0;
#else
    const ST m = PTR(mean, const ST)[row];
#endif
    const ST r = PTR(rstd, const ST)[row];
    SUMS(s1)
    SUMS(s2)
    SUM_OF_ROW(TO_SUMS, FOLD(s1) FOLD(s2), n)
    // There must be no condition around a barrier: PoCL then loses what idle work-items add to their first sum.
    const ST c1 = row_sum(TOTAL(s1)) / n;
#ifdef RMS
    const ST c2 = 0;
#else
    const ST c2 = row_sum(TOTAL(s2)) / n;
#endif
    if (gin_buf) EACH_OF_ROW(TO_GRAD, n)
  }
  STORES_DONE();
}

// Sums `parts` rows of n partial results, for the weight and for the bias.
__kernel void sum_parts(BUF(gw), BUF(gb), BUF(wpart), BUF(bpart), long parts, long n) {
  const long c = (long)get_global_id(0) * VEC;
  if (c >= n) return;
  const int lanes = LANES(c, n);
  __global const ST* wp = PTR(wpart, const ST) + c;
  __global const ST* bp = PTR(bpart, const ST) + c;
  if (gw_buf) {
    VT s = (VT)(0);
    for (long p = 0; p < parts; p++) s += LOAD_LANES(ACC, wp, p * n, lanes, 0);
    STORE_LANES(WT, PTR(gw, STORAGE(WT)), c, lanes, s);
  }
  if (gb_buf) {
    VT s = (VT)(0);
    for (long p = 0; p < parts; p++) s += LOAD_LANES(ACC, bp, p * n, lanes, 0);
    STORE_LANES(WT, PTR(gb, STORAGE(WT)), c, lanes, s);
  }
}

// A row is one group of one sample: `channels` channels of hw elements. A sample has `groups` groups.
__kernel void group_norm(BUF(out), BUF(mean), BUF(rstd), BUF(in), BUF(weight), BUF(bias), long rows, long rows_per,
                         long channels, long hw, long groups, WIDE(eps)) {
  ROW_SCRATCH
  const long first = (long)get_group_id(0) * rows_per;
  const long last = min(first + rows_per, rows);
  const long n = channels * hw;
  for (long row = first; row < last; row++) {
    __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + row * n;
    __global STORAGE(IN)* y = PTR(out, STORAGE(IN)) + row * n;
    __global const STORAGE(WT)* w = PTR(weight, const STORAGE(WT)) + row % groups * channels;
    __global const STORAGE(WT)* b = PTR(bias, const STORAGE(WT)) + row % groups * channels;
    ROW_STATS(x, n, m, v)
    const ST r = 1 / sqrt(v + WIDE_VALUE(eps));
    if (LID == 0) {
      PTR(mean, ST)[row] = m;
      PTR(rstd, ST)[row] = r;
    }
    FOR_RUNS(c, k, channels, hw) {
      const int lanes = LANES(k, hw);
      const ST wv = weight_buf ? LOAD(WT, ACC, 1, w, c) : 1;
      const ST bv = bias_buf ? LOAD(WT, ACC, 1, b, c) : 0;
      STORE_LANES(IN, y, c * hw + k, lanes, (LOAD_LANES(IN, x, c * hw + k, lanes, 0) - m) * r * wv + bv);
    }
  }
}

#define TO_CHANNEL_SUMS(k, lanes)                                                       \
  {                                                                                     \
    const VT gv = LOAD_LANES(IN, g, c * hw + k, lanes, 0);                              \
    v1 += gv * KEEP_LANES((LOAD_LANES(IN, x, c * hw + k, lanes, 0) - m) * r, lanes, 0); \
    v2 += gv;                                                                           \
  }
// wpart and bpart have a row per sample and a column per channel.
__kernel void group_norm_backward(BUF(gin), BUF(wpart), BUF(bpart), BUF(grad), BUF(in), BUF(mean), BUF(rstd),
                                  BUF(weight), long rows, long rows_per, long channels, long hw, long groups) {
  ROW_SCRATCH
  const long first = (long)get_group_id(0) * rows_per;
  const long last = min(first + rows_per, rows);
  const long n = channels * hw;
  for (long row = first; row < last; row++) {
    __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + row * n;
    __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN)) + row * n;
    __global STORAGE(IN)* y = PTR(gin, STORAGE(IN)) + row * n;
    __global const STORAGE(WT)* w = PTR(weight, const STORAGE(WT)) + row % groups * channels;
    const ST m = PTR(mean, const ST)[row], r = PTR(rstd, const ST)[row];
    ST c1 = 0, c2 = 0;
    for (long c = 0; c < channels; c++) {
      SUMS(v1)
      SUMS(v2)
      SUM_OF_ROW(TO_CHANNEL_SUMS, FOLD(v1) FOLD(v2), hw)
      const ST s1 = row_sum(TOTAL(v1)), s2 = row_sum(TOTAL(v2));
      if (LID == 0) {
        if (wpart_buf) PTR(wpart, ST)[row * channels + c] = s1;
        if (bpart_buf) PTR(bpart, ST)[row * channels + c] = s2;
      }
      const ST wv = weight_buf ? LOAD(WT, ACC, 1, w, c) : 1;
      c1 += wv * s1;
      c2 += wv * s2;
    }
    if (!gin_buf) continue;
    c1 /= n;
    c2 /= n;
    FOR_RUNS(c, k, channels, hw) {
      const int lanes = LANES(k, hw);
      const ST wv = weight_buf ? LOAD(WT, ACC, 1, w, c) : 1;
      const VT xv = (LOAD_LANES(IN, x, c * hw + k, lanes, 0) - m) * r;
      const VT gv = LOAD_LANES(IN, g, c * hw + k, lanes, 0);
      STORE_LANES(IN, y, c * hw + k, lanes, (gv * wv - c2 - xv * c1) * r);
    }
  }
}
