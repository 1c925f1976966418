// Scans along one dimension: cumsum, cumprod, logcumsumexp, cummax, cummin. A work-item runs along one segment of up to
// PANEL * VEC rows that are neighbours in memory (PANEL = VEC = 1 if the scanned dimension is the dense one).
// A first launch of `scan` computes the total of each segment; the second starts each with what the totals before it
// make. No work-item waits for another. `scan_group` does this by work-groups, of WIDE rows each. `scan_transposed`
// takes 16 dense rows side by side, and transposes 16 x 16 elements at a time in registers.
// -D: those of reduce/reduce.h, OP, OUT0 (storage tag), PANEL; for `scan_group` GROUP,
// WIDE and PANEL = VEC = 1; for `scan_transposed` PANEL = 1, VEC = 16 and PAST_CACHE.
#include "args/scan.h"
#include "common/few.h"
#include "common/offsets.h"
#include "common/transpose.h"
#include "reduce/reduce.h"

// --- the operators: COMBINE(a, b), with a before b --------------------------------------------------------------
#define sum_IDENTITY 0
#define sum_COMBINE(a, b) ((a) + (b))
#define prod_IDENTITY ONE
#define prod_COMBINE(a, b) TIMES(a, b)
#define logsumexp_IDENTITY LOWEST
#define logsumexp_COMBINE(a, b) log_add_exp(a, b)
#define cummax_IDENTITY LOWEST
#define cummax_TAKES(a, b) ((b) >= (a))
#define cummin_IDENTITY HIGHEST
#define cummin_TAKES(a, b) ((b) <= (a))

#if defined(ACC_COMPLEX)
#include "common/complex.h"
#endif
#if defined(ACC_FLOATING)
static inline VT log_add_exp(VT a, VT b) {
  const VT low = fmin(a, b), high = fmax(a, b);
  // For equal infinities, inf - inf would be NaN; a NaN on either side stays NaN.
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
// Whether a scan also writes where a value comes from.
#define cummax_INDEX 1
#define cummin_INDEX 1
#define WITH_INDEX CAT(OP, _INDEX)

#if WITH_INDEX
typedef struct {
  VT v;
  index_vec_t i;
} accumulators_t;
static inline accumulators_t identity(void) {
  const accumulators_t a = {(VT)(IDENTITY), (index_vec_t)(0)};
  return a;
}
static inline void combine(accumulators_t* a, accumulators_t b) {
  a->i = TAKES(a->v, b.v) ? b.i : a->i;
  a->v = TAKES(a->v, b.v) ? b.v : a->v;
}
static inline void step(accumulators_t* a, VT x, long at) {
  const accumulators_t b = {x, (index_vec_t)((index_t)at)};
  combine(a, b);
}
#else
#define COMBINE CAT(OP, _COMBINE)
typedef struct {
  VT v;
} accumulators_t;
static inline accumulators_t identity(void) {
  const accumulators_t a = {(VT)(IDENTITY)};
  return a;
}
static inline void combine(accumulators_t* a, accumulators_t b) { a->v = COMBINE(a->v, b.v); }
static inline void step(accumulators_t* a, VT x, long at) { a->v = COMBINE(a->v, x); }
#endif

static inline VT read_lanes(src_t p, long stride, int lanes) {
  return lanes == VEC && stride == ELEMENT ? READ(p) : gather(p, stride, lanes);
}

// Up to PANEL vectors of rows that are neighbours.
typedef struct {
  src_t src;        // the first element of the first row
  long out0, out1;  // offsets of its results
  int width, vectors;
} tile_t;

static inline tile_t tile_at(const ScanParams* L, src_t in, long tile) {
  tile_t T;
  const Dimensions* D = &L->dims;
  const long panels = (D->size[0] + PANEL * VEC - 1) / (PANEL * VEC), rest = tile / panels;
  const long row = (tile - rest * panels) * (PANEL * VEC);
  const offsets_t others = offsets_at(D, rest, 1);
  T.width = (int)min((long)(PANEL * VEC), D->size[0] - row);
  T.vectors = (T.width + VEC - 1) / VEC;
  T.src = in + row * D->in[0] + others.in;
  T.out0 = row * D->out0[0] + others.out0;
  T.out1 = row * D->out1[0] + others.out1;
  return T;
}
static inline int lanes_of(const tile_t* T, int j) { return min(VEC, T->width - j * VEC); }

// Element i of the rows of vector j.
static inline VT read_vector(const ScanParams* L, const tile_t* T, long i, int j) {
  return read_lanes(T->src + i * L->in_stride + j * VEC * L->dims.in[0], L->dims.in[0], lanes_of(T, j));
}

#define ARGS BUF(out0), BUF(out1), BUF(in), BUF(total), const ScanParams params
// The total of each segment of a row: [segment][tile][vector].
#define TOTAL(segment, tile) (PTR(total, accumulators_t) + ((segment) * L->tiles + (tile)) * PANEL)

static inline void write_lanes(__global uchar* out0, __global uchar* out1, const ScanParams* L, int lanes,
                               accumulators_t a) {
#if !WITH_INDEX && VEC > 1
  if (lanes == VEC && L->dims.out0[0] == sizeof(STORAGE(OUT0))) {
    STORE(OUT0, ACC, VEC, (__global STORAGE(OUT0)*)out0, 0, a.v);
    return;
  }
#endif
  lanes_t r;
  r.v = a.v;
  for (int k = 0; k < lanes; k++) WRITE(OUT0, ACC, out0 + k * L->dims.out0[0], r.s[k]);
#if WITH_INDEX
  index_lanes_t i;
  i.v = a.i;
  for (int k = 0; k < lanes; k++) WRITE(i64, i64, out1 + k * L->dims.out1[0], (long)i.s[k]);
#endif
}

__kernel void scan(ARGS) {
  const ScanParams* L = &params;
  const long first = (long)get_global_id(0) * L->tiles_per_item, last = min(first + L->tiles_per_item, L->tiles);
  const long segment = get_global_id(1), begin = segment * L->segment, end = min(begin + L->segment, L->n);
  for (long tile = first; tile < last; tile++) {
    const tile_t T = tile_at(L, IN_PTR, tile);
    accumulators_t acc[PANEL];
    FOR_FEW(j, 0, T.vectors, PANEL) acc[j] = identity();
    if (L->totals) {  // a loop of its own, since the one below takes 8 % longer with this condition in it
      for (long i = begin; i < end; i++) FOR_FEW(j, 0, T.vectors, PANEL) step(&acc[j], read_vector(L, &T, i, j), i);
      FOR_FEW(j, 0, T.vectors, PANEL) TOTAL(segment, tile)[j] = acc[j];
      continue;
    }
    for (long s = 0; s < segment; s++) FOR_FEW(j, 0, T.vectors, PANEL) combine(&acc[j], TOTAL(s, tile)[j]);
    __global uchar *to0 = out0_buf + out0_off + T.out0, *to1 = out1_buf + out1_off + T.out1;
    for (long i = begin; i < end; i++) FOR_FEW(j, 0, T.vectors, PANEL) {
        step(&acc[j], read_vector(L, &T, i, j), i);
        write_lanes(to0 + i * L->out0_stride + j * VEC * L->dims.out0[0],
                    to1 + i * L->out1_stride + j * VEC * L->dims.out1[0], L, lanes_of(&T, j), acc[j]);
      }
  }
}

// For dense or few rows on GPUs: a work-group of GROUP work-items scans a segment of WIDE rows side by side, tile by
// tile, in which a work-item takes EACH neighbours of one row.
#if defined(GROUP)
#define EACH 4
#define STEPS (GROUP / WIDE * EACH)
// Replaces `own` by what comes before this work-item: `carry`, and then `own` of its row's work-items before it.
// `carry` becomes that of all.
ALWAYS_INLINE void combine_group(accumulators_t* own, accumulators_t* carry, __local accumulators_t* shared) {
  const int t = get_local_id(0);
  int side = 0;
  shared[t] = *own;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int apart = WIDE; apart < GROUP; apart *= 2) {
    if (t >= apart) {
      accumulators_t before = shared[side + t - apart];
      combine(&before, *own);
      *own = before;
    }
    side ^= GROUP;
    shared[side + t] = *own;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  *own = *carry;
  if (t >= WIDE) combine(own, shared[side + t - WIDE]);
  combine(carry, shared[side + GROUP - WIDE + t % WIDE]);
  barrier(CLK_LOCAL_MEM_FENCE);
}
#endif

__kernel void scan_group(ARGS) {
  __local accumulators_t shared[2 * GROUP];
  const ScanParams* L = &params;
  const long segment = get_global_id(1), t = get_local_id(0), row = (long)get_group_id(0) * WIDE + t % WIDE;
  const long begin = segment * L->segment, last = min(begin + L->segment, L->n), end = row < L->tiles ? last : begin;
  const tile_t T = tile_at(L, IN_PTR, min(row, L->tiles - 1));
  __global uchar *to0 = out0_buf + out0_off + T.out0, *to1 = out1_buf + out1_off + T.out1;
  accumulators_t carry = identity();
  for (long s = 0; s < segment && row < L->tiles && !L->totals; s++) combine(&carry, TOTAL(s, row)[0]);
  for (long at = begin; at < last; at += STEPS) {
    const long first = at + t / WIDE * EACH;
    VT x[EACH];
    accumulators_t own = identity();
    UNROLL for (int k = 0; k < EACH; k++)
      if (first + k < end) {
        x[k] = read_vector(L, &T, first + k, 0);
        step(&own, x[k], first + k);
      }
    combine_group(&own, &carry, shared);
    UNROLL for (int k = 0; k < EACH; k++)
      if (first + k < end && !L->totals) {
        step(&own, x[k], first + k);
        write_lanes(to0 + (first + k) * L->out0_stride, to1 + (first + k) * L->out1_stride, L, 1, own);
      }
  }
  if (L->totals && t < WIDE && row < L->tiles) TOTAL(segment, row)[0] = carry;
}

__kernel void scan_transposed(ARGS) {
  const ScanParams* L = &params;
  const long first = (long)get_global_id(0) * L->tiles_per_item, last = min(first + L->tiles_per_item, L->tiles);
  for (long tile = first; tile < last; tile++) {
    const tile_t T = tile_at(L, IN_PTR, tile);
    __global uchar* to = out0_buf + out0_off + T.out0;
    accumulators_t acc = identity();
    long i = 0;
    for (; i + VEC <= L->n; i += VEC) {
      VT v[VEC];
      UNROLL for (int k = 0; k < VEC; k++)
        v[k] = READ(T.src + i * ELEMENT + min(k, T.width - 1) * L->dims.in[0]);
      TRANSPOSE16(VT, v)
      UNROLL for (int k = 0; k < VEC; k++) {
        step(&acc, v[k], i + k);
        v[k] = acc.v;
      }
      TRANSPOSE16(VT, v)
      for (int k = 0; k < T.width; k++)
        STORE(OUT0, ACC, VEC, (__global STORAGE(OUT0)*)(to + i * sizeof(STORAGE(OUT0)) + k * L->dims.out0[0]), 0, v[k]);
    }
    for (; i < L->n; i++) {
      step(&acc, read_vector(L, &T, i, 0), i);
      write_lanes(to + i * L->out0_stride, 0, L, T.width, acc);
    }
  }
  STORES_DONE();
}
