// Arguments of Fourier transforms (csrc/aten/Fft.cpp, kernels/fft.cl, kernels/fft_lines.cl).
#pragma once
#include "args/args.h"
BEGIN_ARGS

// The input has `in_n` of n elements along the dimension, the result `out_n`. Transforms of `done` elements are there.
typedef struct {
  int64_t butterflies;  // of a line, a work-item each
  int64_t lines, inner, n, done, in_n, out_n;
  int64_t normalization, normalized;  // the result is multiplied by `normalized` to the power of 0, -1/2 or -1
} FftPassParams;
SAME_SIZE(FftPassParams, 9 * 8)

// A transform of all `lines`, which have elements `inner` apart: one of `length` complex numbers, which is n, or n / 2.
typedef struct {
  int64_t lines, inner, n, length, in_n, out_n;
  int64_t real_in, real_out, inverse;
  int64_t normalization, normalized;  // as above
  int64_t rows;                       // vectors of a buffer; a work-item has two
  int64_t passes, radices[16];
} FftLinesParams;
SAME_SIZE(FftLinesParams, 29 * 8)

END_ARGS
