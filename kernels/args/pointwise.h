// Arguments of element-wise operators (csrc/aten/support/Pointwise.cpp, kernels/common/pointwise_body.h) with NIN
// inputs and NARGS operands, outputs first. All strides count bytes.
#pragma once
#include "args/args.h"
BEGIN_ARGS

#define OPERAND_COUNTS int NIN, int NARGS
CONSTANT(kMaxPointwiseOuter, 5)
CONSTANT(kMaxPointwisePeriod, 64)
// As inner strides: a CPU scalar passed by value, and values that repeat with a period (`period`).
CONSTANT(kStrideImmediate, -1)
CONSTANT(kStridePeriodic, -2)

TEMPLATE_STRUCT(OPERAND_COUNTS, PointwiseParams) {
  int64_t n, n_per_item;  // of the inner dimension
  int64_t rows, rows_per_item, ndim;
  int64_t period;  // elements, or 0
  int64_t inner[NARGS];
  uint64_t immediate[NIN + 1][2];
};

TEMPLATE_STRUCT(OPERAND_COUNTS, PointwiseOuter) {
  int64_t size[kMaxPointwiseOuter];
  int64_t stride[kMaxPointwiseOuter][NARGS];
};

END_ARGS
