// Resampling of 1 to 3 spatial dimensions (a missing one has size 1), forward and backward, for GPUs, and for sizes
// that the kernels for CPUs do not take (upsample_lines.cl, upsample_pixels.cl). -D: IN, ACC, OP (NEAREST,
// EXACT, LINEAR, CUBIC), NDIM.
#include "common/row_elements.h"
#include "common/upsample_taps.h"

__kernel void resample(BUF(out), BUF(in), const UpsampleParams s, const UpsampleScales scales, long rows_per_item) {
  const Elements E = my_elements(s.planes * s.out[0] * s.out[1], rows_per_item, s.out[2]);
  for (long row = E.first; row < E.last; row++) {
    const long oh = row % s.out[1], od = row / s.out[1] % s.out[0], plane = row / s.out[1] / s.out[0];
    long dat[TAPS] = {0}, hat[TAPS] = {0}, wat[TAPS];
    ST dw[TAPS] = {1}, hw[TAPS] = {1}, ww[TAPS];
    if (NDIM > 2) taps(od, s.in[0], SCALE(0), s.align_corners, dat, dw);
    if (NDIM > 1) taps(oh, s.in[1], SCALE(1), s.align_corners, hat, hw);
    __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN)) + plane * s.in[0] * s.in[1] * s.in[2];
    __global STORAGE(IN)* y = PTR(out, STORAGE(IN)) + row * s.out[2];
    for (long ow = E.begin; ow < E.end; ow++) {
      taps(ow, s.in[2], SCALE(2), s.align_corners, wat, ww);
      if (TAPS == 1) {
        STORE(IN, ACC, 1, y, ow, LOAD(IN, ACC, 1, x, (dat[0] * s.in[1] + hat[0]) * s.in[2] + wat[0]));
        continue;
      }
      ST sum = 0;
      for (int i = 0; i < TAPS_D; i++)
        for (int j = 0; j < TAPS_H; j++) {
          ST line = 0;
          for (int k = 0; k < TAPS; k++)
            line += ww[k] * LOAD(IN, ACC, 1, x, (dat[i] * s.in[1] + hat[j]) * s.in[2] + wat[k]);
          sum += dw[i] * hw[j] * line;
        }
      STORE(IN, ACC, 1, y, ow, sum);
    }
  }
}

// Each input sums over the outputs that use it, in a fixed order.
__kernel void resample_backward(BUF(gin), BUF(grad), const UpsampleParams s, const UpsampleScales scales,
                                long rows_per_item) {
#define FIRST(d, i) first_output(i, s.in[d], s.out[d], SCALE(d), s.align_corners)
#define USES(d, o, i, w) (o < s.out[d] && begins_by(o, i, s.in[d], SCALE(d), s.align_corners, &w))
  const Elements E = my_elements(s.planes * s.in[0] * s.in[1], rows_per_item, s.in[2]);
  for (long row = E.first; row < E.last; row++) {
    const long h = row % s.in[1], d = row / s.in[1] % s.in[0], plane = row / s.in[1] / s.in[0];
    const long first_d = FIRST(0, d), first_h = FIRST(1, h);
    for (long w = E.begin; w < E.end; w++) {
      const long first_w = FIRST(2, w);
      ST dw, hw, ww, sum = 0;
      for (long od = first_d; USES(0, od, d, dw); od++)
        for (long oh = first_h; USES(1, oh, h, hw); oh++) {
          __global const STORAGE(IN)* g =
              PTR(grad, const STORAGE(IN)) + ((plane * s.out[0] + od) * s.out[1] + oh) * s.out[2];
          for (long ow = first_w; USES(2, ow, w, ww); ow++) sum += LOAD(IN, ACC, 1, g, ow) * dw * hw * ww;
        }
      STORE(IN, ACC, 1, PTR(gin, STORAGE(IN)), row * s.in[2] + w, sum);
    }
  }
}
