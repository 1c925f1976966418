// Arguments of recurrent layers (csrc/aten/rnn, kernels/rnn). Strides count elements.
#pragma once
#include "args/args.h"
BEGIN_ARGS

// A cell without its products: a row of `hidden` units, of which a work-item takes `chunk`. hx_row and hy_row are the
// strides between rows of hx, and of hy or its gradient from outside.
typedef struct {
  int64_t hidden, chunk, hx_row, hy_row;
} RnnCellParams;
SAME_SIZE(RnnCellParams, 4 * 8)

// lstm_pack: `parts` matrices of `hidden` units times `depth` elements each.
typedef struct {
  int64_t depth, hidden, parts;
  int64_t part_stride, unit_stride, level_stride;  // between parts, units, and elements of a unit
} LstmPackParams;
SAME_SIZE(LstmPackParams, 6 * 8)

// A time step of `n` rows, of which a work-item takes `rows_each`. The rows that the product reads have `depth`
// elements. hy_row is as in RnnCellParams.
typedef struct {
  int64_t n, hidden, depth, rows_each, hy_row;
  int64_t has_dc;  // whether a gradient reaches the cell states from later steps
} LstmStepParams;
SAME_SIZE(LstmStepParams, 6 * 8)

END_ARGS
