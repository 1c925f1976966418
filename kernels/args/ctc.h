// Arguments of CTC loss (csrc/aten/CtcLoss.cpp, kernels/ctc_loss.cl).
#ifndef NETCL_ARGS_CTC_H
#define NETCL_ARGS_CTC_H
#include "args/args.h"
BEGIN_ARGS

// `states` of the longest target; `code` is for assertions.
typedef struct {
  int64_t steps, batch, classes, states, blank;
  int64_t code, reverse, zero_infinity;
} CtcParams;
SAME_SIZE(CtcParams, 8 * 8)

END_ARGS
#endif
