// Arguments of products with quantised weights (csrc/aten/Quantized.cpp, kernels/quantized.cl).
#pragma once
#include "args/args.h"
BEGIN_ARGS

typedef struct {
  int64_t m, n, k;  // rows of x, rows of the weight, and their length
  int64_t group;    // int4: numbers that share a scale and a zero
  int64_t per;      // rows of the weight, or words when packing, for a work-group
  int64_t x_row;    // elements of a row of a work-item's panel
} QuantizedParams;
SAME_SIZE(QuantizedParams, 6 * 8)

END_ARGS
