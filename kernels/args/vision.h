// Arguments of torchvision's operators (csrc/aten/Vision.cpp, csrc/aten/DeformConv.cpp, kernels/vision).
#pragma once
#include "args/rows.h"
BEGIN_ARGS

// nms: n boxes; `size` is n rounded up to whole words of 64. A work-item takes `per` boxes and, of each, the pairs with
// those of `words` words.
typedef struct {
  int64_t n, size, per, words;
  WideFloat threshold;
} NmsParams;
SAME_SIZE(NmsParams, 5 * 8)

typedef struct {
  int64_t rois, images, channels, height, width;  // of the input
  int64_t out_channels, out_h, out_w;
  int64_t block;        // channels of the output per work-item
  int64_t bins_per;     // bins per work-item
  int64_t by_image;     // 1: a work-item takes all regions of an image, and all their bins
  int64_t by_position;  // 1: each bin has channels of its own
} RoiParams;
SAME_SIZE(RoiParams, 12 * 8)

typedef struct {
  int64_t images, channels, height, width;
  int64_t kernel_h, kernel_w, out_h, out_w;
  int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int64_t groups;  // of offsets
  int64_t block;   // channels per work-item
  int64_t per;     // points per work-item
} DeformParams;
SAME_SIZE(DeformParams, 17 * 8)

END_ARGS
