// Arguments of scans (csrc/aten/Scan.cpp, kernels/scan.cl). All strides count bytes.
#pragma once
#include "args/dimensions.h"
BEGIN_ARGS

typedef struct {
  int64_t n, in_stride, out0_stride, out1_stride;  // the scanned dimension: length and strides
  int64_t segments, segment;                       // segments of this dimension; elements per segment
  int64_t tiles, tiles_per_item;                   // a tile is the rows that a work-item scans side by side, or one
  int64_t totals;                                  // whether only the totals of segments are stored
  Dimensions dims;                                 // the other dimensions, smallest stride first
} ScanParams;
SAME_SIZE(ScanParams, 42 * 8)

END_ARGS
