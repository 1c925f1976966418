// Batch normalisation in training for GPUs: many work-groups per channel. batch_norm_parts and batch_norm_grad_parts
// compute sums of shares of a channel, batch_norm_finish and batch_norm_grad_finish combine them, batch_norm_apply and
// batch_norm_grad_apply compute the elements.
// -D: as in batch_norm.cl. A channel is `runs` runs of hw adjacent elements; if channels are adjacent (COLS), hw is 1.
// Parts are (shares, channels, 3), of gradients (shares, channels, 2). `share` is the number of elements of a channel
// in a part.
#include "common/rows.h"

#define PARAM(T, p, i, absent) (p##_buf ? LOAD(T, ACC, 1, PTR(p, const STORAGE(T)), i) : (ST)(absent))

// EACH_OF_SHARE calls STEP(place) for this work-item's elements of a share; share_sum adds up the work-items' sums.
// With COLS, each work-item has a channel of its own.
#ifdef COLS
#define CHANNEL (long)get_global_id(0)
#define SHARE get_global_id(1)
#define SHARE_SCRATCH
#define EACH_OF_SHARE(STEP) \
  for (long i = from; i < to; i++) STEP(i* channels + c)
#define share_sum(x) (x)
#define IS_FIRST 1
#else
#define CHANNEL (long)get_group_id(0)
#define SHARE get_global_id(1)
#define SHARE_SCRATCH ROW_SCRATCH
// The run and the place in it advance by LS elements without a division.
#define EACH_OF_SHARE(STEP)                                                \
  {                                                                        \
    const long runs_ = LS / hw, rest_ = LS - runs_ * hw;                   \
    long r_ = (from + LID) / hw, k_ = from + LID - r_ * hw;                \
    for (long i = from + LID; i < to; i += LS, r_ += runs_, k_ += rest_) { \
      if (k_ >= hw) {                                                      \
        k_ -= hw;                                                          \
        r_++;                                                              \
      }                                                                    \
      STEP((r_ * channels + c) * hw + k_)                                  \
    }                                                                      \
  }
#define share_sum(x) row_sum(x)
#define IS_FIRST (LID == 0)
#endif

// The channel of element i; divisions of 32 bits take a fraction of the time.
static inline long channel_of(long i, long channels, long hw, long elements) {
  return elements <= UINT_MAX ? (uint)i / (uint)hw % (uint)channels : i / hw % channels;
}

#define ADD_VALUE(at) s += LOAD(IN, ACC, 1, x, at);
#define ADD_DEVIATION(at)                        \
  {                                              \
    const ST d = LOAD(IN, ACC, 1, x, at) - mean; \
    s1 += d;                                     \
    s2 += d * d;                                 \
  }
// The mean of a share, its correction as in batch_norm.cl, and the sum of the squares of the deviations from both. The
// correction is stored apart, since a large mean would round it away.
__kernel void batch_norm_parts(BUF(part), BUF(in), long n, long channels, long hw, long share) {
  SHARE_SCRATCH
  const long c = CHANNEL, from = SHARE * share, to = min(from + share, n);
#ifdef COLS
  if (c >= channels) return;
#endif
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN));
  const ST count = (ST)(to - from);
  ST s = 0, s1 = 0, s2 = 0;
  EACH_OF_SHARE(ADD_VALUE)
  const ST mean = share_sum(s) / count;
  EACH_OF_SHARE(ADD_DEVIATION)
  const ST sum1 = share_sum(s1), sum2 = share_sum(s2);
  const ST shift = isfinite(sum1) ? sum1 / count : 0;
  if (IS_FIRST) {
    __global ST* to_part = PTR(part, ST) + (SHARE * channels + c) * 3;
    to_part[0] = mean;
    to_part[1] = shift;
    to_part[2] = sum2 - shift * sum1;
  }
}

// The statistics of channel c from those of its shares; a work-item takes a channel.
__kernel void batch_norm_finish(BUF(mean), BUF(invstd), BUF(run_mean), BUF(run_var), BUF(part), long n, long channels,
                                long share, WIDE(momentum), WIDE(eps)) {
  const long c = get_global_id(0), shares = (n + share - 1) / share;
  if (c >= channels) return;
  __global const ST* part = PTR(part, const ST) + c * 3;
  const ST first = part[0];
  ST sum = 0, above = 0, squares = 0;
  for (long i = 0; i < shares; i++) {
    __global const ST* p = part + i * channels * 3;
    const ST count = (ST)(min((i + 1) * share, n) - i * share);
    sum += p[0] * count;
    above += (p[0] - first + p[1]) * count;
  }
  const ST shift = above / n, m = isfinite(above) ? first + shift : sum / n;
  for (long i = 0; i < shares; i++) {
    __global const ST* p = part + i * channels * 3;
    const ST count = (ST)(min((i + 1) * share, n) - i * share), d = p[0] - first + p[1] - shift;
    squares += p[2] + d * d * count;
  }
  const ST var = squares / n < 0 ? (ST)0 : squares / n;
  PTR(mean, ST)[c] = m;
  PTR(invstd, ST)[c] = 1 / sqrt(var + WIDE_VALUE(eps));
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

// A work-item takes an element.
__kernel void batch_norm_apply(BUF(out), BUF(in), BUF(mean), BUF(invstd), BUF(weight), BUF(bias), long elements,
                               long channels, long hw) {
  const long i = get_global_id(0);
  if (i >= elements) return;
  const long c = channel_of(i, channels, hw, elements);
  const ST w = PARAM(WT, weight, c, 1) * PTR(invstd, const ST)[c], b = PARAM(WT, bias, c, 0);
  const ST x = LOAD(IN, ACC, 1, PTR(in, const STORAGE(IN)), i);
  STORE(IN, ACC, 1, PTR(out, STORAGE(IN)), i, (x - PTR(mean, const ST)[c]) * w + b);
}

#define TO_SUMS(at)                              \
  {                                              \
    const ST gv = LOAD(IN, ACC, 1, g, at);       \
    s1 += gv * (LOAD(IN, ACC, 1, x, at) - mean); \
    s2 += gv;                                    \
  }
// The sums of grad * (in - mean) and of grad over a share.
__kernel void batch_norm_grad_parts(BUF(part), BUF(grad), BUF(in), BUF(mean), long n, long channels, long hw,
                                    long share) {
  SHARE_SCRATCH
  const long c = CHANNEL, from = SHARE * share, to = min(from + share, n);
#ifdef COLS
  if (c >= channels) return;
#endif
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN));
  __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN));
  const ST mean = PTR(mean, const ST)[c];
  ST s1 = 0, s2 = 0;
  EACH_OF_SHARE(TO_SUMS)
  const ST sum1 = share_sum(s1), sum2 = share_sum(s2);
  if (IS_FIRST) {
    __global ST* to_part = PTR(part, ST) + (SHARE * channels + c) * 2;
    to_part[0] = sum1;
    to_part[1] = sum2;
  }
}

// The gradients of weight and bias, and `means`, (channels, 2): what batch_norm_grad_apply subtracts.
__kernel void batch_norm_grad_finish(BUF(gw), BUF(gb), BUF(means), BUF(part), BUF(invstd), long n, long channels,
                                     long share) {
  const long c = get_global_id(0), shares = (n + share - 1) / share;
  if (c >= channels) return;
  __global const ST* part = PTR(part, const ST) + c * 2;
  ST s1 = 0, s2 = 0;
  for (long i = 0; i < shares; i++) {
    s1 += part[i * channels * 2];
    s2 += part[i * channels * 2 + 1];
  }
  const ST is = PTR(invstd, const ST)[c];
  s1 *= is;
  if (gw_buf) STORE(WT, ACC, 1, PTR(gw, STORAGE(WT)), c, s1);
  if (gb_buf) STORE(WT, ACC, 1, PTR(gb, STORAGE(WT)), c, s2);
  PTR(means, ST)[2 * c] = s1 * is / n;
  PTR(means, ST)[2 * c + 1] = s2 / n;
}

__kernel void batch_norm_grad_apply(BUF(gin), BUF(grad), BUF(in), BUF(mean), BUF(invstd), BUF(weight), BUF(means),
                                    long elements, long channels, long hw) {
  const long i = get_global_id(0);
  if (i >= elements) return;
  const long c = channel_of(i, channels, hw, elements);
  const ST w = PARAM(WT, weight, c, 1) * PTR(invstd, const ST)[c];
  const ST g = LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), i);
  const ST d = LOAD(IN, ACC, 1, PTR(in, const STORAGE(IN)), i) - PTR(mean, const ST)[c];
  __global const ST* means = PTR(means, const ST) + 2 * c;
  STORE(IN, ACC, 1, PTR(gin, STORAGE(IN)), i, (g - means[1] - d * means[0]) * w);
}
