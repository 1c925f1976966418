// Rows of dense operands on a CPU: run_rows() for the kernel `rows` of pointwise_body.h. Rows may be short, so that
// their ends matter.
#include "common/pointwise.h"

// In `rows`, an input that is a number or one value in a row is read once a row.
#define READ_PART(S, V, p, j) AS_COMMON(V, LOAD(S, ACC, V, (__global const STORAGE(S)*)(p), j))
#define WRITE_PART(S, V, p, j, v) STORE(S, ACC, V, (__global STORAGE(S)*)(p), j, v)
#define IN_ONCE(k) (L.inner[NOUT + k] <= 0)
#define IN_SAME(k)                                              \
  const VT same##k = !IN_ONCE(k)    ? (VT)(0)                   \
                     : IS_NUMBER(k) ? IMMEDIATE(L.immediate[k]) \
                                    : (VT)(READ_PART(IN##k, 1, i##k, 0));

#if DENSE == SHORT_ROWS
// A row of less than a vector is two parts of 8 or 4 elements, of which the second may repeat some of the first, or up
// to three single elements. All are read before any is written, since an output may be an input too.
#if VEC == 16
#define TWICE(a) (VT)(a, a)
#define HALF_OF(v) (v).lo
#define READ_HALVES(S, p) \
  if (n >= 8) return (VT)(READ_PART(S, 8, p, 0), READ_PART(S, 8, p, n - 8));
#define WRITE_HALVES(S, p, v)         \
  if (n >= 8) {                       \
    WRITE_PART(S, 8, p, 0, v.lo);     \
    WRITE_PART(S, 8, p, n - 8, v.hi); \
    return;                           \
  }
#else
#define TWICE(a) (a)
#define HALF_OF(v) (v)
#define READ_HALVES(S, p)
#define WRITE_HALVES(S, p, v)
#endif
#define DEFINE_READ_SHORT(k)                                                                             \
  static inline VT read_short##k(__global const uchar* p, long n) {                                      \
    READ_HALVES(IN##k, p)                                                                                \
    if (n >= 4) return TWICE((VTYPE(ACC, 8))(READ_PART(IN##k, 4, p, 0), READ_PART(IN##k, 4, p, n - 4))); \
    const ST a = READ_PART(IN##k, 1, p, 0), b = READ_PART(IN##k, 1, p, n / 2);                           \
    const ST c = READ_PART(IN##k, 1, p, n - 1);                                                          \
    return TWICE((VTYPE(ACC, 8))(a, b, c, c, c, c, c, c));                                               \
  }
#define DEFINE_WRITE_SHORT(k)                                          \
  static inline void write_short##k(__global uchar* p, long n, VT v) { \
    WRITE_HALVES(OUT##k, p, v)                                         \
    if (n >= 4) {                                                      \
      WRITE_PART(OUT##k, 4, p, 0, HALF_OF(v).lo);                      \
      WRITE_PART(OUT##k, 4, p, n - 4, HALF_OF(v).hi);                  \
      return;                                                          \
    }                                                                  \
    WRITE_PART(OUT##k, 1, p, 0, v.s0);                                 \
    WRITE_PART(OUT##k, 1, p, n / 2, v.s1);                             \
    WRITE_PART(OUT##k, 1, p, n - 1, v.s2);                             \
  }
EACH_IN(DEFINE_READ_SHORT)
EACH_OUT(DEFINE_WRITE_SHORT)
#define IN_READ_SHORT(k) const VT x##k = IN_ONCE(k) ? same##k : read_short##k(i##k, n);
#define OUT_WRITE_SHORT(k) write_short##k(o##k, n, r##k);
#define ROW                   \
  {                           \
    const long at = 0;        \
    DECLARE_INDEX             \
    EACH_IN(IN_READ_SHORT)    \
    DECLARE_R1                \
    const VT r0 = RESULT;     \
    EACH_OUT(OUT_WRITE_SHORT) \
  }
#else
// The last vector of a row begins earlier if it would not be whole, and repeats some elements. Its inputs are read
// before anything is written, since an output may be an input too.
#define IN_LAST(k) const VT last##k = whole || IN_ONCE(k) ? same##k : READ_PART(IN##k, VEC, i##k, n - VEC);
#define IN_READ_ROW(k)                                                                  \
  const VT x##k = IN_ONCE(k)      ? IN_REPEATED(k)                                      \
                  : at + VEC <= n ? READ_VEC(IN##k, i##k + at * sizeof(STORAGE(IN##k))) \
                                  : last##k;
#define OUT_WRITE_ROW(k) WRITE_PART(OUT##k, VEC, o##k, min(at, n - VEC), r##k);
#define ROW                              \
  EACH_IN(IN_LAST)                       \
  BEGIN_PERIODS                          \
  for (long at = 0; at < n; at += VEC) { \
    DECLARE_INDEX                        \
    EACH_IN(IN_READ_ROW)                 \
    DECLARE_R1                           \
    const VT r0 = RESULT;                \
    EACH_OUT(OUT_WRITE_ROW)              \
    NEXT_PHASE                           \
  }
#if DENSE == PERIODIC
// An input whose values repeat every L.period elements of a row lies in a table, from which any place of the period
// gives a whole vector.
#define TABLE_LENGTH (kMaxPointwisePeriod + VEC)
#define FILL_TABLE(k)                                                                         \
  ST table##k[TABLE_LENGTH];                                                                  \
  if (L.inner[NOUT + k] == kStridePeriodic) {                                                 \
    NO_UNROLL for (long j = 0; j < L.period; j++) table##k[j] = READ_PART(IN##k, 1, i##k, j); \
    NO_UNROLL for (long j = 0; j < VEC; j++) table##k[L.period + j] = table##k[j];            \
  }
#define BEGIN_PERIODS                                                    \
  EACH_IN(FILL_TABLE)                                                    \
  const long step = VEC % L.period, last_phase = (end - VEC) % L.period; \
  long phase = begin % L.period;
#define IN_REPEATED(k) \
  L.inner[NOUT + k] == kStridePeriodic ? CAT(vload, VEC)(0, table##k + (at + VEC <= n ? phase : last_phase)) : same##k
#define NEXT_PHASE \
  phase += step;   \
  if (phase >= L.period) phase -= L.period;
#else
#define BEGIN_PERIODS
#define IN_REPEATED(k) same##k
#define NEXT_PHASE
#endif
#endif

// The elements from `begin` to `end` of `height` rows of the first outer dimension: at least a vector, but for
// short ones.
#define IN_STEP(k) const long step_i##k = O->stride[0][NOUT + k];
#define OUT_STEP(k) const long step_o##k = O->stride[0][k];
#define IN_BEGIN(k) \
  if (!IN_ONCE(k)) i##k += begin * sizeof(STORAGE(IN##k));
#define OUT_BEGIN(k) o##k += begin * sizeof(STORAGE(OUT##k));
#define IN_NEXT(k) i##k += step_i##k;
#define OUT_NEXT(k) o##k += step_o##k;
static inline void run_rows(BUF_PARAMS const PointwiseParams L, const PointwiseOuter* O, long begin, long end,
                            long height SCALARS) {
  EACH_SCALAR(SPLAT)
  EACH_IN(IN_STEP)
  EACH_OUT(OUT_STEP)
  EACH_IN(IN_BEGIN)
  EACH_OUT(OUT_BEGIN)
  const long n = end - begin;
  const bool whole = n % VEC == 0;
  for (; height > 0; height--) {
    EACH_IN(IN_SAME)
    ROW
    EACH_IN(IN_NEXT)
    EACH_OUT(OUT_NEXT)
  }
}
