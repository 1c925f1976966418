// Arguments of grid_sample (csrc/aten/GridSampler.cpp, kernels/grid_sample.cl).
#pragma once
#include "args/args.h"
BEGIN_ARGS

typedef struct {
  int64_t n, c;  // images, channels
  int64_t in_d, in_h, in_w;
  int64_t out_d, out_h, out_w;
} GridSampleParams;
SAME_SIZE(GridSampleParams, 8 * 8)

END_ARGS
