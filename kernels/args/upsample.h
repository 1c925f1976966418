// Arguments of resampling (csrc/aten/Upsample.cpp, kernels/upsample.cl, upsample_lines.cl, upsample_pixels.cl);
// dimensions are depth, height, width.
#pragma once
#include "args/args.h"
BEGIN_ARGS

CONSTANT(kUpsampleBlock, 256)    // columns or rows of a block, at most
CONSTANT(kUpsampleColumns, 160)  // columns of which resample_pixels_backward keeps the sums
CONSTANT(kUpsampleHits, 1024)    // pairs of an input of a block and an output that it is used for, at most

typedef struct {
  int64_t planes, in[3], out[3];
  int64_t align_corners;
} UpsampleParams;
SAME_SIZE(UpsampleParams, 8 * 8)

// The step in the input per step in the output, for each dimension: a double of the host as two floats.
typedef struct {
  float high[3], low[3];
} UpsampleScales;
SAME_SIZE(UpsampleScales, 6 * 4)

// What a work-item of upsample_lines.cl or upsample_pixels.cl writes: some columns of some rows of some planes, with
// all depths.
typedef struct {
  int64_t columns, rows, planes;
  int64_t channels;  // adjacent channels of a pixel, or 1; a plane of the parameters is then an image
  int64_t twice;     // whether along x, outputs 2 i and 2 i + 1 lie a quarter step before and after input i
} UpsampleBlock;
SAME_SIZE(UpsampleBlock, 5 * 8)

// A pass of upsample_aa.cl: x is (outer, in, inner), y is (outer, out, inner).
typedef struct {
  int64_t total, per_item;  // elements that are written
  int64_t in, out, inner, taps;
  int32_t precision, unused;  // precision: bits of integer weights after the binary point, or 0
  float scale, support;
} AntialiasParams;
SAME_SIZE(AntialiasParams, 8 * 8)

END_ARGS
