// A number whose type only a kernel's -D options determine (kernels/common/scalar.h): its bits, the first ones in
// `low`.
#pragma once
#include "args/args.h"
BEGIN_ARGS

typedef struct {
  uint64_t low, high;
} Bits;
SAME_SIZE(Bits, 2 * 8)

END_ARGS
