// Resampling of 2 or 3 spatial dimensions of channels_last tensors on CPUs, forward and backward, with vectors along
// the channels. -D: IN, ACC, OP (NEAREST, EXACT, LINEAR, CUBIC), NDIM, VEC.
#include "common/upsample_blocks.h"

// Copies a pixel to some neighbours.
ALWAYS_INLINE void copy_pixel(__global STORAGE(IN)* to, __global const STORAGE(IN)* from, long channels, long times) {
  FOR_VECTORS(c, channels) {
    const VT v = LOAD(IN, ACC, VEC, from, c);
    for (long k = 0; k < times; k++) STORE(IN, ACC, VEC, to, k * channels + c, v);
  }
}

__kernel void resample_pixels(BUF(out), BUF(in), const UpsampleParams s, const UpsampleScales scales,
                              const UpsampleBlock b) {
  const long C = b.channels;
  BEGIN_OUTPUTS
  for (long image = m.plane; image < m.planes_end; image++)
    for (long od = 0; od < s.out[0]; od++) {
      long dat[TAPS] = {0};
      ST dw[TAPS] = {1};
      if (NDIM > 2) taps(od, s.in[0], SCALE(0), s.align_corners, dat, dw);
      __global const STORAGE(IN)* x = PTR(in, const STORAGE(IN));
      __global STORAGE(IN)* y =
          PTR(out, STORAGE(IN)) + (((image * s.out[0] + od) * s.out[1] + m.row) * s.out[2] + m.column) * C;
      for (int h = 0; h < m.rows_end - m.row; h++, y += s.out[2] * C) {
        __global const STORAGE(IN)* row[PLANE_TAPS];
        ST weight[PLANE_TAPS];
        UNROLL for (int k = 0; k < PLANE_TAPS; k++) {
          const int i = k / TAPS_H, tap = k % TAPS_H * kUpsampleBlock + h;
          const long hat = NDIM > 1 ? down.at[tap] : 0;
          row[k] = x + ((image * s.in[0] + dat[i]) * s.in[1] + hat) * s.in[2] * C;
          weight[k] = dw[i] * (NDIM > 1 ? down.weight[tap] : (ST)1);
        }
#if TAPS == 1
        if (h > 0 && down.at[h] == down.at[h - 1]) {
          copy_elements(y, y - s.out[2] * C, width * C);
          continue;
        }
        for (long o = 0, same; o < width; o += same) {
          same = 1;
          while (o + same < width && across.at[o + same] == across.at[o]) same++;
          copy_pixel(y + o * C, row[0] + across.at[o] * C, C, same);
        }
#else
        for (long o = 0; o < width; o++) FOR_VECTORS(c, C) {
            VT sum = (VT)(0);
            UNROLL for (int k = 0; k < PLANE_TAPS; k++) {
              VT line = (VT)(0);
              UNROLL for (int i = 0; i < TAPS; i++) {
                const int tap = i * kUpsampleBlock + (int)o;
                line += across.weight[tap] * LOAD(IN, ACC, VEC, row[k], across.at[tap] * C + c);
              }
              sum += weight[k] * line;
            }
            STORE(IN, ACC, VEC, y, o * C + c, sum);
          }
#endif
      }
    }
}

__kernel void resample_pixels_backward(BUF(gin), BUF(grad), const UpsampleParams s, const UpsampleScales scales,
                                       const UpsampleBlock b) {
  const block_t m = my_block(&b, s.in, s.planes);
  const long width = m.columns_end - m.column, C = b.channels;
  if (width <= 0) return;
  hits_t across, down, deep;
  FIND_HITS(&across, 2, m.column, m.columns_end);
  FIND_HITS(&down, 1, m.row, m.rows_end);
  const long from = across.from[0], outputs = across.from[width - 1] + across.count[width - 1] - from;
  for (long plane = m.plane; plane < m.planes_end; plane++)
    for (long d = 0; d < s.in[0]; d++) {
      FIND_HITS(&deep, 0, d, d + 1);
      __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN)) + plane * s.out[0] * s.out[1] * s.out[2] * C;
      __global STORAGE(IN)* x =
          PTR(gin, STORAGE(IN)) + (((plane * s.in[0] + d) * s.in[1] + m.row) * s.in[2] + m.column) * C;
      for (int h = 0; h < m.rows_end - m.row; h++, x += s.in[2] * C) {
        const rows_t rows = rows_of(g, &s, &deep, &down, h, s.out[2] * C);
#if TAPS * TAPS_D > 2
        // Each column of the gradient is used for several inputs, so it is added up once. (Two taps do not pay for
        // that.)
        if (outputs <= kUpsampleColumns) {
          FOR_VECTORS(c, C) {
            VT columns[kUpsampleColumns];
            for (long o = 0; o < outputs; o++) {
              VT column = (VT)(0);
              ADD_ROWS(VEC, column, rows, (from + o) * C + c)
              columns[o] = column;
            }
            for (long i = 0; i < width; i++) {
              VT sum = (VT)(0);
              for (int k = 0; k < across.count[i]; k++)
                sum += across.weight[across.first[i] + k] * columns[across.from[i] - from + k];
              STORE(IN, ACC, VEC, x, i * C + c, sum);
            }
          }
          continue;
        }
#endif
        for (long i = 0; i < width; i++) FOR_VECTORS(c, C) {
            VT sum = (VT)(0);
            for (int k = 0; k < across.count[i]; k++) {
              VT column = (VT)(0);
              ADD_ROWS(VEC, column, rows, (across.from[i] + k) * C + c)
              sum += across.weight[across.first[i] + k] * column;
            }
            STORE(IN, ACC, VEC, x, i * C + c, sum);
          }
      }
    }
}
