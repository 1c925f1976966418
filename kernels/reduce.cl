// One reduction for every operator: `inner` (lanes run along the reduced dimension) and `outer` (lanes run along a
// kept one) for CPUs; `group` (a work-group an output) and `outer` with one lane for GPUs. A reduction that
// would leave the device idle is cut in segments, whose accumulators `combine` merges: no atomics, and the same result
// every time.
//
// An operator is a name and what it does to an element (MAP), to two accumulators (COMBINE), at the end (FINISH).
// -D: FORM_INNER | FORM_OUTER | FORM_GROUP | FORM_COMBINE, OP, KIND_SIMPLE | KIND_ARG | KIND_VAR, IN, ACC, OUT0, OUT1
// (dtype tags), V (lanes), P (vectors a panel), LOCAL, ACC_FLOATING | ACC_INTEGRAL | ACC_COMPLEX.
#include "args/reduce.h"
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
#define ONE_IF(mask, T) ((mask) ? (T)(1) : (T)(0))

#if defined(ACC_FLOATING)
#define FIRST_OF_MAX(a, b) (((a) > (b)) | isnan(a))
#define FIRST_OF_MIN(a, b) (((a) < (b)) | isnan(a))
#else
#define FIRST_OF_MAX(a, b) ((a) > (b))
#define FIRST_OF_MIN(a, b) ((a) < (b))
#endif
#if defined(ACC_COMPLEX)
#define TIMES(a, b) ((ST)((a).x * (b).x - (a).y * (b).y, (a).x * (b).y + (a).y * (b).x))
#define COMPLEX_ONE ((ST)(1, 0))
#define IS_NAN(a) (isnan((a).x) || isnan((a).y))
#else
#define TIMES(a, b) ((a) * (b))
#define COMPLEX_ONE 1
#define IS_NAN(a) isnan(a)
#endif

// --- the operators ------------------------------------------------------------------------------------------
// X_MAP(x, T): x is of type T, a scalar or a vector. p0 is the operator's parameter. (Some compilers define max, min,
// any and all as macros: no operator may be called so.)
#define sum_IDENTITY 0
#define sum_MAP(x, T) (x)
#define sum_COMBINE(a, b) ((a) + (b))
#define sum_FINISH(a) (a)

#define mean_IDENTITY 0
#define mean_MAP(x, T) (x)
#define mean_COMBINE(a, b) ((a) + (b))
#define mean_FINISH(a) ((a) / p0)

#define nansum_IDENTITY 0
#define nansum_MAP(x, T) (IS_NAN(x) ? (T)(0) : (x))
#define nansum_COMBINE(a, b) ((a) + (b))
#define nansum_FINISH(a) (a)

#define prod_IDENTITY COMPLEX_ONE
#define prod_MAP(x, T) (x)
#define prod_COMBINE(a, b) TIMES(a, b)
#define prod_FINISH(a) (a)

#define bitxor_IDENTITY 0
#define bitxor_MAP(x, T) (x)
#define bitxor_COMBINE(a, b) ((a) ^ (b))
#define bitxor_FINISH(a) (a)

#define amax_IDENTITY LOWEST
#define amax_MAP(x, T) (x)
#define amax_COMBINE(a, b) (FIRST_OF_MAX(a, b) ? (a) : (b))
#define amax_FINISH(a) (a)

#define amin_IDENTITY HIGHEST
#define amin_MAP(x, T) (x)
#define amin_COMBINE(a, b) (FIRST_OF_MIN(a, b) ? (a) : (b))
#define amin_FINISH(a) (a)

#define some_IDENTITY 0
#define some_MAP(x, T) ONE_IF((x) != (T)(0), T)
#define some_COMBINE(a, b) ((a) > (b) ? (a) : (b))
#define some_FINISH(a) (a)

#define every_IDENTITY 1
#define every_MAP(x, T) ONE_IF((x) != (T)(0), T)
#define every_COMBINE(a, b) ((a) < (b) ? (a) : (b))
#define every_FINISH(a) (a)

#define count_IDENTITY 0
#define count_MAP(x, T) ONE_IF((x) != (T)(0), T)
#define count_COMBINE(a, b) ((a) + (b))
#define count_FINISH(a) (a)

#define norm1_IDENTITY 0
#define norm1_MAP(x, T) fabs(x)
#define norm1_COMBINE(a, b) ((a) + (b))
#define norm1_FINISH(a) (a)

#define norm2_IDENTITY 0
#define norm2_MAP(x, T) ((x) * (x))
#define norm2_COMBINE(a, b) ((a) + (b))
#define norm2_FINISH(a) sqrt(a)

#define norminf_IDENTITY 0
#define norminf_MAP(x, T) fabs(x)
#define norminf_COMBINE(a, b) (FIRST_OF_MAX(a, b) ? (a) : (b))
#define norminf_FINISH(a) (a)

#define normneginf_IDENTITY HIGHEST
#define normneginf_MAP(x, T) fabs(x)
#define normneginf_COMBINE(a, b) (FIRST_OF_MIN(a, b) ? (a) : (b))
#define normneginf_FINISH(a) (a)

#define normp_IDENTITY 0
#define normp_MAP(x, T) pow(fabs(x), (T)(p0))
#define normp_COMBINE(a, b) ((a) + (b))
#define normp_FINISH(a) pow(a, 1 / p0)

// --- the layout ---------------------------------------------------------------------------------------------
#define BLOCK 16384L  // elements of `inner` that a coarser level takes over together
#define STEPS 64L     // steps of four vectors that one set of lanes sums
#define ROWS 256L     // rows that one set of lanes sums in `outer`
#define FAN 64        // blocks a level

#if defined(ACC_DOUBLE)
#define P0 as_double(L->p0)
typedef double param_t;
#else
#define P0 as_float((uint)L->p0)
typedef float param_t;
#endif

typedef struct {
  long in, out0, out1;
} offsets_t;

inline offsets_t kept_offsets(const ReduceParams *L, long o, int first) {
  offsets_t r = {0, 0, 0};
  for (int d = first; d < L->kept_dims; d++) {
    if (d == L->kept_dims - 1) {  // what remains: no division
      r.in += o * L->kept_in[d];
      r.out0 += o * L->kept_out0[d];
      r.out1 += o * L->kept_out1[d];
      break;
    }
    const long q = o / L->kept_size[d], k = o - q * L->kept_size[d];
    r.in += k * L->kept_in[d];
    r.out0 += k * L->kept_out0[d];
    r.out1 += k * L->kept_out1[d];
    o = q;
  }
  return r;
}
inline long run_offset(const ReduceParams *L, long run) {
  long r = 0;
  for (int d = 1; d < L->reduced_dims; d++) {
    const long q = run / L->reduced_size[d];
    r += (run - q * L->reduced_size[d]) * L->reduced_in[d];
    run = q;
  }
  return r;
}

typedef __global const uchar *src_t;
#if defined(IN_ABS)  // a complex input, of which only the magnitude counts
#define READ1(p) hypot(((__global const STORAGE(IN) *)(p))->x, ((__global const STORAGE(IN) *)(p))->y)
#define READ(p) READ1(p)
#else
#define READ1(p) LOAD(IN, ACC, 1, (__global const STORAGE(IN) *)(p), 0)
#define READ(p) LOAD(IN, ACC, V, (__global const STORAGE(IN) *)(p), 0)
#endif
inline VT gather(src_t p, long stride, int lanes) {
  lanes_t r;
  if (lanes == V) {
    for (int k = 0; k < V; k++) r.s[k] = READ1(p + stride * k);
  } else {
    for (int k = 0; k < V; k++) r.s[k] = READ1(p + stride * min(k, lanes - 1));
  }
  return r.v;
}

// --- accumulators: vacc_t holds V independent ones, acc_t one -----------------------------------------------
#if defined(KIND_SIMPLE)
#define IDENTITY CAT(OP, _IDENTITY)
#define MAP CAT(OP, _MAP)
#define COMBINE CAT(OP, _COMBINE)
#define FINISH CAT(OP, _FINISH)
typedef struct {
  VT v;
} vacc_t;
typedef struct {
  ST v;
} acc_t;
inline acc_t identity(void) {
  const acc_t a = {(ST)(IDENTITY)};
  return a;
}
inline vacc_t videntity(void) {
  const vacc_t a = {(VT)(IDENTITY)};
  return a;
}
inline void vstep(vacc_t *a, VT x, long at, param_t p0) {
  const VT y = MAP(x, VT);
  a->v = COMBINE(a->v, y);
}
inline void vstep4(vacc_t *a, VT x0, VT x1, VT x2, VT x3, long at, long step, param_t p0) {
  const VT y0 = MAP(x0, VT), y1 = MAP(x1, VT), y2 = MAP(x2, VT), y3 = MAP(x3, VT);
  const VT z0 = COMBINE(y0, y1), z1 = COMBINE(y2, y3);
  const VT z = COMBINE(z0, z1);
  a->v = COMBINE(a->v, z);
}
inline void vmerge(vacc_t *a, const vacc_t *b) { a->v = COMBINE(a->v, b->v); }
inline acc_t merge(acc_t a, acc_t b) {
  const acc_t r = {COMBINE(a.v, b.v)};
  return r;
}
inline acc_t lane(const vacc_t *a, int k, long at) {
  lanes_t u;
  u.v = a->v;
  const acc_t r = {u.s[k]};
  return r;
}
inline acc_t single(ST x, long at, param_t p0) {
  const acc_t r = {MAP(x, ST)};
  return r;
}
#define HAS_VECTOR_STORE
#endif

#if defined(KIND_ARG)  // the extreme value and where it first occurs
#if defined(ACC_WIDE)
#define INDEX i64
#else
#define INDEX i32
#endif
typedef VTYPE(INDEX, V) IVT;
typedef CTYPE(INDEX) IST;
#if defined(ARG_MIN)
#define WORST HIGHEST
#define BEATS_OR_NAN(x, v) (!((x) >= (v)))
#define BEATS(x, v) ((x) < (v))
#else
#define WORST LOWEST
#define BEATS_OR_NAN(x, v) (!((x) <= (v)))
#define BEATS(x, v) ((x) > (v))
#endif
#if defined(ACC_FLOATING)  // the first NaN beats everything
#define TAKES(x, v) (BEATS_OR_NAN(x, v) & !isnan(v))
#define TIES(x, v) ((x) == (v) || (isnan(x) && isnan(v)))
#else
#define TAKES(x, v) BEATS(x, v)
#define TIES(x, v) ((x) == (v))
#endif
typedef struct {
  VT v;
  IVT i;
} vacc_t;
typedef struct {
  ST v;
  long i;
} acc_t;
inline acc_t identity(void) {
  const acc_t a = {WORST, LONG_MAX};
  return a;
}
inline vacc_t videntity(void) {
  const vacc_t a = {(VT)(WORST), (IVT)(0)};
  return a;
}
inline void vstep(vacc_t *a, VT x, long at, param_t p0) {
  a->i = TAKES(x, a->v) ? (IVT)((IST)at) : a->i;
  a->v = TAKES(x, a->v) ? x : a->v;
}
inline void vstep4(vacc_t *a, VT x0, VT x1, VT x2, VT x3, long at, long step, param_t p0) {
  // A tree, so that only its root waits for the step before.
  const IVT i0 = TAKES(x1, x0) ? (IVT)((IST)(at + step)) : (IVT)((IST)at);
  const VT y0 = TAKES(x1, x0) ? x1 : x0;
  const IVT i1 = TAKES(x3, x2) ? (IVT)((IST)(at + 3 * step)) : (IVT)((IST)(at + 2 * step));
  const VT y1 = TAKES(x3, x2) ? x3 : x2;
  const IVT i = TAKES(y1, y0) ? i1 : i0;
  const VT y = TAKES(y1, y0) ? y1 : y0;
  a->i = TAKES(y, a->v) ? i : a->i;
  a->v = TAKES(y, a->v) ? y : a->v;
}
inline acc_t merge(acc_t a, acc_t b) { return TAKES(b.v, a.v) || (TIES(b.v, a.v) && b.i < a.i) ? b : a; }
// b comes after a: a tie keeps a.
inline void vmerge(vacc_t *a, const vacc_t *b) {
  a->i = TAKES(b->v, a->v) ? b->i : a->i;
  a->v = TAKES(b->v, a->v) ? b->v : a->v;
}
typedef union {
  IVT v;
  IST s[V];
} ilanes_t;
inline acc_t lane(const vacc_t *a, int k, long at) {
  lanes_t u;
  ilanes_t i;
  u.v = a->v;
  i.v = a->i;
  const acc_t r = {u.s[k], (long)i.s[k] + at};
  return r;
}
inline acc_t single(ST x, long at, param_t p0) {
  const acc_t r = {x, at};
  return r;
}
#endif

#if defined(KIND_VAR)  // Welford's update, by fours; Chan's merge
typedef struct {
  VT mean, m2;
  ST n;
} vacc_t;
typedef struct {
  ST mean, m2, n;
} acc_t;
inline acc_t identity(void) {
  const acc_t a = {0, 0, 0};
  return a;
}
inline vacc_t videntity(void) {
  const vacc_t a = {(VT)(0), (VT)(0), 0};
  return a;
}
inline void vstep(vacc_t *a, VT x, long at, param_t p0) {
  a->n += 1;
  const VT delta = x - a->mean;
  a->mean += delta * (VT)(1 / a->n);
  a->m2 += delta * (x - a->mean);
}
inline void vstep4(vacc_t *a, VT x0, VT x1, VT x2, VT x3, long at, long step, param_t p0) {
  const VT mean = ((x0 + x1) + (x2 + x3)) * (VT)(0.25f);
  const VT d0 = x0 - mean, d1 = x1 - mean, d2 = x2 - mean, d3 = x3 - mean;
  const VT delta = mean - a->mean;
  const ST n = a->n + 4, part = 4 / n;
  a->mean += delta * (VT)(part);
  a->m2 += ((d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)) + delta * delta * (VT)(a->n * part);
  a->n = n;
}
inline void vmerge(vacc_t *a, const vacc_t *b) {
  const ST n = a->n + b->n;
  if (n == 0) return;
  const ST part = b->n / n;
  const VT delta = b->mean - a->mean;
  a->mean += delta * (VT)(part);
  a->m2 += b->m2 + delta * delta * (VT)(a->n * part);
  a->n = n;
}
inline acc_t merge(acc_t a, acc_t b) {
  if (a.n == 0) return b;
  if (b.n == 0) return a;
  const ST n = a.n + b.n, part = b.n / n, delta = b.mean - a.mean;
  const acc_t r = {a.mean + delta * part, a.m2 + b.m2 + delta * delta * (a.n * part), n};
  return r;
}
inline acc_t lane(const vacc_t *a, int k, long at) {
  lanes_t u, w;
  u.v = a->mean;
  w.v = a->m2;
  const acc_t r = {u.s[k], w.s[k], a->n};
  return r;
}
inline acc_t single(ST x, long at, param_t p0) {
  const acc_t r = {x, 0, 1};
  return r;
}
#endif

// The variance is that of the distances from the first element: exact where the values are close to each other,
// whatever their mean.
#if defined(KIND_VAR)
#define FROM(x, pivot) ((x) - (pivot))
#else
#define FROM(x, pivot) (x)
#endif

// --- results ------------------------------------------------------------------------------------------------
#define WRITE(S, A, p, v) STORE(S, A, 1, (__global STORAGE(S) *)(p), 0, v)
// `first` is the first element that the result is made of.
inline void write_result(acc_t a, src_t first, __global uchar *out0, __global uchar *out1, param_t p0) {
#if defined(KIND_SIMPLE)
  const ST r = FINISH(a.v);
  WRITE(OUT0, ACC, out0, r);
#elif defined(KIND_ARG)
#if defined(OUT1)
  WRITE(OUT0, ACC, out0, a.v);
  WRITE(OUT1, i64, out1, a.i);
#else
  WRITE(OUT0, i64, out0, a.i);
#endif
#elif defined(KIND_VAR)
  ST r = a.m2 / p0;
#if defined(TAKE_SQRT)
  r = sqrt(r);
#endif
  WRITE(OUT0, ACC, out0, r);
#if defined(OUT1)
  WRITE(OUT1, ACC, out1, a.mean + READ1(first));
#endif
#endif
}

#define ARGS BUF(out0), BUF(out1), BUF(in), BUF(partial), const ReduceParams params
#define OUT0_PTR (out0_buf + out0_off)
#define OUT1_PTR (out1_buf + out1_off)
#define PARTIAL PTR(partial, acc_t)
#define PROLOGUE                \
  const ReduceParams *L = &params;  \
  const param_t p0 = P0;

// --- inner: lanes along the reduced dimension ---------------------------------------------------------------
#if defined(FORM_INNER)
inline acc_t horizontal(const vacc_t *v, long at_lane) {
#if defined(KIND_SIMPLE) && V >= 8
#if V == 16
  const VTYPE(ACC, 8) h8 = COMBINE(v->v.lo, v->v.hi);
#else
  const VTYPE(ACC, 8) h8 = v->v;
#endif
  const VTYPE(ACC, 4) h4 = COMBINE(h8.lo, h8.hi);
  const VTYPE(ACC, 2) h2 = COMBINE(h4.lo, h4.hi);
  const acc_t r = {COMBINE(h2.x, h2.y)};
  return r;
#else
  acc_t a[V];
  for (int k = 0; k < V; k++) a[k] = lane(v, k, k * at_lane);
  for (int h = V / 2; h > 0; h /= 2)
    for (int k = 0; k < h; k++) a[k] = merge(a[k], a[k + h]);
  return a[0];
#endif
}
// The vectors of a step lie a quarter of the block apart: a core that reads four places at once has more of the memory's
// bandwidth than one place gives it. Where the order counts, a step's vectors are neighbours.
#if defined(KIND_ARG)
#define APART V
#define STEP (4 * V)
#else
#define APART (n / (4 * V) * V)
#define STEP V
#endif
// Meanwhile what lies behind the block is fetched, mostly the next one: a core does not foresee four new places a block.
#define RUN(READ_AT, FETCH_AT)                                                                              \
  while (i < four) {                                                                                        \
    const long end = min(i + STEPS * STEP, four);                                                           \
    vacc_t w = videntity();                                                                                 \
    for (; i < end; i += STEP) {                                                                            \
      FETCH_AT(i) FETCH_AT(i + apart) FETCH_AT(i + 2 * apart) FETCH_AT(i + 3 * apart)                       \
      vstep4(&w, READ_AT(i), READ_AT(i + apart), READ_AT(i + 2 * apart), READ_AT(i + 3 * apart), at + i,    \
             apart, p0);                                                                                    \
    }                                                                                                       \
    vmerge(&v, &w);                                                                                         \
  }                                                                                                         \
  for (i = n / (4 * V) * (4 * V); i + V <= n; i += V) vstep(&v, READ_AT(i), at + i, p0);
#define READ_DENSE(i) FROM(READ(p + (i) * size), (VT)(pivot))
#define FETCH_DENSE(i) FETCH_LINE(p + ((i) + n) * size);
#define READ_STRIDED(i) FROM(gather(p + (i) * stride, stride, V), (VT)(pivot))
#define FETCH_STRIDED(i)

inline acc_t run_block(src_t p, long stride, long n, long at, ST pivot, param_t p0) {
  const long size = sizeof(STORAGE(IN));
  const long apart = APART, four = n / (4 * V) * STEP;
  acc_t a = identity();
  long i = 0;
  if (n >= V) {
    vacc_t v = videntity();
    if (stride == size) {
      RUN(READ_DENSE, FETCH_DENSE)
    } else {
      RUN(READ_STRIDED, FETCH_STRIDED)
    }
    a = horizontal(&v, 1);
  }
  for (; i < n; i++) a = merge(a, single(FROM(READ1(p + i * stride), pivot), at + i, p0));
  return a;
}

__kernel void inner(ARGS) {
  PROLOGUE
  const long first = (long)get_global_id(0) * L->tiles_per_item, last = min(first + L->tiles_per_item, L->outputs);
  const long seg = get_global_id(1), begin = seg * L->segment, end = min(begin + L->segment, L->reduced);
  const long len = L->reduced_size[0], stride = L->reduced_in[0];
  for (long o = first; o < last; o++) {
    const offsets_t off = kept_offsets(L, o, 0);
    const src_t src = in_buf + in_off + off.in;
    const ST pivot = READ1(src);
    acc_t total = identity(), level = identity();
    int blocks = 0;
    for (long pos = begin; pos < end;) {
      const long run = L->reduced_dims > 1 ? pos / len : 0, at = pos - run * len;
      const long n = min(min(len - at, end - pos), BLOCK);
      level = merge(level, run_block(src + run_offset(L, run) + at * stride, stride, n, pos - begin, pivot,
                                     p0));
      if (++blocks == FAN) {
        total = merge(total, level);
        level = identity();
        blocks = 0;
      }
      pos += n;
    }
    total = merge(total, level);
#if defined(KIND_ARG)
    total.i += begin;
#endif
    if (L->has_partial)
      PARTIAL[seg * L->outputs + o] = total;
    else
      write_result(total, src, OUT0_PTR + off.out0, OUT1_PTR + off.out1, p0);
  }
}
#endif

// --- outer: lanes along a kept dimension --------------------------------------------------------------------
#if defined(FORM_OUTER)
__kernel void outer(ARGS) {
  PROLOGUE
  const long first = (long)get_global_id(0) * L->tiles_per_item, last = min(first + L->tiles_per_item, L->tiles);
  const long seg = get_global_id(1), begin = seg * L->segment, end = min(begin + L->segment, L->reduced);
  const long len = L->reduced_size[0], stride = L->reduced_in[0], lane_stride = L->kept_in[0], columns = L->kept_size[0];
  const long panels = (columns + P * V - 1) / (P * V), size = sizeof(STORAGE(IN)), vec = V * lane_stride;
  vacc_t acc[P], coarse[P];
  for (long tile = first; tile < last; tile++) {
    const long rest = tile / panels, column = (tile - rest * panels) * (P * V);
    const offsets_t off = kept_offsets(L, rest, 1);
    const int width = (int)min((long)(P * V), columns - column), np = (width + V - 1) / V;
    const int dense = lane_stride == size ? width / V : 0, tail = width - (np - 1) * V;
    const src_t src = in_buf + in_off + off.in + column * lane_stride;
    long since = 0;
    int levels = 0;
    for (int j = 0; j < np; j++) acc[j] = videntity();
    for (long pos = begin; pos < end;) {
      if (since == ROWS) {
        for (int j = 0; j < np; j++) {
          if (levels)
            vmerge(&coarse[j], &acc[j]);
          else
            coarse[j] = acc[j];
          acc[j] = videntity();
        }
        since = 0;
        levels = 1;
      }
      const long run = L->reduced_dims > 1 ? pos / len : 0, at = pos - run * len;
      const long n = min(min(len - at, end - pos), ROWS - since);
      const src_t p = src + run_offset(L, run) + at * stride;
      long i = 0;
      for (; i + 4 <= n; i += 4) {
        const src_t q = p + i * stride;
        const long row = pos - begin + i;
        int j = 0;
        for (; j < dense; j++) {
          const src_t c = q + j * (V * size);
          const VT pivot = READ(src + j * (V * size));
          for (int k = 4; k < 8; k++) FETCH_LINE(c + k * stride);
          vstep4(&acc[j], FROM(READ(c), pivot), FROM(READ(c + stride), pivot), FROM(READ(c + 2 * stride), pivot),
                 FROM(READ(c + 3 * stride), pivot), row, 1, p0);
        }
        for (; j < np; j++) {
          const src_t c = q + j * vec;
          const int lanes = j == np - 1 ? tail : V;
          const VT pivot = gather(src + j * vec, lane_stride, lanes);
          vstep4(&acc[j], FROM(gather(c, lane_stride, lanes), pivot), FROM(gather(c + stride, lane_stride, lanes), pivot),
                 FROM(gather(c + 2 * stride, lane_stride, lanes), pivot),
                 FROM(gather(c + 3 * stride, lane_stride, lanes), pivot), row, 1, p0);
        }
      }
      for (; i < n; i++) {
        const src_t q = p + i * stride;
        const long row = pos - begin + i;
        int j = 0;
        for (; j < dense; j++)
          vstep(&acc[j], FROM(READ(q + j * (V * size)), READ(src + j * (V * size))), row, p0);
        for (; j < np; j++) {
          const int lanes = j == np - 1 ? tail : V;
          const VT pivot = gather(src + j * vec, lane_stride, lanes);
          vstep(&acc[j], FROM(gather(q + j * vec, lane_stride, lanes), pivot), row, p0);
        }
      }
      since += n;
      pos += n;
    }
    __global uchar *out0 = OUT0_PTR + off.out0 + column * L->kept_out0[0];
    __global uchar *out1 = OUT1_PTR + off.out1 + column * L->kept_out1[0];
    for (int j = 0; j < np; j++) {
      if (levels) {
        vmerge(&coarse[j], &acc[j]);
        acc[j] = coarse[j];
      }
      const int lanes = j == np - 1 ? tail : V;
      if (L->has_partial) {
        for (int k = 0; k < lanes; k++)
          PARTIAL[seg * L->outputs + rest * columns + column + j * V + k] = lane(&acc[j], k, begin);
        continue;
      }
#if defined(HAS_VECTOR_STORE)
      if (lanes == V && L->kept_out0[0] == sizeof(STORAGE(OUT0))) {
        const VT r = FINISH(acc[j].v);
        STORE(OUT0, ACC, V, (__global STORAGE(OUT0) *)out0, j * V, r);
        continue;
      }
#endif
      for (int k = 0; k < lanes; k++)
        write_result(lane(&acc[j], k, begin), src + (j * V + k) * lane_stride, out0 + (j * V + k) * L->kept_out0[0],
                     out1 + (j * V + k) * L->kept_out1[0], p0);
    }
  }
}
#endif

// --- group: a work-group an output; combine: the segments' accumulators -------------------------------------
#if LOCAL > 1
// The tree ends with a barrier, so that `shared` may be used again.
inline acc_t tree(acc_t a, __local acc_t *shared) {
  const int id = get_local_id(0);
  shared[id] = a;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int h = LOCAL / 2; h > 0; h /= 2) {
    if (id < h) shared[id] = merge(shared[id], shared[id + h]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const acc_t r = shared[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return r;
}
#if defined(FORM_GROUP)
__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void group(ARGS) {
  PROLOGUE
  __local acc_t shared[LOCAL];
  const long o = get_group_id(0), seg = get_group_id(1);
  const long begin = seg * L->segment, end = min(begin + L->segment, L->reduced);
  const long len = L->reduced_size[0], stride = L->reduced_in[0];
  const offsets_t off = kept_offsets(L, o, 0);
  const src_t src = in_buf + in_off + off.in;
  const ST pivot = READ1(src);
  vacc_t v = videntity(), coarse = videntity();
  int steps = 0;
  for (long pos = begin + get_local_id(0); pos < end; pos += LOCAL) {
    const long run = L->reduced_dims > 1 ? pos / len : 0;
    vstep(&v, FROM(READ1(src + run_offset(L, run) + (pos - run * len) * stride), pivot), pos - begin, p0);
    if (++steps == FAN) {
      vmerge(&coarse, &v);
      v = videntity();
      steps = 0;
    }
  }
  vmerge(&coarse, &v);
  const acc_t total = tree(lane(&coarse, 0, begin), shared);
  if (get_local_id(0) != 0) return;
  if (L->has_partial)
    PARTIAL[seg * L->outputs + o] = total;
  else
    write_result(total, src, OUT0_PTR + off.out0, OUT1_PTR + off.out1, p0);
}
#endif
#endif

#if defined(FORM_COMBINE)
__kernel __attribute__((reqd_work_group_size(LOCAL, 1, 1))) void combine(ARGS) {
  PROLOGUE
#if LOCAL > 1
  __local acc_t shared[LOCAL];
#endif
  const long first = (long)get_group_id(0) * L->tiles_per_item, last = min(first + L->tiles_per_item, L->outputs);
  for (long o = first; o < last; o++) {
    acc_t a = identity(), level = identity();
    int merged = 0;
    for (long s = get_local_id(0); s < L->segments; s += LOCAL) {
      level = merge(level, PARTIAL[s * L->outputs + o]);
      if (++merged == FAN) {
        a = merge(a, level);
        level = identity();
        merged = 0;
      }
    }
    a = merge(a, level);
#if LOCAL > 1
    a = tree(a, shared);
#endif
    if (get_local_id(0) == 0) {
      const offsets_t off = kept_offsets(L, o, 0);
      write_result(a, in_buf + in_off + off.in, OUT0_PTR + off.out0, OUT1_PTR + off.out1, p0);
    }
  }
}
#endif
