// softmax and log_softmax, forward and backward.
// -D: IN, OUT (forward) or GRAD, OUTPUT, GIN (backward) storage tags, ACC, VEC, LS, LOG (log_softmax), KEEP_LOCAL (a
// row's exponentials are kept in local memory) or KEEP_EXP (they are kept in OUT, which has the compute type).
// fmax ignores a NaN, but it still reaches the sum and so the whole row. A row of -inf becomes NaN too (inf - inf).
#include "common/rows.h"

// True if the last vector may overrun into the next row, which this work-item then rewrites.
#define HAS_ROOM(row) const int room = (row) + 1 < last && n >= VEC;

#ifdef IN
DEFINE_LANES(IN)
DEFINE_LANES(OUT)

#define single_f32 1
#if CAT(single_, ACC)
#include "common/exp_below.h"
#define EXP(x) EXP_BELOW(x)
#else
#define EXP(x) exp(x)
#endif

#if defined(KEEP_LOCAL)
#define KEPT_ARG __local VT *kept,
#define KEEP(i, lanes, e) kept[(i) / VEC] = e
#define KEPT(i, lanes, top) kept[(i) / VEC]
#elif defined(KEEP_EXP)
#define KEEP(i, lanes, e) STORE_IN_ROOM(OUT, y, i, lanes, e, room)
#define KEPT(i, lanes, top) LOAD_IN_ROOM(OUT, y, i, lanes, 0, room)
#else
#define KEEP(i, lanes, e)
#define KEPT(i, lanes, top) EXP(LOAD_IN_ROOM(IN, x, i, lanes, top, room) - top)
#endif

#ifndef KEPT_ARG
#define KEPT_ARG
#endif

#define TO_MAX(i, lanes)                                          \
  {                                                               \
    const VT xv = LOAD_IN_ROOM(IN, x, i, lanes, -INFINITY, room); \
    m = xv > m ? xv : m;                                          \
  }
#define TO_EXP(i, lanes)                                              \
  {                                                                   \
    FETCH_AHEAD(x, i, n);                                             \
    const VT e = EXP(LOAD_IN_ROOM(IN, x, i, lanes, top, room) - top); \
    KEEP(i, lanes, e);                                                \
    s += KEEP_LANES(e, lanes, 0);                                     \
  }
#define TO_LOG(i, lanes) STORE_IN_ROOM(OUT, y, i, lanes, LOAD_IN_ROOM(IN, x, i, lanes, 0, room) - top - shift, room);
#define TO_SCALE(i, lanes) STORE_IN_ROOM(OUT, y, i, lanes, KEPT(i, lanes, top) * scale, room);

// A row has `n` adjacent elements.
__kernel void softmax_rows(BUF(out), BUF(in), KEPT_ARG long rows, long rows_per, long n) {
  ROW_SCRATCH
  const long first = (long)get_group_id(0) * rows_per;
  const long last = min(first + rows_per, rows);
  for (long row = first; row < last; row++) {
    HAS_ROOM(row)
    __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + row * n;
    __global STORAGE(OUT)* y = PTR(out, STORAGE(OUT)) + row * n;
    VT m = (VT)(-INFINITY);
    EACH_OF_ROW(TO_MAX, n)
    const ST top = row_max(m);
    VT s = (VT)(0);
    EACH_OF_ROW(TO_EXP, n)
    const ST sum = row_sum(s);
#ifdef LOG
    const ST shift = log(sum);
    EACH_OF_ROW(TO_LOG, n)
#else
    const ST scale = 1 / sum;
    EACH_OF_ROW(TO_SCALE, n)
#endif
  }
  STORES_DONE();
}

// The n elements lie `inner` apart; a work-item takes VEC neighbouring columns.
__kernel void softmax_cols(BUF(out), BUF(in), long outer, long n, long inner) {
  const long c = (long)get_global_id(0) * VEC, o = get_global_id(1);
  if (c >= inner || o >= outer) return;
  const int lanes = LANES(c, inner);
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + o * n * inner + c;
  __global STORAGE(OUT)* y = PTR(out, STORAGE(OUT)) + o * n * inner + c;
  VT m = (VT)(-INFINITY);
  for (long i = 0; i < n; i++) m = fmax(m, LOAD_LANES(IN, x, i * inner, lanes, 0));
  VT s = (VT)(0);
  for (long i = 0; i < n; i++) s += exp(LOAD_LANES(IN, x, i * inner, lanes, 0) - m);
#ifdef LOG
  s = log(s);
  for (long i = 0; i < n; i++) STORE_LANES(OUT, y, i * inner, lanes, LOAD_LANES(IN, x, i * inner, lanes, 0) - m - s);
#else
  s = 1 / s;
  for (long i = 0; i < n; i++)
    STORE_LANES(OUT, y, i * inner, lanes, exp(LOAD_LANES(IN, x, i * inner, lanes, 0) - m) * s);
#endif
}
#endif

#ifdef GIN
DEFINE_LANES(GRAD)
DEFINE_LANES(OUTPUT)
DEFINE_LANES(GIN)

#ifdef LOG
#define TERM(g, y) (g)
#define RESULT(g, y, sum) ((g) - exp(y) * (sum))
#else
#define TERM(g, y) ((g) * (y))
#define RESULT(g, y, sum) (((g) - (sum)) * (y))
#endif

#define TO_DOT(i, lanes) \
  s += TERM(LOAD_IN_ROOM(GRAD, g, i, lanes, 0, room), LOAD_IN_ROOM(OUTPUT, y, i, lanes, 0, room));
#define TO_GRAD(i, lanes)                                                                                    \
  {                                                                                                          \
    FETCH_AHEAD(g, i, n);                                                                                    \
    FETCH_AHEAD(y, i, n);                                                                                    \
    const VT gv = LOAD_IN_ROOM(GRAD, g, i, lanes, 0, room), yv = LOAD_IN_ROOM(OUTPUT, y, i, lanes, 0, room); \
    STORE_IN_ROOM(GIN, o, i, lanes, RESULT(gv, yv, sum), room);                                              \
  }

__kernel void softmax_backward_rows(BUF(gin), BUF(grad), BUF(output), long rows, long rows_per, long n) {
  ROW_SCRATCH
  const long first = (long)get_group_id(0) * rows_per;
  const long last = min(first + rows_per, rows);
  for (long row = first; row < last; row++) {
    HAS_ROOM(row)
    __global const STORAGE(GRAD)* g = PTR(grad, const STORAGE(GRAD)) + row * n;
    __global const STORAGE(OUTPUT)* y = PTR(output, const STORAGE(OUTPUT)) + row * n;
    __global STORAGE(GIN)* o = PTR(gin, STORAGE(GIN)) + row * n;
    VT s = (VT)(0);
    EACH_OF_ROW(TO_DOT, n)
    const ST sum = row_sum(s);
    EACH_OF_ROW(TO_GRAD, n)
  }
  STORES_DONE();
}

__kernel void softmax_backward_cols(BUF(gin), BUF(grad), BUF(output), long outer, long n, long inner) {
  const long c = (long)get_global_id(0) * VEC, o = get_global_id(1);
  if (c >= inner || o >= outer) return;
  const int lanes = LANES(c, inner);
  const long at = o * n * inner + c;
  __global const STORAGE(GRAD)* g = PTR(grad, const STORAGE(GRAD)) + at;
  __global const STORAGE(OUTPUT)* y = PTR(output, const STORAGE(OUTPUT)) + at;
  __global STORAGE(GIN)* r = PTR(gin, STORAGE(GIN)) + at;
  VT s = (VT)(0);
  for (long i = 0; i < n; i++)
    s += TERM(LOAD_LANES(GRAD, g, i * inner, lanes, 0), LOAD_LANES(OUTPUT, y, i * inner, lanes, 0));
  for (long i = 0; i < n; i++) {
    const VT gv = LOAD_LANES(GRAD, g, i * inner, lanes, 0), yv = LOAD_LANES(OUTPUT, y, i * inner, lanes, 0);
    STORE_LANES(GIN, r, i * inner, lanes, RESULT(gv, yv, s));
  }
}
#endif
