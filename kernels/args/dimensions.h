// Dimensions that an input and its results have in common: part of the arguments of reductions, scans and sorting
// (csrc/aten/support/Dimensions.h, kernels/common/offsets.h).
#pragma once
#include "args/args.h"
BEGIN_ARGS

CONSTANT(kMaxDims, 8)

// The first dimension runs fastest. Strides count bytes.
typedef struct {
  int64_t ndim;
  int64_t size[kMaxDims], in[kMaxDims], out0[kMaxDims], out1[kMaxDims];
} Dimensions;
SAME_SIZE(Dimensions, 33 * 8)

END_ARGS
