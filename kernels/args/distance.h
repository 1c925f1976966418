// Arguments of distances (csrc/aten/Distance.cpp, kernels/distance.cl).
#pragma once
#include "args/args.h"
BEGIN_ARGS

typedef struct {
  int64_t batch, rows, columns, m;  // `rows` vectors of m elements against `columns`
  int64_t pairs, per;               // only the pairs i < j of one matrix; units of work per work-item
} DistanceParams;
SAME_SIZE(DistanceParams, 6 * 8)

END_ARGS
