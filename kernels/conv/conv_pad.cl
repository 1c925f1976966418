// Copies images with zeros around them, so that no tap of a pixel lies outside, and converts from IN to OUT. The bits
// of 16-bit types do not change. With -D PARTS=2 they become bf16x2 (gemm/engine_parts.h).
#include "common/row_elements.h"
#include "common/vector.h"
#ifdef PARTS
#include "gemm/engine_parts.h"
#else
#define PARTS 1
#endif
#include "conv/conv.h"

#define both_f16_f16 1
#define both_bf16_bf16 1
#if PARTS == 2
typedef STORAGE(IN) in_t;
typedef ushort out_t;
#elif CAT3(both_, IN, CAT(_, OUT))
typedef ushort in_t, out_t;
#define MOVE(V, from, to, i) CAT(store_bits, V)(CAT(load_bits, V)((from) + (i)), (to) + (i))
#else
typedef STORAGE(IN) in_t;
typedef STORAGE(OUT) out_t;
#define MOVE(V, from, to, i) STORE(OUT, ACC, V, to, i, LOAD(IN, ACC, V, from, i))
#endif

static inline void zero_fill(__global out_t* to, long begin, long end) {
  for (long x = begin; x < end; x++) to[x] = 0;  // zero is all bits 0 in every dtype
}

#if PARTS == 2
static inline void copy_row(__global const in_t* from, __global out_t* to, long n) {
  for (long x = 0; x < n; x += 32, to += 64) UNROLL
    for (int i = 0; i < 4; i++) store_bits16(PART(IN, 16, from + x + i % 2 * 16, i / 2), to + 16 * i);
}
#else
// Copies whole vectors; the last one overlaps the previous one.
static inline void copy_row(__global const in_t* from, __global out_t* to, long n) {
  if (n >= 16) {
    for (long x = 0; x < n; x += 16) MOVE(16, from, to, min(x, n - 16));
  } else if (n >= 8) {
    for (long x = 0; x < n; x += 8) MOVE(8, from, to, min(x, n - 8));
  } else if (n >= 4) {
    for (long x = 0; x < n; x += 4) MOVE(4, from, to, min(x, n - 4));
  } else {
    for (long x = 0; x < n; x++) MOVE(1, from, to, x);
  }
}
#endif

__kernel void conv_pad(BUF(src), BUF(dst), const ConvPadParams P) {
  __global const in_t* src = PTR(src, const in_t);
  __global out_t* dst = PTR(dst, out_t);
  const Elements E = my_elements(P.rows, P.rows_per_item, P.out_w);
  long zy = E.first / P.out_h, y = E.first - zy * P.out_h - P.pad_h;
  long plane = zy / P.out_d, z = zy - plane * P.out_d - P.pad_d;
#ifdef DEVICE_CPU
  const long n = min(P.in_w, P.out_w - P.pad_w);
  // Compilers make each zero_fill() a call of memset, which costs more than a narrow row.
  const int cleared = P.out_w <= 8;
  const long width = P.out_w * PARTS, before = P.pad_w * PARTS;
  if (cleared) zero_fill(dst, E.first * width, E.last * width);
  for (long row = E.first; row < E.last; row++) {
    __global out_t* to = dst + row * width;
    const int inside = y >= 0 && y < P.in_h && z >= 0 && z < P.in_d;
    if (!cleared) zero_fill(to, 0, inside ? before : width);
    if (inside) {
      copy_row(src + ((plane * P.in_d + z) * P.in_h + y) * P.in_w, to + before, n);
      if (!cleared) zero_fill(to, before + n * PARTS, width);
    }
    if (++y == P.out_h - P.pad_h) {
      y = -P.pad_h;
      if (++z == P.out_d - P.pad_d) {
        z = -P.pad_d;
        plane++;
      }
    }
  }
#else
  if (E.first >= P.rows) return;
  const long x = E.begin - P.pad_w;
  __global out_t* to = dst + E.first * P.out_w + E.begin;
  if (x < 0 || x >= P.in_w || y < 0 || y >= P.in_h || z < 0 || z >= P.in_d)
    *to = 0;
  else
    MOVE(1, src + ((plane * P.in_d + z) * P.in_h + y) * P.in_w + x, to, 0);
#endif
}
