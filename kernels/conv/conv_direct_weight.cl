// The gradient of a depthwise convolution's weight: products of a plane of dy and shifted planes of x, over all images.
// c_out is the number of channels of dy per group, out_* its strides.
// -D: ACC (compute tag), IN (storage tag of dy), OUT, IDX (dtype of the table), VEC, TAPS (weights per work-item),
// GROUP (on a GPU, the work-items of a work-group).
#include "common/join_group.h"
#include "conv/conv_rows.h"

#ifdef DEVICE_CPU
// The rest of a row is read by a vector that ends with the row. Its lanes below `first` were already counted, so both
// operands become 0 there, since either may be infinite.
ALWAYS_INLINE VT keep_from(VT first, VT v) { return (VT)LANE_NUMBERS(VEC) >= first ? v : (VT)(0); }

// part[t] += a row of pixels of tap t * a row of dy; pixels are `step` apart, elements of dy are adjacent.
ALWAYS_INLINE void add_row(__global const ST* x, const long* tap, long step, __global const STORAGE(IN)* dy, long width,
                           VT* part) {
  const long whole = width - width % VEC, rest = width - VEC;
  for (long at = 0; at < whole; at += VEC) {
    const VT g = LOAD(IN, ACC, VEC, dy, at);
    UNROLL for (int t = 0; t < TAPS; t++)
      part[t] = fma(load_row(x + tap[t] + at * step, step), g, part[t]);
  }
  if (whole == width || whole == 0) return;
  const VT first = (VT)((ST)(VEC - (width - whole)));
  const VT g = keep_from(first, LOAD(IN, ACC, VEC, dy, rest));
  UNROLL for (int t = 0; t < TAPS; t++)
    part[t] = fma(keep_from(first, load_row(x + tap[t] + rest * step, step)), g, part[t]);
}
// The same for a row that is shorter than a vector.
ALWAYS_INLINE void add_short_row(__global const ST* x, const long* tap, long step, __global const STORAGE(IN)* dy,
                                 long width, ST* sum) {
  for (long at = 0; at < width; at++) UNROLL
    for (int t = 0; t < TAPS; t++) sum[t] = fma(x[tap[t] + at * step], LOAD(IN, ACC, 1, dy, at), sum[t]);
}

// A work-item computes TAPS weights of some channels.
__kernel void conv_direct_weight(BUF(x), BUF(x_tap), BUF(dy), BUF(dw), const ConvDirectParams P) {
  const long r = (long)get_global_id(0) * TAPS;
  if (r >= P.taps) return;
  const long end = min((long)(get_global_id(1) + 1) * P.planes_per_item, P.planes);
  for (long channel = get_global_id(1) * P.planes_per_item; channel < end; channel++) {
    __global const ST* x = PTR(x, const ST) + channel / P.c_out * P.x_group;
    __global const STORAGE(IN)* dy = PTR(dy, const STORAGE(IN)) + channel * P.out_channel;
    long tap[TAPS];
    VT sums[TAPS];
    ST sum[TAPS];
    UNROLL for (int t = 0; t < TAPS; t++) {
      tap[t] = PTR(x_tap, const offset_t)[min(r + t, P.taps - 1)];
      sums[t] = (VT)(0);
      sum[t] = 0;
    }
    for (long image = 0; image < P.images; image++) {
      VT part[TAPS];  // sums of an image: short sums lose less
      UNROLL for (int t = 0; t < TAPS; t++)
        part[t] = (VT)(0);
      for (long z = 0; z * P.height < P.rows; z++)
        for (long y = 0; y < P.height; y++) {
          __global const ST* p = x + image * P.x_image + z * P.x_z + y * P.x_y;
          __global const STORAGE(IN)* g = dy + image * P.out_image + z * P.out_z + y * P.out_y;
          if (P.width < VEC)
            add_short_row(p, tap, P.x_x, g, P.width, sum);
          else if (P.x_x == 1)
            add_row(p, tap, 1, g, P.width, part);
          else
            add_row(p, tap, P.x_x, g, P.width, part);
        }
      UNROLL for (int t = 0; t < TAPS; t++)
        sums[t] += part[t];
    }
    UNROLL for (int t = 0; t < TAPS; t++) {
      if (r + t >= P.taps) continue;
      ST lanes[VEC];
      CAT(VSTORE_, VEC)(sums[t], 0, lanes);
      for (int k = 0; k < VEC; k++) sum[t] += lanes[k];
      STORE(OUT, ACC, 1, PTR(dw, STORAGE(OUT)), channel * P.taps + r + t, sum[t]);
    }
  }
}
#else
// A work-group computes TAPS weights of a channel. Its work-items take its pixels in turn.
__kernel void conv_direct_weight(BUF(x), BUF(x_tap), BUF(dy), BUF(dw), const ConvDirectParams P) {
  __local ST total[GROUP];
  const long shares = (P.taps + TAPS - 1) / TAPS, channel = get_group_id(0) / shares;
  const long r = (get_group_id(0) - channel * shares) * TAPS;
  const int id = get_local_id(0);
  __global const ST* x = PTR(x, const ST) + channel / P.c_out * P.x_group;
  __global const STORAGE(IN)* dy = PTR(dy, const STORAGE(IN)) + channel * P.out_channel;
  long tap[TAPS];
  ST sum[TAPS];
  UNROLL for (int t = 0; t < TAPS; t++) {
    tap[t] = PTR(x_tap, const offset_t)[min(r + t, P.taps - 1)];
    sum[t] = 0;
  }
  const uint width = (uint)P.width, height = (uint)P.height, pixels = (uint)P.rows * width;
  for (long image = 0; image < P.images; image++, x += P.x_image, dy += P.out_image) {
    ST part[TAPS];  // sums of an image: short sums lose less
    UNROLL for (int t = 0; t < TAPS; t++)
      part[t] = 0;
    for (uint i = id; i < pixels; i += GROUP) {
      const uint row = i / width, z = row / height, y = row - z * height;
      const long at = i - row * width;
      __global const ST* p = x + z * P.x_z + y * P.x_y + at * P.x_x;
      const ST g = LOAD(IN, ACC, 1, dy, z * P.out_z + y * P.out_y + at);
      UNROLL for (int t = 0; t < TAPS; t++)
        part[t] = fma(p[tap[t]], g, part[t]);
    }
    UNROLL for (int t = 0; t < TAPS; t++)
      sum[t] += part[t];
  }
  UNROLL for (int t = 0; t < TAPS; t++) {
    total[id] = sum[t];
    JOIN_GROUP(id, GROUP, CLK_LOCAL_MEM_FENCE, total[id] += total[id + apart])
    if (id == 0 && r + t < P.taps) STORE(OUT, ACC, 1, PTR(dw, STORAGE(OUT)), channel * P.taps + r + t, total[0]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
#endif
