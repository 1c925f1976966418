// A row operator is written once, as its steps. The host chooses how the rows are visited:
//   rows     A row's elements are adjacent. A work-item (CPU) or a work-group (GPU) takes it (rows.h).
//   columns  -D COLS: each lane has a row, whose elements lie apart.
//   runs     -D RUNS: as rows, but a row's elements lie in runs that are apart.
//   held     -D HELD: work-items of a GPU keep a short row in registers (short_rows.h).
//   tiles    the same on a CPU, which transposes short rows, so that each lane has one (row_tiles.h).
// WALK(W) { … } visits the rows of a RowWalk. Within it, `n` is a row's length, and
//   OPERAND(S, x, in)     declares x, the row of an input of storage tag S (the macro's name, not its value)
//   RESULT(S, y, out, x)  declares y, the row of an output, which may take the place of x; STORED(S, y, out) ends it
//   EACH(STEP)            is STEP(j) for each vector j of the row; EACH_SUM(STEP, FOLDS) is the same for sums (rows.h)
//   X(S, x, j)            is that vector of x; it holds anything in lanes beyond the row
//   COUNTED(j, v, fill)   is v, with `fill` in lanes beyond the row
//   PUT(S, y, j, v)       stores v
//   KEEP(x, j, v)         keeps v in place of x's vector if the walk holds x; KEPT(x, j, again) is v, or `again`
//   SHARED(S, w, j)       is the same vector of w, which all rows share
//   AHEAD(x, j)           fetches what will be read after the row
//   VALUE(S, p, i, other) is number i of p, which has one per row, or `other` if p is null
//   PUT_VALUE(S, p, i, v) stores v as that number
//   row_t                 is the type of a number per row, such as ROW_SUM(v) and ROW_MAX(v) of all lanes of vectors v
// Each storage tag needs a DEFINE_LANES(S). A kernel has the attribute WALK_GROUP_SIZE, and STORES_DONE() at its end.
#if defined(HELD) && defined(DEVICE_GPU)
#define WORK_GROUPS
#endif
// What several walks need comes first: a header is expanded where it is first included, even if an #if leaves it out.
#include "args/rows.h"
#include "common/join_group.h"
#include "common/join_lanes.h"
#include "common/vector.h"
#include "common/wide.h"

#if defined(HELD) && defined(DEVICE_GPU)
#include "common/short_rows.h"
#elif defined(HELD)
#include "common/row_tiles.h"
#else
#include "common/rows.h"

#define SHARE ((long)get_global_id(1))
#if defined(COLS)
#define WALK(W)                                                                    \
  const long row = (long)get_global_id(0) * VEC, inner = (W).inner, room = 0;      \
  const long share_ = SHARE * (W).rows_per, n = min((W).rows_per, (W).n - share_); \
  if (row >= inner || n <= 0) return;                                              \
  const int lanes = TAIL ? LANES(row, inner) : VEC;
#define ROW_START (share_ * inner + row)
#define PLACE(j) ((j) * inner)
#define EACH(STEP) \
  for (long i = 0; i < n; i++) STEP(i)
#define EACH_SUM(STEP, FOLDS) SUM_OF_COLUMNS(STEP, FOLDS, n)
#elif defined(RUNS)
#define WALK(W)                                                                         \
  ROW_SCRATCH                                                                           \
  const long row = get_group_id(0), run = (W).inner, stride = (W).rows * run, room = 0; \
  const long from = SHARE * (W).rows_per, to = min(from + (W).rows_per, (W).n), n = to - from;
#define ROW_START (row * run)
#define PLACE(j) (j)
#define EACH(STEP) EACH_OF_RUNS(STEP, from, to, run, stride)
#define EACH_SUM(STEP, FOLDS) SUM_OF_RUNS(STEP, FOLDS, from, to, run, stride)
#else
// If the last vector has room, it may overrun into the next row, which this work-item then rewrites.
#define WALK(W)                                                        \
  ROW_SCRATCH                                                          \
  const long n = (W).n, first_ = (long)get_group_id(0) * (W).rows_per; \
  const long last_ = min(first_ + (W).rows_per, (W).rows);             \
  for (long row = first_, room = n >= VEC && row + 1 < last_; row < last_; row++, room &= row + 1 < last_)
#define ROW_START (row * n)
#define PLACE(j) (j)
#define EACH(STEP) EACH_OF_ROW(STEP, n)
#define EACH_SUM(STEP, FOLDS) SUM_OF_ROW(STEP, FOLDS, n)
#define AHEAD(x, j) FETCH_AHEAD(x, j, n)
#endif

#if defined(COLS)
typedef VT row_t;
#define ROW_SUM(v) (v)
#define ROW_MAX(v) (v)
#define COUNTED(j, v, fill) (v)
#define VALUE(S, p, i, absent) (p##_buf ? load_lanes_##S(PTR(p, const STORAGE(S)) + (i), lanes, absent) : (VT)(absent))
#define PUT_VALUE(S, p, i, v) \
  if (p##_buf) store_lanes_##S(PTR(p, STORAGE(S)) + (i), lanes, v)
#else
typedef ST row_t;
#define ROW_SUM(v) row_sum(v)
#define ROW_MAX(v) row_max(v)
#define COUNTED(j, v, fill) keep_lanes(v, lanes, fill)
#define VALUE(S, p, i, absent) PARAM(S, p, i, absent)
#define PUT_VALUE(S, p, i, v) \
  if (LID == 0) PUT_PARAM(S, p, i, v)
#endif
#ifndef AHEAD
#define AHEAD(x, j)
#endif
#define WALK_GROUP_SIZE
#define OPERAND(S, x, in) __global const STORAGE(S)* x = PTR(in, const STORAGE(S)) + ROW_START
#define RESULT(S, y, out, x) __global STORAGE(S)* y = PTR(out, STORAGE(S)) + ROW_START
#define STORED(S, y, out)
// With room behind the row, the last vector is read whole.
#define X(S, x, j)                                                                  \
  (lanes < VEC && room ? keep_lanes(LOAD(S, ACC, VEC, (x) + PLACE(j), 0), lanes, 0) \
                       : load_lanes_##S((x) + PLACE(j), lanes, 0))
#define PUT(S, y, j, v) store_lanes_##S((y) + PLACE(j), room ? VEC : lanes, v)
#define SHARED(S, w, j) load_lanes_##S((w) + (j), lanes, 0)
#define KEEP(x, j, v)
#define KEPT(x, j, again) (again)
#endif

#ifndef FOLD
#define SUMS(a) VT a = (VT)(0)
#define TOTAL(a) a
#define EACH_SUM(STEP, FOLDS) EACH(STEP)
#endif
