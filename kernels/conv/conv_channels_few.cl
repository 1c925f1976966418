// Convolutions of channels_last images with few output channels per group, on a CPU. The sums over the source's
// channels stay vectors until the end. See conv_channels.h. -D: also NCO (output channels per group).
#include "conv/conv_channels.h"

// Adds one tap of X pixels; `place` is the first one's position in its row of the source. `inside`: all of them exist.
ALWAYS_INLINE void add_tap(__global const STORAGE(IO)* x, __global const ST* w, long w_out, long place, bool inside,
                           const ConvChannelsParams* P, VT (*sum)[NCO]) {
  const long step = P->step_x * P->point;
  bool exists[X];
  UNROLL for (int i = 0; i < X; i++)
    exists[i] = inside || (place + i * P->step_x >= 0 && place + i * P->step_x < P->in_w);
  long c = 0;
  for (; c + VEC <= P->channels; c += VEC) {
    VT weight[NCO];
    UNROLL for (int co = 0; co < NCO; co++)
      weight[co] = CAT(VLOAD_, VEC)(0, w + co * w_out + c);
    UNROLL for (int i = 0; i < X; i++) {
      if (!exists[i]) continue;
      const VT v = LOAD(IO, ACC, VEC, x, i * step + c);
      UNROLL for (int co = 0; co < NCO; co++)
        sum[i][co] = fma(v, weight[co], sum[i][co]);
    }
  }
  for (; c < P->channels; c++) UNROLL  // uses the first lane
    for (int i = 0; i < X; i++) {
      if (!exists[i]) continue;
      VT v = (VT)(0);
      v.s0 = LOAD(IO, ACC, 1, x, i * step + c);
      UNROLL for (int co = 0; co < NCO; co++) {
        VT weight = (VT)(0);
        weight.s0 = w[co * w_out + c];
        sum[i][co] = fma(v, weight, sum[i][co]);
      }
    }
}

// The sums of X pixels, [pixel][output channel], in vectors.
#define SUMS (X * NCO)
#define PADDED (SUMS <= 1 ? 1 : SUMS <= 2 ? 2 : SUMS <= 4 ? 4 : SUMS <= 8 ? 8 : 16)
#define RESULTS (PADDED > VEC ? PADDED / VEC : 1)

// The sums of neighbouring lanes: a's, then b's.
ALWAYS_INLINE VT add_pairs(VT a, VT b) { return (VT)(a.even, b.even) + (VT)(a.odd, b.odd); }

// Adds the lanes of each vector; the sums become the lanes of the first RESULTS vectors.
ALWAYS_INLINE void add_lanes(VT* v) {
  UNROLL for (int lanes = VEC; lanes > 1; lanes /= 2) {
    const int left = PADDED * lanes / VEC;  // vectors
    if (left <= 1) v[0] = add_pairs(v[0], v[0]);
    UNROLL for (int j = 0; j < left / 2; j++)
      v[j] = add_pairs(v[2 * j], v[2 * j + 1]);
  }
}

// Stores the results of `count` pixels.
ALWAYS_INLINE void store_sums(__global STORAGE(IO)* to, const VT* v, int count, const ConvChannelsParams* P) {
  if (SUMS % VEC == 0 && count == X && P->out_x == NCO) {
    UNROLL for (int j = 0; j < RESULTS; j++)
      STORE(IO, ACC, VEC, to, j * VEC, v[j]);
    return;
  }
  ST line[RESULTS * VEC];
  UNROLL for (int j = 0; j < RESULTS; j++)
    CAT(VSTORE_, VEC)(v[j], j, line);
  for (int i = 0; i < count; i++) UNROLL
    for (int co = 0; co < NCO; co++) STORE(IO, ACC, 1, to, i * P->out_x + co, line[i * NCO + co]);
}

// The order of the weights is [group][output channel][tap][channel].
__kernel void conv_channels_few(BUF(x), BUF(w), BUF(bias), BUF(out), const ConvChannelsParams P) {
  const long begin = get_global_id(0) * P.rows_per_item, end = min(begin + P.rows_per_item, P.rows);
  const long w_row = P.taps_x * P.channels, w_out = P.taps_z * P.taps_y * w_row;
  const long reach = (X - 1) * P.step_x, last = (P.taps_x - 1) * P.apart_x;
  for (long group = 0; group < P.groups; group++) {
    lanes_t start[RESULTS];
    for (int e = 0; e < RESULTS * VEC; e++)
      start[e / VEC].s[e % VEC] = bias_buf ? PTR(bias, const ST)[group * NCO + e % NCO] : 0;
    for (long row = begin; row < end; row++) {
      GridRow R;
      find_row(&P, row, &R);
      for (long at = 0; at < P.width; at += X) {
        const long first = at * P.step_x + P.first_x;
        const bool inside = first + min(last, 0L) >= 0 && first + reach + max(last, 0L) < P.in_w;
        VT sum[PADDED];
        UNROLL for (int i = 0; i < PADDED; i++)
          sum[i] = (VT)(0);
        for (int r = 0; r < R.count; r++)
          for (long k = 0; k < P.taps_x; k++) {
            const long place = first + k * P.apart_x;
            __global const STORAGE(IO)* from =
                PTR(x, const STORAGE(IO)) + R.from[r] + place * P.point + group * P.channels;
            __global const ST* weights = PTR(w, const ST) + group * NCO * w_out + R.tap[r] * w_row + k * P.channels;
            if (inside)
              add_tap(from, weights, w_out, place, true, &P, (VT(*)[NCO])sum);
            else
              add_tap(from, weights, w_out, place, false, &P, (VT(*)[NCO])sum);
          }
        add_lanes(sum);
        UNROLL for (int j = 0; j < RESULTS; j++)
          sum[j] += start[j].v;
        store_sums(PTR(out, STORAGE(IO)) + R.at + at * P.out_x + group * NCO, sum, (int)min((long)X, P.width - at), &P);
      }
    }
  }
}
