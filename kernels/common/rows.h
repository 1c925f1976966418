// Shared by kernels that reduce over rows. One source serves both device classes: a row belongs to one work-item with
// vectors of 16 or 4 (LS=1), or to a work-group of LS work-items (LS=128, VEC=1).
// -D: ACC (compute tag), VEC, LS; LONG_ROWS for sums of many elements.
#ifndef NETCL_ROWS_H
#define NETCL_ROWS_H
#include "common/few.h"
#include "common/join_group.h"
#include "common/join_lanes.h"
#include "common/vector.h"
#include "common/wide.h"

#if LS == 1
#define LID 0L
#else
#define LID ((long)get_local_id(0))
#endif

// Loops over the vectors of [0, n) that belong to this work-item, always in the same order; the last one may be
// partial.
#define FOR_ROW(i, n) for (long i = LID * VEC; i < (n); i += LS * VEC)
#define LANES(i, n) ((int)min((long)VEC, (n) - (i)))

// The same with a macro STEP(place, lanes); whole vectors have their own loop.
#define EACH_OF_ROW(STEP, n)                           \
  {                                                    \
    long i = LID * VEC;                                \
    for (; i + VEC <= (n); i += LS * VEC) STEP(i, VEC) \
    if (VEC > 1 && i < (n)) STEP(i, (int)((n) - i))    \
  }

// As EACH_OF_ROW, for sums. SUMS(s) declares a sum s, and TOTAL(s) is this work-item's total. With LONG_ROWS, FOLD(s)
// adds the sum of each block of steps to the total, so that rounding errors grow with the root of the block's length,
// not of the row's.
#define BLOCK_STEPS 512
#define ROW_BLOCK ((long)(LS * VEC * BLOCK_STEPS))
#ifdef LONG_ROWS
#define SUMS(a) VT a = (VT)(0), a##_all = (VT)(0);
#define TOTAL(a) a##_all
#define FOLD(a) \
  a##_all += a; \
  a = (VT)(0);
#define SUM_OF_ROW(STEP, FOLDS, n)                        \
  for (long from_ = 0; from_ < (n); from_ += ROW_BLOCK) { \
    const long to_ = min(from_ + ROW_BLOCK, (long)(n));   \
    long i = from_ + LID * VEC;                           \
    for (; i + VEC <= to_; i += LS * VEC) STEP(i, VEC)    \
    if (VEC > 1 && i < to_) STEP(i, (int)(to_ - i))       \
    FOLDS                                                 \
  }
#else
#define SUMS(a) VT a = (VT)(0);
#define TOTAL(a) a
#define SUM_OF_ROW(STEP, FOLDS, n) EACH_OF_ROW(STEP, n)
#endif

// Prefetches what lies n elements after place i, but at least 4096 and at most 8192 elements ahead: the next row,
// unless rows are very short or long. It arrives while this row is computed.
#define FETCH_AHEAD(p, i, n)                                     \
  for (ulong line_ = 0; line_ < VEC * sizeof(*(p)); line_ += 64) \
  FETCH_LINE((ulong)((p) + (i) + clamp((long)(n), 4096L, 8192L)) + line_)

// The same for `runs` runs of `len` adjacent elements: r is the run, k the position in it. The work-items of a GPU's
// work-group divide the elements of all runs among themselves.
#if LS == 1
#define FOR_RUNS(r, k, runs, len)   \
  for (long r = 0; r < (runs); r++) \
    for (long k = 0; k < (len); k += VEC)
#else
#define FOR_RUNS(r, k, runs, len)                             \
  for (long flat_ = LID; flat_ < (runs) * (len); flat_ += LS) \
    for (long r = flat_ / (len), k = flat_ - r * (len), once_ = 1; once_; once_ = 0)
#endif
// Sums over runs that lie `stride` apart, and over n rows of the columns of this work-item. STEP takes (place, lanes),
// or the row.
#if !defined(LONG_ROWS)
#define SUM_OF_RUNS(STEP, FOLDS, runs, len, stride) FOR_RUNS(r_, k_, runs, len) STEP(r_*(stride) + k_, LANES(k_, len))
#define SUM_OF_COLUMNS(STEP, FOLDS, n) \
  for (long r = 0; r < (n); r++) STEP(r)
#else
#if LS == 1
#define SUM_OF_RUNS(STEP, FOLDS, runs, len, stride)                    \
  for (long r_ = 0, since_ = 0; r_ < (runs); r_++)                     \
    for (long from_ = 0; from_ < (len); from_ += ROW_BLOCK) {          \
      const long to_ = min(from_ + ROW_BLOCK, (long)(len));            \
      long k_ = from_;                                                 \
      for (; k_ + VEC <= to_; k_ += VEC) STEP(r_ * (stride) + k_, VEC) \
      if (k_ < to_) STEP(r_ * (stride) + k_, (int)(to_ - k_))          \
      since_ += to_ - from_;                                           \
      if (since_ >= ROW_BLOCK || (r_ == (runs) - 1 && to_ == (len))) { \
        FOLDS                                                          \
        since_ = 0;                                                    \
      }                                                                \
    }
#else
#define SUM_OF_RUNS(STEP, FOLDS, runs, len, stride)                  \
  for (long from_ = 0; from_ < (runs) * (len); from_ += ROW_BLOCK) { \
    const long to_ = min(from_ + ROW_BLOCK, (long)((runs) * (len))); \
    for (long flat_ = from_ + LID; flat_ < to_; flat_ += LS) {       \
      const long r_ = flat_ / (len);                                 \
      STEP(r_ * (stride) + flat_ - r_ * (len), 1)                    \
    }                                                                \
    FOLDS                                                            \
  }
#endif
#define SUM_OF_COLUMNS(STEP, FOLDS, n)                      \
  for (long from_ = 0; from_ < (n); from_ += BLOCK_STEPS) { \
    const long to_ = min(from_ + BLOCK_STEPS, (long)(n));   \
    for (long r = from_; r < to_; r++) STEP(r)              \
    FOLDS                                                   \
  }
#endif

#if VEC == 1
#define LOAD_LANES(S, p, i, lanes, fill) LOAD(S, ACC, 1, p, i)
#define STORE_LANES(S, p, i, lanes, x) STORE(S, ACC, 1, p, i, x)
#define STORE_SUMS(p, i, lanes, x) ((p)[i] = (x))
#define DEFINE_LANES(S)
#define KEEP_LANES(x, lanes, fill) (x)
#define LOAD_IN_ROOM(S, p, i, lanes, fill, room) LOAD(S, ACC, 1, p, i)
#define STORE_IN_ROOM(S, p, i, lanes, x, room) STORE(S, ACC, 1, p, i, x)
#else
// Integers as wide as the elements.
#define mask_f32 int
#define mask_f64 long
typedef CAT(CAT(mask_, ACC), CAT(V_, VEC)) lane_mask_t;
// x in the first `lanes` lanes, `fill` in the others.
static inline VT keep_lanes(VT x, int lanes, ST fill) {
  if (lanes == VEC) return x;
  return (lane_mask_t)LANE_NUMBERS(VEC) < (lane_mask_t)(lanes) ? x : (VT)(fill);
}
// LOAD_LANES(S, p, i, lanes, fill) needs one DEFINE_LANES(S) for each storage tag S (the macro's name, not its value).
#define LOAD_LANES(S, p, i, lanes, fill) load_lanes_##S((p) + (i), lanes, fill)
#define STORE_LANES(S, p, i, lanes, x) store_lanes_##S((p) + (i), lanes, x)
// The same if there may be room for a whole vector, whose other lanes are read but do not count, or are written but are
// written again later.
#define LOAD_IN_ROOM(S, p, i, lanes, fill, room) load_in_room_##S((p) + (i), lanes, fill, room)
#define STORE_IN_ROOM(S, p, i, lanes, x, room) store_lanes_##S((p) + (i), (room) ? VEC : (lanes), x)
#define DEFINE_LANES(S)                                                                           \
  static inline VT load_lanes_##S(__global const STORAGE(S)* p, int lanes, ST fill) {             \
    if (lanes == VEC) return LOAD(S, ACC, VEC, p, 0);                                             \
    lanes_t r;                                                                                    \
    r.v = (VT)(fill);                                                                             \
    FOR_FEW(j, 0, lanes, VEC) r.s[j] = LOAD(S, ACC, 1, p, j);                                     \
    return r.v;                                                                                   \
  }                                                                                               \
  static inline VT load_in_room_##S(__global const STORAGE(S)* p, int lanes, ST fill, int room) { \
    if (lanes == VEC || !room) return load_lanes_##S(p, lanes, fill);                             \
    return keep_lanes(LOAD(S, ACC, VEC, p, 0), lanes, fill);                                      \
  }                                                                                               \
  static inline void store_lanes_##S(__global STORAGE(S)* p, int lanes, VT x) {                   \
    if (lanes == VEC) {                                                                           \
      STORE(S, ACC, VEC, p, 0, x);                                                                \
      return;                                                                                     \
    }                                                                                             \
    lanes_t r;                                                                                    \
    r.v = x;                                                                                      \
    FOR_FEW(j, 0, lanes, VEC) STORE(S, ACC, 1, p, j, r.s[j]);                                     \
  }
// Stores sums that the next row adds to, so they stay in the cache even with PAST_CACHE.
#define STORE_SUMS(p, i, lanes, x) store_sums((p) + (i), lanes, x)
static inline void store_sums(__global ST* p, int lanes, VT x) {
  if (lanes == VEC) {
    CAT(vstore, VEC)(x, 0, p);
    return;
  }
  lanes_t r;
  r.v = x;
  FOR_FEW(j, 0, lanes, VEC) p[j] = r.s[j];
}
#define KEEP_LANES(x, lanes, fill) keep_lanes(x, lanes, fill)
#endif

JOIN_LANES(max_lanes, ACC, fmax)

#if LS == 1
#define ROW_SCRATCH
#define row_sum(x) sum_lanes(x)
#define row_max(x) max_lanes(x)
#else
// A kernel that reduces names this once, at its top.
#define ROW_SCRATCH __local ST row_scratch[LS];
#define row_sum(x) group_sum(sum_lanes(x), row_scratch)
#define row_max(x) group_max(max_lanes(x), row_scratch)
GROUP_REDUCE(group_sum, ST, LS, PLUS)
GROUP_REDUCE(group_max, ST, LS, fmax)
#endif

#endif
