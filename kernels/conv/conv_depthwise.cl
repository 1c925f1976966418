// Depthwise convolution of rows of pixels on a CPU. A work-item copies a plane, or a strip of it, with its zeros into
// private memory, which stays in the first-level cache, and moves the kernel over it. So no padded copy is written to
// memory, and the compiler knows the distance of every tap. See csrc/aten/conv/DepthwiseConvolution.cpp.
// -D: ACC (compute tag), IO (storage tag), VEC (at most the width of the output), KH and KW (the kernel), STEP (1 or 2:
// stride along a row), PITCH (elements per row of the copy), SPACE (elements of the copy).
#include "args/conv.h"
#include "common/vector.h"

// Columns of the copy are sorted by their residue modulo STEP, so that the pixels of a tap are adjacent.
#define COLUMN(c) ((c) % STEP * (PITCH / STEP) + (c) / STEP)

// Copies the rows [first, first + rows) of a plane; the zeros before and after a row are already there.
static inline void copy_rows(__global const STORAGE(IO)* plane, ST* copy, long first, long rows,
                             const ConvDepthwiseParams* P) {
  for (long r = 0; r < rows; r++) {
    ST* to = copy + r * PITCH;
    const long y = first + r;
    if (y < 0 || y >= P->in_h) {
      for (int c = 0; c < PITCH; c += VEC) CAT(VSTORE_, VEC)((VT)(0), 0, to + c);
      continue;
    }
    __global const STORAGE(IO)* from = plane + y * P->in_w;
#if STEP == 1
    if (P->row_w >= VEC) {
      for (long x = 0; x < P->row_w; x += VEC) {
        const long at = min(x, P->row_w - VEC);
        CAT(VSTORE_, VEC)(LOAD(IO, ACC, VEC, from, at), 0, to + P->lo_w + at);
      }
      continue;
    }
#endif
    for (long x = 0; x < P->row_w; x++) to[COLUMN(P->lo_w + x)] = LOAD(IO, ACC, 1, from, x);
  }
}
static inline void clear(ST* copy) {
  for (int c = 0; c < SPACE; c += VEC) CAT(VSTORE_, VEC)((VT)(0), 0, copy + c);
}

__kernel void conv_depthwise(BUF(x), BUF(w), BUF(bias), BUF(out), const ConvDepthwiseParams P) {
  ST copy[SPACE];
  clear(copy);
  const long begin = get_global_id(0) * P.planes_per_item, end = min(begin + P.planes_per_item, P.planes);
  for (long plane = begin; plane < end; plane++)
    for (long y0 = 0; y0 < P.out_h; y0 += P.strip) {
      const long rows = min(P.strip, P.out_h - y0);
      copy_rows(PTR(x, const STORAGE(IO)) + plane * P.in_h * P.in_w, copy, y0 * P.step_h - P.lo_h,
                (rows - 1) * P.step_h + KH, &P);
      for (long m = 0; m < P.multiplier; m++) {
        const long channel = plane % P.channels * P.multiplier + m;
        VT weight[KH * KW];
        UNROLL for (int t = 0; t < KH * KW; t++)
          weight[t] = (VT)(LOAD(IO, ACC, 1, PTR(w, const STORAGE(IO)),
                                channel * (KH * KW) + (P.reversed ? KH * KW - 1 - t : t)));
        const VT start = (VT)(bias_buf ? PTR(bias, const ST)[channel] : 0);
        __global STORAGE(IO)* to = PTR(out, STORAGE(IO)) + ((plane * P.multiplier + m) * P.out_h + y0) * P.out_w;
        const ST* from = copy;
        for (long y = 0; y < rows; y++, from += P.step_h * PITCH, to += P.out_w)
          for (long x = 0; x < P.out_w; x += VEC) {
            const long at = min(x, P.out_w - VEC);  // the last vector overlaps the previous one
            VT sum = start;
            UNROLL for (int ky = 0; ky < KH; ky++) UNROLL
              for (int kx = 0; kx < KW; kx++)
                sum = fma(CAT(VLOAD_, VEC)(0, from + ky * PITCH + COLUMN(kx) + at), weight[ky * KW + kx], sum);
            STORE(IO, ACC, VEC, to, at, sum);
          }
      }
    }
}

// Rows of the kernel whose sums are kept in registers.
#define KR (KH * KW <= 10 ? KH : KW <= 5 ? 10 / KW : 1)

// The last vector of a row overlaps the previous one. Its lanes below `first` were already counted, so both operands
// become 0 there, since either may be infinite.
ALWAYS_INLINE VT keep_from(VT first, VT v) { return (VT)LANE_NUMBERS(VEC) >= first ? v : (VT)(0); }

// part[t] += a row of pixels of tap t in the copy * a row of dy.
ALWAYS_INLINE void add_row(const ST* copy, __global const STORAGE(IO)* dy, long width, VT* part) {
  const long whole = width - width % VEC, rest = width - VEC;
  for (long at = 0; at < whole; at += VEC) {
    const VT g = LOAD(IO, ACC, VEC, dy, at);
    UNROLL for (int t = 0; t < KR * KW; t++)
      part[t] = fma(CAT(VLOAD_, VEC)(0, copy + t / KW * PITCH + COLUMN(t % KW) + at), g, part[t]);
  }
  if (whole == width) return;
  const VT first = (VT)((ST)(VEC - (width - whole)));
  const VT g = keep_from(first, LOAD(IO, ACC, VEC, dy, rest));
  UNROLL for (int t = 0; t < KR * KW; t++)
    part[t] = fma(keep_from(first, CAT(VLOAD_, VEC)(0, copy + t / KW * PITCH + COLUMN(t % KW) + rest)), g, part[t]);
}

__kernel void conv_depthwise_weight(BUF(x), BUF(dy), BUF(dw), const ConvDepthwiseParams P) {
  ST copy[SPACE];
  clear(copy);
  const long begin = get_global_id(0) * P.planes_per_item, end = min(begin + P.planes_per_item, P.planes);
  for (long channel = begin; channel < end; channel++) {
    VT sums[KH * KW];
    for (int t = 0; t < KH * KW; t++) sums[t] = (VT)(0);
    for (long image = 0; image < P.images; image++)
      for (long y0 = 0; y0 < P.out_h; y0 += P.strip) {
        const long rows = min(P.strip, P.out_h - y0);
        copy_rows(PTR(x, const STORAGE(IO)) + (image * P.channels + channel / P.multiplier) * P.in_h * P.in_w, copy,
                  y0 * P.step_h - P.lo_h, (rows - 1) * P.step_h + KH, &P);
        __global const STORAGE(IO)* first =
            PTR(dy, const STORAGE(IO)) + ((image * P.planes + channel) * P.out_h + y0) * P.out_w;
        for (int k0 = 0; k0 < KH; k0 = k0 + KR) {
          const int ky0 = min(k0, KH - KR);  // rows that were computed before are computed again, and dropped below
          VT part[KR * KW];                  // sums of a strip: short sums lose less
          UNROLL for (int t = 0; t < KR * KW; t++)
            part[t] = (VT)(0);
          const ST* from = copy + ky0 * PITCH;
          __global const STORAGE(IO)* g = first;
          for (long y = 0; y < rows; y++, from += P.step_h * PITCH, g += P.out_w) add_row(from, g, P.out_w, part);
          UNROLL for (int t = 0; t < KR * KW; t++)
            if (ky0 + t / KW >= k0) sums[ky0 * KW + t] += part[t];
        }
      }
    for (int t = 0; t < KH * KW; t++) {
      ST lanes[VEC], sum = 0;
      CAT(VSTORE_, VEC)(sums[t], 0, lanes);
      for (int k = 0; k < VEC; k++) sum += lanes[k];
      STORE(IO, ACC, 1, PTR(dw, STORAGE(IO)), channel * (KH * KW) + t, sum);
    }
  }
}
