// The kernels behind every element-wise operator; see pointwise.h. `flat` serves operands that collapse to one
// dimension, `rows` the others; there a work-item covers n_per_item columns of rows_per_item rows. `across` is `rows`
// for an input whose neighbours lie in a column. An operand's inner stride (bytes) decides how it is read: the element
// size (one vector load), 0 (splat), any other (lane by lane), or kStrideImmediate (a CPU scalar passed by value).
// On a CPU a program is for dense operands (DENSE) or for all others: one for both would take twice as long to compile.
// `rows` of dense operands has programs of its own for rows shorter than a vector and for periodic inputs.
#ifndef NETCL_COMPILED  // generated kernels use only the operators
#define SHORT_ROWS 2
#define PERIODIC 3
#define NARGS (NIN + NOUT)
#include "args/pointwise.h"

#if defined(ACC_COMPLEX) && defined(ACC_DOUBLE)
#define IMMEDIATE(u) ((VT)(as_double((u)[0]), as_double((u)[1])))
#elif defined(ACC_COMPLEX)
#define IMMEDIATE(u) ((VT)(as_float((uint)(u)[0]), as_float((uint)(u)[1])))
#elif defined(ACC_DOUBLE)
#define IMMEDIATE(u) ((VT)(as_double((u)[0])))
#elif defined(ACC_FLOATING)
#define IMMEDIATE(u) ((VT)(as_float((uint)(u)[0])))
#else
#define IMMEDIATE(u) ((VT)((ST)(u)[0]))
#endif

// Reads one element, VEC elements, or `lanes` of them, as the common dtype.
#ifdef CAST_INPUTS
#define AS_COMMON(V, x) ROUND(COMMON, ACC, V, x)
#else
#define AS_COMMON(V, x) (x)
#endif
// The result, rounded to the common dtype if an output is wider than that.
#ifdef ROUND_RESULT
#define RESULT CAT(result_, COMMON)(APPLY)
#define result_f16(r) ROUND(f16, ACC, VEC, r)
#define result_bf16(r) ROUND(bf16, ACC, VEC, r)
#define result_c32(r) ROUND(c32, ACC, VEC, r)
#define result_bool(r) AS_BOOL((r) != (VT)0)
#else
#define RESULT APPLY
#endif
#define READ1(S, p) AS_COMMON(1, LOAD(S, ACC, 1, (__global const STORAGE(S)*)(p), 0))
#define READ_VEC(S, p) AS_COMMON(VEC, LOAD(S, ACC, VEC, (__global const STORAGE(S)*)(p), 0))
#define DEFINE_READ(k)                                                                   \
  static inline VT read##k(__global const uchar* p, long stride, int lanes, VT imm) {    \
    if (stride == kStrideImmediate) return imm;                                          \
    if (stride == sizeof(STORAGE(IN##k)) && lanes == VEC) return READ_VEC(IN##k, p);     \
    if (stride == 0) return (VT)(READ1(IN##k, p));                                       \
    lanes_t r;                                                                           \
    for (int j = 0; j < VEC; j++) r.s[j] = READ1(IN##k, p + stride * min(j, lanes - 1)); \
    return r.v;                                                                          \
  }
#define DEFINE_WRITE(k)                                                                                      \
  static inline void write##k(__global uchar* p, long stride, int lanes, VT v) {                             \
    if (stride == sizeof(STORAGE(OUT##k)) && lanes == VEC) {                                                 \
      STORE(OUT##k, ACC, VEC, (__global STORAGE(OUT##k)*)p, 0, v);                                           \
      return;                                                                                                \
    }                                                                                                        \
    lanes_t r;                                                                                               \
    r.v = v;                                                                                                 \
    FOR_FEW(j, 0, lanes, VEC) STORE(OUT##k, ACC, 1, (__global STORAGE(OUT##k)*)(p + stride * j), 0, r.s[j]); \
  }

// M(0) M(1) … for the inputs, the outputs and the operator's scalars. Each input is a variable, so an expression may
// use it twice.
#define EACH_OF_0(M)
#define EACH_OF_1(M) M(0)
#define EACH_OF_2(M) EACH_OF_1(M) M(1)
#define EACH_OF_3(M) EACH_OF_2(M) M(2)
#define EACH_OF_4(M) EACH_OF_3(M) M(3)
#define EACH_OF_5(M) EACH_OF_4(M) M(4)
#define EACH_OF_6(M) EACH_OF_5(M) M(5)
#define EACH_IN(M) CAT(EACH_OF_, NIN)(M)
#define EACH_OUT(M) CAT(EACH_OF_, NOUT)(M)
#define EACH_SCALAR(M) CAT(EACH_OF_, NSCALARS)(M)
#define APPLY CAT(APPLY_, NIN)()
#define APPLY_0() OP()
#define APPLY_1() OP(x0)
#define APPLY_2() OP(x0, x1)
#define APPLY_3() OP(x0, x1, x2)
#define APPLY_4() OP(x0, x1, x2, x3)
#define APPLY_5() OP(x0, x1, x2, x3, x4)
#define APPLY_6() OP(x0, x1, x2, x3, x4, x5)
#if NOUT == 1
#define DECLARE_R1
#else
#define DECLARE_R1 VT r1;
#endif

#ifndef DENSE
EACH_IN(DEFINE_READ)
EACH_OUT(DEFINE_WRITE)
#endif

// The arguments of a kernel, and of `run` for everything or for one row.
#define IN_BUF(k) BUF(i##k),
#define OUT_BUF(k) BUF(o##k),
#define IN_ARG(k) i##k##_buf + i##k##_off,
#define OUT_ARG(k) o##k##_buf + o##k##_off,
#define IN_ROW(k) i##k##_buf + i##k##_off + place.off[NOUT + k],
#define OUT_ROW(k) o##k##_buf + o##k##_off + place.off[k],
#define IN_PARAM(k) __global const uchar *i##k,
#define OUT_PARAM(k) __global uchar *o##k,
#define SCALAR_PARAM(k) , const ST s##k##_arg
#define SCALAR_ARG(k) , s##k##_arg
#define BUFS EACH_OUT(OUT_BUF) EACH_IN(IN_BUF)
#define BUF_ARGS EACH_OUT(OUT_ARG) EACH_IN(IN_ARG)
#define ROW_ARGS EACH_OUT(OUT_ROW) EACH_IN(IN_ROW)
#define BUF_PARAMS EACH_OUT(OUT_PARAM) EACH_IN(IN_PARAM)
#define SCALARS EACH_SCALAR(SCALAR_PARAM)
#define SCALAR_ARGS EACH_SCALAR(SCALAR_ARG)
#define SPLAT(k) const VT s##k = (VT)(s##k##_arg);

#define IN_READ(k) \
  const VT x##k = read##k(i##k + at * L.inner[NOUT + k], L.inner[NOUT + k], lanes, IMMEDIATE(L.immediate[k]));
#define OUT_WRITE(k) write##k(o##k + at * L.inner[k], L.inner[k], lanes, r##k);

#if NIN == 0  // `index` is the position in a flat range, for arange and similar operators
#define DECLARE_INDEX                                     \
  lanes_t ramp;                                           \
  for (int k = 0; k < VEC; k++) ramp.s[k] = (ST)(at + k); \
  const VT index = ramp.v;
#else
#define DECLARE_INDEX
#endif

#ifdef DENSE
// All operands are dense, or (the last one) a number by value. Of the vector at the end, the lanes are read and written
// one by one, by loops that are not unrolled, since they run once.
#define IS_NUMBER(k) (NIN > 1 && k == NIN - 1 && L.inner[NOUT + k] == kStrideImmediate)
#define IN_READ_DENSE(k) \
  const VT x##k = IS_NUMBER(k) ? IMMEDIATE(L.immediate[k]) : READ_VEC(IN##k, i##k + at * sizeof(STORAGE(IN##k)));
#define OUT_WRITE_DENSE(k) STORE(OUT##k, ACC, VEC, (__global STORAGE(OUT##k)*)o##k, at, r##k);
#define IN_READ_LAST(k)                                                     \
  lanes_t last##k;                                                          \
  last##k.v = IMMEDIATE(L.immediate[k]);                                    \
  if (!IS_NUMBER(k)) {                                                      \
    NO_UNROLL for (int j = 0; j < VEC; j++) last##k.s[j] =                  \
        READ1(IN##k, i##k + min(at + j, end - 1) * sizeof(STORAGE(IN##k))); \
  }                                                                         \
  const VT x##k = last##k.v;
#define OUT_WRITE_LAST(k)                                                          \
  {                                                                                \
    lanes_t last;                                                                  \
    last.v = r##k;                                                                 \
    NO_UNROLL for (int j = 0; j < (int)(end - at); j++)                            \
        STORE(OUT##k, ACC, 1, (__global STORAGE(OUT##k)*)o##k, at + j, last.s[j]); \
  }

static inline void run(BUF_PARAMS const PointwiseParams L, long begin, long end SCALARS) {
  EACH_SCALAR(SPLAT)
  long at = begin;
  for (; at + VEC <= end; at += VEC) {
    DECLARE_INDEX
    EACH_IN(IN_READ_DENSE)
    DECLARE_R1
    const VT r0 = RESULT;
    EACH_OUT(OUT_WRITE_DENSE)
  }
  if (at < end) {
    DECLARE_INDEX
    EACH_IN(IN_READ_LAST)
    DECLARE_R1
    const VT r0 = RESULT;
    EACH_OUT(OUT_WRITE_LAST)
  }
}

#include "common/pointwise_rows.h"
#else
static inline void run(BUF_PARAMS const PointwiseParams L, long begin, long end SCALARS) {
  EACH_SCALAR(SPLAT)
  for (long at = begin; at < end; at += VEC) {
    const int lanes = (int)min((long)VEC, end - at);
    DECLARE_INDEX
    EACH_IN(IN_READ)
    DECLARE_R1
    const VT r0 = RESULT;
    EACH_OUT(OUT_WRITE)
  }
}
#define RUN_ROW(begin) run(ROW_ARGS L, begin, end SCALAR_ARGS)
#endif

// The position of a row along the outer dimensions, and the offsets of its operands in bytes.
typedef struct {
  long at[kMaxPointwiseOuter], off[NARGS];
} place_t;

static inline place_t place_of(const PointwiseOuter* O, long ndim, long row) {
  place_t p;
  for (int k = 0; k < NARGS; k++) p.off[k] = 0;
  FOR_FEW(d, 0, ndim, kMaxPointwiseOuter) {
    const long q = d + 1 < ndim ? row / O->size[d] : 0;
    p.at[d] = row - q * O->size[d];
    for (int k = 0; k < NARGS; k++) p.off[k] += p.at[d] * O->stride[d][k];
    row = q;
  }
  return p;
}
#ifdef DEVICE_CPU
// Advances by `rows`, which are no more than the first outer dimension has left. So only the start needs divisions.
static inline void advance(const PointwiseOuter* O, long ndim, long rows, place_t* p) {
  for (int d = 0; d < ndim; d++) {
    const long by = d == 0 ? rows : 1;
    if (p->at[d] + by < O->size[d]) {
      p->at[d] += by;
      for (int k = 0; k < NARGS; k++) p->off[k] += by * O->stride[d][k];
      return;
    }
    for (int k = 0; k < NARGS; k++) p->off[k] -= p->at[d] * O->stride[d][k];
    p->at[d] = 0;
  }
}
#else
// A GPU's work-item takes one row.
#define advance(O, ndim, rows, p)
#endif

__kernel void flat(BUFS const PointwiseParams L SCALARS) {
  const long begin = (long)get_global_id(0) * L.n_per_item;
  run(BUF_ARGS L, begin, min(begin + L.n_per_item, L.n) SCALAR_ARGS);
  STORES_DONE();
}

__kernel void rows(BUFS const PointwiseParams L, const PointwiseOuter O SCALARS) {
  const long begin = (long)get_global_id(0) * L.n_per_item;
  long end = min(begin + L.n_per_item, L.n);
#ifdef DENSE  // Fewer than VEC remaining elements go to the previous work-item.
  if (begin > 0 && L.n - begin < VEC) return;
  if (L.n - end < VEC) end = L.n;
#endif
  const long last = min((long)(get_global_id(1) + 1) * L.rows_per_item, L.rows);
  long row = get_global_id(1) * L.rows_per_item;
#ifdef DENSE
  long height;
  for (place_t place = place_of(&O, L.ndim, row); row < last; row += height) {
    height = L.ndim ? min(last - row, O.size[0] - place.at[0]) : 1;
    run_rows(ROW_ARGS L, &O, begin, end, height SCALAR_ARGS);
    advance(&O, L.ndim, height, &place);
  }
#else
  for (place_t place = place_of(&O, L.ndim, row); row < last; row++) {
    RUN_ROW(begin);
    advance(&O, L.ndim, 1, &place);
  }
#endif
  STORES_DONE();
}

#if VEC == 16 && NIN > 0 && !defined(ACC_COMPLEX) && !defined(DENSE)
#include "common/transpose.h"
// If the columns of an input are dense (rows are the first outer dimension), 16 x 16 elements are read as vectors down
// the columns and transposed in registers. Fewer rows are also read so, unless a vector may end beyond the last column.
// Bytes ahead: processors do not foresee the next lines of 16 columns. Of columns that lie a power of two apart, those
// lines would evict each other.
enum { kTileAhead = 512 };
#define ACROSS(k)                                     \
  (O.stride[0][NOUT + k] == sizeof(STORAGE(IN##k)) && \
   !(L.inner[NOUT + k] == sizeof(STORAGE(IN##k)) || L.inner[NOUT + k] == 0 || L.inner[NOUT + k] == kStrideImmediate))
#define IN_ACROSS(k) const bool across##k = ACROSS(k);
#define IN_FITS(k)      \
  fits &= !across##k || \
          (L.n - at - lanes) * L.inner[NOUT + k] >= (place.at[0] + 16 - O.size[0]) * (long)sizeof(STORAGE(IN##k));
#define IN_TILE(k)                                                                          \
  VT tile##k[16];                                                                           \
  if (across##k) {                                                                          \
    const long step = L.inner[NOUT + k], ahead = step % 4096 ? kTileAhead : 0;              \
    __global const uchar* from = i##k##_buf + i##k##_off + place.off[NOUT + k] + at * step; \
    UNROLL for (int c = 0; c < 16; c++) {                                                   \
      tile##k[c] = READ_VEC(IN##k, from);                                                   \
      FETCH_LINE(from + ahead);                                                             \
      from += c + 1 < lanes ? step : 0;                                                     \
    }                                                                                       \
    TRANSPOSE16(VT, tile##k)                                                                \
  }
#define IN_READ_TILE(k)                                                                                           \
  const VT x##k = across##k ? tile##k[r]                                                                          \
                            : read##k(i##k##_buf + i##k##_off + place.off[NOUT + k] + r * O.stride[0][NOUT + k] + \
                                          at * L.inner[NOUT + k],                                                 \
                                      L.inner[NOUT + k], lanes, IMMEDIATE(L.immediate[k]));
#define OUT_WRITE_TILE(k) \
  write##k(o##k##_buf + o##k##_off + place.off[k] + r * O.stride[0][k] + at * L.inner[k], L.inner[k], lanes, r##k);

__kernel void across(BUFS const PointwiseParams L, const PointwiseOuter O SCALARS) {
  EACH_SCALAR(SPLAT)
  EACH_IN(IN_ACROSS)
  const long begin = (long)get_global_id(0) * L.n_per_item;
  const long end = min(begin + L.n_per_item, L.n);
  const long last = min((long)(get_global_id(1) + 1) * L.rows_per_item, L.rows);
  long row = get_global_id(1) * L.rows_per_item, height;
  for (place_t place = place_of(&O, L.ndim, row); row < last; row += height) {
    height = min(min(16L, last - row), O.size[0] - place.at[0]);
    long at = begin;
    for (; at < end; at += 16) {
      const int lanes = (int)min(16L, end - at);
      bool fits = true;
      EACH_IN(IN_FITS)
      if (!fits) break;
      EACH_IN(IN_TILE)
      for (int r = 0; r < height; r++) {
        EACH_IN(IN_READ_TILE)
        DECLARE_R1
        const VT r0 = RESULT;
        EACH_OUT(OUT_WRITE_TILE)
      }
    }
    for (long r = 0, by = at < end ? 1 : height; r < height; r += by) {
      if (at < end) RUN_ROW(at);
      advance(&O, L.ndim, by, &place);
    }
  }
  STORES_DONE();
}
#endif
#endif
