// Arguments of padding, unfold and fold (csrc/aten/Padding.cpp, kernels/pad.cl).
#pragma once
#include "args/args.h"
BEGIN_ARGS

// Reflection and replication padding.
typedef struct {
  int64_t rows, rows_per_item;  // rows of the output
  int64_t inner;                // elements per position: 1, or all channels if they come last
  int64_t in[3], out[3], before[3];
  int64_t reflect;
} PadParams;
SAME_SIZE(PadParams, 13 * 8)

// unfold, fold: sliding windows over two dimensions; `blocks` is the number of windows in each.
typedef struct {
  int64_t rows, rows_per_item;
  int64_t size[2], ker[2], stride[2], pad[2], dil[2], blocks[2];
} UnfoldParams;
SAME_SIZE(UnfoldParams, 14 * 8)

END_ARGS
