// Arguments of cat, tril, triu and unfold's gradient (csrc/aten/Shape.cpp, kernels/shape.cl).
#pragma once
#include "args/scalar.h"
BEGIN_ARGS

CONSTANT(kMaxCatInputs, 8)
CONSTANT(kMaxTriangleDims, 8)

// cat: eight contiguous inputs side by side. Row r of input k (width[k] elements) goes to column start[k] of the
// output's row r.
typedef struct {
  int64_t rows, out_width;
  int64_t per_item;  // consecutive elements of one input
  int64_t width[kMaxCatInputs], start[kMaxCatInputs];
} CatParams;
SAME_SIZE(CatParams, 19 * 8)

// sequence: n numbers, of the compute type. kind 0: linspace, exact at both ends and symmetric; 1: logspace, base **
// linspace; 2: start + i * step.
typedef struct {
  int64_t kind, n, per_item;
  Bits start, end, step, base;
} SequenceParams;
SAME_SIZE(SequenceParams, 11 * 8)

// triangle: strides in elements.
typedef struct {
  int64_t rows, columns, batches, rows_per_item, diagonal, upper, ndim;
  int64_t out_row, out_column, in_row, in_column;
  int64_t size[kMaxTriangleDims], out_stride[kMaxTriangleDims], in_stride[kMaxTriangleDims];
} TriangleParams;
SAME_SIZE(TriangleParams, 35 * 8)

// unfold_backward: grad [outer, windows, inner, size], out [outer, length, inner].
typedef struct {
  int64_t length, inner, windows, size, step, per_item, total;
} UnfoldBackwardParams;
SAME_SIZE(UnfoldBackwardParams, 7 * 8)

END_ARGS
