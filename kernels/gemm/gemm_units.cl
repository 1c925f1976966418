// Matrix multiplication on a GPU's matrix units, for 16-bit floats, and for float as tf32. Like gemm_gpu.cl: local
// memory holds two blocks each of A and B, KC deep; while one is multiplied, the next one is loaded into registers. A
// file of its own, since either kernel takes more registers when the compilers see what both need.
//
// -D: INA (= INB), OUT, ADD (storage tags), ACC=f32; VA, VB: elements that a work-item reads from global memory at
// once; and those of gemm_units.h.
#define WORK_GROUPS
#define VEC LVB
#include "gemm/gemm.h"

#define STRIP 8  // tiles down that are computed before the next ones across, so that B stays in the cache
#include "gemm/unit_operand.h"

OPERAND(a, VA, ALONG_A, 0)
OPERAND(b, VB, ALONG_B, 0)

// Stores LVB elements of one row; `end` columns exist from there on.
ALWAYS_INLINE void store_part(const Epilogue* E, long row, long col, const float* t, long end) {
  lanes_t w;
  UNROLL for (int j = 0; j < LVB; j++)
    w.s[j] = t[j];
  if (LVB > 1 && end >= LVB && E->c_col == 1 && (!E->has_d || E->d_col <= 1)) {
    store_vector(E, row, col, w.v, 0, LVB);
    return;
  }
  UNROLL for (int j = 0; j < LVB; j++)
    if (j < end) store_element(E, row, col + j, w.s[j]);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) UNIT_KERNEL void gemm_units(BUF(a), BUF(b), BUF(c), BUF(d),
                                                                                        const GemmParams P,
                                                                                        const float alpha,
                                                                                        const float beta) {
  __local element_t ta[2 * a_block] __attribute__((aligned(16)));
  __local element_t tb[2 * b_block] __attribute__((aligned(16)));
  UNIT_SCRATCH
  const uint id = get_local_id(0), lane = id % LANES, x = id / LANES % SIDE_X, y = id / LANES / SIDE_X;
  const uint m_tiles = (uint)P.m_tiles, n_tiles = (uint)P.n_tiles, group = get_group_id(0);
  const uint batch = group / (m_tiles * n_tiles), tile = group % (m_tiles * n_tiles);
  const uint strip = tile / (STRIP * n_tiles), inside = tile % (STRIP * n_tiles);
  const uint down = min((uint)STRIP, m_tiles - strip * STRIP);
  const long row0 = (long)(strip * STRIP + inside % down) * HEIGHT, col0 = (long)(inside / down) * WIDTH;
  const long k = depth_of(&P, batch);
  const long a_stride = ALONG_A ? P.a.rs : P.a.cs, b_stride = ALONG_B ? P.b.cs : P.b.rs;
  a_source A = a_begin(
      (__global const element_t*)matrix_a(PTR(a, const STORAGE(INA)), &P, batch) + row0 * (ALONG_A ? a_stride : 1),
      a_stride, id, (int)min(P.m - row0, (long)HEIGHT), (int)P.a_aligned);
  b_source B = b_begin(
      (__global const element_t*)matrix_b(PTR(b, const STORAGE(INB)), &P, batch) + col0 * (ALONG_B ? b_stride : 1),
      b_stride, id, (int)min(P.n - col0, (long)WIDTH), (int)P.b_aligned);

  sums_t t[ROWS][COLS];
  UNIT_LOOP for (int r = 0; r < ROWS; r++) UNIT_LOOP for (int s = 0; s < COLS; s++) t[r][s] = 0;
  MULTIPLY_ALL(k, A, B, ta, tb, t)

  const Epilogue E = epilogue(PTR(c, STORAGE(OUT)), PTR(d, const STORAGE(ADD)), &P, batch, alpha, beta);
  UNIT_LOOP for (int r = 0; r < ROWS; r++) UNIT_LOOP for (int s = 0; s < COLS; s++) {
    sums_by_number sums;
    sums.v = t[r][s];
    UNIT_LOOP for (int e = 0; e < UNIT_C_EACH; e += LVB) {
      const long row = row0 + (y * ROWS + r) * UNIT_M + UNIT_ROW(lane, e);
      const long col = col0 + (x * COLS + s) * UNIT_N + UNIT_COLUMN(lane, e);
      if (row < P.m) store_part(&E, row, col, sums.s + e, P.n - col);
    }
  }
}
