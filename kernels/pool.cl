// Max and average pooling over up to three dimensions, with windows that slide or adapt to the output's size.
// -D: ACC (compute tag), IN (storage tag), OUT (pool_scatter, pool_place: storage tag), IDX (int, or long if a
// plane, or a tensor of pool_max_backward, has 2^31 elements), LANES (on a CPU, for float with int indices): the number
// of windows that a work-item takes at once, side by side along x, if they all lie inside the image; or of elements of
// one window, if it is as wide.
#include "args/pool.h"
#include "common/extremes.h"
#include "common/pool_window.h"
#include "common/row_elements.h"
#include "common/vector.h"

#define IS_NAN(v) CAT(nan_, ACC)(v)
#define nan_f32(v) isnan(v)
#define nan_f64(v) isnan(v)
#define nan_i64(v) 0
#define nan_i32(v) 0
#define nan_i16(v) 0
#define nan_i8(v) 0
#define nan_u8(v) 0

// The windows along x that lie inside the image: outputs [begin, end), empty if the vector path does not apply.
static inline window_t inner_windows(const PoolParams* P) {
  window_t w;
  w.begin = w.end = w.length = 0;
#ifdef LANES
  if (P->adaptive) return w;
  const long room = P->in[2] + P->pad[2] - (P->ker[2] - 1) * P->dil[2] - 1;
  w.begin = (P->pad[2] + P->stride[2] - 1) / P->stride[2];
  w.end = room < 0 ? 0 : min(room / P->stride[2] + 1, P->out[2]);
  if (w.end - w.begin < LANES) w.begin = w.end = 0;
#endif
  return w;
}

#ifdef LANES
typedef VTYPE(f32, LANES) VT;
typedef CAT(int, LANES) VI;
// LANES elements `step` apart; reads nothing beyond the last of them.
static inline VT load_lanes(__global const STORAGE(IN)* p, long step) {
  if (step == 1) return LOAD(IN, ACC, LANES, p, 0);
  if (step == 2) return (VT)(LOAD(IN, ACC, LANES, p, 0).even, LOAD(IN, ACC, LANES, p, LANES - 1).odd);
  // In a loop, PoCL would keep the lanes in memory.
#define LANE_AT(k) LOAD(IN, ACC, 1, p, (k) * step)
#if LANES == 4
  return (VT)(LANE_AT(0), LANE_AT(1), LANE_AT(2), LANE_AT(3));
#else
  return (VT)(LANE_AT(0), LANE_AT(1), LANE_AT(2), LANE_AT(3), LANE_AT(4), LANE_AT(5), LANE_AT(6), LANE_AT(7));
#endif
}
static inline VI lane_numbers(int step) {
  int v[LANES];
  for (int k = 0; k < LANES; k++) v[k] = k * step;
  return CAT(vload, LANES)(0, v);
}

// The maximum of a window of at least LANES elements along x, side by side. Returns its position.
static inline IDX wide_max(const PoolParams* P, const window_t* w, __global const STORAGE(IN)* p, ST* max_of) {
  const window_t wz = w[0], wy = w[1], wx = w[2];
  VT best = (VT)(-INFINITY);
  VI where = (VI)(INT_MAX);
  for (long z = wz.begin; z < wz.end; z += P->dil[0])
    for (long y = wy.begin; y < wy.end; y += P->dil[1])
      for (long at = wx.begin; at < wx.end; at += LANES) {
        const long i = (z * P->in[1] + y) * P->in[2] + min(at, wx.end - LANES);  // the last ones overlap
        const VT v = LOAD(IN, ACC, LANES, p, i);
        const VI better = (v > best) | isnan(v);
        best = select(best, v, better);
        where = select(where, (VI)((int)i) + (VI)LANE_NUMBERS(LANES), better);
      }
  float values[LANES];
  int places[LANES];
  CAT(vstore, LANES)(best, 0, values);
  CAT(vstore, LANES)(where, 0, places);
  // As if elements came in their order: the first of equal ones, and the last NaN.
  ST found = -INFINITY;
  IDX place = (IDX)((wz.begin * P->in[1] + wy.begin) * P->in[2] + wx.begin);
  for (int k = 0; k < LANES; k++) {
    const int nan = isnan(values[k]), before = places[k] < place;
    if (isnan(found) ? nan && !before : nan || values[k] > found || (values[k] == found && before)) {
      found = values[k];
      place = places[k];
    }
  }
  *max_of = found;
  return place;
}
#endif

__kernel void pool_max(BUF(src), BUF(dst), BUF(index), const PoolParams P) {
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN));
  __global STORAGE(IN)* dst = PTR(dst, STORAGE(IN));
  __global long* index = PTR(index, long);
  const window_t inner = inner_windows(&P);
#ifdef LANES
  const VI number = lane_numbers((int)P.stride[2]);
#endif
  const Elements E = my_elements(P.rows, P.rows_per_item, P.out[2]);
  for (long row = E.first; row < E.last; row++) {
    const long zy = row / P.out[1], plane = zy / P.out[0];
    const window_t wz = window(&P, 0, zy - plane * P.out[0]), wy = window(&P, 1, row - zy * P.out[1]);
    __global const STORAGE(IN)* p = src + plane * P.in[0] * P.in[1] * P.in[2];
#ifdef LANES
    for (long at = inner.begin; at < inner.end; at += LANES) {
      const long ox = min(at, inner.end - LANES);  // the last ones overlap
      const long x0 = ox * P.stride[2] - P.pad[2];
      VT best = (VT)(-INFINITY);
      VI where = (VI)((int)((wz.begin * P.in[1] + wy.begin) * P.in[2] + x0)) + number;
      for (long z = wz.begin; z < wz.end; z += P.dil[0])
        for (long y = wy.begin; y < wy.end; y += P.dil[1]) {
          const long i0 = (z * P.in[1] + y) * P.in[2] + x0;
          for (long k = 0; k < P.ker[2]; k++) {
            const VT v = load_lanes(p + i0 + k * P.dil[2], P.stride[2]);
            const VI better = (v > best) | isnan(v);
            best = select(best, v, better);
            where = select(where, (VI)((int)(i0 + k * P.dil[2])) + number, better);
          }
        }
      STORE(IN, ACC, LANES, dst, row * P.out[2] + ox, best);
      CAT(vstore, LANES)(CAT(convert_long, LANES)(where), 0, index + row * P.out[2] + ox);
    }
#endif
    for (long ox = E.begin; ox < E.end; ox++) {
      if (ox == inner.begin) ox = inner.end;
      if (ox >= E.end) break;
      const window_t wx = window(&P, 2, ox);
      ST best = LOWEST;
#ifdef LANES
      if (P.dil[2] == 1 && wx.end - wx.begin >= LANES) {
        const window_t w[3] = {wz, wy, wx};
        index[row * P.out[2] + ox] = wide_max(&P, w, src + plane * P.in[0] * P.in[1] * P.in[2], &best);
        STORE(IN, ACC, 1, dst, row * P.out[2] + ox, best);
        continue;
      }
#endif
      IDX at = (IDX)((wz.begin * P.in[1] + wy.begin) * P.in[2] + wx.begin);
      for (long z = wz.begin; z < wz.end; z += P.dil[0])
        for (long y = wy.begin; y < wy.end; y += P.dil[1])
          for (long x = wx.begin; x < wx.end; x += P.dil[2]) {
            const IDX i = (IDX)((z * P.in[1] + y) * P.in[2] + x);
            const ST v = LOAD(IN, ACC, 1, p, i);
            if (v > best || IS_NAN(v)) {  // a NaN wins
              best = v;
              at = i;
            }
          }
      STORE(IN, ACC, 1, dst, row * P.out[2] + ox, best);
      index[row * P.out[2] + ox] = at;
    }
  }
}

// Windows of one size begin at random places: sample[plane] holds a number of [0, 1) for each of the last `dims`
// dimensions. (Graham, "Fractional Max-Pooling", 2014)
static inline long fractional_begin(const PoolParams* P, int d, long o, ST sample) {
  if (o == P->out[d] - 1) return P->in[d] - P->ker[d];
  const ST step = (ST)(P->in[d] - P->ker[d]) / (ST)(P->out[d] - 1);
  return (long)((o + sample) * step) - (long)(sample * step);
}

__kernel void pool_fractional(BUF(src), BUF(sample), BUF(dst), BUF(index), const PoolParams P, int dims) {
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN));
  const Elements E = my_elements(P.rows, P.rows_per_item, P.out[2]);
  for (long row = E.first; row < E.last; row++) {
    const long zy = row / P.out[1], plane = zy / P.out[0];
    __global const STORAGE(IN)* p = src + plane * P.in[0] * P.in[1] * P.in[2];
    ST drawn[3] = {0, 0, 0};
    UNROLL for (int d = 0; d < 3; d++)
      if (d >= 3 - dims) drawn[d] = LOAD(IN, ACC, 1, PTR(sample, const STORAGE(IN)), plane * dims + d - (3 - dims));
    const long z0 = fractional_begin(&P, 0, zy - plane * P.out[0], drawn[0]);
    const long y0 = fractional_begin(&P, 1, row - zy * P.out[1], drawn[1]);
    for (long ox = E.begin; ox < E.end; ox++) {
      const long x0 = fractional_begin(&P, 2, ox, drawn[2]);
      ST best = LOWEST;
      long at = (z0 * P.in[1] + y0) * P.in[2] + x0;
      for (long z = z0; z < z0 + P.ker[0]; z++)
        for (long y = y0; y < y0 + P.ker[1]; y++)
          for (long x = x0; x < x0 + P.ker[2]; x++) {
            const long i = (z * P.in[1] + y) * P.in[2] + x;
            const ST v = LOAD(IN, ACC, 1, p, i);
            if (v > best || IS_NAN(v)) {
              best = v;
              at = i;
            }
          }
      STORE(IN, ACC, 1, PTR(dst, STORAGE(IN)), row * P.out[2] + ox, best);
      PTR(index, long)[row * P.out[2] + ox] = at;
    }
  }
}

// dst[plane][index] += src, or = src, on a CPU. One work-item walks a plane, so the order of the sums is fixed.
__kernel void pool_scatter(BUF(src), BUF(index), BUF(dst), BUF(err), long planes, long src_size, long dst_size,
                           int assign, int code) {
  const long plane = get_global_id(0);
  if (plane >= planes) return;
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN)) + plane * src_size;
  __global const long* index = PTR(index, const long) + plane * src_size;
  __global STORAGE(OUT)* dst = PTR(dst, STORAGE(OUT)) + plane * dst_size;
  for (long i = 0; i < dst_size; i++) STORE(OUT, ACC, 1, dst, i, (ST)0);
  for (long i = 0; i < src_size; i++) {
    long at = index[i];
    if (at < 0 || at >= dst_size) {
      netcl_report(PTR(err, int), code, at, dst_size);
      continue;
    }
    const ST v = LOAD(IN, ACC, 1, src, i);
    STORE(OUT, ACC, 1, dst, at, assign ? v : LOAD(OUT, ACC, 1, dst, at) + v);
  }
}

// dst[plane][index] = src, on a GPU, for a dst of zeros. Where an index occurs twice, either value stays.
__kernel void pool_place(BUF(src), BUF(index), BUF(dst), BUF(err), long n, long src_size, long dst_size, int code) {
  const long i = get_global_id(0);
  if (i >= n) return;
  const long at = PTR(index, const long)[i];
  if (at < 0 || at >= dst_size) {
    netcl_report(PTR(err, int), code, at, dst_size);
    return;
  }
  STORE(OUT, ACC, 1, PTR(dst, STORAGE(OUT)) + i / src_size * dst_size, at,
        LOAD(IN, ACC, 1, PTR(src, const STORAGE(IN)), i));
}

__kernel void pool_avg(BUF(src), BUF(dst), const PoolParams P) {
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN));
  __global STORAGE(IN)* dst = PTR(dst, STORAGE(IN));
  const window_t inner = inner_windows(&P);
  const Elements E = my_elements(P.rows, P.rows_per_item, P.out[2]);
  for (long row = E.first; row < E.last; row++) {
    const long zy = row / P.out[1], plane = zy / P.out[0];
    const window_t wz = window(&P, 0, zy - plane * P.out[0]), wy = window(&P, 1, row - zy * P.out[1]);
    __global const STORAGE(IN)* p = src + plane * P.in[0] * P.in[1] * P.in[2];
#ifdef LANES
    for (long at = inner.begin; at < inner.end; at += LANES) {
      const long ox = min(at, inner.end - LANES);  // the last ones overlap
      const long count = P.divisor ? P.divisor : wz.length * wy.length * P.ker[2];
      VT sum = (VT)(0);
      for (long z = wz.begin; z < wz.end; z++)
        for (long y = wy.begin; y < wy.end; y++) {
          const long i0 = (z * P.in[1] + y) * P.in[2] + ox * P.stride[2] - P.pad[2];
          for (long k = 0; k < P.ker[2]; k++) sum += load_lanes(p + i0 + k, P.stride[2]);
        }
      STORE(IN, ACC, LANES, dst, row * P.out[2] + ox, count ? sum / (VT)((float)count) : (VT)(0));
    }
#endif
    for (long ox = E.begin; ox < E.end; ox++) {
      if (ox == inner.begin) ox = inner.end;
      if (ox >= E.end) break;
      const window_t wx = window(&P, 2, ox);
      const long count = P.divisor ? P.divisor : wz.length * wy.length * wx.length;
      ST sum = 0;
      for (long z = wz.begin; z < wz.end; z++)
        for (long y = wy.begin; y < wy.end; y++)
          for (long x = wx.begin; x < wx.end; x++) sum += LOAD(IN, ACC, 1, p, (z * P.in[1] + y) * P.in[2] + x);
      STORE(IN, ACC, 1, dst, row * P.out[2] + ox, count ? sum / (ST)count : (ST)0);
    }
  }
}

// The gradient of max pooling, on a GPU: a work-item sums over the windows that may have chosen its input, in a fixed
// order. Tensors lie as [plane][z][y][x][inner], where `inner` is 1, or counts channels if they come last.
__kernel void pool_max_backward(BUF(src), BUF(index), BUF(dst), BUF(err), const PoolParams P, long n, long inner_size,
                                int code) {
  if (get_global_id(0) >= (ulong)n) return;
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN));
  __global const long* index = PTR(index, const long);
  const IDX at = (IDX)get_global_id(0), inner = (IDX)inner_size;
  const IDX width = (IDX)P.in[2], height = (IDX)P.in[1], depth = (IDX)P.in[0];
  const IDX pixel = at / inner, row = pixel / width, zy = row / height, plane = zy / depth;
  const IDX x = pixel - row * width, y = row - zy * height, z = zy - plane * depth;
  const long own = ((long)z * height + y) * width + x, size = (long)depth * height * width;
  const window_t wz = covering(&P, 0, z), wy = covering(&P, 1, y), wx = covering(&P, 2, x);
  ST sum = 0;
  for (IDX oz = (IDX)wz.begin; oz < wz.end; oz++)
    for (IDX oy = (IDX)wy.begin; oy < wy.end; oy++) {
      const IDX line = ((plane * (IDX)P.out[0] + oz) * (IDX)P.out[1] + oy) * (IDX)P.out[2];
      for (IDX ox = (IDX)wx.begin; ox < wx.end; ox++) {
        const IDX from = (line + ox) * inner + (at - pixel * inner);
        const long chosen = index[from];
        if (chosen == own) sum += LOAD(IN, ACC, 1, src, from);
        if (chosen < 0 || chosen >= size) netcl_report(PTR(err, int), code, chosen, size);
      }
    }
  STORE(IN, ACC, 1, PTR(dst, STORAGE(IN)), at, sum);
}

// For GPUs, and for integers (pool_rows.cl is for floats on CPUs). dst has the compute type. Each of its rows sums over
// the windows that hold it, in a fixed order.
__kernel void pool_avg_backward(BUF(src), BUF(dst), const PoolParams P) {
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN));
  __global ST* dst = PTR(dst, ST);
  const Elements E = my_elements(P.rows, P.rows_per_item, P.in[2]);
  for (long row = E.first; row < E.last; row++) {
    const long zy = row / P.in[1], plane = zy / P.in[0];
    const window_t cz = covering(&P, 0, (IDX)(zy - plane * P.in[0])), cy = covering(&P, 1, (IDX)(row - zy * P.in[1]));
    __global ST* to = dst + row * P.in[2];
#ifdef DEVICE_CPU
    const window_t cx = {0, P.out[2], 0};
#else
    const window_t cx = covering(&P, 2, (IDX)E.begin);
#endif
    for (long x = E.begin; x < E.end; x++) to[x] = 0;
    for (long z = cz.begin; z < cz.end; z++) {
      const long lz = window(&P, 0, z).length;
      for (long y = cy.begin; y < cy.end; y++) {
        const long lzy = lz * window(&P, 1, y).length;
        __global const STORAGE(IN)* from = src + ((plane * P.out[0] + z) * P.out[1] + y) * P.out[2];
        for (long ox = cx.begin; ox < cx.end; ox++) {
          const window_t wx = window(&P, 2, ox);
          const ST count = (ST)(P.divisor ? P.divisor : lzy * wx.length);
          if (wx.begin >= wx.end) continue;
          const ST share = LOAD(IN, ACC, 1, from, ox) / count;
          for (long x = max(wx.begin, E.begin); x < min(wx.end, E.end); x++) to[x] += share;
        }
      }
    }
  }
}
