// Batch and group normalisation of channels_last tensors on CPUs. Memory is read in its order: a work-item takes a
// share of a segment's rows, and keeps a number per element of a row for each sum. Some pixels side by side form a row,
// so few channels fill vectors too.
//   channel_moments    the mean of each channel of a share, and the squares of the deviations from it
//   channel_norm       combines them, and normalises
//   channel_norm_eval  normalises by running statistics
//   channel_grad_sums  the sums over a share of grad * (in - mean) and of grad
//   channel_norm_grad  combines them, and computes the gradients
// If a segment has one share only, channel_norm computes its moments too.
// -D: IN (input and its gradient), WT (weight and bias), RT (running statistics), ACC, VEC. Missing operands are null.
#define GROUP 1
#include "common/norm.h"
#include "common/rows.h"

DEFINE_LANES(WT)

// Vectors of numbers as long as a row, with room for a vector that begins at its last element.
#define PADDED(n) (((n) + VEC - 1) / VEC * VEC)
#define TABLE(i) (work + (i) * TABLE_SIZE(&P))
#define TABLE_SIZE(P) (PADDED((P)->repeats * (P)->channels) + VEC)
#define GET(p, i) CAT(vload, VEC)(0, (p) + (i))
#define PUT(p, i, x) CAT(vstore, VEC)(x, 0, (p) + (i))

typedef struct {
  long segment, share, row;  // row: its elements
  long begin, end;           // rows of the share
  long first;                // the share's first element in the tensor
} Share;

static inline Share my_share(const ChannelNormParams* P) {
  Share s;
  s.share = get_global_id(0);
  s.segment = get_global_id(1);
  s.row = P->repeats * P->channels;
  s.begin = s.share * P->share_rows;
  s.end = min(s.begin + P->share_rows, P->rows);
  s.first = (s.segment * P->rows + s.begin) * s.row;
  return s;
}
#define MY_WORK(S, P) \
  (PTR(work, ST) + ((S).segment * get_global_size(0) + (S).share) * CHANNEL_NORM_TABLES * TABLE_SIZE(&P))
// Behind the memory of all shares, the numbers of a share: (segments, shares, numbers, padded channels).
#define PART(numbers, segment, share, P)                                              \
  (PTR(work, ST) + (P).segments * (P).shares * CHANNEL_NORM_TABLES * TABLE_SIZE(&P) + \
   ((segment) * (P).shares + (share)) * (numbers) * PADDED((P).channels))

static inline void clear(__global ST* t, long n) {
  for (long e = 0; e < n; e += VEC) PUT(t, e, (VT)(0));
}

// A vector of some rows, whose first `skip` lanes do not count.
typedef struct {
  long row;  // elements from one row to the next
  int rows, skip;
} rows_t;

// Calls `step` for the vectors `at` of `count` rows from row r on, some rows at once: it finds its element of the row
// in e. The last vector of a row that is no multiple of VEC overlaps the one before.
#define ROWS_AT_ONCE 8
#define EACH_VECTOR(n, row, step)                      \
  {                                                    \
    rows_t at = {row, n, 0};                           \
    for (long e = 0; e + VEC <= (row); e += VEC) step; \
    if ((row) % VEC) {                                 \
      const long e = (row) - VEC;                      \
      at.skip = VEC - (int)((row) % VEC);              \
      step;                                            \
    }                                                  \
  }
#define EACH_ROW_VECTOR(r, count, row, step)                                                    \
  {                                                                                             \
    long r = 0;                                                                                 \
    for (; r + ROWS_AT_ONCE <= (count); r += ROWS_AT_ONCE) EACH_VECTOR(ROWS_AT_ONCE, row, step) \
    for (; r < (count); r++) EACH_VECTOR(1, row, step)                                          \
  }

ALWAYS_INLINE VT beyond(VT x, int skip) { return skip == 0 ? x : (VT)LANE_NUMBERS(VEC) < (VT)((ST)skip) ? (VT)(0) : x; }

// --- forward ---------------------------------------------------------------------------------------------------------

// sum += x - pivot, or the squares of x - pivot - mean.
ALWAYS_INLINE void add_differences(__global const STORAGE(IN)* x, const rows_t at, __global const ST* pivot,
                                   __global ST* sum) {
  const VT p = GET(pivot, 0);
  VT s = (VT)(0);
  UNROLL for (int i = 0; i < at.rows; i++)
    s += LOAD(IN, ACC, VEC, x, i * at.row) - p;
  PUT(sum, 0, GET(sum, 0) + beyond(s, at.skip));
}
ALWAYS_INLINE void add_squares(__global const STORAGE(IN)* x, const rows_t at, __global const ST* pivot,
                               __global const ST* mean, __global ST* sum) {
  const VT p = GET(pivot, 0), m = GET(mean, 0);
  VT s = (VT)(0);
  UNROLL for (int i = 0; i < at.rows; i++) {
    const VT d = LOAD(IN, ACC, VEC, x, i * at.row) - p - m;
    s += d * d;
  }
  PUT(sum, 0, GET(sum, 0) + beyond(s, at.skip));
}
static inline void sum_differences(__global const STORAGE(IN)* x, long count, long row, __global const ST* pivot,
                                   __global ST* sum) {
  clear(sum, row);
  EACH_ROW_VECTOR(r, count, row, add_differences(x + r * row + e, at, pivot + e, sum + e))
}
static inline void sum_squares(__global const STORAGE(IN)* x, long count, long row, __global const ST* pivot,
                               __global const ST* mean, __global ST* sum) {
  clear(sum, row);
  EACH_ROW_VECTOR(r, count, row, add_squares(x + r * row + e, at, pivot + e, mean + e, sum + e))
}

// The moments of a share, for each element of a row: its sum beyond a pivot, and the squares of the deviations from the
// mean. The pivot is the mean of the first rows, so a large mean costs no digits. Blocks of rows, which stay in the
// cache, are joined as by JOIN_MOMENTS.
static inline void moments_of_rows(__global const STORAGE(IN)* x, long rows, const ChannelNormParams* P,
                                   __global ST* work, __global ST* pivot, __global ST* sum, __global ST* squares) {
  const long row = P->repeats * P->channels, size = TABLE_SIZE(P);
  __global ST *s = work, *mean = work + size, *q = work + 2 * size;
  clear(pivot, size);
  clear(sum, size);
  clear(squares, size);
  for (long r = 0; r < rows; r += P->fold_rows) {
    const long n = min(P->fold_rows, rows - r);
    if (r == 0) {
      const long few = min(n, 2L * ROWS_AT_ONCE);
      sum_differences(x, few, row, pivot, s);
      for (long e = 0; e < row; e += VEC) {
        const VT m = GET(s, e) / few;
        PUT(pivot, e, isfinite(m) ? m : (VT)(0));
      }
    }
    sum_differences(x + r * row, n, row, pivot, s);
    for (long e = 0; e < row; e += VEC) PUT(mean, e, GET(s, e) / n);
    sum_squares(x + r * row, n, row, pivot, mean, q);
    const ST weight = r ? (ST)r * (ST)n / (ST)(r + n) : (ST)0;
    for (long e = 0; e < row; e += VEC) {
      VT more = GET(q, e);
      if (r) {
        const VT d = GET(mean, e) - GET(sum, e) / r;
        more += d * d * weight;
      }
      PUT(squares, e, GET(squares, e) + more);
      PUT(sum, e, GET(sum, e) + GET(s, e));
    }
  }
}

// Writes the part of a share: a pivot, the mean beyond it, and the squares of the deviations from the mean.
static inline void write_moments(__global const STORAGE(IN)* x, long rows, const ChannelNormParams* P,
                                 __global ST* work, __global ST* part) {
  const long size = TABLE_SIZE(P), padded = PADDED(P->channels);
  __global ST *pivot = work + 3 * size, *sum = pivot + size, *squares = sum + size;
  moments_of_rows(x, rows, P, work, pivot, sum, squares);
  for (long c = 0; c < P->channels; c += VEC) {
    JOIN_MOMENTS(VT, P->repeats, GET(pivot, c + i * P->channels), GET(sum, c + i * P->channels) / rows,
                 GET(squares, c + i * P->channels), rows, rows * P->repeats)
    PUT(part, c, pivot_);
    PUT(part, padded + c, shift_);
    PUT(part, 2 * padded + c, squares_);
  }
}

__kernel void channel_moments(BUF(work), BUF(in), const ChannelNormParams P) {
  const Share S = my_share(&P);
  write_moments(PTR(in, const STORAGE(IN)) + S.first, S.end - S.begin, &P, MY_WORK(S, P),
                PART(CHANNEL_NORM_MOMENTS, S.segment, S.share, P));
}

// Joins the moments of a segment's shares, as mean = pivot + shift, and the squares.
static inline void join_shares(__global const ST* part, const ChannelNormParams* P, __global ST* pivot,
                               __global ST* shift, __global ST* squares) {
  const long padded = PADDED(P->channels), size = CHANNEL_NORM_MOMENTS * padded;
  for (long c = 0; c < P->channels; c += VEC) {
    JOIN_MOMENTS(VT, P->shares, GET(part, i * size + c), GET(part, i * size + padded + c),
                 GET(part, i * size + 2 * padded + c),
                 (ST)(min(P->share_rows, P->rows - i * P->share_rows) * P->repeats), P->pixels)
    PUT(pivot, c, pivot_);
    PUT(shift, c, shift_);
    PUT(squares, c, squares_);
  }
}

// Joins the channels of a group; each gets the group's result.
static inline void join_groups(const ChannelNormParams* P, __global ST* pivot, __global ST* shift,
                               __global ST* squares) {
  if (P->group == 1) return;
  for (long first = 0; first < P->channels; first += P->group) {
    JOIN_MOMENTS(ST, P->group, pivot[first + i], shift[first + i], squares[first + i], P->pixels, P->pixels * P->group)
    for (long c = first; c < first + P->group; c++) {
      pivot[c] = pivot_;
      shift[c] = shift_;
      squares[c] = squares_;
    }
  }
}

// Repeats the channels of a table until it is as long as a row.
static inline void repeat(__global ST* t, const ChannelNormParams* P) {
  for (long r = 1; r < P->repeats; r++)
    for (long c = 0; c < P->channels; c += VEC) PUT(t, r * P->channels + c, GET(t, c));
}

// Stores one row after another, since many streams of stores at once are slower.
#define EACH_STORE(r, count, row, step) \
  for (long r = 0; r < (count); r++) EACH_VECTOR(1, row, step)
ALWAYS_INLINE void store_normal(__global STORAGE(IN)* y, __global const STORAGE(IN)* x, __global const ST* mean,
                                __global const ST* scale, __global const ST* offset) {
  const VT d = LOAD(IN, ACC, VEC, x, 0) - GET(mean, 0);
  STORE(IN, ACC, VEC, y, 0, d * GET(scale, 0) + GET(offset, 0));
}
static inline void normalize(__global STORAGE(IN)* y, __global const STORAGE(IN)* x, long count,
                             const ChannelNormParams* P, __global ST* mean, __global ST* scale, __global ST* offset) {
  const long row = P->repeats * P->channels;
  repeat(mean, P);
  repeat(scale, P);
  repeat(offset, P);
  EACH_STORE(r, count, row, store_normal(y + r * row + e, x + r * row + e, mean + e, scale + e, offset + e))
}

__kernel void channel_norm(BUF(out), SAVED, BUF(work), BUF(in), AFFINE, RUNNING, const ChannelNormParams P) {
  const Share S = my_share(&P);
  __global ST* work = MY_WORK(S, P);
  __global ST *mean = TABLE(0), *rstd = TABLE(1), *offset = TABLE(2), *pivot = TABLE(3), *var = TABLE(4);
  __global ST* part = PART(CHANNEL_NORM_MOMENTS, S.segment, 0, P);
  if (P.shares == 1) write_moments(PTR(in, const STORAGE(IN)) + S.first, P.rows, &P, work, part);
  join_shares(part, &P, pivot, mean, var);
  join_groups(&P, pivot, mean, var);
  const ST n = (ST)(P.pixels * P.group);
  for (long c = 0; c < P.channels; c += VEC) {
    PUT(mean, c, GET(pivot, c) + GET(mean, c));
    PUT(var, c, GET(var, c) / n);
    PUT(rstd, c, 1 / sqrt(GET(var, c) + WIDE_OF(P.eps)));
  }
  // Only batch norms, whose groups are channels of one segment, have running statistics.
  if (S.share == 0) {
    for (long c = 0, g = S.segment * (P.channels / P.group); c < P.channels; c += P.group, g++) {
      SAVE_STATISTICS(PARAM, PUT_PARAM, g, mean[c], rstd[c], var[c], n)
    }
  }
  for (long c = 0; c < P.channels; c++) {
    rstd[c] *= PARAM(WT, weight, c, 1);
    offset[c] = PARAM(WT, bias, c, 0);
  }
  normalize(PTR(out, STORAGE(IN)) + S.first, PTR(in, const STORAGE(IN)) + S.first, S.end - S.begin, &P, mean, rstd,
            offset);
}

__kernel void channel_norm_eval(BUF(out), BUF(work), BUF(in), AFFINE, RUNNING, const ChannelNormParams P) {
  const Share S = my_share(&P);
  __global ST* work = MY_WORK(S, P);
  __global ST *mean = TABLE(0), *scale = TABLE(1), *offset = TABLE(2);
  for (long c = 0; c < P.channels; c++) {
    mean[c] = PARAM(RT, run_mean, c, 0);
    scale[c] = PARAM(RT, run_var, c, 1);
    offset[c] = PARAM(WT, bias, c, 0);
  }
  for (long c = 0; c < P.channels; c += VEC) {
    const VT w = weight_buf ? LOAD_LANES(WT, PTR(weight, const STORAGE(WT)), c, LANES(c, P.channels), 1) : (VT)(1);
    PUT(scale, c, w / sqrt(GET(scale, c) + WIDE_OF(P.eps)));
  }
  normalize(PTR(out, STORAGE(IN)) + S.first, PTR(in, const STORAGE(IN)) + S.first, S.end - S.begin, &P, mean, scale,
            offset);
}

// --- backward --------------------------------------------------------------------------------------------------------

// Of batch norms: one segment, and groups of one channel. RT is the dtype of the saved statistics or the running ones.
#define STATISTIC(p, c) LOAD(RT, ACC, 1, PTR(p, const STORAGE(RT)), c)

ALWAYS_INLINE void add_products(__global const STORAGE(IN)* g, __global const STORAGE(IN)* x, const rows_t at,
                                __global const ST* mean, __global ST* sum1, __global ST* sum2) {
  const VT m = GET(mean, 0);
  VT s1 = (VT)(0), s2 = (VT)(0);
  UNROLL for (int i = 0; i < at.rows; i++) {
    const VT v = LOAD(IN, ACC, VEC, g, i * at.row);
    s1 += v * (LOAD(IN, ACC, VEC, x, i * at.row) - m);
    s2 += v;
  }
  PUT(sum1, 0, GET(sum1, 0) + beyond(s1, at.skip));
  PUT(sum2, 0, GET(sum2, 0) + beyond(s2, at.skip));
}
static inline void sum_products(__global const STORAGE(IN)* g, __global const STORAGE(IN)* x, long count, long row,
                                __global const ST* mean, __global ST* sum1, __global ST* sum2) {
  clear(sum1, row);
  clear(sum2, row);
  EACH_ROW_VECTOR(r, count, row, add_products(g + r * row + e, x + r * row + e, at, mean + e, sum1 + e, sum2 + e))
}

// A part has both sums of each channel.
__kernel void channel_grad_sums(BUF(work), BUF(grad), BUF(in), BUF(mean), const ChannelNormParams P) {
  const Share S = my_share(&P);
  __global ST* work = MY_WORK(S, P);
  __global ST *mean = TABLE(0), *sum1 = TABLE(1), *sum2 = TABLE(2), *all1 = TABLE(3), *all2 = TABLE(4);
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + S.first;
  __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN)) + S.first;
  for (long c = 0; c < P.channels; c++) mean[c] = STATISTIC(mean, c);
  repeat(mean, &P);
  clear(all1, TABLE_SIZE(&P));
  clear(all2, TABLE_SIZE(&P));
  for (long r = 0; r < S.end - S.begin; r += P.fold_rows) {
    sum_products(g + r * S.row, x + r * S.row, min(P.fold_rows, S.end - S.begin - r), S.row, mean, sum1, sum2);
    for (long e = 0; e < S.row; e += VEC) {
      PUT(all1, e, GET(all1, e) + GET(sum1, e));
      PUT(all2, e, GET(all2, e) + GET(sum2, e));
    }
  }
  __global ST* part = PART(CHANNEL_NORM_SUMS, 0, S.share, P);
  for (long c = 0; c < P.channels; c += VEC) {
    VT s1 = (VT)(0), s2 = (VT)(0);
    for (long r = 0, e = c; r < P.repeats; r++, e += P.channels) {
      s1 += GET(all1, e);
      s2 += GET(all2, e);
    }
    PUT(part, c, s1);
    PUT(part, PADDED(P.channels) + c, s2);
  }
}

// The factors of a segment's channels: the gradient of an element is (grad - level - (in - mean) * slope) * scale.
typedef struct {
  __global const ST *mean, *level, *slope, *scale;
} factors_t;
ALWAYS_INLINE void store_gradient(__global STORAGE(IN)* y, __global const STORAGE(IN)* g, __global const STORAGE(IN)* x,
                                  const factors_t f, long e) {
  const VT d = LOAD(IN, ACC, VEC, x, 0) - GET(f.mean, e);
  const VT v = LOAD(IN, ACC, VEC, g, 0) - GET(f.level, e) - d * GET(f.slope, e);
  STORE(IN, ACC, VEC, y, 0, v * GET(f.scale, e));
}
// By running statistics, which do not depend on the input.
ALWAYS_INLINE void store_scaled(__global STORAGE(IN)* y, __global const STORAGE(IN)* g, __global const ST* scale) {
  STORE(IN, ACC, VEC, y, 0, LOAD(IN, ACC, VEC, g, 0) * GET(scale, 0));
}

// If not `train`, `mean` and `rstd` are the running mean and variance.
__kernel void channel_norm_grad(GRADIENTS, BUF(work), BUF(grad), BUF(in), BUF(weight), SAVED,
                                const ChannelNormParams P) {
  const Share S = my_share(&P);
  __global ST* work = MY_WORK(S, P);
  __global ST *mean = TABLE(0), *scale = TABLE(1), *rstd = TABLE(2), *slope = TABLE(3), *level = TABLE(4);
  for (long c = 0; c < P.channels; c++) {
    const ST s = STATISTIC(rstd, c);
    mean[c] = STATISTIC(mean, c);
    rstd[c] = P.train ? s : 1 / sqrt(s + WIDE_OF(P.eps));
    scale[c] = PARAM(WT, weight, c, 1);
  }
  if ((P.train && gin_buf) || gw_buf || gb_buf) {
    __global const ST* part = PART(CHANNEL_NORM_SUMS, 0, 0, P);
    for (long c = 0; c < P.channels; c += VEC) {
      VT s1 = (VT)(0), s2 = (VT)(0);
      for (long s = 0; s < P.shares; s++) {
        s1 += GET(part, s * CHANNEL_NORM_SUMS * PADDED(P.channels) + c);
        s2 += GET(part, (s * CHANNEL_NORM_SUMS + 1) * PADDED(P.channels) + c);
      }
      PUT(slope, c, s1 * GET(rstd, c));
      PUT(level, c, s2);
    }
    if (S.share == 0)
      for (long c = 0; c < P.channels; c++) {
        PUT_PARAM(WT, gw, c, slope[c]);
        PUT_PARAM(WT, gb, c, level[c]);
      }
  }
  if (!gin_buf) return;
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + S.first;
  __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN)) + S.first;
  __global STORAGE(IN)* y = PTR(gin, STORAGE(IN)) + S.first;
  const long row = S.row;
  for (long c = 0; c < P.channels; c++) {
    scale[c] *= rstd[c];
    slope[c] *= rstd[c] / P.pixels;
    level[c] /= P.pixels;
  }
  repeat(scale, &P);
  if (!P.train) {
    EACH_STORE(r, S.end - S.begin, row, store_scaled(y + r * row + e, g + r * row + e, scale + e))
    return;
  }
  repeat(mean, &P);
  repeat(slope, &P);
  repeat(level, &P);
  const factors_t f = {mean, level, slope, scale};
  EACH_STORE(r, S.end - S.begin, row, store_gradient(y + r * row + e, g + r * row + e, x + r * row + e, f, e))
}
