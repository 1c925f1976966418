// How a kernel that includes kernels/common/walk.h visits rows (csrc/aten/support/Walk.h).
#pragma once
#include "args/args.h"
BEGIN_ARGS

// `rows` rows of n elements, of which a work-item or group takes `rows_per`. In columns and runs, it takes `rows_per`
// elements of a row, a share. In columns, `inner` rows lie side by side; in runs, rows take turns, each with `inner`
// elements.
typedef struct {
  int64_t rows, rows_per, n, inner;
} RowWalk;
SAME_SIZE(RowWalk, 4 * 8)

// A double as two floats, since a device without fp64 takes no double as an argument.
typedef struct {
  float high, low;
} WideFloat;

END_ARGS
