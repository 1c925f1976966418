// Arguments of masks (csrc/aten/Masked.cpp, kernels/masked.cl).
#pragma once
#include "args/args.h"
BEGIN_ARGS

CONSTANT(kMaxFillOuter, 6)
CONSTANT(kMaxPositionDims, 16)

// masked_fill: strides of the output and of the mask, in bytes.
typedef struct {
  int64_t n, n_per_item, rows, rows_per_item, ndim;
  int64_t out_inner, mask_inner;
  int64_t size[kMaxFillOuter], out_stride[kMaxFillOuter], mask_stride[kMaxFillOuter];
} MaskedFillParams;
SAME_SIZE(MaskedFillParams, 25 * 8)

// Compaction of n elements in chunks. An element counts as non-zero if it has a bit of `low` (`high`: for the second
// half of 16 bytes), which are all but the signs of floating-point numbers. With `spreads`, `move` reads up to `size`
// elements; `code` is for assertions.
typedef struct {
  int64_t n, chunk;
  uint64_t low, high;
  int64_t spreads, size, code;
} ChunkParams;
SAME_SIZE(ChunkParams, 7 * 8)

// positions (nonzero): at most `limit` positions are written; strides in elements. The last dimension comes first.
typedef struct {
  int64_t ndim, limit;
  int64_t out_row, out_column;
  int64_t size[kMaxPositionDims];
} PositionParams;
SAME_SIZE(PositionParams, 20 * 8)

END_ARGS
