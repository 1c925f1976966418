// The gradient of average pooling on a CPU, for contiguous tensors of floats. Outputs first become shares: sums of
// their gradients along z and y, divided by the size of the window. Each input then sums the shares that cover it along
// x. -D: ACC (compute tag), IN (storage tag), IDX (i32, or i64 if a plane has 2^31 elements), VEC (4 or 8).
#include "args/pool.h"
#include "common/pool_window.h"
#include "common/vector.h"

#define TWICE_4 8
#define TWICE_8 16
typedef CAT(CTYPE(ACC), CAT(TWICE_, VEC)) pair_t;
#define STORE_PAIR(v, p) CAT(vstore, CAT(TWICE_, VEC))(v, 0, p)
#define LOAD_VEC(p) CAT(vload, VEC)(0, p)
#define STORE_VEC(v, p) CAT(vstore, VEC)(v, 0, p)

#define SPAN 256       // inputs that are computed at once
#define MOST_STRIDE 4  // larger strides, and windows of more than MOST_TAPS, do not take vectors along x
#define MOST_TAPS 128
typedef struct {
  ST shares[SPAN + MOST_TAPS + 4 * VEC];
  ST sums[SPAN + 2 * MOST_STRIDE * (VEC + 1)];
} scratch_t;

// The outputs whose windows hold a row of inputs, and which of them have windows of one size.
typedef struct {
  window_t z, y;
  long even;  // the size of those windows, or 0 if there are none
  windows_t all;
} lines_t;

static inline ST one_share(const PoolParams* P, const lines_t* w, __global const STORAGE(IN)* src, long x) {
  const long length = window_of(P, &w->all, 2, x).length;
  ST sum = 0;
  for (long z = w->z.begin; z < w->z.end; z++)
    for (long y = w->y.begin; y < w->y.end; y++) {
      const long n =
          P->divisor ? P->divisor : window_of(P, &w->all, 0, z).length * window_of(P, &w->all, 1, y).length * length;
      sum += LOAD(IN, ACC, 1, src, (z * P->out[1] + y) * P->out[2] + x) * (1 / (ST)n);
    }
  return sum;
}

// VEC of them, where windows of this row differ in size along z or y.
static inline VT uneven_shares(const PoolParams* P, const lines_t* w, __global const STORAGE(IN)* src, long x) {
  VT sum = (VT)(0);
  for (long z = w->z.begin; z < w->z.end; z++)
    for (long y = w->y.begin; y < w->y.end; y++) {
      const ST scale = 1 / (ST)(window_of(P, &w->all, 0, z).length * window_of(P, &w->all, 1, y).length);
      sum += LOAD(IN, ACC, VEC, src, (z * P->out[1] + y) * P->out[2] + x) * scale;
    }
  lanes_t length;
  for (int k = 0; k < VEC; k++) length.s[k] = window_of(P, &w->all, 2, x + k).length;
  return sum / length.v;
}

// Writes the shares of outputs [begin, end).
static inline void find_shares(const PoolParams* P, const lines_t* w, __global const STORAGE(IN)* src, long begin,
                               long end, ST* shares) {
  long first = clamp(P->even_begin[2], begin, end), last = clamp(P->even_end[2], begin, end);
  if (!w->even) first = begin, last = end;
  if (last - first < VEC) first = last = end;
  for (long x = begin; x < first; x++) shares[x - begin] = one_share(P, w, src, x);
  const ST scale = 1 / (ST)(w->even ? w->even : 1);
  for (long at = first; at < last; at += VEC) {
    const long x = min(at, last - VEC);
    if (!w->even) {
      STORE_VEC(uneven_shares(P, w, src, x), shares + (x - begin));
      continue;
    }
    VT sum = (VT)(0);
    for (long z = w->z.begin; z < w->z.end; z++)
      for (long y = w->y.begin; y < w->y.end; y++)
        sum += LOAD(IN, ACC, VEC, src, (z * P->out[1] + y) * P->out[2] + x) * scale;
    STORE_VEC(sum, shares + (x - begin));
  }
  for (long x = last; x < end; x++) shares[x - begin] = one_share(P, w, src, x);
}

// The sum of n shares at each of VEC places that follow each other.
static inline VT sum_shares(const ST* shares, long n) {
  VT sum = (VT)(0);
  for (long k = 0; k < n; k++) sum += LOAD_VEC(shares + k);
  return sum;
}

// Inputs [begin, end) of a row, for windows that slide. Input x lies at place (x + pad) % stride of the step
// (x + pad) / stride, and all inputs at one place sum over as many windows. Returns the first one's sum.
static inline const ST* sum_steps(const PoolParams* P, const lines_t* w, __global const STORAGE(IN)* src, long begin,
                                  long end, scratch_t* s) {
  const long stride = P->stride[2], first = (begin + P->pad[2]) / stride, last = (end - 1 + P->pad[2]) / stride + 1;
  const long taps = (P->ker[2] + stride - 1) / stride, from = first - (taps - 1);
  const long o0 = clamp(from, 0L, P->out[2]), o1 = clamp(last, o0, P->out[2]);
  for (long i = 0; i < o0 - from; i++) s->shares[i] = 0;
  for (long i = o1 - from; i < last - from + VEC; i++) s->shares[i] = 0;
  find_shares(P, w, src, o0, o1, s->shares + (o0 - from));
  for (long step = 0; step < last - first; step += VEC) {
    ST* to = s->sums + step * stride;
    if (stride == 1) {
      STORE_VEC(sum_shares(s->shares + step, taps), to);
    } else if (stride == 2) {
      const long odd = P->ker[2] / 2;
      pair_t pair;
      pair.even = sum_shares(s->shares + step, taps);
      pair.odd = sum_shares(s->shares + step + taps - odd, odd);
      STORE_PAIR(pair, to);
    } else {
      for (long place = 0; place < stride; place++) {
        const long n = max((P->ker[2] - place + stride - 1) / stride, 0L);
        lanes_t sum;
        sum.v = sum_shares(s->shares + step + taps - n, n);
        for (int k = 0; k < VEC; k++) to[k * stride + place] = sum.s[k];
      }
    }
  }
  return s->sums + (begin + P->pad[2] - first * stride);
}

// The same for any windows.
static inline const ST* sum_windows(const PoolParams* P, const lines_t* w, __global const STORAGE(IN)* src, long begin,
                                    long end, scratch_t* s) {
  for (long i = 0; i < end - begin; i++) s->sums[i] = 0;
  const long last = covering(P, 2, (index_t)(end - 1)).end;
  for (long o0 = covering(P, 2, (index_t)begin).begin; o0 < last; o0 += SPAN) {
    const long o1 = min(o0 + SPAN, last);
    find_shares(P, w, src, o0, o1, s->shares);
    for (long o = o0; o < o1; o++) {
      const window_t wx = window_of(P, &w->all, 2, o);
      const ST share = s->shares[o - o0];
      for (long x = max(wx.begin, begin); x < min(wx.end, end); x++) s->sums[x - begin] += share;
    }
  }
  return s->sums;
}

__kernel void pool_avg_backward(BUF(src), BUF(dst), const PoolParams P) {
  lines_t w;
  w.y.begin = w.y.end = 0;
  list_windows(&P, &w.all);
  const int steps = !P.adaptive && P.stride[2] <= MOST_STRIDE && P.ker[2] <= MOST_TAPS;
  const long first = get_global_id(0) * P.rows_per_item, last = min(first + P.rows_per_item, P.rows);
  scratch_t scratch;
  const ST* sums = scratch.sums;
  for (long row = first; row < last; row++) {
    const long zy = row / P.in[1], plane = zy / P.in[0], y = row - zy * P.in[1];
    const window_t cz = covering(&P, 0, (index_t)(zy - plane * P.in[0])), cy = covering(&P, 1, (index_t)y);
    // Neighbouring rows under the same windows are equal.
    const int again = row > first && y > 0 && cy.begin == w.y.begin && cy.end == w.y.end && P.in[2] <= SPAN;
    w.z = cz;
    w.y = cy;
    w.even = even_along(&P, 0, cz) && even_along(&P, 1, cy) ? P.even : 0;
    __global const STORAGE(IN)* from = PTR(src, const STORAGE(IN)) + plane * P.out[0] * P.out[1] * P.out[2];
    __global STORAGE(IN)* to = PTR(dst, STORAGE(IN)) + row * P.in[2];
    for (long x0 = 0; x0 < P.in[2]; x0 += SPAN) {
      const long x1 = min(x0 + SPAN, P.in[2]);
      if (!again)
        sums = steps ? sum_steps(&P, &w, from, x0, x1, &scratch) : sum_windows(&P, &w, from, x0, x1, &scratch);
      long x = x0;
      for (; x + VEC <= x1; x += VEC) STORE(IN, ACC, VEC, to, x, LOAD_VEC(sums + (x - x0)));
      for (; x < x1; x++) STORE(IN, ACC, 1, to, x, sums[x - x0]);
    }
  }
}
