// Arguments of resampling (csrc/aten/Upsample.cpp, kernels/upsample.cl); dimensions are depth, height, width.
#ifndef NETCL_ARGS_UPSAMPLE_H
#define NETCL_ARGS_UPSAMPLE_H
#include "args/args.h"
BEGIN_ARGS

typedef struct {
  int64_t planes, in[3], out[3];
  int64_t align_corners;
} UpsampleParams;
SAME_SIZE(UpsampleParams, 8 * 8)

// The step in the input per step in the output, for each dimension: a double of the host as two floats.
typedef struct {
  float high[3], low[3];
} UpsampleScales;
SAME_SIZE(UpsampleScales, 6 * 4)

END_ARGS
#endif
