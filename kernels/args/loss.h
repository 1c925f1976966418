// Arguments of losses over classes.
#pragma once
#include "args/rows.h"
BEGIN_ARGS

// A work-item takes `per` of n elements. `each`: one output gradient per element. `code` is for assertions.
typedef struct {
  int64_t n, per, classes, inner, ignore, code, each, mean;
} NllParams;
SAME_SIZE(NllParams, 8 * 8)

// Losses by margins: a row's gradient is multiplied by `scale`.
typedef struct {
  int64_t rows, classes, power, code, each;
  WideFloat margin, scale;
} MarginParams;
SAME_SIZE(MarginParams, 7 * 8)

// binary_cross_entropy: a work-item takes `per` of n elements.
typedef struct {
  int64_t n, per;
  int32_t bad_input, bad_target;  // for assertions
} BceParams;
SAME_SIZE(BceParams, 3 * 8)

END_ARGS
