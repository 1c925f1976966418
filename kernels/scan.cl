// Scans along one dimension: cumsum, cumprod, logcumsumexp, cummax, cummin. A work-item runs down up to P * V lines that
// are neighbours in memory (P = V = 1 where the scanned dimension is the dense one), for one segment of them: `totals`
// reduces each segment, `scan` starts each with what the totals before it make. No item ever waits for another.
// `scan_rows`: 16 lines that are dense go down together, transposed in registers 16 x 16 elements at a time.
// -D: OP, IN, ACC, OUT0 (dtype tags), V, P, ACC_FLOATING | ACC_INTEGRAL | ACC_COMPLEX, WITH_INDEX (cummax, cummin),
// FORM_SCAN | FORM_TOTALS | FORM_ROWS (V = 16, P = 1;
// PAST_CACHE).
#include "args/scan.h"
#include "common/dtypes.h"

typedef VTYPE(ACC, V) VT;
typedef CTYPE(ACC) ST;
typedef union {
  VT v;
  ST s[V];
} lanes_t;

// CAT3, because these are expanded within a CAT.
#define LOWEST CAT3(lowest_, ACC, )
#define HIGHEST CAT3(highest_, ACC, )
#define lowest_f32 (-INFINITY)
#define highest_f32 INFINITY
#define lowest_f64 ((double)-INFINITY)
#define highest_f64 ((double)INFINITY)
#define lowest_i32 INT_MIN
#define highest_i32 INT_MAX
#define lowest_i64 LONG_MIN
#define highest_i64 LONG_MAX
#define lowest_u64 0UL
#define highest_u64 ULONG_MAX

#if defined(ACC_COMPLEX)
#include "common/complex.h"
#define lowest_c64 ((float2)(-INFINITY, 0))
#define lowest_c128 ((double2)(-INFINITY, 0))
#define COMPLEX_ONE ((ST)(1, 0))
#define TIMES(a, b) ((ST)((a).x * (b).x - (a).y * (b).y, (a).x * (b).y + (a).y * (b).x))
#else
#define COMPLEX_ONE 1
#define TIMES(a, b) ((a) * (b))
#endif

// --- the operators: COMBINE(a, b), with a before b --------------------------------------------------------------
#define sum_IDENTITY 0
#define sum_COMBINE(a, b) ((a) + (b))
#define prod_IDENTITY COMPLEX_ONE
#define prod_COMBINE(a, b) TIMES(a, b)
#define logsumexp_IDENTITY LOWEST
#define logsumexp_COMBINE(a, b) log_add_exp(a, b)
#define cummax_IDENTITY LOWEST
#define cummax_TAKES(a, b) ((b) >= (a))
#define cummin_IDENTITY HIGHEST
#define cummin_TAKES(a, b) ((b) <= (a))

#if defined(ACC_FLOATING)
inline VT log_add_exp(VT a, VT b) {
  const VT low = fmin(a, b), high = fmax(a, b);
  // Equal infinities would make inf - inf; a NaN on either side stays one.
  const VT sum = high + log1p(exp(low - high));
  const VT r = ((low == high) & isinf(low)) ? low : sum;
  return (isnan(a) | isnan(b)) ? a + b : r;
}
#define TAKES(a, b) (isnan(b) | (!isnan(a) & CAT(OP, _TAKES)(a, b)))
#else
#if defined(ACC_COMPLEX)
#define log_add_exp c_log_add_exp
#endif
#define TAKES(a, b) CAT(OP, _TAKES)(a, b)
#endif
#define IDENTITY CAT(OP, _IDENTITY)

#if defined(WITH_INDEX)
#if defined(ACC_WIDE)
#define INDEX i64
#else
#define INDEX i32
#endif
typedef VTYPE(INDEX, V) IVT;
typedef CTYPE(INDEX) IST;
typedef struct {
  VT v;
  IVT i;
} acc_t;
inline acc_t identity(void) {
  const acc_t a = {(VT)(IDENTITY), (IVT)(0)};
  return a;
}
inline void combine(acc_t *a, acc_t b) {
  a->i = TAKES(a->v, b.v) ? b.i : a->i;
  a->v = TAKES(a->v, b.v) ? b.v : a->v;
}
inline void step(acc_t *a, VT x, long at) {
  const acc_t b = {x, (IVT)((IST)at)};
  combine(a, b);
}
typedef union {
  IVT v;
  IST s[V];
} ilanes_t;
#else
#define COMBINE CAT(OP, _COMBINE)
typedef struct {
  VT v;
} acc_t;
inline acc_t identity(void) {
  const acc_t a = {(VT)(IDENTITY)};
  return a;
}
inline void combine(acc_t *a, acc_t b) { a->v = COMBINE(a->v, b.v); }
inline void step(acc_t *a, VT x, long at) { a->v = COMBINE(a->v, x); }
#endif

typedef __global const uchar *src_t;
#define READ1(p) LOAD(IN, ACC, 1, (__global const STORAGE(IN) *)(p), 0)
#define READ(p) LOAD(IN, ACC, V, (__global const STORAGE(IN) *)(p), 0)
inline VT read_lanes(src_t p, long stride, int lanes) {
  if (lanes == V && stride == sizeof(STORAGE(IN))) return READ(p);
  lanes_t r;
  for (int k = 0; k < V; k++) r.s[k] = READ1(p + stride * min(k, lanes - 1));
  return r.v;
}

// The tile's first line, and how many lines it has.
#define TILE                                                                                 \
  const long columns = L->size[0], panels = (columns + P * V - 1) / (P * V);                 \
  long rest = tile / panels;                                                                 \
  const long column = (tile - rest * panels) * (P * V);                                      \
  const int width = (int)min((long)(P * V), columns - column), np = (width + V - 1) / V;     \
  src_t src = in_buf + in_off + column * L->in[0];                                         \
  long at0 = column * L->out0[0], at1 = column * L->out1[0];                             \
  for (int d = 1; d < L->ndim; d++) {                                                        \
    const long q = rest / L->size[d], k = rest - q * L->size[d];                             \
    src += k * L->in[d];                                                                   \
    at0 += k * L->out0[d];                                                                 \
    at1 += k * L->out1[d];                                                                 \
    rest = q;                                                                                \
  }
#define LANES(j) min(V, width - (j) * V)

#define ARGS BUF(out0), BUF(out1), BUF(in), BUF(total), const ScanParams params
#define TOTAL PTR(total, acc_t)

#if defined(FORM_TOTALS)
__kernel void totals(ARGS) {
  const ScanParams *L = &params;
  const long first = (long)get_global_id(0) * L->tiles_per_item, last = min(first + L->tiles_per_item, L->tiles);
  const long seg = get_global_id(1), begin = seg * L->segment, end = min(begin + L->segment, L->n);
  for (long tile = first; tile < last; tile++) {
    TILE
    acc_t acc[P];
    for (int j = 0; j < np; j++) acc[j] = identity();
    for (long i = begin; i < end; i++)
      for (int j = 0; j < np; j++)
        step(&acc[j], read_lanes(src + i * L->in_stride + j * V * L->in[0], L->in[0], LANES(j)), i);
    for (int j = 0; j < np; j++) TOTAL[(seg * L->tiles + tile) * P + j] = acc[j];
  }
}
#endif

#if defined(FORM_SCAN) || defined(FORM_ROWS)
#define WRITE1(S, A, p, v) STORE(S, A, 1, (__global STORAGE(S) *)(p), 0, v)
inline void write_lanes(__global uchar *out0, __global uchar *out1, long stride0, long stride1, int lanes, acc_t a) {
#if !defined(WITH_INDEX) && V > 1
  if (lanes == V && stride0 == sizeof(STORAGE(OUT0))) {
    STORE(OUT0, ACC, V, (__global STORAGE(OUT0) *)out0, 0, a.v);
    return;
  }
#endif
  lanes_t r;
  r.v = a.v;
  for (int k = 0; k < lanes; k++) WRITE1(OUT0, ACC, out0 + k * stride0, r.s[k]);
#if defined(WITH_INDEX)
  ilanes_t i;
  i.v = a.i;
  for (int k = 0; k < lanes; k++) WRITE1(i64, i64, out1 + k * stride1, (long)i.s[k]);
#endif
}

#if defined(FORM_SCAN)
__kernel void scan(ARGS) {
  const ScanParams *L = &params;
  const long first = (long)get_global_id(0) * L->tiles_per_item, last = min(first + L->tiles_per_item, L->tiles);
  const long seg = get_global_id(1), begin = seg * L->segment, end = min(begin + L->segment, L->n);
  for (long tile = first; tile < last; tile++) {
    TILE
    acc_t acc[P];
    for (int j = 0; j < np; j++) acc[j] = identity();
    for (long s = 0; s < seg; s++)
      for (int j = 0; j < np; j++) combine(&acc[j], TOTAL[(s * L->tiles + tile) * P + j]);
    __global uchar *o0 = out0_buf + out0_off + at0, *o1 = out1_buf + out1_off + at1;
    for (long i = begin; i < end; i++)
      for (int j = 0; j < np; j++) {
        step(&acc[j], read_lanes(src + i * L->in_stride + j * V * L->in[0], L->in[0], LANES(j)), i);
        write_lanes(o0 + i * L->out0_stride + j * V * L->out0[0], o1 + i * L->out1_stride + j * V * L->out1[0], L->out0[0],
                    L->out1[0], LANES(j), acc[j]);
      }
  }
}
#endif

#if defined(FORM_ROWS)
#include "common/transpose.h"
__kernel void scan_rows(ARGS) {
  const ScanParams *L = &params;
  const long first = (long)get_global_id(0) * L->tiles_per_item, last = min(first + L->tiles_per_item, L->tiles);
  for (long tile = first; tile < last; tile++) {
    TILE
    __global uchar *o0 = out0_buf + out0_off + at0;
    acc_t acc = identity();
    long i = 0;
    for (; i + V <= L->n; i += V) {
      VT v[V];
      _Pragma("unroll") for (int k = 0; k < V; k++)
        v[k] = READ(src + i * sizeof(STORAGE(IN)) + min(k, width - 1) * L->in[0]);
      TRANSPOSE16(VT, v)
      _Pragma("unroll") for (int k = 0; k < V; k++) {
        step(&acc, v[k], i + k);
        v[k] = acc.v;
      }
      TRANSPOSE16(VT, v)
      for (int k = 0; k < width; k++)
        STORE(OUT0, ACC, V, (__global STORAGE(OUT0) *)(o0 + i * sizeof(STORAGE(OUT0)) + k * L->out0[0]), 0, v[k]);
    }
    for (; i < L->n; i++) {
      step(&acc, read_lanes(src + i * L->in_stride, L->in[0], width), i);
      write_lanes(o0 + i * L->out0_stride, 0, L->out0[0], 0, width, acc);
    }
  }
  STORES_DONE();
}
#endif
#endif
