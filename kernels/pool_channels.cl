// Max and average pooling, as in pool.cl, of tensors whose channels come last, on a CPU: [image][z][y][x][channel].
// Vectors lie along the channels. -D: ACC (compute tag), IN (storage tag), IDX (int, or long if an image has 2^31
// elements), VEC (elements per vector, at most the number of channels).
#include "args/pool.h"
#include "common/extremes.h"
#include "common/pool_window.h"
#include "common/vector.h"

typedef CAT(IDX, VEC) VI;
#define AS_POSITIONS(mask) CAT(convert_, CAT(IDX, VEC))(mask)

// A NaN is better than any number, and than an earlier NaN.
#define BETTER(v, best) CAT(better_, ACC)(v, best)
#define better_f32(v, best) (((v) > (best)) | isnan(v))
#define better_f64(v, best) (((v) > (best)) | isnan(v))
#define better_int(v, best) ((v) > (best))
#define better_i64 better_int
#define better_i32 better_int
#define better_i16 better_int
#define better_i8 better_int
#define better_u8 better_int

// An output's gradient is divided among the n elements of its window: SHARE(v, PER(n)).
#define PER(n) CAT(per_, ACC)(n)
#define SHARE(v, per) CAT(share_, ACC)(v, per)
#define per_f32(n) (1 / (float)(n))
#define per_f64(n) (1 / (double)(n))
#define share_f32(v, per) ((v) * (per))
#define share_f64(v, per) ((v) * (per))
#define per_int(n) ((ST)(n))
#define share_int(v, per) ((v) / (VT)(per))
#define per_i64 per_int
#define per_i32 per_int
#define per_i16 per_int
#define per_i8 per_int
#define per_u8 per_int
#define share_i64 share_int
#define share_i32 share_int
#define share_i16 share_int
#define share_i8 share_int
#define share_u8 share_int

// What a work-item computes: of the channels [begin, end), the rows [first, last) of the tensor that is written. It has
// at least VEC channels.
typedef struct {
  long group, first, last, begin, end;
} part_t;

static inline part_t my_part(const PoolParams* P) {
  const long parts = P->channels / P->channels_per_item, at = get_global_id(0);
  part_t s;
  s.group = at / parts;
  s.first = s.group * P->rows_per_item;
  s.last = min(s.first + P->rows_per_item, P->rows);
  s.begin = (at - s.group * parts) * P->channels_per_item;
  s.end = at - s.group * parts == parts - 1 ? P->channels : s.begin + P->channels_per_item;
  return s;
}

// STEP(c, last, count) takes `count` vectors, at c + OF(0), c + OF(1), … The last vector of a part may overlap the one
// before it: it begins at c + last.
#define MANY 4
#define OF(k) min((k) * (long)VEC, last)
#define EACH_CHANNEL(part, STEP)                                                         \
  for (long c_ = (part).begin, rest_; (rest_ = (part).end - c_) > 0; c_ += MANY * VEC) { \
    if (rest_ > 3 * VEC)                                                                 \
      STEP(c_, rest_ - VEC, 4);                                                          \
    else if (rest_ > 2 * VEC)                                                            \
      STEP(c_, rest_ - VEC, 3);                                                          \
    else if (rest_ > VEC)                                                                \
      STEP(c_, rest_ - VEC, 2);                                                          \
    else                                                                                 \
      STEP(c_, rest_ - VEC, 1);                                                          \
  }

// Ranges along the three dimensions: an output's window, or the outputs whose windows hold an input.
typedef struct {
  window_t z, y, x;
  const windows_t* all;  // for store_shares()
} box_t;

static inline long pixels(const long size[3]) { return size[0] * size[1] * size[2]; }

ALWAYS_INLINE void store_max(const PoolParams* P, const box_t* w, __global const STORAGE(IN)* src,
                             __global STORAGE(IN)* dst, __global long* index, const long last, const int count) {
  VT best[MANY];
  VI where[MANY];
  UNROLL for (int k = 0; k < count; k++) {
    best[k] = (VT)(LOWEST);
    where[k] = (VI)((IDX)((w->z.begin * P->in[1] + w->y.begin) * P->in[2] + w->x.begin));
  }
  for (long z = w->z.begin; z < w->z.end; z += P->dil[0])
    for (long y = w->y.begin; y < w->y.end; y += P->dil[1])
      for (long x = w->x.begin; x < w->x.end; x += P->dil[2]) {
        const long at = (z * P->in[1] + y) * P->in[2] + x;
        UNROLL for (int k = 0; k < count; k++) {
          const VT v = LOAD(IN, ACC, VEC, src, at * P->channels + OF(k));
          const VI better = AS_POSITIONS(BETTER(v, best[k]));
          best[k] = select(best[k], v, BETTER(v, best[k]));
          where[k] = select(where[k], (VI)((IDX)at), better);
        }
      }
  UNROLL for (int k = 0; k < count; k++) {
    STORE(IN, ACC, VEC, dst, OF(k), best[k]);
    CAT(vstore, VEC)(CAT(convert_long, VEC)(where[k]), 0, index + OF(k));
  }
}

__kernel void pool_max(BUF(src), BUF(dst), BUF(index), const PoolParams P) {
  const part_t part = my_part(&P);
  for (long row = part.first; row < part.last; row++) {
    const long zy = row / P.out[1], image = zy / P.out[0];
    __global const STORAGE(IN)* from = PTR(src, const STORAGE(IN)) + image * pixels(P.in) * P.channels;
    __global STORAGE(IN)* to = PTR(dst, STORAGE(IN)) + row * P.out[2] * P.channels;
    __global long* at = PTR(index, long) + row * P.out[2] * P.channels;
    box_t w = {window(&P, 0, zy - image * P.out[0]), window(&P, 1, row - zy * P.out[1])};
    for (long x = 0; x < P.out[2]; x++, to += P.channels, at += P.channels) {
      w.x = window(&P, 2, x);
#define STORE_MAX(c, last, count) store_max(&P, &w, from + (c), to + (c), at + (c), last, count)
      EACH_CHANNEL(part, STORE_MAX)
    }
  }
}

ALWAYS_INLINE void store_average(const PoolParams* P, const box_t* w, __global const STORAGE(IN)* src,
                                 __global STORAGE(IN)* dst, const long last, const int count) {
  VT sum[MANY];
  UNROLL for (int k = 0; k < count; k++)
    sum[k] = (VT)(0);
  for (long z = w->z.begin; z < w->z.end; z++)
    for (long y = w->y.begin; y < w->y.end; y++)
      for (long x = w->x.begin; x < w->x.end; x++) {
        __global const STORAGE(IN)* p = src + ((z * P->in[1] + y) * P->in[2] + x) * P->channels;
        UNROLL for (int k = 0; k < count; k++)
          sum[k] += LOAD(IN, ACC, VEC, p, OF(k));
      }
  const long n = P->divisor ? P->divisor : w->z.length * w->y.length * w->x.length;
  UNROLL for (int k = 0; k < count; k++)
    STORE(IN, ACC, VEC, dst, OF(k), n ? sum[k] / (VT)((ST)n) : (VT)(0));
}

__kernel void pool_avg(BUF(src), BUF(dst), const PoolParams P) {
  const part_t part = my_part(&P);
  for (long row = part.first; row < part.last; row++) {
    const long zy = row / P.out[1], image = zy / P.out[0];
    __global const STORAGE(IN)* from = PTR(src, const STORAGE(IN)) + image * pixels(P.in) * P.channels;
    __global STORAGE(IN)* to = PTR(dst, STORAGE(IN)) + row * P.out[2] * P.channels;
    box_t w = {window(&P, 0, zy - image * P.out[0]), window(&P, 1, row - zy * P.out[1])};
    for (long x = 0; x < P.out[2]; x++, to += P.channels) {
      w.x = window(&P, 2, x);
#define STORE_AVERAGE(c, last, count) store_average(&P, &w, from + (c), to + (c), last, count)
      EACH_CHANNEL(part, STORE_AVERAGE)
    }
  }
}

// The sum of the shares of the outputs in `w`, which is stored w->x.length times. Their windows have `even` elements,
// or if it is 0, different numbers.
ALWAYS_INLINE void store_shares(const PoolParams* P, const box_t* w, const long even, __global const STORAGE(IN)* src,
                                __global STORAGE(IN)* dst, const long last, const int count) {
  VT sum[MANY];
  UNROLL for (int k = 0; k < count; k++)
    sum[k] = (VT)(0);
#define ADD_SHARES(per)                                                                                       \
  for (long z = w->z.begin; z < w->z.end; z++)                                                                \
    for (long y = w->y.begin; y < w->y.end; y++) {                                                            \
      __global const STORAGE(IN)* p = src + (z * P->out[1] + y) * P->out[2] * P->channels;                    \
      for (long x = w->x.begin; x < w->x.end; x++) UNROLL                                                     \
        for (int k = 0; k < count; k++) sum[k] += SHARE(LOAD(IN, ACC, VEC, p, x * P->channels + OF(k)), per); \
    }
  if (even) {
    const ST per = PER(even);
    ADD_SHARES(per)
  } else {
    ADD_SHARES(
        PER(window_of(P, w->all, 0, z).length * window_of(P, w->all, 1, y).length * window_of(P, w->all, 2, x).length))
  }
  for (long i = 0; i < w->x.length; i++) UNROLL
    for (int k = 0; k < count; k++) STORE(IN, ACC, VEC, dst, i * P->channels + OF(k), sum[k]);
}

__kernel void pool_avg_backward(BUF(src), BUF(dst), const PoolParams P) {
  const part_t part = my_part(&P);
  const box_t even = {even_windows(&P, 0), even_windows(&P, 1), even_windows(&P, 2)};
  const long length = P.divisor ? P.divisor : even.z.length * even.y.length * even.x.length;
  windows_t all;
  list_windows(&P, &all);
  for (long row = part.first; row < part.last; row++) {
    const long zy = row / P.in[1], image = zy / P.in[0];
    __global const STORAGE(IN)* from = PTR(src, const STORAGE(IN)) + image * pixels(P.out) * P.channels;
    __global STORAGE(IN)* to = PTR(dst, STORAGE(IN)) + row * P.in[2] * P.channels;
    box_t w = {covering(&P, 0, (IDX)(zy - image * P.in[0])), covering(&P, 1, (IDX)(row - zy * P.in[1]))};
    w.all = &all;
    const int even_row = within(w.z, even.z) && within(w.y, even.y);
    for (long x = 0; x < P.in[2]; x += w.x.length, to += w.x.length * P.channels) {
      w.x = covering(&P, 2, (IDX)x);
      const long n = P.divisor || (even_row && within(w.x, even.x)) ? length : 0;
      // These windows cover the next elements as well, until one of them ends or another begins.
      const long ends = w.x.begin < P.out[2] ? window_of(&P, &all, 2, w.x.begin).end : P.in[2];
      const long begins = w.x.end < P.out[2] ? window_of(&P, &all, 2, w.x.end).begin : P.in[2];
      w.x.length = min(ends, begins) - x;
#define STORE_SHARES(c, last, count) store_shares(&P, &w, n, from + (c), to + (c), last, count)
      EACH_CHANNEL(part, STORE_SHARES)
    }
  }
}

// Sets pixels [begin, end) of a part to 0.
static inline void clear(__global ST* to, const part_t* part, long channels, long begin, long end) {
  for (long at = begin; at < end; at++)
    for (long c = part->begin; c < part->end; c += VEC)
      CAT(vstore, VEC)((VT)(0), 0, to + at * channels + min(c, part->end - (long)VEC));
}

// dst[image][index][channel] += src. A work-item adds up a band of an image: rows_per_item of its slices, or of its
// rows if it has one slice. It reads the outputs whose windows meet the band, in their order, and clears elements
// shortly before. dst has the compute type.
__kernel void pool_scatter(BUF(src), BUF(index), BUF(dst), BUF(err), const PoolParams P, int code) {
  const part_t part = my_part(&P);
  const int along = P.in[0] > 1 ? 0 : 1;
  const long bands = (P.in[along] + P.rows_per_item - 1) / P.rows_per_item, image = part.group / bands;
  const long first = (part.group - image * bands) * P.rows_per_item, last = min(first + P.rows_per_item, P.in[along]);
  const long line = along ? P.in[2] : P.in[1] * P.in[2], begin = first * line, end = last * line, size = pixels(P.in);
  const long per_line = along ? P.out[2] : P.out[1] * P.out[2];
  __global ST* to = PTR(dst, ST) + image * size * P.channels;
  const long origin = image * pixels(P.out), until = covering(&P, along, (IDX)(last - 1)).end;
  long cleared = first;
  for (long o = covering(&P, along, (IDX)first).begin; o < until; o++) {
    const long clear_to = clamp(window(&P, along, o).end, cleared, last);
    clear(to, &part, P.channels, cleared * line, clear_to * line);
    cleared = clear_to;
    for (long i = origin + o * per_line; i < origin + (o + 1) * per_line; i++) {
      __global const STORAGE(IN)* grad = PTR(src, const STORAGE(IN)) + i * P.channels;
      __global const long* chosen = PTR(index, const long) + i * P.channels;
      for (long c = part.begin; c < part.end; c++) {
        const long at = chosen[c];
        if (at >= begin && at < end)
          to[at * P.channels + c] += LOAD(IN, ACC, 1, grad, c);
        else if (at < 0 || at >= size)
          netcl_report(PTR(err, int), code, at, size);
      }
    }
  }
  clear(to, &part, P.channels, cleared * line, end);
}
