// Reflection and replication padding over up to three dimensions, and the sliding windows of unfold and fold.
// -D: ACC (compute tag), IN (storage tag). Forward kernels only copy bits, so IN is any type of that size.
#include "args/pad.h"
#include "common/row_elements.h"
#include "common/vector.h"

// The input element that output `o` copies.
static inline long source(const PadParams* P, int d, long o) {
  const long i = o - P->before[d];
  if (!P->reflect) return clamp(i, 0L, P->in[d] - 1);
  return i < 0 ? -i : i >= P->in[d] ? 2 * (P->in[d] - 1) - i : i;
}

__kernel void pad_forward(BUF(src), BUF(dst), const PadParams P) {
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN));
  __global STORAGE(IN)* dst = PTR(dst, STORAGE(IN));
  const Elements E = my_elements(P.rows, P.rows_per_item, P.out[2] * P.inner);
  for (long row = E.first; row < E.last; row++) {
    const long zy = row / P.out[1], plane = zy / P.out[0];
    const long z = source(&P, 0, zy - plane * P.out[0]), y = source(&P, 1, row - zy * P.out[1]);
    __global const STORAGE(IN)* from = src + ((plane * P.in[0] + z) * P.in[1] + y) * P.in[2] * P.inner;
    __global STORAGE(IN)* to = dst + row * P.out[2] * P.inner;
    for (long i = E.begin; !ON_CPU && i < E.end; i++) {
      const long x = i / P.inner;
      to[i] = from[source(&P, 2, x) * P.inner + i - x * P.inner];
    }
    if (!ON_CPU) continue;
    // The middle of the row is a plain copy.
    const long m0 = clamp(P.before[2], 0L, P.out[2]), m1 = clamp(P.in[2] + P.before[2], m0, P.out[2]);
    for (long x = 0; x < m0; x++)
      for (long c = 0; c < P.inner; c++) to[x * P.inner + c] = from[source(&P, 2, x) * P.inner + c];
    for (long i = m0 * P.inner; i < m1 * P.inner; i++) to[i] = from[i - P.before[2] * P.inner];
    for (long x = m1; x < P.out[2]; x++)
      for (long c = 0; c < P.inner; c++) to[x * P.inner + c] = from[source(&P, 2, x) * P.inner + c];
  }
}

// The outputs that copy input `i`: up to three ranges [begin, end).
typedef struct {
  long begin[3], end[3];
} copies_t;

static inline copies_t copies(const PadParams* P, int d, long i) {
  copies_t c;
  const long in = P->in[d], out = P->out[d], before = P->before[d];
  long at[3] = {i + before, -1, -1};
  if (P->reflect && i > 0 && i <= before) at[1] = before - i;
  if (P->reflect && i < in - 1) at[2] = 2 * (in - 1) - i + before;
  for (int k = 0; k < 3; k++) {
    c.begin[k] = at[k];
    c.end[k] = at[k] >= 0 && at[k] < out ? at[k] + 1 : at[k];
  }
  if (P->reflect) return c;
  if (i == 0) c.begin[0] = 0;
  if (i == in - 1) c.end[0] = out;
  c.begin[0] = max(c.begin[0], 0L);
  return c;
}

// GPUs keep the three ranges of copies_t in registers.
#ifdef DEVICE_CPU
#define UNROLL_RANGES
#else
#define UNROLL_RANGES UNROLL
#endif

// The sum over the copies of an element; `from` is its plane.
static inline ST sum_of_copies(const PadParams* P, __global const STORAGE(IN)* from, const copies_t* cz,
                               const copies_t* cy, const copies_t* cx) {
  ST sum = (ST)(0);
  UNROLL_RANGES for (int kz = 0; kz < 3; kz++) {
    for (long z = cz->begin[kz]; z < cz->end[kz]; z++) {
      UNROLL_RANGES for (int ky = 0; ky < 3; ky++) {
        for (long y = cy->begin[ky]; y < cy->end[ky]; y++) {
          __global const STORAGE(IN)* row = from + (z * P->out[1] + y) * P->out[2] * P->inner;
          UNROLL_RANGES for (int kx = 0; kx < 3; kx++) {
            for (long x = cx->begin[kx]; x < cx->end[kx]; x++) sum += LOAD(IN, ACC, 1, row, x * P->inner);
          }
        }
      }
    }
  }
  return sum;
}

__kernel void pad_backward(BUF(src), BUF(dst), const PadParams P) {
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN));
  __global STORAGE(IN)* dst = PTR(dst, STORAGE(IN));
  const Elements E = my_elements(P.rows, P.rows_per_item, P.in[2] * P.inner);
  for (long row = E.first; row < E.last; row++) {
    const long zy = row / P.in[1], plane = zy / P.in[0];
    const copies_t cz = copies(&P, 0, zy - plane * P.in[0]), cy = copies(&P, 1, row - zy * P.in[1]);
    __global const STORAGE(IN)* from = src + plane * P.out[0] * P.out[1] * P.out[2] * P.inner;
    __global STORAGE(IN)* to = dst + row * P.in[2] * P.inner;
    // A GPU's work-item has one element, c of ix.
    const long first_ix = ON_CPU ? 0 : E.begin / P.inner, first_c = ON_CPU ? 0 : E.begin - first_ix * P.inner;
    const long last_ix = ON_CPU ? P.in[2] : first_ix + 1, last_c = ON_CPU ? P.inner : first_c + 1;
    for (long ix = first_ix; ix < last_ix; ix++) {
      const copies_t cx = copies(&P, 2, ix);
      for (long c = first_c; c < last_c; c++)
        STORE(IN, ACC, 1, to, ix * P.inner + c, sum_of_copies(&P, from + c, &cz, &cy, &cx));
    }
  }
}

// dst row (plane, ky, kx, block y) is a strided row of the image.
__kernel void unfold(BUF(src), BUF(dst), const UnfoldParams P) {
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN));
  __global STORAGE(IN)* dst = PTR(dst, STORAGE(IN));
  const Elements E = my_elements(P.rows, P.rows_per_item, P.blocks[1]);
  for (long row = E.first; row < E.last; row++) {
    const long k = row / P.blocks[0], kyx = k % (P.ker[0] * P.ker[1]), plane = k / (P.ker[0] * P.ker[1]);
    const long ky = kyx / P.ker[1], kx = kyx - ky * P.ker[1];
    const long y = (row - k * P.blocks[0]) * P.stride[0] - P.pad[0] + ky * P.dil[0];
    const long x0 = kx * P.dil[1] - P.pad[1];
    const int inside = y >= 0 && y < P.size[0];
    __global const STORAGE(IN)* from = src + (plane * P.size[0] + (inside ? y : 0)) * P.size[1];
    __global STORAGE(IN)* to = dst + row * P.blocks[1];
    for (long b = E.begin; b < E.end; b++) {
      const long x = x0 + b * P.stride[1];
      to[b] = inside && x >= 0 && x < P.size[1] ? from[x] : (STORAGE(IN))(0);
    }
  }
}

// dst row (plane, y): each element is the sum over the windows that hold it, in a fixed order.
__kernel void fold(BUF(src), BUF(dst), const UnfoldParams P) {
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN));
  __global STORAGE(IN)* dst = PTR(dst, STORAGE(IN));
  const Elements E = my_elements(P.rows, P.rows_per_item, P.size[1]);
  for (long row = E.first; row < E.last; row++) {
    const long plane = row / P.size[0], y = row - plane * P.size[0];
    for (long x = E.begin; x < E.end; x++) {
      ST sum = (ST)(0);
      for (long ky = 0; ky < P.ker[0]; ky++) {
        const long sy = y + P.pad[0] - ky * P.dil[0], by = sy / P.stride[0];
        if (sy < 0 || by * P.stride[0] != sy || by >= P.blocks[0]) continue;
        for (long kx = 0; kx < P.ker[1]; kx++) {
          const long sx = x + P.pad[1] - kx * P.dil[1], bx = sx / P.stride[1];
          if (sx < 0 || bx * P.stride[1] != sx || bx >= P.blocks[1]) continue;
          const long k = (plane * P.ker[0] + ky) * P.ker[1] + kx;
          sum += LOAD(IN, ACC, 1, src, (k * P.blocks[0] + by) * P.blocks[1] + bx);
        }
      }
      STORE(IN, ACC, 1, dst, row * P.size[1] + x, sum);
    }
  }
}
