// Reductions of segments of rows. The data is (outer, rows, inner), offsets are (outer, count + 1). A work-item has
// P.per segments of one column each, so the order of additions is fixed. -D: IN, ACC, OP (SUM, MEAN, PROD, MIN, MAX).
#include "args/reduce.h"
#include "common/vector.h"

enum { SUM, MEAN, PROD, MIN, MAX };
static inline ST combine(ST a, ST x) {
  if (OP == MIN) return isnan(x) || x < a ? x : a;
  if (OP == MAX) return isnan(x) || x > a ? x : a;
  return OP == PROD ? a * x : a + x;
}

// Segment `id` begins at row `first` and has n rows, which lie `inner` apart from `base` on. Offsets that ATen was told
// not to check are clamped to the data.
#define EACH_ID \
  for (long id = get_global_id(0) * (long)P.per, end = min(id + P.per, P.outer * P.count * P.inner); id < end; id++)
#define SEGMENT                                                                               \
  const long segment = id / P.inner, block = segment / P.count;                               \
  __global const long* bound = PTR(offsets, const long) + segment + block;                    \
  const long first = clamp(bound[0], 0L, P.rows), n = clamp(bound[1], first, P.rows) - first; \
  const long base = (block * P.rows + first) * P.inner + (id - segment * P.inner);            \
  __global const STORAGE(IN)* x = PTR(data, const STORAGE(IN)) + base;
#define AT(i) LOAD(IN, ACC, 1, x, (i) * P.inner)

__kernel void segment_reduce(BUF(out), BUF(data), BUF(offsets), const SegmentParams P) {
  EACH_ID {
    SEGMENT
    ST a = (ST)P.start + (ST)P.start_low;
    for (long i = 0; i < n; i++) a = combine(a, AT(i));
    if (OP == MEAN && n > 0) a /= n;
    if (OP == MEAN && n == 0 && !P.given) a = NAN;
    STORE(IN, ACC, 1, PTR(out, STORAGE(IN)), id, a);
  }
}

// Writes to a gradient that must be zero.
__kernel void segment_reduce_backward(BUF(gin), BUF(grad), BUF(out), BUF(data), BUF(offsets), const SegmentParams P) {
  EACH_ID {
    SEGMENT
    __global STORAGE(IN)* gx = PTR(gin, STORAGE(IN)) + base;
    const ST g = LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), id);
    const ST y = LOAD(IN, ACC, 1, PTR(out, const STORAGE(IN)), id);
    if (OP == MIN || OP == MAX) {
      long equal = 0;
      for (long i = 0; i < n; i++) equal += isnan(AT(i)) || AT(i) == y;
      // Only a positive gradient is divided among equal elements, as on CPU and CUDA.
      const ST share = g > 0 ? g / equal : g;
      for (long i = 0; i < n; i++)
        if (isnan(AT(i)) || AT(i) == y) STORE(IN, ACC, 1, gx, i * P.inner, share);
      continue;
    }
    for (long i = 0; i < n; i++) {
      ST factor = 1;
      if (OP == PROD) {
        const ST v = AT(i);
        factor = y / v;
        if (v == 0 || isnan(v)) {
          factor = (ST)P.start + (ST)P.start_low;
          for (long k = 0; k < n; k++) factor *= k == i ? (ST)1 : AT(k);
        }
      }
      STORE(IN, ACC, 1, gx, i * P.inner, OP == MEAN ? g / n : g * factor);
    }
  }
}
