// Depthwise convolutions of channels_last images on a CPU, and those with groups of two or four channels: see
// conv_channels.h.
// -D: also KW (taps along a row), STEP and APART (distance of a row's pixels, and of its taps, in the source), REVERSED
// (1 if the last tap of a row comes first in the source), GROUP (channels per group: 1, 2 or 4).
#include "conv/conv_channels.h"

// The pixels of the source from the first tap of X pixels to the last.
#define SPAN ((X - 1) * STEP + (KW - 1) * APART + 1)

// Copies channel g of each group to all lanes of the group.
#define SPREAD_LANES(v, size, g) (v).CAT(CAT3(LANES_, size, g), CAT(_, VEC))
#define LANES_2_0_4 s0022
#define LANES_2_1_4 s1133
#define LANES_2_0_8 s00224466
#define LANES_2_1_8 s11335577
#define LANES_2_0_16 s0022446688aaccee
#define LANES_2_1_16 s1133557799bbddff
#define LANES_4_0_4 s0000
#define LANES_4_1_4 s1111
#define LANES_4_2_4 s2222
#define LANES_4_3_4 s3333
#define LANES_4_0_8 s00004444
#define LANES_4_1_8 s11115555
#define LANES_4_2_8 s22226666
#define LANES_4_3_8 s33337777
#define LANES_4_0_16 s000044448888cccc
#define LANES_4_1_16 s111155559999dddd
#define LANES_4_2_16 s22226666aaaaeeee
#define LANES_4_3_16 s33337777bbbbffff
#if GROUP == 1
#define SPREAD(v, g) (v)
#elif GROUP == 2
#define SPREAD(v, g) ((g) == 0 ? SPREAD_LANES(v, 2, _0) : SPREAD_LANES(v, 2, _1))
#else
#define SPREAD(v, g)                                                      \
  ((g) < 2 ? ((g) == 0 ? SPREAD_LANES(v, 4, _0) : SPREAD_LANES(v, 4, _1)) \
           : ((g) == 2 ? SPREAD_LANES(v, 4, _2) : SPREAD_LANES(v, 4, _3)))
#endif

// Loads a vector of each pixel of the source from x on, which is pixel `first` of its row; missing ones are zeros.
ALWAYS_INLINE void load_pixels(__global const STORAGE(IO)* x, long first, bool inside, const ConvChannelsParams* P,
                               VT* v) {
  UNROLL for (int j = 0; j < SPAN; j++)
    v[j] = inside || (first + j >= 0 && first + j < P->in_w) ? LOAD(IO, ACC, VEC, x, j * P->point) : (VT)(0);
}

// Adds the products of the taps of pixel i to sum[i].
ALWAYS_INLINE void add_taps(__global const STORAGE(IO)* x, __global const ST* w, const GridRow* R, long first,
                            bool inside, const ConvChannelsParams* P, VT* sum) {
  for (int r = 0; r < R->count; r++) {
    __global const ST* weights = w + R->tap[r] * (KW * GROUP) * P->channels;
    VT v[SPAN];
    load_pixels(x + R->from[r], first, inside, P, v);
    UNROLL for (int k = 0; k < KW; k++) UNROLL
      for (int g = 0; g < GROUP; g++) {
        const VT weight = CAT(VLOAD_, VEC)(0, weights + ((REVERSED ? KW - 1 - k : k) * GROUP + g) * P->channels);
        UNROLL for (int i = 0; i < X; i++)
          sum[i] = fma(SPREAD(v[i * STEP + k * APART], g), weight, sum[i]);
      }
  }
}

// The order of the weights is [tap][channel of a group][channel].
__kernel void conv_channels(BUF(x), BUF(w), BUF(bias), BUF(out), const ConvChannelsParams P) {
  const long begin = get_global_id(0) * P.rows_per_item, end = min(begin + P.rows_per_item, P.rows);
  for (long row = begin; row < end; row++) {
    GridRow R;
    find_row(&P, row, &R);
    for (long at = 0; at < P.width; at += X) {
      const long first = at * STEP + P.first_x;
      const bool inside = first >= 0 && first + SPAN <= P.in_w;
      __global STORAGE(IO)* to = PTR(out, STORAGE(IO)) + R.at + at * P.out_x;
      for (long c = 0; c < P.channels; c += VEC) {
        const long channel = min(c, P.channels - VEC);  // the last vector overlaps the previous one
        __global const STORAGE(IO)* from = PTR(x, const STORAGE(IO)) + first * P.point + channel;
        __global const ST* weights = PTR(w, const ST) + channel;
        VT sum[X];
        VT start = (VT)(0);
        if (bias_buf) start = CAT(VLOAD_, VEC)(0, PTR(bias, const ST) + channel);
        UNROLL for (int i = 0; i < X; i++)
          sum[i] = start;
        if (inside)
          add_taps(from, weights, &R, first, true, &P, sum);
        else
          add_taps(from, weights, &R, first, false, &P, sum);
        UNROLL for (int i = 0; i < X; i++)
          if (at + i < P.width) STORE(IO, ACC, VEC, to + i * P.out_x + channel, 0, sum[i]);
      }
    }
  }
}

// part[k][channel of a group] += the source at tap k of each pixel * dy of the pixel. Taps outside are skipped, and so
// are pixels from `count` on.
ALWAYS_INLINE void add_products(__global const STORAGE(IO)* x, __global const STORAGE(IO)* dy, long first, int count,
                                bool inside, const ConvChannelsParams* P, VT* part) {
  VT v[SPAN];
  load_pixels(x, first, inside, P, v);
  UNROLL for (int i = 0; i < X; i++) {
    if (!inside && i >= count) continue;
    const VT g = LOAD(IO, ACC, VEC, dy, i * P->out_x);
    UNROLL for (int k = 0; k < KW; k++) {
      const long at = first + i * STEP + k * APART;
      if (!inside && (at < 0 || at >= P->in_w)) continue;
      UNROLL for (int c = 0; c < GROUP; c++)
        part[k * GROUP + c] = fma(SPREAD(v[i * STEP + k * APART], c), g, part[k * GROUP + c]);
    }
  }
}

// The gradient of the weight. Each work-item sums its rows to sum[item][tap][channel of a group][channel],
// which conv_sum_taps in conv_sum.cl adds up.
__kernel void conv_channels_weight(BUF(x), BUF(dy), BUF(sum), const ConvChannelsParams P) {
  const long begin = get_global_id(0) * P.rows_per_item, end = min(begin + P.rows_per_item, P.rows);
  const long taps = P.taps_z * P.taps_y * KW * GROUP;
  __global ST* sum = PTR(sum, ST) + get_global_id(0) * taps * P.channels;
  for (long i = 0; i < taps * P.channels; i++) sum[i] = 0;
  for (long row = begin; row < end; row++) {
    GridRow R;
    find_row(&P, row, &R);
    for (long at = 0; at < P.width; at += X) {
      const long first = at * STEP + P.first_x;
      const int count = (int)min((long)X, P.width - at);
      const bool inside = count == X && first >= 0 && first + SPAN <= P.in_w;
      for (long c = 0; c < P.channels; c += VEC) {
        const long channel = min(c, P.channels - VEC);
        __global const STORAGE(IO)* dy = PTR(dy, const STORAGE(IO)) + R.at + at * P.out_x + channel;
        for (int r = 0; r < R.count; r++) {
          __global const STORAGE(IO)* from = PTR(x, const STORAGE(IO)) + R.from[r] + first * P.point + channel;
          __global ST* to = sum + R.tap[r] * (KW * GROUP) * P.channels + channel;
          VT part[KW * GROUP];
          UNROLL for (int k = 0; k < KW * GROUP; k++)
            part[k] = (VT)(0);
          if (inside)
            add_products(from, dy, first, X, true, &P, part);
          else
            add_products(from, dy, first, count, false, &P, part);
          if (channel != c) {  // leave out lanes that the previous vector has
            UNROLL for (int k = 0; k < KW * GROUP; k++)
              part[k] = (VT)LANE_NUMBERS(VEC) >= (VT)((ST)(c - channel)) ? part[k] : (VT)(0);
          }
          UNROLL for (int k = 0; k < KW * GROUP; k++)
            CAT(VSTORE_, VEC)(CAT(VLOAD_, VEC)(0, to + k * P.channels) + part[k], 0, to + k * P.channels);
        }
      }
    }
  }
}
