// softmax and log_softmax, forward and backward.
// -D: IN, OUT (forward) or GRAD, OUTPUT, GIN (backward) storage tags, ACC, VEC, LS, LOG (log_softmax),
// KEEP_EXP (OUT is the compute type, so exponentials can wait in it).
// A NaN that fmax passes over still reaches the sum, and by it the whole row; so does a row of -inf (inf -
// inf).
#include "rows.h"

#ifdef IN
DEFINE_LANES(IN)
DEFINE_LANES(OUT)

// `n` adjacent elements a row.
__kernel void softmax_rows(BUF(out), BUF(in), long rows, long rows_per, long n) {
  ROW_SCRATCH
  const long first = (long)get_group_id(0) * rows_per;
  const long last = min(first + rows_per, rows);
  for (long row = first; row < last; row++) {
    __global const STORAGE(IN) *x = PTR(in, const STORAGE(IN)) + row * n;
    __global STORAGE(OUT) *y = PTR(out, STORAGE(OUT)) + row * n;
    vec_t m = (vec_t)(-INFINITY);
    FOR_ROW(i, n) m = fmax(m, LOAD_LANES(IN, x, i, LANES(i, n), -INFINITY));
    const acc_t top = row_max(m);
    vec_t s = (vec_t)(0);
    FOR_ROW(i, n) {
      const int lanes = LANES(i, n);
      const vec_t e = exp(LOAD_LANES(IN, x, i, lanes, top) - top);
#ifdef KEEP_EXP
      STORE_LANES(OUT, y, i, lanes, e);
#endif
      s += KEEP_LANES(e, lanes, 0);
    }
    const acc_t sum = row_sum(s);
#ifdef LOG
    const acc_t shift = log(sum);
    FOR_ROW(i, n) {
      const int lanes = LANES(i, n);
      STORE_LANES(OUT, y, i, lanes, LOAD_LANES(IN, x, i, lanes, 0) - top - shift);
    }
#else
    const acc_t scale = 1 / sum;
    FOR_ROW(i, n) {
      const int lanes = LANES(i, n);
#ifdef KEEP_EXP
      STORE_LANES(OUT, y, i, lanes, LOAD_LANES(OUT, y, i, lanes, 0) * scale);
#else
      STORE_LANES(OUT, y, i, lanes, exp(LOAD_LANES(IN, x, i, lanes, top) - top) * scale);
#endif
    }
#endif
  }
}

// n elements that lie `inner` apart; a work-item takes VEC neighbouring columns.
__kernel void softmax_cols(BUF(out), BUF(in), long outer, long n, long inner) {
  const long c = (long)get_global_id(0) * VEC, o = get_global_id(1);
  if (c >= inner || o >= outer) return;
  const int lanes = LANES(c, inner);
  __global const STORAGE(IN) *x = PTR(in, const STORAGE(IN)) + o * n * inner + c;
  __global STORAGE(OUT) *y = PTR(out, STORAGE(OUT)) + o * n * inner + c;
  vec_t m = (vec_t)(-INFINITY);
  for (long i = 0; i < n; i++) m = fmax(m, LOAD_LANES(IN, x, i * inner, lanes, 0));
  vec_t s = (vec_t)(0);
  for (long i = 0; i < n; i++) s += exp(LOAD_LANES(IN, x, i * inner, lanes, 0) - m);
#ifdef LOG
  s = log(s);
  for (long i = 0; i < n; i++)
    STORE_LANES(OUT, y, i * inner, lanes, LOAD_LANES(IN, x, i * inner, lanes, 0) - m - s);
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

__kernel void softmax_backward_rows(BUF(gin), BUF(grad), BUF(output), long rows, long rows_per, long n) {
  ROW_SCRATCH
  const long first = (long)get_group_id(0) * rows_per;
  const long last = min(first + rows_per, rows);
  for (long row = first; row < last; row++) {
    __global const STORAGE(GRAD) *g = PTR(grad, const STORAGE(GRAD)) + row * n;
    __global const STORAGE(OUTPUT) *y = PTR(output, const STORAGE(OUTPUT)) + row * n;
    __global STORAGE(GIN) *o = PTR(gin, STORAGE(GIN)) + row * n;
    vec_t s = (vec_t)(0);
    FOR_ROW(i, n) {
      const int lanes = LANES(i, n);
      s += TERM(LOAD_LANES(GRAD, g, i, lanes, 0), LOAD_LANES(OUTPUT, y, i, lanes, 0));
    }
    const acc_t sum = row_sum(s);
    FOR_ROW(i, n) {
      const int lanes = LANES(i, n);
      const vec_t gv = LOAD_LANES(GRAD, g, i, lanes, 0), yv = LOAD_LANES(OUTPUT, y, i, lanes, 0);
      STORE_LANES(GIN, o, i, lanes, RESULT(gv, yv, sum));
    }
  }
}

__kernel void softmax_backward_cols(BUF(gin), BUF(grad), BUF(output), long outer, long n, long inner) {
  const long c = (long)get_global_id(0) * VEC, o = get_global_id(1);
  if (c >= inner || o >= outer) return;
  const int lanes = LANES(c, inner);
  const long at = o * n * inner + c;
  __global const STORAGE(GRAD) *g = PTR(grad, const STORAGE(GRAD)) + at;
  __global const STORAGE(OUTPUT) *y = PTR(output, const STORAGE(OUTPUT)) + at;
  __global STORAGE(GIN) *r = PTR(gin, STORAGE(GIN)) + at;
  vec_t s = (vec_t)(0);
  for (long i = 0; i < n; i++)
    s += TERM(LOAD_LANES(GRAD, g, i * inner, lanes, 0), LOAD_LANES(OUTPUT, y, i * inner, lanes, 0));
  for (long i = 0; i < n; i++) {
    const vec_t gv = LOAD_LANES(GRAD, g, i * inner, lanes, 0),
                yv = LOAD_LANES(OUTPUT, y, i * inner, lanes, 0);
    STORE_LANES(GIN, r, i * inner, lanes, RESULT(gv, yv, s));
  }
}
#endif
