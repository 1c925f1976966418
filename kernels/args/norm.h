// Arguments of normalisation of channels_last tensors (csrc/aten/ChannelNorm.cpp, kernels/norm_channels.cl).
#ifndef NETCL_ARGS_NORM_H
#define NETCL_ARGS_NORM_H
#include "args/args.h"
BEGIN_ARGS

// A tensor is (segments, pixels, channels). A segment has statistics of its own, each of `group` channels.
typedef struct {
  int64_t segments, pixels, channels, group;
  int64_t repeats, rows;       // pixels joined into one row of a segment
  int64_t shares, share_rows;  // work-items of a segment, and the rows of each
  int64_t fold_rows;           // rows that are added up before they join longer sums
} ChannelNormParams;
SAME_SIZE(ChannelNormParams, 9 * 8)

// The vectors as long as a row that a work-item has as memory, and the numbers per channel of a share.
CONSTANT(CHANNEL_NORM_TABLES, 6)
CONSTANT(CHANNEL_NORM_MOMENTS, 3)
CONSTANT(CHANNEL_NORM_SUMS, 2)

END_ARGS
#endif
