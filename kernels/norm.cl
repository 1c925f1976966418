// Layer, root-mean-square and group normalisation, forward and backward.
// -D: IN (input and its gradient), WT (weight and bias), OP=rms_norm if there is no mean, and those of the walk. Weight
// and bias that are missing, and gradients that are not needed, are null.
#include "common/row_moments.h"

DEFINE_LANES(IN)
DEFINE_LANES(WT)
DEFINE_LANES(ACC)

#if IS_RMS
#define MEAN_OF(sum) 0
#else
#define MEAN_OF(sum) (ROW_SUM(TOTAL(sum)) / n)
#endif

#define TO_NORMAL(j)                       \
  {                                        \
    VT z = (X(IN, x, j) - mean - off) * r; \
    if (weight_buf) z *= SHARED(WT, w, j); \
    if (bias_buf) z += SHARED(WT, b, j);   \
    PUT(IN, y, j, z);                      \
  }
__kernel WALK_GROUP_SIZE void layer_norm(BUF(out), SAVED, BUF(in), AFFINE, const NormParams P) {
  __global const STORAGE(WT)* w = PTR(weight, const STORAGE(WT));
  __global const STORAGE(WT)* b = PTR(bias, const STORAGE(WT));
  WALK(P.walk) {
    OPERAND(IN, x, in);
    RESULT(IN, y, out, x);
    MOMENTS;
    const row_t r = 1 / sqrt(var + WIDE_OF(P.eps));
    PUT_VALUE(ACC, mean, row, mean + off);
    PUT_VALUE(ACC, rstd, row, r);
    EACH(TO_NORMAL);
    STORED(IN, y, out);
  }
  STORES_DONE();
}

// A work-group, if it has whole rows, sums its rows' parts of the gradients of weight and bias in its own row of gw and
// gb.
#ifdef HELD
#define ADD_PART(part, j, v)
#else
#define ADD_PART(part, j, v)                                                    \
  if (part##_buf) {                                                             \
    __global ST* p_ = PTR(part, ST) + get_group_id(0) * n;                      \
    const VT sum_ = row == first_ ? (VT)(0) : LOAD_LANES(ACC, p_, j, lanes, 0); \
    store_sums(p_ + (j), lanes, sum_ + (v));                                    \
  }
#endif
#define TO_PRODUCTS(j)                      \
  {                                         \
    VT g_ = X(IN, g, j);                    \
    const VT x_ = (X(IN, x, j) - m) * r;    \
    ADD_PART(gw, j, g_ * x_)                \
    ADD_PART(gb, j, g_)                     \
    if (weight_buf) g_ *= SHARED(WT, w, j); \
    KEEP(g, j, g_);                         \
    KEEP(x, j, x_);                         \
    dots += COUNTED(j, g_ * x_, 0);         \
    total += COUNTED(j, g_, 0);             \
  }
#define WEIGHTED(j) (weight_buf ? X(IN, g, j) * SHARED(WT, w, j) : X(IN, g, j))
#define TO_GRAD(j)                                                                 \
  {                                                                                \
    AHEAD(g, j);                                                                   \
    AHEAD(x, j);                                                                   \
    const VT g_ = KEPT(g, j, WEIGHTED(j)), x_ = KEPT(x, j, (X(IN, x, j) - m) * r); \
    PUT(IN, y, j, (g_ - c2 - x_ * c1) * r);                                        \
  }
__kernel WALK_GROUP_SIZE void layer_norm_backward(GRADIENTS, BUF(grad), BUF(in), SAVED, BUF(weight),
                                                  const NormParams P) {
  __global const STORAGE(WT)* w = PTR(weight, const STORAGE(WT));
  WALK(P.walk) {
    OPERAND(IN, g, grad);
    OPERAND(IN, x, in);
    RESULT(IN, y, gin, g);
    const row_t m = VALUE(ACC, mean, row, 0), r = VALUE(ACC, rstd, row, 0);
    SUMS(dots);
    SUMS(total);
    EACH_SUM(TO_PRODUCTS, FOLD(dots) FOLD(total));
    // There must be no condition around a barrier: PoCL then loses what idle work-items add to their first sum.
    const row_t c1 = ROW_SUM(TOTAL(dots)) / n, c2 = MEAN_OF(total);
    if (gin_buf) EACH(TO_GRAD);
    STORED(IN, y, gin);
  }
  STORES_DONE();
}

// Parts of the gradients of weight and bias: sums over `rows_per` rows, in a row of gw and gb for each work-group
// of a column of them. COLUMN_ITEMS work-items side by side take COLUMN_ITEMS * VEC columns.
__kernel WALK_GROUP_SIZE void layer_norm_columns(BUF(gw), BUF(gb), BUF(grad), BUF(in), SAVED, const NormParams P) {
  const long rows = P.walk.rows, rows_per = P.walk.rows_per, n = P.walk.n;
  __local VT sums[2 * GROUP];
  const int lid = (int)get_local_id(0), down = lid / COLUMN_ITEMS;
  const uint blocks = (uint)((n + COLUMN_ITEMS * VEC - 1) / (COLUMN_ITEMS * VEC)), group = (uint)get_group_id(0);
  const long part = group / blocks, column = (long)(group % blocks) * (COLUMN_ITEMS * VEC) + lid % COLUMN_ITEMS * VEC;
  const long last = min((part + 1) * rows_per, rows);
  VT dots = (VT)(0), total = (VT)(0);
  if (column < n) {
    for (long row = part * rows_per + down; row < last; row += GROUP / COLUMN_ITEMS) {
      const VT g = LOAD_WHOLE(IN, PTR(grad, const STORAGE(IN)) + row * n + column);
      const ST m = PARAM(ACC, mean, row, 0);
      dots += g * ((LOAD_WHOLE(IN, PTR(in, const STORAGE(IN)) + row * n + column) - m) * PTR(rstd, const ST)[row]);
      total += g;
    }
  }
  sums[lid] = dots;
  sums[GROUP + lid] = total;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (down == 0 && column < n) {
    for (int k = 1; k < GROUP / COLUMN_ITEMS; k++) {
      dots += sums[lid + k * COLUMN_ITEMS];
      total += sums[GROUP + lid + k * COLUMN_ITEMS];
    }
    if (gw_buf) STORE_WHOLE(ACC, PTR(gw, ST) + part * n + column, dots);
    if (gb_buf) STORE_WHOLE(ACC, PTR(gb, ST) + part * n + column, total);
  }
}

#ifndef HELD
static inline VT sum_of_column(__global const ST* p, long parts, long n, int lanes) {
  VT s = (VT)(0);
  for (long i = 0; i < parts; i++) s += LOAD_LANES(ACC, p, i * n, lanes, 0);
  return s;
}
// Sums `parts` rows of n partial results, for the weight and for the bias.
__kernel void sum_parts(BUF(gw), BUF(gb), BUF(wpart), BUF(bpart), long parts, long n) {
  const long c = (long)get_global_id(0) * VEC;
  if (c >= n) return;
  const int lanes = LANES(c, n);
  if (gw_buf) STORE_LANES(WT, PTR(gw, STORAGE(WT)), c, lanes, sum_of_column(PTR(wpart, ST) + c, parts, n, lanes));
  if (gb_buf) STORE_LANES(WT, PTR(gb, STORAGE(WT)), c, lanes, sum_of_column(PTR(bpart, ST) + c, parts, n, lanes));
}
#endif

// A row is one group of one sample.
__kernel WALK_GROUP_SIZE void group_norm(BUF(out), SAVED, BUF(in), AFFINE, const NormParams P) {
  WALK(P.walk) {
    OPERAND(IN, x, in);
    RESULT(IN, y, out, x);
    const long first = row % P.groups * P.channels;
    MOMENTS;
    const row_t m = mean + off, r = 1 / sqrt(var + WIDE_OF(P.eps));
    PUT_VALUE(ACC, mean, row, m);
    PUT_VALUE(ACC, rstd, row, r);
    FOR_RUNS(c, k, P.channels, P.hw) {
      const int lanes = LANES(k, P.hw);
      const ST wv = PARAM(WT, weight, first + c, 1);
      const ST bv = PARAM(WT, bias, first + c, 0);
      STORE_LANES(IN, y, c * P.hw + k, lanes, (LOAD_LANES(IN, x, c * P.hw + k, lanes, 0) - m) * r * wv + bv);
    }
  }
}

#define TO_CHANNEL_SUMS(k)                                                                \
  {                                                                                       \
    const VT gv = LOAD_LANES(IN, g, c * P.hw + k, lanes, 0);                              \
    v1 += gv * keep_lanes((LOAD_LANES(IN, x, c * P.hw + k, lanes, 0) - m) * r, lanes, 0); \
    v2 += gv;                                                                             \
  }
// Here gw and gb have a row per sample and a column per channel.
__kernel WALK_GROUP_SIZE void group_norm_backward(GRADIENTS, BUF(grad), BUF(in), SAVED, BUF(weight),
                                                  const NormParams P) {
  WALK(P.walk) {
    OPERAND(IN, x, in);
    OPERAND(IN, g, grad);
    RESULT(IN, y, gin, g);
    const long first = row % P.groups * P.channels;
    const row_t m = VALUE(ACC, mean, row, 0), r = VALUE(ACC, rstd, row, 0);
    ST c1 = 0, c2 = 0;
    for (long c = 0; c < P.channels; c++) {
      SUMS(v1);
      SUMS(v2);
      SUM_OF_ROW(TO_CHANNEL_SUMS, FOLD(v1) FOLD(v2), P.hw)
      const ST s1 = ROW_SUM(TOTAL(v1)), s2 = ROW_SUM(TOTAL(v2));
      PUT_VALUE(ACC, gw, row * P.channels + c, s1);
      PUT_VALUE(ACC, gb, row * P.channels + c, s2);
      const ST wv = PARAM(WT, weight, first + c, 1);
      c1 += wv * s1;
      c2 += wv * s2;
    }
    if (!gin_buf) continue;
    c1 /= n;
    c2 /= n;
    FOR_RUNS(c, k, P.channels, P.hw) {
      const int lanes = LANES(k, P.hw);
      const ST wv = PARAM(WT, weight, first + c, 1);
      const VT xv = (LOAD_LANES(IN, x, c * P.hw + k, lanes, 0) - m) * r;
      const VT gv = LOAD_LANES(IN, g, c * P.hw + k, lanes, 0);
      STORE_LANES(IN, y, c * P.hw + k, lanes, (gv * wv - c2 - xv * c1) * r);
    }
  }
}
