// Arguments of pooling (csrc/aten/Pooling.cpp, kernels/pool*.cl); dimensions are depth, height, width.
#pragma once
#include "args/args.h"
BEGIN_ARGS

typedef struct {
  int64_t rows, rows_per_item;  // rows of the tensor that is written: (plane, z, y)
  int64_t in[3], out[3], ker[3], stride[3], pad[3], dil[3];
  int64_t adaptive, include_pad, divisor;
  int64_t even, even_begin[3], even_end[3];  // windows of the outputs in these ranges have `even` elements
  int64_t sampled;                           // windows begin at random places, along so many of the last dimensions
  int64_t channels, channels_per_item;  // channels that come last, or 1: as many work-items take those of the same rows
                                        // as the quotient, and the last one takes the remainder
} PoolParams;
SAME_SIZE(PoolParams, 33 * 8)

END_ARGS
