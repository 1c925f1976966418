// The positions of a reduction's elements and results, and how a result is written.
// -D: OUT0, and OUT1 for operators with two results (storage tags); TAKE_SQRT of a variance.
#define WHOLE_LOADS  // see common/builtins.h
#include "args/reduce.h"
#include "common/offsets.h"
#include "reduce/accumulators.h"

#define ARGS BUF(out0), BUF(out1), BUF(in), BUF(partial), const ReduceParams params
#define OUT0_PTR (out0_buf + out0_off)
#define OUT1_PTR (out1_buf + out1_off)
// The segments' accumulators; outputs change fastest.
#define PARTIAL PTR(partial, accumulator_t)

// Rounding errors grow with the number of terms that are added one after another. So a long sum is computed in stages;
// each stage adds this many sums of the previous one.
#define SUMS_PER_STAGE 64

// The number of an element among those of a result. NARROW: neither the elements of a result nor their bytes exceed 31
// bits.
#if defined(NARROW)
typedef int place_t;
#else
typedef long place_t;
#endif

// The row of an element. A row is the elements along the first reduced dimension.
static inline place_t reduced_row(const ReduceParams* L, place_t place) {
  return L->reduced_dims > 1 ? place / (place_t)L->reduced_size[0] : 0;
}
static inline place_t reduced_offset(const ReduceParams* L, place_t row) {
  place_t r = 0;
#if defined(DEVICE_GPU)  // as offsets_at()
  UNROLL for (int d = 1; d < kMaxDims; d++) {
    const place_t size = (place_t)L->reduced_size[d], in = (place_t)L->reduced_in[d];
    const place_t rest = d + 1 < L->reduced_dims ? row / size : 0;
    r += (row - rest * size) * in;
    row = rest;
  }
#else
  for (int d = 1; d < L->reduced_dims; d++) {
    const place_t rest = row / L->reduced_size[d];
    r += (row - rest * L->reduced_size[d]) * L->reduced_in[d];
    row = rest;
  }
#endif
  return r;
}

// `first` is the first element that the result is computed from.
static inline void write_result(accumulator_t a, src_t first, __global uchar* out0, __global uchar* out1, param_t p0) {
#if defined(KIND_SIMPLE)
  const ST r = FINISH(a.v);
  WRITE(OUT0, ACC, out0, r);
#elif defined(KIND_ARG) && defined(OUT1)
  WRITE(OUT0, ACC, out0, a.v);
  WRITE(OUT1, i64, out1, a.i);
#elif defined(KIND_ARG)
  WRITE(OUT0, i64, out0, a.i);
#elif defined(KIND_VAR)
  ST r = a.m2 / p0;
#if defined(TAKE_SQRT)
  r = sqrt(r);
#endif
  WRITE(OUT0, ACC, out0, r);
#if defined(OUT1)
  WRITE(OUT1, ACC, out1, a.n == 1 ? READ1(first) : a.mean + READ1(first));  // infinity - infinity is NaN
#endif
#endif
}
