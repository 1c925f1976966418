// Arguments of indexed operators (csrc/aten/support/IndexSpace.cpp, kernels/common/index_space.h).
#pragma once
#include "args/scalar.h"
BEGIN_ARGS

CONSTANT(kMaxIndexOuter, 6)
CONSTANT(kMaxIndices, 8)
CONSTANT(kMaxIndexOps, 10)  // destination, source, indices

typedef struct {
  int64_t n, n_per_item;        // length of the inner dimension, and elements of it per work-item
  int64_t rows, rows_per_item;  // product of the outer dimensions
  int64_t ndim;                 // outer dimensions
  int64_t wrap;                 // whether an index may be negative
  int64_t size[kMaxIndexOuter];
  int64_t inner[kMaxIndexOps];  // strides in bytes along the inner dimension; `stride` has those along the outer ones
  int64_t stride[kMaxIndexOuter][kMaxIndexOps];
  int64_t index_size[kMaxIndices], index_stride[kMaxIndices];  // of the dimension that an index selects from
} IndexSpaceParams;
SAME_SIZE(IndexSpaceParams, (6 + 6 + 10 + 60 + 16) * 8)

// What a reduction adds up: source values, multiplied by alpha if `scaled` (index_add), or alpha itself if `fill`.
typedef struct {
  Bits alpha;
  int32_t scaled, fill;
} IndexedTerm;
SAME_SIZE(IndexedTerm, 3 * 8)

END_ARGS
