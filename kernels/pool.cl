// Max, average and fractional pooling over up to three dimensions, and their gradients. Tensors lie as
// [plane][z][y][x], or as [image][z][y][x][channel] if LAST. -D: ACC (compute tag), IN (storage tag), LAST (0 or 1),
// IDX (i32, or i64 if a plane, or a tensor of pool_max_backward, has 2^31 elements), VEC (elements of a vector; 1 on
// GPUs). The lanes of a vector lie along the channels, of which there are at least VEC, or else along x.
#include "args/pool.h"
#include "common/extremes.h"
#include "common/pool_window.h"
#include "common/row_elements.h"
#include "common/vector.h"

// Positions in a plane.
typedef VTYPE(IDX, VEC) VI;
#define POSITIONS(v) CONVERT(IDX, VEC, v)

static inline long channels(const PoolParams* P) { return LAST ? P->channels : 1; }
static inline long pixels(const long size[3]) { return size[0] * size[1] * size[2]; }

// What a work-item computes: of the rows [first, last) of the tensor that is written, the elements [begin, end), and of
// these the channels [c, c_end). A GPU's work-item computes one number.
typedef struct {
  long first, last, begin, end, c, c_end;
} part_t;

static inline part_t my_part(const PoolParams* P, long width) {
  part_t m;
#ifdef DEVICE_CPU
  const long parts = LAST ? P->channels / P->channels_per_item : 1, group = get_global_id(0) / parts;
  const long k = get_global_id(0) - group * parts;
  m.first = group * P->rows_per_item;
  m.last = min(m.first + P->rows_per_item, P->rows);
  m.begin = 0;
  m.end = width;
  m.c = LAST ? k * P->channels_per_item : 0;
  m.c_end = k == parts - 1 ? channels(P) : m.c + P->channels_per_item;
#else
  const Elements e = my_elements(P->rows, 1, width * channels(P));
  m.first = e.first;
  m.last = e.last;
  m.begin = e.begin / channels(P);
  m.end = m.begin + 1;
  m.c = e.begin - m.begin * channels(P);
  m.c_end = m.c + 1;
#endif
  return m;
}

// Ranges along the three dimensions, in a plane that is read: an output's window, or the outputs whose windows hold an
// input; and where the results go.
typedef struct {
  const PoolParams* P;
  window_t z, y, x;
  __global const STORAGE(IN)* src;  // the plane
  __global STORAGE(IN)* dst;        // the row
  __global long* index;             // the row, for store_max()
  const windows_t* all;             // for store_shares(), with the length of windows that have one length, or 0
  long even;
} box_t;

// Where the lanes of a vector lie.
enum { ALONE, ALONG_X, ALONG_CHANNELS, WITHIN_WINDOW };  // ALONE: all are the same

// VEC elements `step` apart; reads nothing beyond the last of them.
ALWAYS_INLINE VT load_lanes(__global const STORAGE(IN)* p, long step) {
  if (step == 1) return LOAD(IN, ACC, VEC, p, 0);
  if (step == 0) return (VT)(LOAD(IN, ACC, 1, p, 0));
#if VEC > 1
  if (step == 2) return (VT)(LOAD(IN, ACC, VEC, p, 0).even, LOAD(IN, ACC, VEC, p, VEC - 1).odd);
#endif
  // In a loop, PoCL would keep the lanes in memory.
#define LANES_1(k) LOAD(IN, ACC, 1, p, (k) * step)
#define LANES_2(k) LANES_1(k), LANES_1(k + 1)
#define LANES_4(k) LANES_2(k), LANES_2(k + 2)
#define LANES_8(k) LANES_4(k), LANES_4(k + 4)
#define LANES_16(k) LANES_8(k), LANES_8(k + 8)
  return (VT)(CAT(LANES_, VEC)(0));
}

// The store_ functions take up to MANY vectors: of channels, at c + OF(0), c + OF(1), …, of which the last one may
// overlap the one before it: it begins at c + last; or of as many rows that follow each other.
#define MANY 4
#define OF(k) min((k) * (long)VEC, last)
#define FROM(k) (lanes == ALONG_CHANNELS ? OF(k) : (k) * P->stride[1] * P->in[2])
#define TO(k) (lanes == ALONG_CHANNELS ? OF(k) : (k) * P->out[2])

ALWAYS_INLINE void put(__global STORAGE(IN)* p, VT v, const int lanes) {
  if (lanes == ALONE)
    STORE(IN, ACC, 1, p, 0, LANE_OF(v, 0));
  else
    STORE(IN, ACC, VEC, p, 0, v);
}

// The maximum of lanes that hold it for parts of a window, and its position, as if elements came in their order: the
// first of equal ones, and the last NaN.
static inline ST join_lanes(VT best, VI where, index_t* at) {
  lanes_t values;
  values.v = best;
  index_t places[VEC];
  CAT(VSTORE_, VEC)(where, 0, places);
  ST found = LOWEST;
  for (int k = 0; k < VEC; k++) {
    const ST v = values.s[k];
    const int nan = v != v, before = places[k] < *at;
    if (found != found ? nan && !before : nan || v > found || (v == found && before)) {
      found = v;
      *at = places[k];
    }
  }
  return found;
}

ALWAYS_INLINE void store_max(const box_t* w, const int lanes, long to, long c, const long last, const int count) {
  const PoolParams* P = w->P;
  const long step = lanes == ALONE ? 0 : lanes == ALONG_X ? P->stride[2] : 1;
  const int within = lanes == WITHIN_WINDOW;
  const VI number = (VI)LANE_NUMBERS(VEC) * (VI)(lanes == ALONG_CHANNELS ? 0 : (index_t)step);
  index_t first = (index_t)((w->z.begin * P->in[1] + w->y.begin) * P->in[2] + w->x.begin);
  VT best[MANY];
  VI where[MANY];
  UNROLL for (int k = 0; k < count; k++) {
    best[k] = (VT)(LOWEST);
    where[k] = (VI)(first) + number;
  }
  for (long z = w->z.begin; z < w->z.end; z += P->dil[0])
    for (long y = w->y.begin; y < w->y.end; y += P->dil[1])
      for (long x_ = w->x.begin; x_ < w->x.end; x_ += within ? VEC : P->dil[2]) {
        const long x = within ? min(x_, w->x.end - VEC) : x_;  // the last vectors overlap
        const long at = (z * P->in[1] + y) * P->in[2] + x;
        __global const STORAGE(IN)* p = w->src + at * channels(P) + c;
        UNROLL for (int k = 0; k < count; k++) {
          const VT v = load_lanes(p + FROM(k), step);
      // A NaN is better than any number, and than an earlier NaN.
#if VEC == 1
          if (v > best[k] || v != v) {
            where[k] = (index_t)at;
            best[k] = v;
          }
#else
          where[k] = POSITIONS((v > best[k]) | (v != v)) ? (VI)((index_t)at) + number : where[k];
          best[k] = ((v > best[k]) | (v != v)) ? v : best[k];
#endif
        }
      }
  if (within) {
    STORE(IN, ACC, 1, w->dst, to, join_lanes(best[0], where[0], &first));
    w->index[to] = first;
    return;
  }
  UNROLL for (int k = 0; k < count; k++) {
    put(w->dst + to * channels(P) + c + TO(k), best[k], lanes);
    __global long* index = w->index + to * channels(P) + c + TO(k);
    if (lanes == ALONG_X) where[k] += (VI)((index_t)FROM(k));
    if (lanes == ALONE)
      index[0] = LANE_OF(where[k], 0);
    else
      CAT(VSTORE_, VEC)(CAT(convert_long, CAT(V_, VEC))(where[k]), 0, index);
  }
}

ALWAYS_INLINE void store_average(const box_t* w, const int lanes, long to, long c, const long last, const int count) {
  const PoolParams* P = w->P;
  const long step = lanes == ALONE ? 0 : lanes == ALONG_X ? P->stride[2] : 1;
  const long n = P->divisor ? P->divisor : w->z.length * w->y.length * w->x.length;
  VT sum[MANY];
  UNROLL for (int k = 0; k < count; k++)
    sum[k] = (VT)(0);
  for (long z = w->z.begin; z < w->z.end; z++)
    for (long y = w->y.begin; y < w->y.end; y++)
      for (long x = w->x.begin; x < w->x.end; x++) {
        __global const STORAGE(IN)* p = w->src + ((z * P->in[1] + y) * P->in[2] + x) * channels(P) + c;
        UNROLL for (int k = 0; k < count; k++)
          sum[k] += load_lanes(p + FROM(k), step);
      }
  UNROLL for (int k = 0; k < count; k++)
    put(w->dst + to * channels(P) + c + TO(k), n ? sum[k] / (VT)((ST)n) : (VT)(0), lanes);
}

// An output's gradient is divided among the n elements of its window: share(v, per(n)).
#define FLOATING ((ST)0.5f != 0)
static inline ST per(long n) { return FLOATING ? 1 / (ST)n : (ST)n; }
static inline VT share(VT v, ST per) { return FLOATING ? v * per : v / per; }

// The sum of the shares of outputs. Their windows have `even` elements, or if it is 0, different numbers.
ALWAYS_INLINE void add_shares(const box_t* w, const long even, long c, const long last, const int count, VT* sum) {
  const PoolParams* P = w->P;
  const ST same = per(even ? even : 1);
  for (long z = w->z.begin; z < w->z.end; z++) {
    const long nz = even ? 0 : window_of(P, w->all, 0, z).length;
    for (long y = w->y.begin; y < w->y.end; y++) {
      const long nzy = even ? 0 : nz * window_of(P, w->all, 1, y).length;
      __global const STORAGE(IN)* p = w->src + (z * P->out[1] + y) * P->out[2] * channels(P) + c;
      for (long x = w->x.begin; x < w->x.end; x++) {
        const ST each = even ? same : per(nzy * window_of(P, w->all, 2, x).length);
        UNROLL for (int k = 0; k < count; k++)
          sum[k] += share(LOAD(IN, ACC, VEC, p, x * channels(P) + OF(k)), each);
      }
    }
  }
}

// Stores that sum w->x.length times.
ALWAYS_INLINE void store_shares(const box_t* w, long to, long c, const long last, const int count) {
  const PoolParams* P = w->P;
  VT sum[MANY];
  UNROLL for (int k = 0; k < count; k++)
    sum[k] = (VT)(0);
  if (w->even)
    add_shares(w, w->even, c, last, count, sum);
  else
    add_shares(w, 0, c, last, count, sum);
  for (long i = to; i < to + w->x.length; i++) UNROLL
    for (int k = 0; k < count; k++) STORE(IN, ACC, VEC, w->dst, i * channels(P) + c + OF(k), sum[k]);
}

// `what` is a constant, as are `lanes` and `count`.
enum { MAX, AVERAGE, SHARES };
ALWAYS_INLINE void store(const int what, const box_t* w, const int lanes, long to, long c, const long last,
                         const int count) {
  if (what == MAX)
    store_max(w, lanes, to, c, last, count);
  else if (what == AVERAGE)
    store_average(w, lanes, to, c, last, count);
  else
    store_shares(w, to, c, last, count);
}

ALWAYS_INLINE void store_many(const int what, const box_t* w, const int lanes, long to, long c, const long last,
                              const long count) {
  if (count > 3)
    store(what, w, lanes, to, c, last, 4);
  else if (count > 2)
    store(what, w, lanes, to, c, last, 3);
  else if (count > 1)
    store(what, w, lanes, to, c, last, 2);
  else
    store(what, w, lanes, to, c, last, 1);
}

// The windows along a dimension that lie inside the image: outputs [begin, end), empty if no vector lies along x.
static inline window_t inner_windows(const PoolParams* P, int d) {
  window_t w = {0, 0, 0};
  if (VEC == 1 || LAST || P->adaptive) return w;
  const long room = P->in[d] + P->pad[d] - (P->ker[d] - 1) * P->dil[d] - 1;
  w.begin = (P->pad[d] + P->stride[d] - 1) / P->stride[d];
  w.end = room < 0 ? 0 : min(room / P->stride[d] + 1, P->out[d]);
  if (d == 2 && w.end - w.begin < VEC) w.begin = w.end = 0;
  return w;
}

// The window of an output. If `drawn` has numbers of [0, 1) for each dimension, windows of one size begin at random
// places. (Graham, "Fractional Max-Pooling", 2014)
ALWAYS_INLINE window_t window_at(const PoolParams* P, int d, long o, const ST* drawn) {
  if (!P->sampled) return window(P, d, o);
  const ST step = (ST)(P->in[d] - P->ker[d]) / (ST)(P->out[d] - 1);
  window_t w;
  w.begin = o == P->out[d] - 1 ? P->in[d] - P->ker[d] : (long)((o + drawn[d]) * step) - (long)(drawn[d] * step);
  w.end = w.begin + P->ker[d];
  return w;
}

// A work-item's maxima or averages. `sample` has numbers for the last P->sampled dimensions of each plane.
ALWAYS_INLINE void store_rows(const int what, const PoolParams* P, __global const STORAGE(IN)* src,
                              __global const STORAGE(IN)* sample, __global STORAGE(IN)* dst, __global long* index) {
  const part_t m = my_part(P, P->out[2]);
  const window_t inner = inner_windows(P, 2), inner_y = inner_windows(P, 1);
  long zy = m.first / P->out[1], y = m.first - zy * P->out[1];
  for (long row = m.first, done = row; row < m.last; row++, y++) {
    if (y == P->out[1]) zy++, y = 0;
    const long plane = P->out[0] == 1 ? zy : zy / P->out[0];
    ST drawn[3];
    UNROLL for (int d = 0, k = (int)P->sampled - 3; d < 3; d++, k++)
      drawn[d] = k < 0 ? 0 : LOAD(IN, ACC, 1, sample, plane * P->sampled + k);
    box_t w = {P, window_at(P, 0, zy - plane * P->out[0], drawn), window_at(P, 1, y, drawn)};
    w.src = src + plane * pixels(P->in) * channels(P);
    w.dst = dst + row * P->out[2] * channels(P);
    w.index = index + row * P->out[2] * channels(P);
    // Rows that take their vectors along x together; averages of long rows wait for memory, which prefers one stream.
    const int alone = VEC > 4 && what == AVERAGE ? 1 : y < inner_y.begin;
    const long rows = alone ? 1 : clamp(min(inner_y.end - y, m.last - row), 1L, (long)MANY);
    for (long x = row < done ? inner.end : inner.begin; x < inner.end; x += VEC) {
      const long to = min(x, inner.end - VEC);  // the last vectors overlap
      w.x.begin = to * P->stride[2] - P->pad[2];
      w.x.end = w.x.begin + (P->ker[2] - 1) * P->dil[2] + 1;
      w.x.length = P->ker[2];
      store_many(what, &w, ALONG_X, to, 0, 0, rows);
    }
    if (row >= done) done = row + rows;
    if (inner.end - inner.begin == P->out[2]) {  // nothing is left of them
      row += rows - 1, y += rows - 1;
      continue;
    }
    for (long x = m.begin; x < m.end; x++) {
      if (x == inner.begin) x = inner.end;
      if (x >= m.end) break;
      w.x = window_at(P, 2, x, drawn);
      if (VEC == 1 || LAST)
        for (long c = m.c; c < m.c_end; c += MANY * VEC)
          store_many(what, &w, ALONG_CHANNELS, x, c, m.c_end - c - VEC, (m.c_end - c + VEC - 1) / VEC);
      else if (what == MAX && P->dil[2] == 1 && w.x.end - w.x.begin >= VEC)
        store(what, &w, WITHIN_WINDOW, x, 0, 0, 1);
      else
        store(what, &w, ALONE, x, 0, 0, 1);
    }
  }
}

__kernel void pool_max(BUF(src), BUF(sample), BUF(dst), BUF(index), const PoolParams P) {
  store_rows(MAX, &P, PTR(src, const STORAGE(IN)), PTR(sample, const STORAGE(IN)), PTR(dst, STORAGE(IN)),
             PTR(index, long));
}

__kernel void pool_avg(BUF(src), BUF(dst), const PoolParams P) {
  store_rows(AVERAGE, &P, PTR(src, const STORAGE(IN)), PTR(src, const STORAGE(IN)), PTR(dst, STORAGE(IN)), 0);
}

// pool_rows.cl is for contiguous floats on CPUs.
__kernel void pool_avg_backward(BUF(src), BUF(dst), const PoolParams P) {
  const part_t m = my_part(&P, P.in[2]);
  windows_t all;
  list_windows(&P, &all);
  for (long row = m.first; row < m.last; row++) {
    const long zy = row / P.in[1], plane = zy / P.in[0];
    box_t w = {&P, covering(&P, 0, (index_t)(zy - plane * P.in[0])), covering(&P, 1, (index_t)(row - zy * P.in[1]))};
    w.src = PTR(src, const STORAGE(IN)) + plane * pixels(P.out) * channels(&P);
    w.dst = PTR(dst, STORAGE(IN)) + row * P.in[2] * channels(&P);
    w.all = &all;
    const int even_row = even_along(&P, 0, w.z) && even_along(&P, 1, w.y);
    for (long x = m.begin; x < m.end; x += w.x.length) {
      w.x = covering(&P, 2, (index_t)x);
      w.even = even_row && even_along(&P, 2, w.x) ? P.even : 0;
      // These windows cover the next elements as well, until one of them ends or another begins.
      const long ends = w.x.begin < P.out[2] ? window_of(&P, &all, 2, w.x.begin).end : P.in[2];
      const long begins = w.x.end < P.out[2] ? window_of(&P, &all, 2, w.x.end).begin : P.in[2];
      w.x.length = min(min(ends, begins), m.end) - x;
      for (long c = m.c; c < m.c_end; c += MANY * VEC)
        store_many(SHARES, &w, ALONG_CHANNELS, x, c, m.c_end - c - VEC, (m.c_end - c + VEC - 1) / VEC);
    }
  }
}

// Sets elements [begin, end) of a part to 0, of a contiguous plane all.
static inline void clear(__global ST* to, const part_t* m, long channels, long begin, long end) {
  const long c_end = LAST ? m->c_end : end;
  for (long at = begin; at < end; at += LAST ? 1 : end)
    for (long c = m->c; c < c_end; c += VEC)
      CAT(VSTORE_, VEC)((VT)(0), 0, to + at * channels + min(c, c_end - (long)VEC));
}

// The gradient of max pooling on a CPU: dst[plane][index] += src. A work-item adds up whole planes, or of channels that
// come last, a band of slices, or of rows of a plane with one slice. It reads the outputs whose windows meet the band,
// in their order, and clears elements shortly before, or all if there are few of them. dst has the compute type.
__kernel void pool_scatter(BUF(src), BUF(index), BUF(dst), BUF(err), const PoolParams P, int code) {
  const part_t m = my_part(&P, 1);
  const int along = P.in[0] > 1 ? 0 : 1;
  const long C = channels(&P), size = pixels(P.in), outs = pixels(P.out), lines = LAST ? P.in[along] : 1;
  const long line = size / lines, per_line = LAST ? outs / P.out[along] : outs;
  for (long row = m.first, plane, last; row < m.last; row = plane * lines + last) {
    plane = row / lines;
    last = min(m.last - plane * lines, lines);
    const long begin = (row - plane * lines) * line, end = last * line;
    __global ST* to = PTR(dst, ST) + plane * size * C;
    long cleared = begin;
    const long until = LAST ? covering(&P, along, (index_t)(last - 1)).end : 1;
    for (long o = LAST ? covering(&P, along, (index_t)(row - plane * lines)).begin : 0; o < until; o++) {
      const long clear_to = LAST ? clamp(window(&P, along, o).end * line, cleared, end) : end;
      clear(to, &m, C, cleared, clear_to);
      cleared = clear_to;
      for (long i = plane * outs + o * per_line, n = i + per_line; i < n; i++) {
        __global const STORAGE(IN)* grad = PTR(src, const STORAGE(IN)) + i * C;
        __global const long* chosen = PTR(index, const long) + i * C;
        for (long c = m.c; c < m.c_end; c++) {
          const long at = chosen[c];
          if (at >= begin && at < end)
            to[at * C + c] += LOAD(IN, ACC, 1, grad, c);
          else if (at < 0 || at >= size)
            netcl_report(PTR(err, int), code, at, size);
        }
      }
    }
    clear(to, &m, C, cleared, end);
  }
}

// The gradient of max pooling on a GPU: a work-item sums over the windows that may have chosen its input, in a fixed
// order.
__kernel void pool_max_backward(BUF(src), BUF(index), BUF(dst), BUF(err), const PoolParams P, int code) {
  if (get_global_id(0) >= (ulong)(P.rows * P.in[2] * channels(&P))) return;
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN));
  __global const long* index = PTR(index, const long);
  const index_t at = (index_t)get_global_id(0), inner = (index_t)channels(&P);
  const index_t width = (index_t)P.in[2], height = (index_t)P.in[1], depth = (index_t)P.in[0];
  const index_t pixel = at / inner, row = pixel / width, zy = row / height, plane = zy / depth;
  const index_t x = pixel - row * width, y = row - zy * height, z = zy - plane * depth;
  const long own = ((long)z * height + y) * width + x, size = (long)depth * height * width;
  const window_t wz = covering(&P, 0, z), wy = covering(&P, 1, y), wx = covering(&P, 2, x);
  ST sum = 0;
  for (index_t oz = (index_t)wz.begin; oz < wz.end; oz++)
    for (index_t oy = (index_t)wy.begin; oy < wy.end; oy++) {
      const index_t line = ((plane * (index_t)P.out[0] + oz) * (index_t)P.out[1] + oy) * (index_t)P.out[2];
      for (index_t ox = (index_t)wx.begin; ox < wx.end; ox++) {
        const index_t from = (line + ox) * inner + (at - pixel * inner);
        const long chosen = index[from];
        if (chosen == own) sum += LOAD(IN, ACC, 1, src, from);
        if (chosen < 0 || chosen >= size) netcl_report(PTR(err, int), code, chosen, size);
      }
    }
  STORE(IN, ACC, 1, PTR(dst, STORAGE(IN)), at, sum);
}
