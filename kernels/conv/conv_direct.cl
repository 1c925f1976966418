// Direct convolution, vectors along a row of pixels: for depthwise convolutions and others with few output channels
// a group, where a tile of channels would be empty. See csrc/aten/conv/Convolution.cpp.
// -D DIRECT_<kernel>, ACC (compute tag), IN / OUT (storage tags), OFFSET (type of the tables), VEC,
// NCO (output channels of a group), TAPS (weights of a work-item).
#include "args/conv.h"
#include "common/dtypes.h"

typedef CTYPE(ACC) ST;
typedef VTYPE(ACC, VEC) VT;

// VEC elements, `step` apart; a step of 2 reads nothing beyond the last of them.
inline VT load_row(__global const ST *p, long step) {
  if (step == 1) return CAT(VLOAD_, VEC)(0, p);
  if (step == 2) return (VT)(CAT(VLOAD_, VEC)(0, p).even, CAT(VLOAD_, VEC)(0, p + VEC - 1).odd);
  ST v[VEC];
  for (int k = 0; k < VEC; k++) v[k] = p[k * step];
  return CAT(VLOAD_, VEC)(0, v);
}

#ifdef DIRECT_PASS
// Rows at once, so that a weight and its offsets are read once for all of them.
#define BLOCK (NCO == 1 ? 4 : NCO == 2 ? 2 : 1)

// A work-item computes NCO output channels at once, each from the same pixels. x has room behind its last row: a
// vector may reach beyond it.
__kernel void conv_direct(BUF(x), BUF(x_table), BUF(w), BUF(w_table), BUF(bias), BUF(out), const ConvDirectParams P) {
  __global const OFFSET *x_table = PTR(x_table, const OFFSET), *w_table = PTR(w_table, const OFFSET);
  const long first = (long)get_global_id(0) * P.rows_per_item, last = min(first + P.rows_per_item, P.rows);
  const long end = min((long)(get_global_id(1) + 1) * P.planes_per_item, P.planes);
  for (long plane = get_global_id(1) * P.planes_per_item; plane < end; plane++) {
    const long image = plane / P.groups, group = plane - image * P.groups;
    __global const ST *x = PTR(x, const ST) + image * P.x_image + group * P.x_group;
    __global const ST *w = PTR(w, const ST) + group * P.w_group;
    __global STORAGE(OUT) *out = PTR(out, STORAGE(OUT)) + image * P.out_image + group * P.out_group;
    for (long row = first; row < last; row += BLOCK) {
      __global const ST *from[BLOCK];
      __global STORAGE(OUT) *to[BLOCK];
#pragma unroll
      for (int b = 0; b < BLOCK; b++) {
        const long at = min(row + b, last - 1), z = at / P.height, y = at - z * P.height;
        from[b] = x + z * P.x_z + y * P.x_y;
        to[b] = out + z * P.out_z + y * P.out_y;
      }
      for (long at = 0; at < P.width; at += VEC) {
        const long x_at = at * P.x_x;
        VT sum[BLOCK][NCO];
#pragma unroll
        for (int co = 0; co < NCO; co++) {
          const VT start = (VT)(bias_buf ? PTR(bias, const ST)[group * NCO + co] : 0);
#pragma unroll
          for (int b = 0; b < BLOCK; b++) sum[b][co] = start;
        }
#define EACH_TAP(load)                                                                                           \
  for (long r = 0; r < P.taps; r++) {                                                                            \
    const long tap = x_at + x_table[r];                                                                          \
    __global const ST *wr = w + w_table[r];                                                                      \
    VT weight[NCO];                                                                                              \
    _Pragma("unroll") for (int co = 0; co < NCO; co++) weight[co] = (VT)(wr[co * P.w_out]);                      \
    _Pragma("unroll") for (int b = 0; b < BLOCK; b++) {                                                          \
      const VT v = load;                                                                                         \
      _Pragma("unroll") for (int co = 0; co < NCO; co++) sum[b][co] = fma(v, weight[co], sum[b][co]);            \
    }                                                                                                            \
  }
        if (P.x_x == 1) {
          EACH_TAP(CAT(VLOAD_, VEC)(0, from[b] + tap))
        } else {
          EACH_TAP(load_row(from[b] + tap, P.x_x))
        }
#pragma unroll
        for (int b = 0; b < BLOCK; b++)
#pragma unroll
          for (int co = 0; co < NCO; co++) {
            if (row + b >= last) continue;
            __global STORAGE(OUT) *o = to[b] + co * P.out_channel;
            if (at + VEC <= P.width && P.out_x == 1) {
              STORE(OUT, ACC, VEC, o, at, sum[b][co]);
            } else {
              ST v[VEC];
              CAT(VSTORE_, VEC)(sum[b][co], 0, v);
              const int lanes = (int)min((long)VEC, P.width - at);
              for (int k = 0; k < lanes; k++) STORE(OUT, ACC, 1, o, (at + k) * P.out_x, v[k]);
            }
          }
      }
    }
  }
}
#endif

#ifdef DIRECT_WEIGHT
// A work-item makes TAPS weights of a channel: products of a plane of dy and shifted planes of x, over all images.
// c_out is the number of channels of dy in a group, out_* its strides.
__kernel void conv_direct_weight(BUF(x), BUF(x_table), BUF(dy), BUF(dw), const ConvDirectParams P) {
  const long r = (long)get_global_id(0) * TAPS;
  if (r >= P.taps) return;
  const long end = min((long)(get_global_id(1) + 1) * P.planes_per_item, P.planes);
  // What whole vectors leave of a row is read by one that ends with it; lanes that were there before are dropped.
  const long whole = P.width - P.width % VEC;
  ST numbers[VEC];
  for (int k = 0; k < VEC; k++) numbers[k] = k;
  const VT number = CAT(VLOAD_, VEC)(0, numbers), seen = (VT)((ST)(VEC - (P.width - whole)));
  for (long channel = get_global_id(1) * P.planes_per_item; channel < end; channel++) {
    __global const ST *x = PTR(x, const ST) + channel / P.c_out * P.x_group;
    __global const STORAGE(IN) *dy = PTR(dy, const STORAGE(IN)) + channel * P.out_channel;
    long tap[TAPS];
    VT sums[TAPS];
    ST sum[TAPS];
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
      tap[t] = PTR(x_table, const OFFSET)[min(r + t, P.taps - 1)];
      sums[t] = (VT)(0);
      sum[t] = 0;
    }
    for (long image = 0; image < P.images; image++) {
      VT part[TAPS];  // of an image: short sums lose less
#pragma unroll
      for (int t = 0; t < TAPS; t++) part[t] = (VT)(0);
#define ROW(load)                                                                                              \
  {                                                                                                            \
    for (long at = 0; at < whole; at += VEC) {                                                                 \
      const VT gv = LOAD(IN, ACC, VEC, g, at);                                                                 \
      _Pragma("unroll") for (int t = 0; t < TAPS; t++) part[t] = fma(load, gv, part[t]);                       \
    }                                                                                                          \
    if (whole < P.width && whole > 0) {                                                                        \
      const long at = P.width - VEC;                                                                           \
      const VT gv = number >= seen ? LOAD(IN, ACC, VEC, g, at) : (VT)(0);                                      \
      _Pragma("unroll") for (int t = 0; t < TAPS; t++) {                                                       \
        const VT xv = load;                                                                                    \
        part[t] = fma(number >= seen ? xv : (VT)(0), gv, part[t]);                                             \
      }                                                                                                        \
    }                                                                                                          \
  }
      for (long z = 0; z * P.height < P.rows; z++)
        for (long y = 0; y < P.height; y++) {
          __global const ST *p = x + image * P.x_image + z * P.x_z + y * P.x_y;
          __global const STORAGE(IN) *g = dy + image * P.out_image + z * P.out_z + y * P.out_y;
          if (P.x_x == 1) {
            ROW(CAT(VLOAD_, VEC)(0, p + tap[t] + at))
          } else {
            ROW(load_row(p + tap[t] + at * P.x_x, P.x_x))
          }
          if (whole == 0) {
            for (long at = 0; at < P.width; at++)
#pragma unroll
              for (int t = 0; t < TAPS; t++) sum[t] = fma(p[tap[t] + at * P.x_x], LOAD(IN, ACC, 1, g, at), sum[t]);
          }
        }
#pragma unroll
      for (int t = 0; t < TAPS; t++) sums[t] += part[t];
    }
#pragma unroll
    for (int t = 0; t < TAPS; t++) {
      if (r + t >= P.taps) continue;
      ST lanes[VEC];
      CAT(VSTORE_, VEC)(sums[t], 0, lanes);
      for (int k = 0; k < VEC; k++) sum[t] += lanes[k];
      STORE(OUT, ACC, 1, PTR(dw, STORAGE(OUT)), channel * P.taps + r + t, sum[t]);
    }
  }
}
#endif
