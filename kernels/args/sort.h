// Arguments of sorting (csrc/aten/Sort.cpp, kernels/sort). All strides count bytes.
#pragma once
#include "args/dimensions.h"
BEGIN_ARGS

CONSTANT(kSortedChunk, 32)  // sorted indices whose rows a work-item adds up (embedding_sorted.cl, scatter_sorted.cl)

CONSTANT(kShortRun, 32)  // up to so many elements are sorted by insertion

typedef struct {
  int64_t rows, n, in_stride, out0_stride, out1_stride;  // rows, their length, strides along them
  int64_t pieces, pieces_per_item;                       // pieces of work in all rows; pieces per work-item
  int64_t piece;                                         // elements per piece
  int64_t width;                                         // length of a sorted run
  int64_t take;                                          // elements of a row that are wanted
  int64_t flip;                                          // -1 for a descending order, else 0
  Dimensions dims;                                       // the dimensions of the rows
} SortParams;
SAME_SIZE(SortParams, 44 * 8)

// searchsorted: n values in rows of `row`. Each row has `bounds` bounds of its own, unless they are `shared`.
typedef struct {
  int64_t n, row, bounds, shared;
  int64_t right;  // whether the place behind equal bounds is wanted
  int64_t per;    // values per work-item
} SearchParams;
SAME_SIZE(SearchParams, 6 * 8)

// Sorting on GPUs (csrc/aten/RadixSort.cpp, kernels/sort/radix.h). A row has fewer than 2^32 elements.
CONSTANT(kRadixEach, 8)      // elements that a work-item holds: a tile is a group's
CONSTANT(kRadixDigits, 256)  // values of a digit
CONSTANT(kRadixChunk, 64)    // tiles whose counts one group adds up
CONSTANT(kShortRow, 1024)    // pairs that sort_rows holds in local memory

typedef struct {
  int64_t rows, n, in_stride, out0_stride, out1_stride;  // as in SortParams
  int64_t tiles, chunks;                                 // of a row
  int64_t shift;                                         // of the digit in the key
  int64_t width;                                         // sort_rows: the power of two that a row is filled up to
  int64_t take, flip;                                    // as in SortParams
  Dimensions dims;                                       // the dimensions of the rows
} RadixParams;
SAME_SIZE(RadixParams, 44 * 8)

END_ARGS
