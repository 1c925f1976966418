// grid_sample over 2 or 3 spatial dimensions, forward and backward.
// -D: IN, ACC, NDIM (2: the depth is 1), OP (NEAREST, LINEAR, CUBIC), PADDING (0 zeros, 1 border, 2 reflection), ALIGN
// (0, 1), IDX (i32, or i64 if a plane of the input has 2^31 elements).
// The gradient of the input is deterministic, without atomics: one work-item per sample and channel adds in a fixed
// order.
#include "args/grid_sample.h"
#include "common/vector.h"

enum {
  NEAREST,
  LINEAR,
  CUBIC,
  TAPS = OP == NEAREST ? 1
  : OP == LINEAR       ? 2
                       : 4,
  TAPS_Z = NDIM == 3 ? TAPS : 1,
  TAPS_ALL = TAPS * TAPS * TAPS_Z
};

typedef CTYPE(IDX) place_t;  // in a plane of the input

// Converts a coordinate of the grid in [-1, 1] to pixels; also gives the derivative.
static inline ST unnormalize(ST x, long size, ST* slope) {
  *slope = (ST)(ALIGN ? size - 1 : size) / 2;
  return ALIGN ? (x + 1) * *slope : ((x + 1) * size - 1) / 2;
}
static inline ST clip(ST x, long size, ST* slope) {
  if (!(x > 0)) {
    *slope = 0;
    return 0;
  }
  if (x >= (ST)(size - 1)) {
    *slope = 0;
    return (ST)(size - 1);
  }
  return x;
}
static inline ST reflect(ST x, long size, ST* slope) {
  // Twice the borders, which are integers.
  const long low2 = ALIGN ? 0 : -1, high2 = ALIGN ? 2 * (size - 1) : 2 * size - 1;
  if (low2 == high2) {
    *slope = 0;
    return 0;
  }
  const ST low = (ST)low2 / 2, span = (ST)(high2 - low2) / 2;
  x -= low;
  if (x < 0) {
    x = -x;
    *slope = -*slope;
  }
  const ST extra = fmod(x, span);
  const ST flips = floor(x / span);
  if (fmod(flips, (ST)2) == 0) return extra + low;
  *slope = -*slope;
  return span - extra + low;
}
static inline ST pad(ST x, long size, ST* slope) {
  if (PADDING == 2) x = reflect(x, size, slope);
  if (PADDING) x = clip(x, size, slope);
  // A position that a long cannot hold is outside in any case.
  if (!(x > (ST)-1e9f && x < (ST)1e9f)) x = -100;
  return x;
}
static inline ST source(ST x, long size, ST* slope) {
  const ST at = unnormalize(x, size, slope);
  if (OP != CUBIC) return pad(at, size, slope);
  // The bicubic filter pads each of its taps instead.
  return at > (ST)-1e9f && at < (ST)1e9f ? at : (ST)-100;
}

// The positions of TAPS taps (-1: outside), their weights, and the weights' derivatives.
static inline void taps(ST x, long size, place_t* at, ST* w, ST* dw) {
  if (OP == NEAREST) {
    at[0] = CONVERT(IDX, 1, rint(x));
    w[0] = 1;
    dw[0] = 0;
  } else if (OP == LINEAR) {
    const ST base = floor(x);
    at[0] = CONVERT(IDX, 1, base);
    at[1] = at[0] + 1;
    w[1] = x - base;
    w[0] = 1 - w[1];
    dw[0] = -1;
    dw[1] = 1;
  } else {
    const ST base = floor(x), t = x - base, a = -0.75f;
    for (int k = 0; k < 4; k++) {
      const ST s = t - (k - 1), u = fabs(s), sign = s < 0 ? -1 : 1;
      w[k] = u <= 1 ? ((a + 2) * u - (a + 3)) * u * u + 1 : ((a * u - 5 * a) * u + 8 * a) * u - 4 * a;
      dw[k] = sign * (u <= 1 ? (3 * (a + 2) * u - 2 * (a + 3)) * u : (3 * a * u - 10 * a) * u + 8 * a);
      ST unused = 1;
      at[k] = CONVERT(IDX, 1, pad(base + (k - 1), size, &unused));
    }
  }
  for (int k = 0; k < TAPS; k++)
    if (at[k] < 0 || at[k] >= size) at[k] = -1;
}
#define AT_POINT(point)                                                                  \
  __global const STORAGE(IN)* xyz = PTR(grid, const STORAGE(IN)) + NDIM * (point);       \
  ST slope_x, slope_y;                                                                   \
  const ST px = source(LOAD(IN, ACC, 1, xyz, 0), s.in_w, &slope_x);                      \
  const ST py = source(LOAD(IN, ACC, 1, xyz, 1), s.in_h, &slope_y);                      \
  place_t ax[TAPS], ay[TAPS], az[TAPS_Z];                                                \
  ST wx[TAPS], wy[TAPS], wz[TAPS_Z], dx[TAPS], dy[TAPS], dz[TAPS_Z];                     \
  taps(px, s.in_w, ax, wx, dx);                                                          \
  taps(py, s.in_h, ay, wy, dy);                                                          \
  ST slope_z = 0;                                                                        \
  if (NDIM == 3)                                                                         \
    taps(source(LOAD(IN, ACC, 1, xyz, NDIM - 1), s.in_d, &slope_z), s.in_d, az, wz, dz); \
  else                                                                                   \
    az[0] = 0, wz[0] = 1;
// Loops over the taps inside the input, with their positions.
#define FOR_TAPS                     \
  for (int k = 0; k < TAPS_Z; k++)   \
    for (int j = 0; j < TAPS; j++)   \
      for (int i = 0; i < TAPS; i++) \
        if (ax[i] >= 0 && ay[j] >= 0 && az[k] >= 0)
#define PLACE ((az[k] * s.in_h + ay[j]) * s.in_w + ax[i])

// Points whose taps a work-item finds at once, for all channels. Planes of channels may lie so far apart that their
// lines have one place in the cache, so a CPU stays in a plane for some hundreds of points.
#ifdef DEVICE_GPU
#define POINTS 1
#else
#define POINTS (4096 / TAPS_ALL)
#endif

// A work-item takes `per` points of the output, with all channels. A tap outside the input counts as pixel 0 times 0,
// which is NaN if that is no finite number; only then are such taps left out.
__kernel void sample(BUF(out), BUF(in), BUF(grid), const GridSampleParams s, long per) {
  const long plane = s.out_d * s.out_h * s.out_w, size = s.in_d * s.in_h * s.in_w, points = s.n * plane;
  const long first = (long)get_global_id(0) * per, last = min(first + per, points);
  place_t place[TAPS_ALL][POINTS];
  ST weight[TAPS_ALL][POINTS];
  for (long point = first, count; point < last; point += count) {
    const long n = point / plane, o = point - n * plane;
    count = min(min((long)POINTS, last - point), plane - o);
    for (int q = 0; q < count; q++) {
      AT_POINT(point + q)
      for (int t = 0; t < TAPS_ALL; t++) {
        const int i = t % TAPS, j = t / TAPS % TAPS, k = t / (TAPS * TAPS);
        const int inside = ax[i] >= 0 && ay[j] >= 0 && az[k] >= 0;
        place[t][q] = inside ? PLACE : 0;
        weight[t][q] = inside ? wx[i] * wy[j] * wz[k] : 0;
      }
    }
    for (long c = 0; c < s.c; c++) {
      __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + (n * s.c + c) * size;
      __global STORAGE(IN)* y = PTR(out, STORAGE(IN)) + (n * s.c + c) * plane + o;
      int any_nan = 0;
      for (int q = 0; q < count; q++) {
        ST sum = 0;
        UNROLL for (int t = 0; t < TAPS_ALL; t++)
          sum += weight[t][q] * LOAD(IN, ACC, 1, x, place[t][q]);
        STORE(IN, ACC, 1, y, q, sum);
        any_nan |= sum != sum;
      }
      for (int q = 0; any_nan && q < count; q++) {
        AT_POINT(point + q)
        ST sum = 0;
        FOR_TAPS sum += wx[i] * wy[j] * wz[k] * LOAD(IN, ACC, 1, x, PLACE);
        STORE(IN, ACC, 1, y, q, sum);
      }
    }
  }
}

// Adds to a gradient of the compute type that must be zero; a work-item takes (sample, `per` channels).
__kernel void sample_backward_input(BUF(gin), BUF(grad), BUF(grid), const GridSampleParams s, long per) {
  const long parts = (s.c + per - 1) / per, n = get_global_id(0) / parts, first = (get_global_id(0) - n * parts) * per;
  if (n >= s.n) return;
  const long plane = s.out_d * s.out_h * s.out_w, size = s.in_d * s.in_h * s.in_w, last = min(first + per, s.c);
  for (long o = 0; o < plane; o++) {
    AT_POINT(n * plane + o)
    for (long c = first; c < last; c++) {
      __global ST* x = PTR(gin, ST) + (n * s.c + c) * size;
      const ST v = LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), (n * s.c + c) * plane + o);
      FOR_TAPS x[PLACE] += wx[i] * wy[j] * wz[k] * v;
    }
  }
}

__kernel void sample_backward_grid(BUF(ggrid), BUF(grad), BUF(in), BUF(grid), const GridSampleParams s, long per) {
  const long plane = s.out_d * s.out_h * s.out_w, size = s.in_d * s.in_h * s.in_w, points = s.n * plane;
  const long first = (long)get_global_id(0) * per, last = min(first + per, points);
  for (long point = first; point < last; point++) {
    AT_POINT(point)
    const long n = point / plane, o = point - n * plane;
    ST gx = 0, gy = 0, gz = 0;
    for (long c = 0; c < s.c; c++) {
      __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + (n * s.c + c) * size;
      const ST v = LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), (n * s.c + c) * plane + o);
      FOR_TAPS {
        const ST p = v * LOAD(IN, ACC, 1, x, PLACE);
        gx += dx[i] * wy[j] * wz[k] * p;
        gy += wx[i] * dy[j] * wz[k] * p;
        if (NDIM == 3) gz += wx[i] * wy[j] * dz[k] * p;
      }
    }
    STORE(IN, ACC, 1, PTR(ggrid, STORAGE(IN)), NDIM * point, gx * slope_x);
    STORE(IN, ACC, 1, PTR(ggrid, STORAGE(IN)), NDIM * point + 1, gy * slope_y);
    if (NDIM == 3) STORE(IN, ACC, 1, PTR(ggrid, STORAGE(IN)), NDIM * point + 2, gz * slope_z);
  }
}
