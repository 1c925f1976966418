// Kernels that move elements (cat, tril, triu) or compute them from their position (ranges, triangle indices, unfold's
// gradient, repeat_interleave). -D: BYTES (an element's size) for moves; OUT and ACC (tags) for the
// others.
#include "args/shape.h"
#include "common/few.h"
#include "common/vector.h"

#ifdef ACC
#include "common/scalar.h"
#endif
#ifdef BYTES
#include "common/elements.h"

static inline void zero_run(__global elem_t* d, long n) {
  for (long j = 0; j < n; j++) d[j] = (elem_t)(0);
}
#endif

// A work-item takes consecutive elements of one input, wherever rows begin and end.
#define EACH_INPUT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define INPUT_BUF(k) BUF(i##k),
#define CHOOSE(n) \
  if (k == n) p = i##n##_buf + i##n##_off;
__kernel void cat(BUF(o), EACH_INPUT(INPUT_BUF) const CatParams L) {
  const int k = get_global_id(1);
  long width = 0, start = 0;
  FOR_FEW(i, 0, k + 1, kMaxCatInputs) {
    width = L.width[i];
    start = L.start[i];
  }
  const long total = width * L.rows;
  long at = (long)get_global_id(0) * L.per_item;
  const long end = min(at + L.per_item, total);
  if (at >= end) return;
  __global const uchar* p = 0;
  EACH_INPUT(CHOOSE)
  __global const elem_t* s = (__global const elem_t*)p;
  long row = at / width, column = at - row * width;
  while (at < end) {
    const long n = min(width - column, end - at);
    copy_run(PTR(o, elem_t) + row * L.out_width + start + column, s + at, n);
    at += n;
    row++;
    column = 0;
  }
}

// Rows of matrices: keeps the columns j with j - i <= diagonal (lower) or j - i >= diagonal (upper).
__kernel void triangle(BUF(o), BUF(s), const TriangleParams L) {
  long first = (long)get_global_id(0) * L.rows_per_item;
  const long last = min(first + L.rows_per_item, L.rows * L.batches);
  for (; first < last; first++) {
    long batch = first / L.rows;
    const long i = first - batch * L.rows;
    __global elem_t* o = PTR(o, elem_t) + i * L.out_row;
    __global const elem_t* s = PTR(s, elem_t) + i * L.in_row;
    FOR_FEW(d, 0, L.ndim, kMaxTriangleDims) {
      const long q = batch / L.size[d], at = batch - q * L.size[d];
      o += at * L.out_stride[d];
      s += at * L.in_stride[d];
      batch = q;
    }
    const long edge = clamp(i + L.diagonal + (L.upper ? 0 : 1), 0L, L.columns);
    const long from = L.upper ? edge : 0, to = L.upper ? L.columns : edge;
    if (L.out_column == 1 && L.in_column == 1) {
      zero_run(o, from);
      if (o != s) copy_run(o + from, s + from, to - from);
      zero_run(o + to, L.columns - to);
    } else {
      for (long j = 0; j < L.columns; j++) {
        o[j * L.out_column] = j >= from && j < to ? s[j * L.in_column] : (elem_t)(0);
      }
    }
  }
}

__kernel void sequence(BUF(o), const SequenceParams L) {
  __global STORAGE(OUT)* o = PTR(o, STORAGE(OUT));
  const long n = L.n, first = (long)get_global_id(0) * L.per_item, last = min(first + L.per_item, n);
  const ST start = scalar_of(L.start), end = scalar_of(L.end), step = scalar_of(L.step);
  for (long i = first; i < last; i++) {
    ST v = L.kind < 2 && i >= n / 2 ? end - step * (ST)(n - 1 - i) : start + step * (ST)i;
#ifdef ACC_FLOATING
    if (L.kind == 1) v = pow(scalar_of(L.base), v);
#endif
    STORE(OUT, ACC, 1, o, i, v);
  }
}

// How many elements of a triangle lie in the rows before r: the sum over i < r of clamp(i + shift, 0, columns).
static inline long before(long r, long shift, long columns) {
  const long grow = clamp(-shift, 0L, r);             // rows that are still empty
  const long full = clamp(columns - shift, grow, r);  // the first full row
  const long k = full - grow;
  return k * (grow + shift) + k * (k - 1) / 2 + (r - full) * columns;
}
__kernel void triangle_indices(BUF(o), long rows, long columns, long shift, int upper, long total) {
  const long i = get_global_id(0);
  if (i >= rows) return;
  __global STORAGE(OUT)* o = PTR(o, STORAGE(OUT));
  const long edge = clamp(i + shift, 0L, columns);
  const long from = upper ? edge : 0, to = upper ? columns : edge;
  long at = upper ? i * columns - before(i, shift, columns) : before(i, shift, columns);
  for (long j = from; j < to; j++, at++) {
    STORE(OUT, ACC, 1, o, at, (ST)i);
    STORE(OUT, ACC, 1, o, total + at, (ST)j);
  }
}

// The gradient of unfold: an element of the input is the sum over the windows that it was copied to.
__kernel void unfold_backward(BUF(o), BUF(g), const UnfoldBackwardParams L) {
  const long first = (long)get_global_id(0) * L.per_item, last = min(first + L.per_item, L.total);
  for (long at = first; at < last; at++) {
    const long q = at / L.inner, x = at - q * L.inner, outer = q / L.length, i = q - outer * L.length;
    const long lo = i < L.size ? 0 : (i - L.size) / L.step + 1, hi = min(i / L.step, L.windows - 1);
    ST sum = (ST)(0);
    for (long w = lo; w <= hi; w++) {
      const long from = ((outer * L.windows + w) * L.inner + x) * L.size + (i - w * L.step);
      sum += LOAD(OUT, ACC, 1, PTR(g, const STORAGE(OUT)), from);
    }
    STORE(OUT, ACC, 1, PTR(o, STORAGE(OUT)), at, sum);
  }
}

// repeat_interleave: value i fills the positions from cumsum[i] - repeats[i] to cumsum[i].
__kernel void repeat_interleave(BUF(o), BUF(r), BUF(c), long n, long total, BUF(e), int code) {
  const long i = get_global_id(0);
  if (i >= n) return;
  const long count = (long)LOAD(OUT, ACC, 1, PTR(r, const STORAGE(OUT)), i), end = PTR(c, const long)[i];
  if (count < 0 || end > total || end - count < 0 || (i == n - 1 && end != total)) {
    netcl_report(PTR(e, int), code, count, total);
    return;
  }
  for (long at = end - count; at < end; at++) STORE(OUT, ACC, 1, PTR(o, STORAGE(OUT)), at, (ST)i);
}
