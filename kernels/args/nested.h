// Arguments of copies between sequences and padded tensors (csrc/aten/Nested.cpp, kernels/nested.cl).
#pragma once
#include "args/scalar.h"
BEGIN_ARGS

typedef struct {
  int64_t batch, length, run;  // sequences; their length in the padded tensor; elements of a row
  int64_t total;               // rows of all sequences
  int64_t shares, pads;        // work-items of a sequence; 1 if it is copied to the padded tensor
  int64_t code;                // for assertions
  Bits padding;
} NestedParams;
SAME_SIZE(NestedParams, 9 * 8)

END_ARGS
