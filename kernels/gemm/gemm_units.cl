// Matrix multiplication on a GPU's matrix units, for 16-bit floats, and for float as tf32. Like gemm_gpu.cl: local
// memory holds two blocks each of A and B, KC deep; while one is multiplied, the next one is loaded into registers. A
// file of its own, since either kernel takes more registers when the compilers see what both need.
//
// -D: INA (= INB), OUT, ADD (storage tags), ACC=f32; VA, VB: elements that a work-item reads from global memory at
// once; and those of gemm_units.h.
#define WORK_GROUPS
#define VEC LVB
#include "gemm/gemm.h"
#include "gemm/unit_operand.h"

OPERAND(a, VA, ALONG_A, 0)
OPERAND(b, VB, ALONG_B, 0)
#include "gemm/gemm_loop.h"
#include "gemm/gemm_tile.h"

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) UNIT_KERNEL void gemm_units(BUF(a), BUF(b), BUF(c), BUF(d),
                                                                                        const GemmParams P,
                                                                                        const GemmScalars S) {
  __local element_t ta[2 * a_block] __attribute__((aligned(16)));
  __local element_t tb[2 * b_block] __attribute__((aligned(16)));
  UNIT_SCRATCH(exchange);
  const uint id = get_local_id(0);
  const Item I = item_of(id, exchange);
  const GemmTile T = tile_of(&P, get_group_id(0));
  const long a_stride = ALONG_A ? P.a.rs : P.a.cs, b_stride = ALONG_B ? P.b.cs : P.b.rs;
  a_source A = a_begin(
      (__global const element_t*)matrix_a(PTR(a, const STORAGE(INA)), &P, T.batch) + T.row0 * (ALONG_A ? a_stride : 1),
      a_stride, id, (int)min(P.m - T.row0, (long)HEIGHT), (int)P.a_aligned);
  b_source B = b_begin(
      (__global const element_t*)matrix_b(PTR(b, const STORAGE(INB)), &P, T.batch) + T.col0 * (ALONG_B ? b_stride : 1),
      b_stride, id, (int)min(P.n - T.col0, (long)WIDTH), (int)P.b_aligned);

  sums_t t[ROWS][COLS];
  UNIT_LOOP for (int r = 0; r < ROWS; r++) UNIT_LOOP for (int s = 0; s < COLS; s++) t[r][s] = 0;
  multiply(depth_of(&P, T.batch), &A, &B, ta, tb, I, t);

  const Epilogue E = epilogue(PTR(c, STORAGE(OUT)), PTR(d, const STORAGE(ADD)), &P, T.batch, &S);
  UNIT_LOOP for (int r = 0; r < ROWS; r++) UNIT_LOOP for (int s = 0; s < COLS; s++) {
    sums_by_number sums;
    sums.v = t[r][s];
    UNIT_LOOP for (int e = 0; e < UNIT_C_EACH; e += LVB) {
      const long row = T.row0 + row_of(r, e, I), col = T.col0 + column_of(s, e, I);
      lanes_t w;
      UNROLL for (int j = 0; j < LVB; j++)
        w.s[j] = sums.s[e + j];
      if (row < P.m) store_part(&E, row, col, w, P.n - col);
    }
  }
}
