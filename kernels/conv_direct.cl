// Direct convolution, vectors along a row of pixels: for depthwise convolutions and others with few output channels
// a group, where a tile of channels would be empty. See csrc/aten/Convolution.cpp.
// -D DIRECT_<kernel>, ACC (compute tag), IN / OUT (storage tags), OFFSET (type of the tables), VEC,
// NCO (output channels of a group).
#include "dtypes.h"

typedef CTYPE(ACC) ST;
typedef VTYPE(ACC, VEC) VT;

typedef struct {
  long rows, rows_per_item, width, height;  // of the pixel grid: rows = depth * height
  long nred, images, groups, c_out;
  long x_image, x_group, x_z, x_y, x_x;
  long out_image, out_group, out_channel, out_z, out_y, out_x;
  long w_group, w_out;
} direct_t;

// VEC elements, `step` apart; a step of 2 reads nothing beyond the last of them.
inline VT load_row(__global const ST *p, long step) {
  if (step == 1) return CAT(VLOAD_, VEC)(0, p);
  if (step == 2) return (VT)(CAT(VLOAD_, VEC)(0, p).even, CAT(VLOAD_, VEC)(0, p + VEC - 1).odd);
  ST v[VEC];
  for (int k = 0; k < VEC; k++) v[k] = p[k * step];
  return CAT(VLOAD_, VEC)(0, v);
}

#ifdef DIRECT_PASS
// A work-item computes NCO output channels at once, each from the same pixels. x has room behind its last row: a
// vector may reach beyond it.
__kernel void conv_direct(BUF(x), BUF(x_table), BUF(w), BUF(w_table), BUF(bias), BUF(out), const direct_t P) {
  const long plane = get_global_id(1), group = plane % P.groups, image = plane / P.groups;
  __global const ST *x = PTR(x, const ST) + image * P.x_image + group * P.x_group;
  __global const ST *w = PTR(w, const ST) + group * P.w_group;
  __global const OFFSET *x_table = PTR(x_table, const OFFSET), *w_table = PTR(w_table, const OFFSET);
  __global STORAGE(OUT) *out = PTR(out, STORAGE(OUT)) + image * P.out_image + group * P.out_group;
  const long first = (long)get_global_id(0) * P.rows_per_item, last = min(first + P.rows_per_item, P.rows);
  for (long row = first; row < last; row++) {
    const long z = row / P.height, y = row - z * P.height;
    __global const ST *from = x + z * P.x_z + y * P.x_y;
    __global STORAGE(OUT) *to = out + z * P.out_z + y * P.out_y;
    for (long at = 0; at < P.width; at += VEC) {
      __global const ST *p = from + at * P.x_x;
      VT sum[NCO];
#pragma unroll
      for (int co = 0; co < NCO; co++) sum[co] = (VT)(bias_buf ? PTR(bias, const ST)[group * NCO + co] : 0);
#define TAPS(load)                                                                                               \
  for (long r = 0; r < P.nred; r++) {                                                                            \
    const VT v = load;                                                                                           \
    __global const ST *wr = w + w_table[r];                                                                      \
    _Pragma("unroll") for (int co = 0; co < NCO; co++) sum[co] = fma(v, (VT)(wr[co * P.w_out]), sum[co]);        \
  }
      if (P.x_x == 1) {
        TAPS(CAT(VLOAD_, VEC)(0, p + x_table[r]))
      } else {
        TAPS(load_row(p + x_table[r], P.x_x))
      }
#pragma unroll
      for (int co = 0; co < NCO; co++) {
        __global STORAGE(OUT) *o = to + co * P.out_channel;
        if (at + VEC <= P.width && P.out_x == 1) {
          STORE(OUT, ACC, VEC, o, at, sum[co]);
        } else {
          ST v[VEC];
          CAT(VSTORE_, VEC)(sum[co], 0, v);
          const int lanes = (int)min((long)VEC, P.width - at);
          for (int k = 0; k < lanes; k++) STORE(OUT, ACC, 1, o, (at + k) * P.out_x, v[k]);
        }
      }
    }
  }
}
#endif

#ifdef DIRECT_WEIGHT
// One work-item a weight: the product of a plane of dy and a shifted plane of x, over all images. c_out is the
// number of channels of dy in a group, out_* its strides.
__kernel void conv_direct_weight(BUF(x), BUF(x_table), BUF(dy), BUF(dw), const direct_t P) {
  const long r = get_global_id(0), channel = get_global_id(1), group = channel / P.c_out;
  if (r >= P.nred) return;
  __global const ST *x = PTR(x, const ST) + group * P.x_group + PTR(x_table, const OFFSET)[r];
  __global const STORAGE(IN) *dy = PTR(dy, const STORAGE(IN)) + channel * P.out_channel;
  VT sums = (VT)(0);
  ST sum = 0;
  for (long image = 0; image < P.images; image++) {
    VT part = (VT)(0);  // of an image: short sums lose less
    for (long z = 0; z * P.height < P.rows; z++)
      for (long y = 0; y < P.height; y++) {
        __global const ST *p = x + image * P.x_image + z * P.x_z + y * P.x_y;
        __global const STORAGE(IN) *g = dy + image * P.out_image + z * P.out_z + y * P.out_y;
        long at = 0;
        for (; at + VEC <= P.width; at += VEC)
          part = fma(load_row(p + at * P.x_x, P.x_x), LOAD(IN, ACC, VEC, g, at), part);
        for (; at < P.width; at++) sum = fma(p[at * P.x_x], LOAD(IN, ACC, 1, g, at), sum);
      }
    sums += part;
  }
  ST lanes[VEC];
  CAT(VSTORE_, VEC)(sums, 0, lanes);
  for (int k = 0; k < VEC; k++) sum += lanes[k];
  STORE(OUT, ACC, 1, PTR(dw, STORAGE(OUT)), channel * P.nred + r, sum);
}
#endif
