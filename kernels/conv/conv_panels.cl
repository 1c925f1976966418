// Packs the right operand of conv_gemm_gpu.cl into panels of WIDTH columns, [k][WIDTH], with zeros after the last
// column and the last tap: the depth is a multiple of KC. For conv_units.cl it packs `lines`, [column][k]; WIDTH is 8
// then. A work-item packs one element; 8 x 8 neighbours read and write 8 at a time.
//
// -D: ACC (compute tag), IN (storage tag), IDX (i32 or i64: dtype of the table), KC, WIDTH.
#include "conv/conv_tile.h"

__kernel void conv_panels(BUF(src), BUF(tap), BUF(dst), const MixedRadix cols, const ConvPackParams P, long groups) {
  const long depth = (P.k + KC - 1) / KC * KC, k_blocks = depth / 8, item = get_global_id(0), block = item / 64;
  const long column_block = block / k_blocks, column_blocks = P.panels * (WIDTH / 8),
             group = column_block / column_blocks;
  if (group >= groups) return;
  const int inside = (int)(item - block * 64);
  const long r = (block - column_block * k_blocks) * 8 + inside % 8;
  const long col = (column_block - group * column_blocks) * 8 + inside / 8, panel = col / WIDTH;
  __global const STORAGE(IN)* src = PTR(src, const STORAGE(IN)) + group * P.src_group;
  ST value = 0;
  if (r < P.k && col < P.n) value = LOAD(IN, ACC, 1, src, offset_of(&cols, col) + PTR(tap, const offset_t)[r]);
  const long in_panel = ((group * P.panels + panel) * depth + r) * WIDTH + col - panel * WIDTH;
  if (!P.lines || col < P.n) PTR(dst, ST)[P.lines ? (group * P.n + col) * depth + r : in_panel] = value;
}
