// Arguments of CTC loss (csrc/aten/CtcLoss.cpp, kernels/ctc_loss.cl).
#pragma once
#include "args/args.h"
BEGIN_ARGS

// `states` of the longest target; `code` is for assertions.
typedef struct {
  int64_t steps, batch, classes, states, blank;
  int64_t code, reverse, zero_infinity;
} CtcParams;
SAME_SIZE(CtcParams, 8 * 8)

END_ARGS
