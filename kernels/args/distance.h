// Arguments of distances (csrc/aten/Distance.cpp, kernels/distance.cl).
#pragma once
#include "args/args.h"
BEGIN_ARGS

typedef struct {
  int64_t batch, rows, columns, m;  // `rows` vectors of m elements against `columns`
  int64_t pairs;                    // only the pairs i < j of one matrix
} DistanceParams;
SAME_SIZE(DistanceParams, 5 * 8)

END_ARGS
