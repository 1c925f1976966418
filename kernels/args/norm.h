// Arguments of normalisation.
#pragma once
#include "args/rows.h"
BEGIN_ARGS

// The work-items side by side in layer_norm_columns.
CONSTANT(COLUMN_ITEMS, 16)

// Group norms: a row is `channels` channels of hw elements, and a sample has `groups` rows. Batch norms: hw elements of
// each of `channels` channels lie side by side; with `train`, a gradient is that of a norm by the input's statistics.
typedef struct {
  RowWalk walk;
  int64_t channels, hw, groups, train;
  WideFloat eps, momentum;
} NormParams;
SAME_SIZE(NormParams, 10 * 8)

// Channels_last tensors (csrc/aten/ChannelNorm.cpp, kernels/norm_channels.cl). A tensor is (segments, pixels,
// channels). A segment has statistics of its own, each of `group` channels.
typedef struct {
  int64_t segments, pixels, channels, group;
  int64_t repeats, rows;       // pixels joined into one row of a segment
  int64_t shares, share_rows;  // work-items of a segment, and the rows of each
  int64_t fold_rows;           // rows that are added up before they join longer sums
  int64_t train;               // as in NormParams
  WideFloat eps, momentum;
} ChannelNormParams;
SAME_SIZE(ChannelNormParams, 12 * 8)

// The vectors as long as a row that a work-item has as memory, and the numbers per channel of a share.
CONSTANT(CHANNEL_NORM_TABLES, 6)
CONSTANT(CHANNEL_NORM_MOMENTS, 3)
CONSTANT(CHANNEL_NORM_SUMS, 2)

END_ARGS
