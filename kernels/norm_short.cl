// Layer and root-mean-square normalisation of rows that GPUs keep in registers, forward and backward; norm.cl has the
// other cases. -D: IN (input and its gradient), WT (weight and bias), RMS: no mean; ACROSS, DOWN (layer_norm_columns),
// and those of short_rows.h. Weight and bias that are missing, and gradients that are not needed, are null.
#define WORK_GROUPS
#include "common/short_rows.h"

#ifndef ACROSS
#define WIDE(x) const float x, const float x##_low
#define WIDE_VALUE(x) ((ST)(x) + (ST)(x##_low))

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void layer_norm_short(BUF(out), BUF(mean), BUF(rstd),
                                                                                  BUF(in), BUF(weight), BUF(bias),
                                                                                  long rows, long n, WIDE(eps)) {
  SHORT_ROW(rows, n)
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + place;
  __global STORAGE(IN)* y = PTR(out, STORAGE(IN)) + place;
  __global const STORAGE(WT)* w = PTR(weight, const STORAGE(WT));
  __global const STORAGE(WT)* b = PTR(bias, const STORAGE(WT));
  VT total = (VT)(0);
#define READ_IN(j)   \
  VT v##j = (VT)(0); \
  if (HAS(j)) v##j = LOAD_WHOLE(IN, x + AT(j));
  EACH_HELD(READ_IN)
#ifdef RMS
#define TO_SQUARES(j) total += v##j * v##j;
  EACH_HELD(TO_SQUARES)
  const ST var = row_sum(sum_lanes(total)) / n;
#else
#define TO_SUM(j) total += v##j;
  EACH_HELD(TO_SUM)
  ST m = row_sum(sum_lanes(total)) / n;
  // The deviations correct the mean, so that a large one costs no accuracy.
  VT squares = (VT)(0);
  total = (VT)(0);
#define TO_DEVIATIONS(j)    \
  if (HAS(j)) {             \
    v##j -= m;              \
    total += v##j;          \
    squares += v##j * v##j; \
  }
  EACH_HELD(TO_DEVIATIONS)
  const ST off = row_sum(sum_lanes(total)) / n;
  ST var = row_sum(sum_lanes(squares)) / n;
  if (isfinite(off)) {
    m += off;
    if (!isnan(var)) var = max(var - off * off, (ST)(0));
#define CORRECT(j) v##j -= off;
    EACH_HELD(CORRECT)
  }
#endif
  const ST r = 1 / sqrt(var + WIDE_VALUE(eps));
  if (lane == 0 && length) {
#ifndef RMS
    if (mean_buf) PTR(mean, ST)[row] = m;
#endif
    PTR(rstd, ST)[row] = r;
  }
#define WRITE_OUT(j)                                   \
  if (HAS(j)) {                                        \
    v##j *= r;                                         \
    if (weight_buf) v##j *= LOAD_WHOLE(WT, w + AT(j)); \
    if (bias_buf) v##j += LOAD_WHOLE(WT, b + AT(j));   \
    STORE_WHOLE(IN, y + AT(j), v##j);                  \
  }
  EACH_HELD(WRITE_OUT)
}

// The gradient of the input.
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void layer_norm_backward_short(BUF(gin), BUF(grad), BUF(in),
                                                                                           BUF(mean), BUF(rstd),
                                                                                           BUF(weight), long rows,
                                                                                           long n) {
  SHORT_ROW(rows, n)
  __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN)) + place;
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + place;
  __global STORAGE(IN)* y = PTR(gin, STORAGE(IN)) + place;
  __global const STORAGE(WT)* w = PTR(weight, const STORAGE(WT));
  ST m = 0, r = 0;
  if (length) {
#ifndef RMS
    m = PTR(mean, const ST)[row];
#endif
    r = PTR(rstd, const ST)[row];
  }
  VT dots = (VT)(0), total = (VT)(0);
#define READ_BOTH(j)                                   \
  VT g##j = (VT)(0), x##j = (VT)(0);                   \
  if (HAS(j)) {                                        \
    g##j = LOAD_WHOLE(IN, g + AT(j));                  \
    x##j = (LOAD_WHOLE(IN, x + AT(j)) - m) * r;        \
    if (weight_buf) g##j *= LOAD_WHOLE(WT, w + AT(j)); \
    dots += g##j * x##j;                               \
    total += g##j;                                     \
  }
  EACH_HELD(READ_BOTH)
  const ST c1 = row_sum(sum_lanes(dots)) / n;
#ifdef RMS
  const ST c2 = 0;
#else
  const ST c2 = row_sum(sum_lanes(total)) / n;
#endif
#define WRITE_GRAD(j) \
  if (HAS(j)) STORE_WHOLE(IN, y + AT(j), (g##j - c2 - x##j * c1) * r);
  EACH_HELD(WRITE_GRAD)
}
#else

// Parts of the gradients of weight and bias: sums over `rows_per` rows, in a row of wpart and bpart for each work-group
// of a column of them. ACROSS x DOWN work-items take ACROSS * VEC columns, and every DOWN-th row.
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void layer_norm_columns(BUF(wpart), BUF(bpart), BUF(grad),
                                                                                    BUF(in), BUF(mean), BUF(rstd),
                                                                                    long rows, long rows_per, long n) {
  __local VT sums[2 * GROUP];
  const int lid = (int)get_local_id(0), down = lid / ACROSS;
  const uint blocks = (uint)((n + ACROSS * VEC - 1) / (ACROSS * VEC)), group = (uint)get_group_id(0);
  const long part = group / blocks, column = (long)(group % blocks) * (ACROSS * VEC) + lid % ACROSS * VEC;
  const long last = min((part + 1) * rows_per, rows);
  VT dots = (VT)(0), total = (VT)(0);
  if (column < n) {
    for (long row = part * rows_per + down; row < last; row += DOWN) {
      const VT g = LOAD_WHOLE(IN, PTR(grad, const STORAGE(IN)) + row * n + column);
#ifdef RMS
      const ST m = 0;
#else
      const ST m = PTR(mean, const ST)[row];
#endif
      dots += g * ((LOAD_WHOLE(IN, PTR(in, const STORAGE(IN)) + row * n + column) - m) * PTR(rstd, const ST)[row]);
      total += g;
    }
  }
  sums[lid] = dots;
  sums[GROUP + lid] = total;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (down == 0 && column < n) {
    for (int k = 1; k < DOWN; k++) {
      dots += sums[lid + k * ACROSS];
      total += sums[GROUP + lid + k * ACROSS];
    }
    if (wpart_buf) STORE_WHOLE(ACC, PTR(wpart, ST) + part * n + column, dots);
    if (bpart_buf) STORE_WHOLE(ACC, PTR(bpart, ST) + part * n + column, total);
  }
}
#endif
