// Arguments of reductions (csrc/aten/support/Reduce.cpp, kernels/reduce). All strides count bytes.
#ifndef NETCL_ARGS_REDUCE_H
#define NETCL_ARGS_REDUCE_H
#include "args/dimensions.h"
BEGIN_ARGS

CONSTANT(kReduceBlock, 16384)  // elements of a row that reduce_inner adds up in one set of lanes
CONSTANT(kReduceRows, 256)     // rows that reduce_outer adds up before it begins anew

typedef struct {
  int64_t outputs, reduced;       // results; elements that make one
  int64_t segments, segment;      // segments of those, and their length
  int64_t tiles, tiles_per_item;  // a tile is the outputs that a work-item makes side by side, or one
  int64_t has_partial;            // whether accumulators are kept for reduce_combine, which follows
  // Dimensions with the smallest stride of the input first.
  Dimensions kept;
  int64_t reduced_dims, reduced_size[kMaxDims], reduced_in[kMaxDims];
  uint64_t p0;  // the operator's parameter: bits of a float, or of a double if the compute type is one
} ReduceParams;
SAME_SIZE(ReduceParams, 58 * 8)

END_ARGS
#endif
