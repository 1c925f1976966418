// Arguments of sorting (csrc/aten/Sort.cpp, kernels/sort). All strides count bytes.
#ifndef NETCL_ARGS_SORT_H
#define NETCL_ARGS_SORT_H
#include "args/dimensions.h"
BEGIN_ARGS

CONSTANT(kShortRun, 32)  // insertion sort makes runs of this many elements, which are then merged

typedef struct {
  int64_t rows, n, in_stride, out0_stride, out1_stride;  // rows, their length, strides along them
  int64_t pieces, pieces_per_item;                       // pieces of work in all rows; pieces per work-item
  int64_t piece;                                         // elements per piece
  int64_t width;                                         // length of a sorted run
  int64_t take;                                          // elements of a row that are wanted
  Dimensions dims;                                       // the dimensions of the rows
} SortParams;
SAME_SIZE(SortParams, 43 * 8)

END_ARGS
#endif
