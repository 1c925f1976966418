// Batch normalisation, forward and backward, training and evaluation.
// -D: IN (input and its gradient), WT (weight and bias), RT (running statistics), and those of the walk. A row is a
// channel, in runs or in columns. Saved statistics have the compute type. Missing operands are null.
// In training, GPUs have many work-groups per channel: batch_norm_parts and batch_norm_grad_parts compute sums of
// shares of a channel, batch_norm_finish and batch_norm_grad_finish combine them, batch_norm_apply and
// batch_norm_grad_apply compute the elements. Parts are (shares, channels, 3), of gradients (shares, channels, 2).
#include "common/row_moments.h"

DEFINE_LANES(IN)
DEFINE_LANES(WT)
DEFINE_LANES(RT)
DEFINE_LANES(ACC)

#define INVERSE_DEVIATION(var) (1 / sqrt((var) + WIDE_OF(P.eps)))

#define TO_NORMAL(j) PUT(IN, y, j, (X(IN, x, j) - m) * w + b);
__kernel WALK_GROUP_SIZE void batch_norm_train(BUF(out), SAVED, BUF(in), AFFINE, RUNNING, const NormParams P) {
  WALK(P.walk) {
    OPERAND(IN, x, in);
    RESULT(IN, y, out, x);
    MOMENTS;
    const row_t m = mean + off, r = INVERSE_DEVIATION(var);
    SAVE_STATISTICS(VALUE, PUT_VALUE, row, m, r, var, n)
    const row_t w = VALUE(WT, weight, row, 1) * r, b = VALUE(WT, bias, row, 0);
    EACH(TO_NORMAL);
  }
}

// A row is one run of a channel, or a share of one in columns.
__kernel WALK_GROUP_SIZE void batch_norm_eval(BUF(out), BUF(in), AFFINE, RUNNING, const NormParams P) {
  WALK(P.walk) {
    OPERAND(IN, x, in);
    RESULT(IN, y, out, x);
    const long c = row % P.channels;
    const row_t m = VALUE(RT, run_mean, c, 0), b = VALUE(WT, bias, c, 0);
    const row_t w = VALUE(WT, weight, c, 1) / sqrt(VALUE(RT, run_var, c, 1) + WIDE_OF(P.eps));
    EACH(TO_NORMAL);
  }
}

#define TO_SUMS(j)                                 \
  {                                                \
    const VT g_ = X(IN, g, j);                     \
    dots += COUNTED(j, g_ * (X(IN, x, j) - m), 0); \
    total += COUNTED(j, g_, 0);                    \
  }
#define TO_GRAD(j)                                   \
  {                                                  \
    const VT g_ = X(IN, g, j), d_ = X(IN, x, j) - m; \
    PUT(IN, y, j, (g_ - c2 - d_ * c1) * w);          \
  }
#define TO_SCALED(j) PUT(IN, y, j, X(IN, g, j) * w);
// In evaluation, `mean` and `rstd` are the running mean and variance.
#define STATISTIC(p, absent) (P.train ? VALUE(ACC, p, row, absent) : VALUE(RT, p, row, absent))
__kernel WALK_GROUP_SIZE void batch_norm_backward(GRADIENTS, BUF(grad), BUF(in), BUF(weight), SAVED,
                                                  const NormParams P) {
  WALK(P.walk) {
    OPERAND(IN, g, grad);
    OPERAND(IN, x, in);
    RESULT(IN, y, gin, g);
    const row_t m = STATISTIC(mean, 0), s = STATISTIC(rstd, 1), r = P.train ? s : INVERSE_DEVIATION(s);
    row_t c1 = (row_t)(0), c2 = (row_t)(0);
    if (P.train || gw_buf || gb_buf) {
      SUMS(dots);
      SUMS(total);
      EACH_SUM(TO_SUMS, FOLD(dots) FOLD(total));
      const row_t s1 = ROW_SUM(TOTAL(dots)) * r, s2 = ROW_SUM(TOTAL(total));
      PUT_VALUE(WT, gw, row, s1);
      PUT_VALUE(WT, gb, row, s2);
      c1 = s1 * r / n;
      c2 = s2 / n;
    }
    const row_t w = VALUE(WT, weight, row, 1) * r;
    if (gin_buf && P.train) EACH(TO_GRAD);
    if (gin_buf && !P.train) EACH(TO_SCALED);
  }
}

// --- shares of channels, on GPUs -------------------------------------------------------------------------------------

// The moments of a share. The correction of the mean is stored apart, since a large mean would round it away.
__kernel WALK_GROUP_SIZE void batch_norm_parts(BUF(part), BUF(in), const NormParams P) {
  WALK(P.walk) {
    OPERAND(IN, x, in);
    MOMENTS;
    const long at = (SHARE * P.channels + row) * 3;
    PUT_VALUE(ACC, part, at, correction(mean));
    PUT_VALUE(ACC, part, at + 1, isfinite(mean) ? off : mean);
    PUT_VALUE(ACC, part, at + 2, var * n);
  }
}

// The sums of grad * (in - mean) and of grad over a share.
__kernel WALK_GROUP_SIZE void batch_norm_grad_parts(BUF(part), BUF(grad), BUF(in), BUF(mean), const NormParams P) {
  WALK(P.walk) {
    OPERAND(IN, g, grad);
    OPERAND(IN, x, in);
    const row_t m = VALUE(ACC, mean, row, 0);
    SUMS(dots);
    SUMS(total);
    EACH_SUM(TO_SUMS, FOLD(dots) FOLD(total));
    const long at = (SHARE * P.channels + row) * 2;
    const row_t s1 = ROW_SUM(TOTAL(dots)), s2 = ROW_SUM(TOTAL(total));
    PUT_VALUE(ACC, part, at, s1);
    PUT_VALUE(ACC, part, at + 1, s2);
  }
}

#define SHARES ((P.walk.n + P.walk.rows_per - 1) / P.walk.rows_per)
// The statistics of channel c from those of its shares; a work-item takes a channel.
__kernel void batch_norm_finish(SAVED, RUNNING, BUF(part), const NormParams P) {
  const long c = get_global_id(0), n = P.walk.n, most = P.walk.rows_per, step = P.channels * 3;
  if (c >= P.channels) return;
  __global const ST* p = PTR(part, const ST) + c * 3;
  JOIN_MOMENTS(ST, SHARES, p[i * step], p[i * step + 1], p[i * step + 2], (ST)min(most, n - i * most), n);
  const ST m = pivot_ + shift_, var = squares_ / n;
  SAVE_STATISTICS(PARAM, PUT_PARAM, c, m, INVERSE_DEVIATION(var), var, n)
}

// The channel of element i of a tensor; divisions of 32 bits take a fraction of the time.
#define ELEMENTS (P.walk.n * P.channels)
static inline long channel_of(long i, const NormParams* P) {
  const ulong elements = P->walk.n * P->channels;
  return elements <= UINT_MAX ? (uint)i / (uint)P->hw % (uint)P->channels : i / P->hw % P->channels;
}

// A work-item takes an element.
__kernel void batch_norm_apply(BUF(out), BUF(in), SAVED, AFFINE, const NormParams P) {
  const long i = get_global_id(0);
  if (i >= ELEMENTS) return;
  const long c = channel_of(i, &P);
  const ST w = PARAM(WT, weight, c, 1) * PTR(rstd, const ST)[c], b = PARAM(WT, bias, c, 0);
  const ST x = LOAD(IN, ACC, 1, PTR(in, const STORAGE(IN)), i);
  STORE(IN, ACC, 1, PTR(out, STORAGE(IN)), i, (x - PTR(mean, const ST)[c]) * w + b);
}

// The gradients of weight and bias, and `factors`, (channels, 3): with these, an element of the gradient is (grad -
// level - (in - mean) * slope) * scale.
__kernel void batch_norm_grad_finish(BUF(gw), BUF(gb), BUF(factors), BUF(part), BUF(rstd), BUF(weight),
                                     const NormParams P) {
  const long c = get_global_id(0), step = P.channels * 2;
  if (c >= P.channels) return;
  __global const ST* p = PTR(part, const ST) + c * 2;
  ST s1 = 0, s2 = 0;
  for (long i = 0; i < SHARES; i++) {
    s1 += p[i * step];
    s2 += p[i * step + 1];
  }
  const ST r = PTR(rstd, const ST)[c];
  s1 *= r;
  PUT_PARAM(WT, gw, c, s1);
  PUT_PARAM(WT, gb, c, s2);
  __global ST* f = PTR(factors, ST) + c * 3;
  f[0] = s2 / P.walk.n;
  f[1] = s1 * r / P.walk.n;
  f[2] = PARAM(WT, weight, c, 1) * r;
}

__kernel void batch_norm_grad_apply(BUF(gin), BUF(grad), BUF(in), BUF(mean), BUF(factors), const NormParams P) {
  const long i = get_global_id(0);
  if (i >= ELEMENTS) return;
  const long c = channel_of(i, &P);
  const ST g = LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), i);
  const ST d = LOAD(IN, ACC, 1, PTR(in, const STORAGE(IN)), i) - PTR(mean, const ST)[c];
  __global const ST* f = PTR(factors, const ST) + c * 3;
  STORE(IN, ACC, 1, PTR(gin, STORAGE(IN)), i, (g - f[0] - d * f[1]) * f[2]);
}
