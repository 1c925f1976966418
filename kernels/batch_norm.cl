// Batch normalisation, forward and backward, training and evaluation.
// -D: IN (input and its gradient), WT (weight and bias), RT (running statistics), ACC, VEC, LS.
// There are two layouts: a channel is `runs` runs of hw adjacent elements (one group per channel), or channels are
// adjacent in `runs` rows (`cols`: a work-item takes VEC channels). Saved statistics have the compute type. Missing
// operands are null. As in norm.cl, statistics take two passes, and the mean is corrected.
#include "common/rows.h"

DEFINE_LANES(IN)
DEFINE_LANES(WT)
DEFINE_LANES(RT)
DEFINE_LANES(ACC)

#define PARAM(T, p, i, absent) (p##_buf ? LOAD(T, ACC, 1, PTR(p, const STORAGE(T)), i) : (ST)(absent))
// With ## the tag's name is not expanded, as LOAD_LANES needs it.
#define load_WT(p, i, lanes, fill) LOAD_LANES(WT, p, i, lanes, fill)
#define load_RT(p, i, lanes, fill) LOAD_LANES(RT, p, i, lanes, fill)
#define PARAM_LANES(T, p, i, lanes, absent) \
  (p##_buf ? load_##T(PTR(p, const STORAGE(T)), i, lanes, absent) : (VT)(absent))

#define ADD_VALUE(at, lanes) s += LOAD_LANES(IN, x, at, lanes, 0);
#define ADD_DEVIATION(at, lanes)                                             \
  {                                                                          \
    const VT d = KEEP_LANES(LOAD_LANES(IN, x, at, lanes, 0) - m0, lanes, 0); \
    s1 += d;                                                                 \
    s2 += d * d;                                                             \
  }
__kernel void batch_norm_train(BUF(out), BUF(mean), BUF(invstd), BUF(in), BUF(weight), BUF(bias), BUF(run_mean),
                               BUF(run_var), long runs, long channels, long hw, WIDE(momentum), WIDE(eps)) {
  ROW_SCRATCH
  const long c = get_group_id(0), stride = channels * hw, n = runs * hw;
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + c * hw;
  __global STORAGE(IN)* y = PTR(out, STORAGE(IN)) + c * hw;
  SUMS(s)
  SUMS(s1)
  SUMS(s2)
  SUM_OF_RUNS(ADD_VALUE, FOLD(s), runs, hw, stride)
  const ST m0 = row_sum(TOTAL(s)) / n;
  SUM_OF_RUNS(ADD_DEVIATION, FOLD(s1) FOLD(s2), runs, hw, stride)
  const ST sum1 = row_sum(TOTAL(s1)), sum2 = row_sum(TOTAL(s2));
  const ST shift = isfinite(sum1) ? sum1 / n : 0;
  const ST m = m0 + shift;
  ST var = sum2 / n - shift * shift;
  if (var < 0) var = 0;
  const ST is = 1 / sqrt(var + WIDE_VALUE(eps));
  if (LID == 0) {
    PTR(mean, ST)[c] = m;
    PTR(invstd, ST)[c] = is;
    const ST f = WIDE_VALUE(momentum);
    if (run_mean_buf) {
      __global STORAGE(RT)* p = PTR(run_mean, STORAGE(RT));
      STORE(RT, ACC, 1, p, c, (1 - f) * LOAD(RT, ACC, 1, p, c) + f * m);
    }
    if (run_var_buf) {
      __global STORAGE(RT)* p = PTR(run_var, STORAGE(RT));
      STORE(RT, ACC, 1, p, c, (1 - f) * LOAD(RT, ACC, 1, p, c) + f * (var * n / (n - 1)));
    }
  }
  const ST w = PARAM(WT, weight, c, 1) * is, b = PARAM(WT, bias, c, 0);
  FOR_RUNS(r, k, runs, hw) {
    const int lanes = LANES(k, hw);
    STORE_LANES(IN, y, r * stride + k, lanes, (LOAD_LANES(IN, x, r * stride + k, lanes, 0) - m) * w + b);
  }
}

// A row is one run of a channel.
__kernel void batch_norm_eval(BUF(out), BUF(in), BUF(weight), BUF(bias), BUF(run_mean), BUF(run_var), long rows,
                              long rows_per, long channels, long hw, WIDE(eps)) {
  const long first = (long)get_group_id(0) * rows_per;
  const long last = min(first + rows_per, rows);
  for (long row = first; row < last; row++) {
    const long c = row % channels;
    __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + row * hw;
    __global STORAGE(IN)* y = PTR(out, STORAGE(IN)) + row * hw;
    const ST m = PARAM(RT, run_mean, c, 0);
    const ST w = PARAM(WT, weight, c, 1) / sqrt(PARAM(RT, run_var, c, 1) + WIDE_VALUE(eps));
    const ST b = PARAM(WT, bias, c, 0);
    FOR_ROW(k, hw) {
      const int lanes = LANES(k, hw);
      STORE_LANES(IN, y, k, lanes, (LOAD_LANES(IN, x, k, lanes, 0) - m) * w + b);
    }
  }
}

#define TO_SUMS(at, lanes)                                                \
  {                                                                       \
    const VT gv = LOAD_LANES(IN, g, at, lanes, 0);                        \
    v1 += gv * KEEP_LANES(LOAD_LANES(IN, x, at, lanes, 0) - m, lanes, 0); \
    v2 += gv;                                                             \
  }
// `stat` is the saved inverse deviation in training, and the running variance in evaluation.
__kernel void batch_norm_backward(BUF(gin), BUF(gw), BUF(gb), BUF(grad), BUF(in), BUF(weight), BUF(mean), BUF(stat),
                                  long runs, long channels, long hw, int train, WIDE(eps)) {
  ROW_SCRATCH
  const long c = get_group_id(0), stride = channels * hw, n = runs * hw;
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + c * hw;
  __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN)) + c * hw;
  __global STORAGE(IN)* y = PTR(gin, STORAGE(IN)) + c * hw;
  const ST m = train ? PTR(mean, const ST)[c] : PARAM(RT, mean, c, 0);
  const ST is = train ? PTR(stat, const ST)[c] : 1 / sqrt(PARAM(RT, stat, c, 1) + WIDE_VALUE(eps));
  ST c1 = 0, c2 = 0;
  if (train || gw_buf || gb_buf) {
    SUMS(v1)
    SUMS(v2)
    SUM_OF_RUNS(TO_SUMS, FOLD(v1) FOLD(v2), runs, hw, stride)
    const ST s1 = row_sum(TOTAL(v1)) * is, s2 = row_sum(TOTAL(v2));
    if (LID == 0) {
      if (gw_buf) STORE(WT, ACC, 1, PTR(gw, STORAGE(WT)), c, s1);
      if (gb_buf) STORE(WT, ACC, 1, PTR(gb, STORAGE(WT)), c, s2);
    }
    if (train) {
      c1 = s1 * is / n;
      c2 = s2 / n;
    }
  }
  if (!gin_buf) return;
  const ST w = PARAM(WT, weight, c, 1) * is;
  if (!train) {
    FOR_RUNS(r, k, runs, hw) {
      const int lanes = LANES(k, hw);
      STORE_LANES(IN, y, r * stride + k, lanes, LOAD_LANES(IN, g, r * stride + k, lanes, 0) * w);
    }
    return;
  }
  FOR_RUNS(r, k, runs, hw) {
    const int lanes = LANES(k, hw);
    const VT gv = LOAD_LANES(IN, g, r * stride + k, lanes, 0);
    const VT d = LOAD_LANES(IN, x, r * stride + k, lanes, 0) - m;
    STORE_LANES(IN, y, r * stride + k, lanes, (gv - c2 - d * c1) * w);
  }
}

#define ADD_COLUMNS(r) s += LOAD_LANES(IN, x, r * channels, lanes, 0);
#define ADD_DEVIATIONS(r)                                        \
  {                                                              \
    const VT d = LOAD_LANES(IN, x, r * channels, lanes, 0) - m0; \
    s1 += d;                                                     \
    s2 += d * d;                                                 \
  }
__kernel void batch_norm_train_cols(BUF(out), BUF(mean), BUF(invstd), BUF(in), BUF(weight), BUF(bias), BUF(run_mean),
                                    BUF(run_var), long n, long channels, WIDE(momentum), WIDE(eps)) {
  const long c = (long)get_global_id(0) * VEC;
  if (c >= channels) return;
  const int lanes = LANES(c, channels);
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + c;
  __global STORAGE(IN)* y = PTR(out, STORAGE(IN)) + c;
  SUMS(s)
  SUMS(s1)
  SUMS(s2)
  SUM_OF_COLUMNS(ADD_COLUMNS, FOLD(s), n)
  const VT m0 = TOTAL(s) / n;
  SUM_OF_COLUMNS(ADD_DEVIATIONS, FOLD(s1) FOLD(s2), n)
  const VT shift = isfinite(TOTAL(s1)) ? TOTAL(s1) / n : (VT)(0);
  const VT m = m0 + shift;
  VT var = TOTAL(s2) / n - shift * shift;
  var = var < 0 ? (VT)(0) : var;
  const VT is = 1 / sqrt(var + WIDE_VALUE(eps));
  STORE_LANES(ACC, PTR(mean, ST), c, lanes, m);
  STORE_LANES(ACC, PTR(invstd, ST), c, lanes, is);
  const ST f = WIDE_VALUE(momentum);
  if (run_mean_buf) {
    __global STORAGE(RT)* p = PTR(run_mean, STORAGE(RT));
    STORE_LANES(RT, p, c, lanes, (1 - f) * LOAD_LANES(RT, p, c, lanes, 0) + f * m);
  }
  if (run_var_buf) {
    __global STORAGE(RT)* p = PTR(run_var, STORAGE(RT));
    STORE_LANES(RT, p, c, lanes, (1 - f) * LOAD_LANES(RT, p, c, lanes, 0) + f * (var * n / (n - 1)));
  }
  const VT w = PARAM_LANES(WT, weight, c, lanes, 1) * is, b = PARAM_LANES(WT, bias, c, lanes, 0);
  for (long r = 0; r < n; r++)
    STORE_LANES(IN, y, r * channels, lanes, (LOAD_LANES(IN, x, r * channels, lanes, 0) - m) * w + b);
}

// A work-item takes (columns, a share of the rows).
__kernel void batch_norm_eval_cols(BUF(out), BUF(in), BUF(weight), BUF(bias), BUF(run_mean), BUF(run_var), long n,
                                   long rows_per, long channels, WIDE(eps)) {
  const long c = (long)get_global_id(0) * VEC;
  if (c >= channels) return;
  const int lanes = LANES(c, channels);
  const long first = get_global_id(1) * rows_per, last = min(first + rows_per, n);
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + c;
  __global STORAGE(IN)* y = PTR(out, STORAGE(IN)) + c;
  const VT m = PARAM_LANES(RT, run_mean, c, lanes, 0);
  const VT w = PARAM_LANES(WT, weight, c, lanes, 1) / sqrt(PARAM_LANES(RT, run_var, c, lanes, 1) + WIDE_VALUE(eps));
  const VT b = PARAM_LANES(WT, bias, c, lanes, 0);
  for (long r = first; r < last; r++)
    STORE_LANES(IN, y, r * channels, lanes, (LOAD_LANES(IN, x, r * channels, lanes, 0) - m) * w + b);
}

#define TO_COLUMN_SUMS(r)                                       \
  {                                                             \
    const VT gv = LOAD_LANES(IN, g, r * channels, lanes, 0);    \
    v1 += gv * (LOAD_LANES(IN, x, r * channels, lanes, 0) - m); \
    v2 += gv;                                                   \
  }
__kernel void batch_norm_backward_cols(BUF(gin), BUF(gw), BUF(gb), BUF(grad), BUF(in), BUF(weight), BUF(mean),
                                       BUF(stat), long n, long channels, int train, WIDE(eps)) {
  const long c = (long)get_global_id(0) * VEC;
  if (c >= channels) return;
  const int lanes = LANES(c, channels);
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + c;
  __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN)) + c;
  __global STORAGE(IN)* y = PTR(gin, STORAGE(IN)) + c;
  VT m, is;
  if (train) {
    m = LOAD_LANES(ACC, PTR(mean, const ST), c, lanes, 0);
    is = LOAD_LANES(ACC, PTR(stat, const ST), c, lanes, 0);
  } else {
    m = PARAM_LANES(RT, mean, c, lanes, 0);
    is = 1 / sqrt(PARAM_LANES(RT, stat, c, lanes, 1) + WIDE_VALUE(eps));
  }
  SUMS(v1)
  SUMS(v2)
  SUM_OF_COLUMNS(TO_COLUMN_SUMS, FOLD(v1) FOLD(v2), n)
  const VT s1 = TOTAL(v1) * is, s2 = TOTAL(v2);
  if (gw_buf) STORE_LANES(WT, PTR(gw, STORAGE(WT)), c, lanes, s1);
  if (gb_buf) STORE_LANES(WT, PTR(gb, STORAGE(WT)), c, lanes, s2);
  if (!gin_buf) return;
  const VT w = PARAM_LANES(WT, weight, c, lanes, 1) * is;
  if (!train) {
    for (long r = 0; r < n; r++) STORE_LANES(IN, y, r * channels, lanes, LOAD_LANES(IN, g, r * channels, lanes, 0) * w);
    return;
  }
  const VT c1 = s1 * is / n, c2 = s2 / n;
  for (long r = 0; r < n; r++) {
    const VT gv = LOAD_LANES(IN, g, r * channels, lanes, 0);
    const VT d = LOAD_LANES(IN, x, r * channels, lanes, 0) - m;
    STORE_LANES(IN, y, r * channels, lanes, (gv - c2 - d * c1) * w);
  }
}
