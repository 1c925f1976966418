// Resampling of 1 to 3 spatial dimensions (a missing one has size 1), forward and backward, for GPUs, and for sizes
// that the kernels for CPUs do not take (upsample_lines.cl, upsample_pixels.cl). -D: IN, ACC, MODE_NEAREST | MODE_EXACT
// | MODE_LINEAR | MODE_CUBIC, NDIM. The gradient is deterministic, without atomics: one work-item adds to a plane, in a
// fixed order.
#include "common/upsample_taps.h"

// The taps of the row (od, oh) of a plane.
#define ROW_TAPS                                                       \
  long dat[TAPS] = {0}, hat[TAPS] = {0}, wat[TAPS];                    \
  ST dw[TAPS] = {1}, hw[TAPS] = {1}, ww[TAPS];                         \
  if (NDIM > 2) taps(od, s.in[0], SCALE(0), s.align_corners, dat, dw); \
  if (NDIM > 1) taps(oh, s.in[1], SCALE(1), s.align_corners, hat, hw);

// A work-item takes (columns, rows of all planes).
__kernel void resample(BUF(out), BUF(in), const UpsampleParams s, const UpsampleScales scales, long cols_per,
                       long rows_per) {
  const long begin = (long)get_global_id(0) * cols_per, end = min(begin + cols_per, s.out[2]);
  const long rows = s.planes * s.out[0] * s.out[1];
  const long last = min((long)(get_global_id(1) + 1) * rows_per, rows);
  for (long row = get_global_id(1) * rows_per; row < last; row++) {
    const long oh = row % s.out[1], od = row / s.out[1] % s.out[0], plane = row / s.out[1] / s.out[0];
    ROW_TAPS
    __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + plane * s.in[0] * s.in[1] * s.in[2];
    __global STORAGE(IN)* y = PTR(out, STORAGE(IN)) + row * s.out[2];
    for (long ow = begin; ow < end; ow++) {
      taps(ow, s.in[2], SCALE(2), s.align_corners, wat, ww);
#if TAPS == 1
      STORE(IN, ACC, 1, y, ow, LOAD(IN, ACC, 1, x, (dat[0] * s.in[1] + hat[0]) * s.in[2] + wat[0]));
#else
      ST sum = 0;
      for (int i = 0; i < TAPS_D; i++)
        for (int j = 0; j < TAPS_H; j++) {
          ST line = 0;
          for (int k = 0; k < TAPS; k++)
            line += ww[k] * LOAD(IN, ACC, 1, x, (dat[i] * s.in[1] + hat[j]) * s.in[2] + wat[k]);
          sum += dw[i] * hw[j] * line;
        }
      STORE(IN, ACC, 1, y, ow, sum);
#endif
    }
  }
}

// Adds to a gradient of the compute type that must be zero.
__kernel void resample_backward(BUF(gin), BUF(grad), const UpsampleParams s, const UpsampleScales scales) {
  const long plane = get_global_id(0);
  if (plane >= s.planes) return;
  __global ST* x = PTR(gin, ST) + plane * s.in[0] * s.in[1] * s.in[2];
  __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN)) + plane * s.out[0] * s.out[1] * s.out[2];
  for (long od = 0; od < s.out[0]; od++)
    for (long oh = 0; oh < s.out[1]; oh++) {
      ROW_TAPS
      for (long ow = 0; ow < s.out[2]; ow++) {
        taps(ow, s.in[2], SCALE(2), s.align_corners, wat, ww);
        const ST v = LOAD(IN, ACC, 1, g, (od * s.out[1] + oh) * s.out[2] + ow);
        for (int i = 0; i < TAPS_D; i++)
          for (int j = 0; j < TAPS_H; j++)
            for (int k = 0; k < TAPS; k++)
              x[(dat[i] * s.in[1] + hat[j]) * s.in[2] + wat[k]] += v * dw[i] * hw[j] * ww[k];
      }
    }
}
