// Direct convolution with vectors along a row of pixels, for depthwise convolutions and others with few output channels
// per group, for which a tile of channels would be mostly empty. x has room after its last row, since a vector may
// reach beyond it. -D: ACC (compute tag), OUT (storage tag), IDX (dtype of the table), VEC, NCO (output channels per
// group).
#include "conv/conv_rows.h"

// Rows that are computed together, so that a weight and its offsets are read once for all of them.
#define ROWS (NCO == 1 ? 4 : NCO == 2 ? 2 : 1)

typedef struct {
  __global const offset_t *x_tap, *w_tap;
  __global const ST* w;
  long taps, w_out;
} Taps;

// sum[b][co] += VEC pixels of row b * weights, over all taps; `step` is the distance of pixels.
ALWAYS_INLINE void add_taps(const Taps* T, __global const ST* const* row, long step, VT (*sum)[NCO]) {
  for (long r = 0; r < T->taps; r++) {
    const long tap = T->x_tap[r];
    __global const ST* w = T->w + T->w_tap[r];
    VT weight[NCO];
    UNROLL for (int co = 0; co < NCO; co++)
      weight[co] = (VT)(w[co * T->w_out]);
    UNROLL for (int b = 0; b < ROWS; b++) {
      const VT v = load_row(row[b] + tap, step);
      UNROLL for (int co = 0; co < NCO; co++)
        sum[b][co] = fma(v, weight[co], sum[b][co]);
    }
  }
}

// Stores `lanes` of a vector, `step` apart.
ALWAYS_INLINE void store_row(__global STORAGE(OUT)* to, VT sum, int lanes, long step) {
  if (lanes == VEC && step == 1) {
    STORE(OUT, ACC, VEC, to, 0, sum);
    return;
  }
  ST v[VEC];
  CAT(VSTORE_, VEC)(sum, 0, v);
#ifdef DEVICE_CPU
  for (int k = 0; k < lanes; k++) STORE(OUT, ACC, 1, to, k * step, v[k]);
#else  // in registers
  UNROLL for (int k = 0; k < VEC; k++)
    if (k < lanes) STORE(OUT, ACC, 1, to, k * step, v[k]);
#endif
}

// A work-item computes the NCO output channels of its groups at once, each from the same pixels.
__kernel void conv_direct(BUF(x), BUF(x_tap), BUF(w), BUF(w_tap), BUF(bias), BUF(out), const ConvDirectParams P) {
#ifdef DEVICE_CPU
  const long first = (long)get_global_id(0) * P.rows_per_item, last = min(first + P.rows_per_item, P.rows);
  const long plane0 = get_global_id(1) * P.planes_per_item, end = min(plane0 + P.planes_per_item, P.planes);
  const long x0 = 0, x1 = P.width;
#else
  // A vector of ROWS rows; neighbours take the next vectors of these rows.
  const long strips = (P.width + VEC - 1) / VEC, blocks = (P.rows + ROWS - 1) / ROWS;
  const long block = get_global_id(0) / strips, plane0 = block / blocks, end = min(plane0 + 1, P.planes);
  const long first = (block - plane0 * blocks) * ROWS, last = min(first + ROWS, P.rows);
  const long x0 = (get_global_id(0) - block * strips) * VEC, x1 = min(x0 + VEC, P.width);
#endif
  Taps T = {PTR(x_tap, const offset_t), PTR(w_tap, const offset_t), 0, P.taps, P.w_out};
  for (long plane = plane0; plane < end; plane++) {
    const long image = plane / P.groups, group = plane - image * P.groups;
    __global const ST* x = PTR(x, const ST) + image * P.x_image + group * P.x_group;
    __global STORAGE(OUT)* out = PTR(out, STORAGE(OUT)) + image * P.out_image + group * P.out_group;
    T.w = PTR(w, const ST) + group * P.w_group;
    for (long row = first; row < last; row += ROWS) {
      long from[ROWS];
      __global STORAGE(OUT)* to[ROWS];
      UNROLL for (int b = 0; b < ROWS; b++) {
        const long at = min(row + b, last - 1), z = at / P.height, y = at - z * P.height;
        from[b] = z * P.x_z + y * P.x_y;
        to[b] = out + z * P.out_z + y * P.out_y;
      }
      for (long at = x0; at < x1; at += VEC) {
        __global const ST* pixels[ROWS];
        VT sum[ROWS][NCO];
        UNROLL for (int b = 0; b < ROWS; b++)
          pixels[b] = x + from[b] + at * P.x_x;
        UNROLL for (int co = 0; co < NCO; co++) {
          const VT start = (VT)(bias_buf ? PTR(bias, const ST)[group * NCO + co] : 0);
          UNROLL for (int b = 0; b < ROWS; b++)
            sum[b][co] = start;
        }
        if (P.x_x == 1)
          add_taps(&T, pixels, 1, sum);
        else
          add_taps(&T, pixels, P.x_x, sum);
        const int lanes = (int)min((long)VEC, P.width - at);
        UNROLL for (int b = 0; b < ROWS; b++) UNROLL
          for (int co = 0; co < NCO; co++)
            if (row + b < last) store_row(to[b] + co * P.out_channel + at * P.out_x, sum[b][co], lanes, P.out_x);
      }
    }
  }
}
