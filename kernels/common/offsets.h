// Where an element of an input and its results lie (args/dimensions.h).
#include "args/dimensions.h"
#include "common/vector.h"

typedef struct {
  long in, out0, out1;  // bytes
} offsets_t;

// Of element `at` of the dimensions from `first` on.
#if defined(DEVICE_GPU)
// A GPU's compiler copies a struct of arguments to memory if an index into it varies, as do those of loads that
// branches share. So each load stands alone: there are always kMaxDims steps, and a missing dimension adds nothing.
static inline offsets_t offsets_at(const Dimensions* D, long at, int first) {
  offsets_t r = {0, 0, 0};
  UNROLL for (int d = 0; d < kMaxDims; d++) {
    const long size = D->size[d], in = D->in[d], out0 = D->out0[d], out1 = D->out1[d];
    if (d < first) continue;
    const long rest = d + 1 < D->ndim ? at / size : 0, k = at - rest * size;
    r.in += k * in;
    r.out0 += k * out0;
    r.out1 += k * out1;
    at = rest;
  }
  return r;
}
#else
static inline offsets_t offsets_at(const Dimensions* D, long at, int first) {
  offsets_t r = {0, 0, 0};
  for (int d = first; d < D->ndim; d++) {
    if (d == D->ndim - 1) {  // what remains: no division
      r.in += at * D->in[d];
      r.out0 += at * D->out0[d];
      r.out1 += at * D->out1[d];
      break;
    }
    const long rest = at / D->size[d], k = at - rest * D->size[d];
    r.in += k * D->in[d];
    r.out0 += k * D->out0[d];
    r.out1 += k * D->out1[d];
    at = rest;
  }
  return r;
}
#endif
