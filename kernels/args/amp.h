// Arguments of GradScaler's kernels (csrc/amp/grad_scaler.cpp, kernels/amp.cl).
#pragma once
#include "args/args.h"
BEGIN_ARGS

// A double, and its value as two floats for devices without double.
typedef struct {
  uint64_t bits;
  float high, low;
} ScaleFactor;
SAME_SIZE(ScaleFactor, 16)

END_ARGS
