// Operators without inputs; `index` is the position in the flat output.
#include "common/pointwise.h"

#define OP_fill() (s0)
#define OP_arange() (s0 + index * s1)
// Computes from the nearer end, as CPU and CUDA do, so that the last element is exactly `end`.
#define OP_linspace() (index * 2 < s2 ? s0 + index * LINSPACE_STEP : s1 - (s2 - 1 - index) * LINSPACE_STEP)
#define LINSPACE_STEP ((s1 - s0) / (s2 - 1))

#include "common/pointwise_body.h"
