// Convolutions of channels_last images with few output channels per group, on a CPU. The sums over the source's
// channels stay vectors until the end. See conv_channels.h. -D: also NCO (output channels per group).
#include "common/join_lanes.h"
#include "conv/conv_channels.h"

// Adds one tap of MR pixels; `place` is the first one's position in its row of the source. `inside`: all of them exist.
ALWAYS_INLINE void add_tap(__global const STORAGE(IO)* x, __global const ST* w, long w_out, long place, bool inside,
                           const ConvChannelsParams* P, VT (*sum)[NCO]) {
  const long step = P->step_x * P->point;
  bool exists[MR];
  UNROLL for (int i = 0; i < MR; i++)
    exists[i] = inside || (place + i * P->step_x >= 0 && place + i * P->step_x < P->in_w);
  long c = 0;
  for (; c + VEC <= P->channels; c += VEC) {
    VT weight[NCO];
    UNROLL for (int co = 0; co < NCO; co++)
      weight[co] = CAT(VLOAD_, VEC)(0, w + co * w_out + c);
    UNROLL for (int i = 0; i < MR; i++) {
      if (!exists[i]) continue;
      const VT v = LOAD(IO, ACC, VEC, x, i * step + c);
      UNROLL for (int co = 0; co < NCO; co++)
        sum[i][co] = fma(v, weight[co], sum[i][co]);
    }
  }
  for (; c < P->channels; c++) UNROLL  // uses the first lane
    for (int i = 0; i < MR; i++) {
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

// The order of the weights is [group][output channel][tap][channel].
__kernel void conv_channels_few(BUF(x), BUF(w), BUF(bias), BUF(out), const ConvChannelsParams P) {
  const long begin = get_global_id(0) * P.rows_per_item, end = min(begin + P.rows_per_item, P.rows);
  const long w_row = P.taps_x * P.channels, w_out = P.taps_z * P.taps_y * w_row;
  const long reach = (MR - 1) * P.step_x, last = (P.taps_x - 1) * P.apart_x;
  for (long row = begin; row < end; row++) {
    GridRow R;
    find_row(&P, row, &R);
    for (long at = 0; at < P.width; at += MR) {
      const long first = at * P.step_x + P.first_x;
      const bool inside = first + min(last, 0L) >= 0 && first + reach + max(last, 0L) < P.in_w;
      for (long group = 0; group < P.groups; group++) {
        VT sum[MR][NCO];
        UNROLL for (int i = 0; i < MR; i++) UNROLL
          for (int co = 0; co < NCO; co++) sum[i][co] = (VT)(0);
        for (int r = 0; r < R.count; r++)
          for (long k = 0; k < P.taps_x; k++) {
            const long place = first + k * P.apart_x;
            __global const STORAGE(IO)* from =
                PTR(x, const STORAGE(IO)) + R.from[r] + place * P.point + group * P.channels;
            __global const ST* weights = PTR(w, const ST) + group * NCO * w_out + R.tap[r] * w_row + k * P.channels;
            if (inside)
              add_tap(from, weights, w_out, place, true, &P, sum);
            else
              add_tap(from, weights, w_out, place, false, &P, sum);
          }
        __global STORAGE(IO)* to = PTR(out, STORAGE(IO)) + R.at + at * P.out_x + group * NCO;
        UNROLL for (int co = 0; co < NCO; co++) {
          const ST start = bias_buf ? PTR(bias, const ST)[group * NCO + co] : 0;
          UNROLL for (int i = 0; i < MR; i++)
            if (at + i < P.width) STORE(IO, ACC, 1, to, i * P.out_x + co, start + sum_lanes(sum[i][co]));
        }
      }
    }
  }
}
