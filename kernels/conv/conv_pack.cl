// Packs the right operand of conv_gemm: element (r, j) of group g is src[g * src_group + col[j] + tap[r]]. A panel
// holds NR columns as [k][NR], or in a matrix engine's order.
#include "conv/conv.h"

#define is_float_f32 1
#if CAT(is_float_, ACC)&& NR % 16 == 0
#define TRANSPOSE
#endif
#ifdef ENGINE
#include "conv/conv_engine.h"
#else
// Packs the elements [begin, end) of a panel one by one; columns from `width` on are zeros.
ALWAYS_INLINE void pack_each(__global const STORAGE(IN)* src, const long* col, __global const offset_t* tap, int width,
                             long begin, long end, __global ST* panel) {
  for (long r = begin; r < end; r++) {
    const long at = tap[r];
    for (int j = 0; j < width; j++) panel[r * NR + j] = LOAD(IN, ACC, 1, src, col[j] + at);
    for (int j = width; j < NR; j++) panel[r * NR + j] = 0;
  }
}

#ifdef TRANSPOSE
// Packs `count` (at most 16) consecutive elements of each column to consecutive rows of a panel. It reads 16.
ALWAYS_INLINE void pack_transposed(__global const STORAGE(IN)* src, const long* col, int count, __global ST* panel) {
  UNROLL for (int j = 0; j < NR; j += 16) {
    float16 v[16];
    UNROLL for (int i = 0; i < 16; i++)
      v[i] = LOAD(IN, ACC, 16, src, col[j + i]);
    TRANSPOSE16(float16, v)
    UNROLL for (int i = 0; i < 16; i++)
      if (i < count) vstore16(v[i], 0, panel + i * NR + j);
  }
}
#endif

// Packs the rows [begin, end) of a panel. `left`: elements from src to the end of the tensor.
ALWAYS_INLINE void pack_panel(__global const STORAGE(IN)* src, const long* col, __global const offset_t* tap, int width,
                              long begin, long end, long left, __global ST* panel) {
  long r = begin;
  // Adjacent columns, since their offsets only grow. A vector may read beyond them, but not beyond the tensor.
  if (col[width - 1] - col[0] == width - 1) {
    for (; r < end && col[0] + tap[r] + NR <= left; r++) UNROLL
      for (int v = 0; v < NV; v++)
        CAT(VSTORE_, VEC)(LOAD(IN, ACC, VEC, src + col[0] + tap[r], v * VEC), v, panel + r * NR);
  }
#ifdef TRANSPOSE
  while (width == NR && r < end) {
    // Elements with consecutive offsets are transposed, 16 at once. A vector may read beyond them, but not beyond the
    // tensor.
    const long at = tap[r];
    const int most = (int)min(16L, end - r);
    int count = 1;
    while (count < most && tap[r + count] - at == count) count++;
    if (count < 4 || col[NR - 1] + at + 16 > left)
      pack_each(src, col, tap, NR, r, r + count, panel);
    else
      pack_transposed(src + at, col, count, panel + r * NR);
    r += count;
  }
#endif
  pack_each(src, col, tap, width, r, end, panel);
}
#endif

__kernel void conv_pack(BUF(src), BUF(tap), BUF(dst), const MixedRadix cols, const ConvPackParams P) {
  const long panel = get_global_id(1), group = get_global_id(2), k = PADDED_K(P.k);
  const long begin = (long)get_global_id(0) * P.k_per_item, end = min(begin + P.k_per_item, k);
  if (begin >= end) return;
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN)) + group * P.src_group;
  __global const offset_t* tap = PTR(tap, const offset_t);
  __global panel_t* dst = PTR(dst, panel_t) + (group * P.panels + panel) * k * NR * PARTS;
  long col[NR];
  offsets_from(&cols, panel * NR, P.n, NR, col);
#ifdef ENGINE
  for (long r = begin; r < end; r += 32)
    for (int part = 0; part < PARTS; part++) pack_k_block(src, col, tap, r, part, &P, dst + part * B_PART);
#else
  const int width = (int)min((long)NR, P.n - panel * NR);
  pack_panel(src, col, tap, width, begin, end, P.src_end - group * P.src_group, dst);
#endif
}
