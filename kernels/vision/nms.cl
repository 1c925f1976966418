// Non-maximum suppression: a bit for each pair of boxes, then a walk through the boxes by falling score.
// -D: IN, ACC, VEC (boxes that are compared at once: 1, 8 or 16), GROUP (work-items of nms_walk's group).
#include "args/vision.h"
#include "common/vector.h"

// The bits of a product that is rounded before it is added depend on no compiler.
#pragma OPENCL FP_CONTRACT OFF

#define EDGES(k) (PTR(edges, ST) + (k) * P.size)

// Writes the boxes in the order of their scores, one array per edge and one of areas. What lies beyond n is NaN, and so
// overlaps nothing.
__kernel void nms_edges(BUF(edges), BUF(boxes), BUF(order), const NmsParams P) {
  const long first = (long)get_global_id(0) * P.per, last = min(first + P.per, P.size);
  for (long i = first; i < last; i++) {
    ST e[4];
    for (int k = 0; k < 4; k++)
      e[k] = i < P.n ? LOAD(IN, ACC, 1, PTR(boxes, const STORAGE(IN)), 4 * PTR(order, const long)[i] + k) : (ST)NAN;
    for (int k = 0; k < 4; k++) EDGES(k)[i] = e[k];
    EDGES(4)[i] = (e[2] - e[0]) * (e[3] - e[1]);
  }
}

#if VEC == 1
#define BITS(x) ((ulong)((x) ? 1 : 0))
#elif VEC == 8
#define BITS(x) bits8(convert_int8(x))
#else
#define BITS(x) bits16(convert_int16(x))
#endif
#if VEC > 1
static inline ulong bits8(int8 x) {
  const int8 b = x & (int8)(1, 2, 4, 8, 16, 32, 64, 128);
  const int4 c = b.lo | b.hi;
  const int2 d = c.lo | c.hi;
  return (ulong)(d.x | d.y);
}
static inline ulong bits16(int16 x) { return bits8(x.lo) | bits8(x.hi) << 8; }
#endif
#define EDGE(k, i) LOAD(ACC, ACC, VEC, EDGES(k), i)

// Bit j % 64 of word j / 64 of row i: box j > i overlaps box i by more than the threshold. Words before that of i are
// not written.
__kernel void nms_pairs(BUF(pairs), BUF(edges), const NmsParams P) {
  const long words = P.size / 64, first = (long)get_global_id(0) * P.per, last = min(first + P.per, P.n);
  const ST most = (ST)P.threshold.high + (ST)P.threshold.low;
  for (long i = first; i < last; i++) {
    const ST x0 = EDGES(0)[i], y0 = EDGES(1)[i], x1 = EDGES(2)[i], y1 = EDGES(3)[i], area = EDGES(4)[i];
    const long w0 = (long)get_global_id(1) * P.words, w1 = min(w0 + P.words, words);
    for (long w = max(w0, i / 64); w < w1; w++) {
      ulong word = 0;
      for (int k = 0; k < 64; k += VEC) {
        const long j = w * 64 + k;
        const VT width = fmax(fmin(EDGE(2, j), x1) - fmax(EDGE(0, j), x0), (ST)0);
        const VT height = fmax(fmin(EDGE(3, j), y1) - fmax(EDGE(1, j), y0), (ST)0);
        const VT both = width * height;
        word |= BITS(both / (area + EDGE(4, j) - both) > most) << k;
      }
      // Of its own word, only the boxes behind it.
      if (w == i / 64) word &= i % 64 == 63 ? 0 : ~0UL << (i % 64 + 1);
      PTR(pairs, ulong)[i * words + w] = word;
    }
  }
}

#define GROUP_WAIT(flags) \
  if (GROUP > 1) barrier(flags)
#define LANE (GROUP == 1 ? 0 : (int)get_local_id(0))

// One work-group keeps each box that no kept box before it overlaps, 64 boxes at a time. `gone` holds a bit per box,
// zero at first. Writes the kept boxes' indices and their number.
__kernel void nms_walk(BUF(kept), BUF(count), BUF(pairs), BUF(order), BUF(gone), long n) {
  __local ulong own[64];
  __local ulong chosen;
  const long words = (n + 63) / 64;
  __global const ulong* pair = PTR(pairs, const ulong);
  long total = 0;
  for (long b = 0; b < words; b++) {
    const long first = b * 64;
    const int here = (int)min(64L, n - first);
    for (int i = LANE; i < here; i += GROUP) own[i] = pair[(first + i) * words + b];
    GROUP_WAIT(CLK_LOCAL_MEM_FENCE);
    if (LANE == 0) {
      ulong out = PTR(gone, const ulong)[b], keep = 0;
      for (int i = 0; i < here; i++) {
        if (out >> i & 1) continue;
        keep |= 1UL << i;
        out |= own[i];
        PTR(kept, long)[total++] = PTR(order, const long)[first + i];
      }
      chosen = keep;
    }
    GROUP_WAIT(CLK_LOCAL_MEM_FENCE);
    for (long w = b + 1 + LANE; w < words; w += GROUP) {
      ulong out = PTR(gone, const ulong)[w];
      for (ulong rest = chosen; rest; rest &= rest - 1)
        out |= pair[(first + 63 - (long)clz(rest & (0UL - rest))) * words + w];
      PTR(gone, ulong)[w] = out;
    }
    GROUP_WAIT(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
  }
  if (LANE == 0) *PTR(count, long) = total;
}
