// Shared by kernels that reduce over rows. One source serves both device classes: a row belongs to one work-item with
// vectors of 16 or 4 (GROUP=1), or to a work-group of GROUP work-items (GROUP=128, VEC=1).
// -D: ACC (compute tag), VEC, GROUP; for rows that a walk visits, TAIL (1 if they end with a part of a vector, else 0),
// and LONG_ROWS for sums of many elements.
#include "common/few.h"
#include "common/join_group.h"
#include "common/join_lanes.h"
#include "common/vector.h"
#include "common/wide.h"

#if GROUP == 1
#define LID 0L
#else
#define LID ((long)get_local_id(0))
#endif

// Loops over the vectors of [0, n) that belong to this work-item, always in the same order; the last one may be
// partial.
#define FOR_ROW(i, n) for (long i = LID * VEC; i < (n); i += GROUP * VEC)
#define LANES(i, n) (VEC == 1 ? 1 : (int)min((long)VEC, (n) - (i)))

// The same with a macro STEP(place), for which `lanes` is the vector's part of the row; whole vectors have their own
// loop.
#define VECTORS_OF_ROW(STEP, place, from, n)     \
  {                                              \
    long i_ = (from) + LID * VEC;                \
    for (; i_ + VEC <= (n); i_ += GROUP * VEC) { \
      const int lanes = VEC;                     \
      STEP((place) + i_)                         \
    }                                            \
    if (TAIL && i_ < (n)) {                      \
      const int lanes = (int)((n) - i_);         \
      STEP((place) + i_)                         \
    }                                            \
  }
#define EACH_OF_ROW(STEP, n) VECTORS_OF_ROW(STEP, 0, 0, n)

// As EACH_OF_ROW, for sums. SUMS(s) declares a sum s, and TOTAL(s) is this work-item's total. With LONG_ROWS, FOLD(s)
// adds the sum of each block of steps to the total, so that rounding errors grow with the root of the block's length,
// not of the row's.
#define BLOCK_STEPS 512
#define ROW_BLOCK ((long)(GROUP * VEC * BLOCK_STEPS))
#ifdef LONG_ROWS
#define SUMS(a) VT a = (VT)(0), a##_all = (VT)(0)
#define TOTAL(a) a##_all
#define FOLD(a) \
  a##_all += a; \
  a = (VT)(0);
#define SUM_OF_ROW(STEP, FOLDS, n)                                    \
  for (long from_ = 0; from_ < (n); from_ += ROW_BLOCK) {             \
    VECTORS_OF_ROW(STEP, 0, from_, min(from_ + ROW_BLOCK, (long)(n))) \
    FOLDS                                                             \
  }
#else
#define SUMS(a) VT a = (VT)(0)
#define TOTAL(a) a
#define FOLD(a)
#define SUM_OF_ROW(STEP, FOLDS, n) EACH_OF_ROW(STEP, n)
#endif

// Prefetches what lies n elements after place i, but at least 4096 and at most 8192 elements ahead: the next row,
// unless rows are very short or long. It arrives while this row is computed.
#define FETCH_AHEAD(p, i, n)                                     \
  for (ulong line_ = 0; line_ < VEC * sizeof(*(p)); line_ += 64) \
  FETCH_LINE((ulong)((p) + (i) + clamp((long)(n), 4096L, 8192L)) + line_)

// Loops over `runs` runs of `len` adjacent elements: r is the run, k the position in it. The work-items of a GPU's
// work-group divide the elements of all runs among themselves. EACH_OF_RUNS and SUM_OF_RUNS are as EACH_OF_ROW and
// SUM_OF_ROW, for the elements [from, to) of runs that lie `stride` apart; a CPU begins at 0.
#if GROUP == 1
#define FOR_RUNS(r, k, runs, len)   \
  for (long r = 0; r < (runs); r++) \
    for (long k = 0; k < (len); k += VEC)
#define EACH_OF_RUNS(STEP, from, to, len, stride) \
  for (long r_ = 0; r_ * (len) < (to); r_++) VECTORS_OF_ROW(STEP, r_*(stride), 0, len)
#define SUM_OF_RUNS(STEP, FOLDS, from, to, len, stride)                        \
  for (long r_ = 0, since_ = 0; r_ * (len) < (to); r_++)                       \
    for (long from_ = 0; from_ < (len); from_ += ROW_BLOCK) {                  \
      const long to_ = min(from_ + ROW_BLOCK, (long)(len));                    \
      VECTORS_OF_ROW(STEP, r_ * (stride), from_, to_)                          \
      since_ += to_ - from_;                                                   \
      if (since_ >= ROW_BLOCK || ((r_ + 1) * (len) == (to) && to_ == (len))) { \
        FOLDS                                                                  \
        since_ = 0;                                                            \
      }                                                                        \
    }
#else
#define FOR_RUNS(r, k, runs, len)                                \
  for (long flat_ = LID; flat_ < (runs) * (len); flat_ += GROUP) \
    for (long r = flat_ / (len), k = flat_ - r * (len), once_ = 1; once_; once_ = 0)
// The run and the place in it advance by GROUP elements without a division.
#define EACH_OF_RUNS(STEP, from, to, len, stride)                                    \
  {                                                                                  \
    const long runs_ = GROUP / (len), rest_ = GROUP - runs_ * (len);                 \
    long r_ = ((from) + LID) / (len), k_ = (from) + LID - r_ * (len);                \
    for (long i_ = (from) + LID; i_ < (to); i_ += GROUP, r_ += runs_, k_ += rest_) { \
      if (k_ >= (len)) {                                                             \
        k_ -= (len);                                                                 \
        r_++;                                                                        \
      }                                                                              \
      const int lanes = 1;                                                           \
      STEP(r_ * (stride) + k_)                                                       \
    }                                                                                \
  }
#define SUM_OF_RUNS(STEP, FOLDS, from, to, len, stride)                    \
  for (long at_ = (from); at_ < (to); at_ += ROW_BLOCK) {                  \
    EACH_OF_RUNS(STEP, at_, min(at_ + ROW_BLOCK, (long)(to)), len, stride) \
    FOLDS                                                                  \
  }
#endif
// Sums over n rows of the columns of this work-item: STEP takes the row.
#define SUM_OF_COLUMNS(STEP, FOLDS, n)                      \
  for (long from_ = 0; from_ < (n); from_ += BLOCK_STEPS) { \
    const long to_ = min(from_ + BLOCK_STEPS, (long)(n));   \
    for (long i = from_; i < to_; i++) STEP(i)              \
    FOLDS                                                   \
  }

// Integers as wide as the elements.
#define mask_f32 int
#define mask_f64 long
#define mask_c64 int
#define mask_c128 int
typedef CAT(CAT(mask_, ACC), CAT(V_, VEC)) lane_mask_t;
// x in the first `lanes` lanes, `fill` in the others.
static inline VT keep_lanes(VT x, int lanes, ST fill) {
  if (lanes == VEC) return x;
  return (lane_mask_t)LANE_NUMBERS(VEC) < (lane_mask_t)(lanes) ? x : (VT)(fill);
}
// Each storage tag S (the macro's name, not its value) needs one DEFINE_LANES(S).
#define LOAD_LANES(S, p, i, lanes, fill) load_lanes_##S((p) + (i), lanes, fill)
#define STORE_LANES(S, p, i, lanes, x) store_lanes_##S((p) + (i), lanes, x)
#define DEFINE_LANES(S)                                                               \
  static inline VT load_lanes_##S(__global const STORAGE(S)* p, int lanes, ST fill) { \
    if (lanes == VEC) return LOAD(S, ACC, VEC, p, 0);                                 \
    lanes_t r;                                                                        \
    r.v = (VT)(fill);                                                                 \
    FOR_FEW(j, 0, lanes, VEC) r.s[j] = LOAD(S, ACC, 1, p, j);                         \
    return r.v;                                                                       \
  }                                                                                   \
  static inline void store_lanes_##S(__global STORAGE(S)* p, int lanes, VT x) {       \
    if (lanes == VEC) {                                                               \
      STORE(S, ACC, VEC, p, 0, x);                                                    \
      return;                                                                         \
    }                                                                                 \
    lanes_t r;                                                                        \
    r.v = x;                                                                          \
    FOR_FEW(j, 0, lanes, VEC) STORE(S, ACC, 1, p, j, r.s[j]);                         \
  }
// Stores sums that the next row adds to, so they stay in the cache even with PAST_CACHE.
#if VEC == 1
#define STORE_ALL(x, p) (*(p) = (x))
#else
#define STORE_ALL(x, p) CAT(vstore, VEC)(x, 0, p)
#endif
static inline void store_sums(__global ST* p, int lanes, VT x) {
  if (lanes == VEC) {
    STORE_ALL(x, p);
    return;
  }
  lanes_t r;
  r.v = x;
  FOR_FEW(j, 0, lanes, VEC) p[j] = r.s[j];
}

JOIN_LANES(max_lanes, ACC, fmax)

#if GROUP == 1
#define ROW_SCRATCH
#define row_sum(x) sum_lanes(x)
#define row_max(x) max_lanes(x)
#else
// A kernel that reduces names this once, at its top.
#define ROW_SCRATCH __local ST row_scratch[GROUP];
#define row_sum(x) group_sum(sum_lanes(x), row_scratch)
#define row_max(x) group_max(max_lanes(x), row_scratch)
GROUP_REDUCE(group_sum, ST, GROUP, PLUS)
GROUP_REDUCE(group_max, ST, GROUP, fmax)
#endif
