// Arguments of scans (csrc/aten/Scan.cpp, kernels/scan.cl). All strides count bytes.
#ifndef NETCL_ARGS_SCAN_H
#define NETCL_ARGS_SCAN_H
#include "args/args.h"
BEGIN_ARGS

CONSTANT(kMaxScanDims, 8)

typedef struct {
  int64_t n, in_stride, out0_stride, out1_stride;  // the scanned dimension: length and strides
  int64_t segments, segment;                       // segments of it, and their length
  int64_t tiles, tiles_per_item;                   // a tile is the rows that a work-item takes side by side, or one
  int64_t ndim;                                    // the other dimensions, that with the smallest stride first
  int64_t size[kMaxScanDims], in[kMaxScanDims], out0[kMaxScanDims], out1[kMaxScanDims];
} ScanParams;
SAME_SIZE(ScanParams, 41 * 8)

END_ARGS
#endif
