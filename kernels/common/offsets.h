// Where an element of an input and its results lie (args/dimensions.h).
#ifndef NETCL_OFFSETS_H
#define NETCL_OFFSETS_H
#include "args/dimensions.h"
#include "common/common.h"

typedef struct {
  long in, out0, out1;  // bytes
} offsets_t;

// Of element `at` of the dimensions from `first` on.
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
