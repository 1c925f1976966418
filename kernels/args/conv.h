// Arguments of the convolution kernels (csrc/aten/conv, kernels/conv). All strides count elements.
#pragma once
#include "args/args.h"
BEGIN_ARGS

// Offsets of indices that are mixed-radix numbers with the digits (outer, d, h, w); w changes fastest.
typedef struct {
  int64_t size[4], stride[4];
} MixedRadix;
SAME_SIZE(MixedRadix, 8 * 8)

// conv_pad: a row is the out_w elements of one (plane, z, y); pad_* zeros precede the input.
typedef struct {
  int64_t rows, rows_per_item;
  int64_t out_d, out_h, out_w, in_d, in_h, in_w;
  int64_t pad_d, pad_h, pad_w;
} ConvPadParams;
SAME_SIZE(ConvPadParams, 11 * 8)

// conv_pack, conv_panels: packs the k x n operand of conv_gemm or conv_tiled into panels of columns.
typedef struct {
  int64_t k, n, panels;
  int64_t k_per_item;
  int64_t src_group;   // from one group's source to the next group's
  int64_t src_end;     // elements of the source
  int64_t contiguous;  // from each multiple of this number on, this many offsets of the table are consecutive
  int64_t lines;       // conv_panels: whether the elements of a column are neighbours
} ConvPackParams;
SAME_SIZE(ConvPackParams, 8 * 8)

// conv_gemm_blocks copies this many taps of so many tiles, and multiplies them by so many panels, before the next ones.
CONSTANT(kBlockTaps, 128)
CONSTANT(kBlockTiles, 4)
CONSTANT(kBlockPanels, 8)

// conv_gemm, conv_tiled, conv_units: out (m x n) = gathered (m x k) * packed (k x n) + bias, for each group. If k is
// split, slice s writes its sum to out + s * out_slice.
typedef struct {
  int64_t m, n, k, groups;
  int64_t m_tiles;                      // tiles per work-item, down; on GPUs: of the result
  int64_t n_panels, n_panels_per_item;  // panels of the packed operand
  int64_t k_slice, out_slice;
  int64_t x_group, out_group;
  int64_t bias_row, bias_col, bias_group;  // strides of the bias, if there is one
  int64_t cols_linear;                     // column j lies at j * out_cols.stride[3]
  int64_t contiguous;                      // as in ConvPackParams
  int64_t packed_col, packed_group;        // conv_units: strides of the packed operand, whose taps are adjacent
  int64_t line;                            // an engine reads the rows in place: points of a line of the padded source
  MixedRadix rows, out_rows, out_cols;     // of the gathered operand, and of the result
} ConvGemmParams;
SAME_SIZE(ConvGemmParams, 43 * 8)

// conv_sum, conv_sum_taps: adds `parts` results of n elements, or of n channels and `taps`.
typedef struct {
  int64_t n, taps, parts;
  int64_t per_item;
  int64_t first, final;  // conv_sum: whether these are the first and the last parts
} ConvSumParams;
SAME_SIZE(ConvSumParams, 6 * 8)

// conv_direct, conv_direct_weight.
typedef struct {
  int64_t rows, rows_per_item, width, height;  // of the pixel grid: rows = depth * height
  int64_t planes, planes_per_item;             // images * groups, or channels of all groups
  int64_t taps, images, groups, c_out;
  int64_t x_image, x_group, x_z, x_y, x_x;
  int64_t out_image, out_group, out_channel, out_z, out_y, out_x;
  int64_t w_group, w_out;
} ConvDirectParams;
SAME_SIZE(ConvDirectParams, 23 * 8)

// conv_depthwise, conv_depthwise_weight.
typedef struct {
  int64_t planes, planes_per_item;       // (image, channel) pairs, or channels of the output
  int64_t images, channels, multiplier;  // channels of the input, and of the output for each of them
  int64_t in_h, in_w, out_h, out_w;
  int64_t lo_h, lo_w, row_w;  // zeros in front; elements of an input row that are used
  int64_t step_h, strip;      // stride; output rows that are computed together
  int64_t reversed;           // whether the kernel is read backwards
} ConvDepthwiseParams;
SAME_SIZE(ConvDepthwiseParams, 15 * 8)

// conv_channels*.cl: in each dimension, tap t of the grid's pixel i lies at first + i * step + t * apart in the source.
CONSTANT(CONV_MOST_TAP_ROWS, 64)
typedef struct {
  int64_t channels, groups, point;  // channels of a sum or of the result; elements from one pixel to the next
  int64_t rows, rows_per_item;      // of the grid: images * depth * height
  int64_t depth, height, width;     // of the grid
  int64_t in_d, in_h, in_w;         // of the source
  int64_t step_z, step_y, step_x;
  int64_t first_z, first_y, first_x;
  int64_t taps_z, taps_y, taps_x, apart_z, apart_y, apart_x;
  int64_t out_image, out_z, out_y, out_x;  // strides of the result, or of its gradient
  int64_t w_group, w_out, w_in;            // conv_channels and conv_flat: strides of the weight
  int64_t w_z, w_y, w_x;
  int64_t block;                // conv_channels: the result's channels of a work-item
  int64_t slots, front, pitch;  // conv_flat: rows of a plane that are kept as copies; zeros in front of one; its size
} ConvChannelsParams;
SAME_SIZE(ConvChannelsParams, 37 * 8)

END_ARGS
