// softmax and log_softmax of rows that GPUs keep in registers, forward and backward; softmax.cl has the other cases and
// says how NaN and infinities spread. -D: IN, OUT (forward) or GRAD, OUTPUT, GIN (backward) storage tags, LOG
// (log_softmax), and those of short_rows.h.
#define WORK_GROUPS
#include "common/short_rows.h"

#ifdef IN
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void softmax_short(BUF(out), BUF(in), long rows, long n) {
  SHORT_ROW(rows, n)
  __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + place;
  __global STORAGE(OUT)* y = PTR(out, STORAGE(OUT)) + place;
#define READ_IN(j)           \
  VT v##j = (VT)(-INFINITY); \
  if (HAS(j)) v##j = LOAD_WHOLE(IN, x + AT(j));
  EACH_HELD(READ_IN)
  ST most = -INFINITY;
#define TO_MOST(j) most = fmax(most, max_lanes(v##j));
  EACH_HELD(TO_MOST)
  const ST top = row_max(most);
  VT total = (VT)(0);
#ifdef LOG
#define TO_TOTAL(j) \
  v##j -= top;      \
  if (HAS(j)) total += exp(v##j);
#else
#define TO_TOTAL(j)       \
  v##j = exp(v##j - top); \
  if (HAS(j)) total += v##j;
#endif
  EACH_HELD(TO_TOTAL)
  const ST sum = row_sum(sum_lanes(total));
#ifdef LOG
  const ST shift = log(sum);
#define WRITE_OUT(j) \
  if (HAS(j)) STORE_WHOLE(OUT, y + AT(j), v##j - shift);
#else
  const ST scale = 1 / sum;
#define WRITE_OUT(j) \
  if (HAS(j)) STORE_WHOLE(OUT, y + AT(j), v##j * scale);
#endif
  EACH_HELD(WRITE_OUT)
}
#endif

#ifdef GIN
#ifdef LOG
#define TERM(g, y) (g)
#define RESULT(g, y, sum) ((g) - exp(y) * (sum))
#else
#define TERM(g, y) ((g) * (y))
#define RESULT(g, y, sum) (((g) - (sum)) * (y))
#endif
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void softmax_short_grad(BUF(gin), BUF(grad), BUF(output),
                                                                                    long rows, long n) {
  SHORT_ROW(rows, n)
  __global const STORAGE(GRAD)* g = PTR(grad, const STORAGE(GRAD)) + place;
  __global const STORAGE(OUTPUT)* y = PTR(output, const STORAGE(OUTPUT)) + place;
  __global STORAGE(GIN)* o = PTR(gin, STORAGE(GIN)) + place;
  VT total = (VT)(0);
#define READ_BOTH(j)                      \
  VT g##j = (VT)(0), y##j = (VT)(0);      \
  if (HAS(j)) {                           \
    g##j = LOAD_WHOLE(GRAD, g + AT(j));   \
    y##j = LOAD_WHOLE(OUTPUT, y + AT(j)); \
    total += TERM(g##j, y##j);            \
  }
  EACH_HELD(READ_BOTH)
  const ST sum = row_sum(sum_lanes(total));
#define WRITE_GRAD(j) \
  if (HAS(j)) STORE_WHOLE(GIN, o + AT(j), RESULT(g##j, y##j, sum));
  EACH_HELD(WRITE_GRAD)
}
#endif
