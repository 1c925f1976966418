// Arguments of reductions (csrc/aten/support/Reduce.cpp, kernels/reduce). All strides count bytes.
#pragma once
#include "args/dimensions.h"
BEGIN_ARGS

CONSTANT(kReduceBlock, 16384)  // elements of a row that reduce_inner sums before it adds the sums to a total
CONSTANT(kReduceRows, 256)     // rows that reduce_outer sums before it adds the sums to a total

typedef struct {
  int64_t outputs, reduced;       // number of results; elements per result
  int64_t segments, segment;      // segments of these elements; elements per segment
  int64_t tiles, tiles_per_item;  // a tile is the outputs that a work-item computes side by side, or one output
  int64_t has_partial;            // whether accumulators are stored for reduce_combine, which follows
  // Dimensions are sorted by the input's stride, smallest first.
  Dimensions kept;
  int64_t reduced_dims, reduced_size[kMaxDims], reduced_in[kMaxDims];
  uint64_t p0;  // the operator's parameter: bits of a float, or of a double if the compute type is double
} ReduceParams;
SAME_SIZE(ReduceParams, 58 * 8)

// segment_reduce: data of (outer, rows, inner) in `count` segments. `given`: `start` is the caller's.
typedef struct {
  int64_t outer, rows, inner, count;
  float start, start_low;
  int32_t given, per;
} SegmentParams;
SAME_SIZE(SegmentParams, 6 * 8)

END_ARGS
