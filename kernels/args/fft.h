// Arguments of Fourier transforms (csrc/aten/Fft.cpp, kernels/fft.cl).
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

END_ARGS
