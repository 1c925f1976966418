// Matrix multiplication for GPUs (and for complex numbers anywhere): a group of SIDE_X x SIDE_Y work-items makes a tile
// in local memory, KC deep; each makes ROWS x COLS elements, SIDE apart so that neighbours write
// neighbours. -D: INA, INB, OUT, ADD (storage tags), ACC, ACC_FLOATING | ACC_COMPLEX | neither, and csrc/aten/gemm/GroupTile.h.
#define WORK_GROUPS
#include "gemm/gemm.h"

#define HEIGHT (SIDE_Y * ROWS)
#define WIDTH (SIDE_X * COLS)
#define ITEMS (SIDE_X * SIDE_Y)

__kernel __attribute__((reqd_work_group_size(SIDE_X, SIDE_Y, 1))) void gemm_tiled(BUF(a), BUF(b), BUF(c), BUF(d),
                                                                                  const GemmParams P, const ST alpha,
                                                                                  const ST beta) {
  __local ST ta[KC * (HEIGHT + 1)], tb[KC * (WIDTH + 1)];
  const long batch = get_global_id(2);
  const long k = depth_of(&P, batch);
  __global const STORAGE(INA) *A = matrix_a(PTR(a, const STORAGE(INA)), &P, batch);
  __global const STORAGE(INB) *B = matrix_b(PTR(b, const STORAGE(INB)), &P, batch);
  const Epilogue E = epilogue(PTR(c, STORAGE(OUT)), PTR(d, const STORAGE(ADD)), &P, batch, alpha, beta);
  const int x = get_local_id(0), y = get_local_id(1), id = y * SIDE_X + x;
  const long row0 = (long)get_group_id(1) * HEIGHT, col0 = (long)get_group_id(0) * WIDTH;

  ST t[ROWS][COLS];
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int s = 0; s < COLS; s++) t[r][s] = (ST)(0);
  for (long k0 = 0; k0 < k; k0 += KC) {
    // Neighbouring work-items read neighbouring elements, whichever way the matrix runs.
    for (int e = id; e < HEIGHT * KC; e += ITEMS) {
      const int r = P.a.cs == 1 ? e / KC : e % HEIGHT, kk = P.a.cs == 1 ? e % KC : e / HEIGHT;
      ta[kk * (HEIGHT + 1) + r] = row0 + r < P.m && k0 + kk < k
                                     ? LOAD(INA, ACC, 1, A + (row0 + r) * P.a.rs + (k0 + kk) * P.a.cs, 0)
                                     : (ST)(0);
    }
    for (int e = id; e < WIDTH * KC; e += ITEMS) {
      const int s = P.b.cs == 1 ? e % WIDTH : e / KC, kk = P.b.cs == 1 ? e / WIDTH : e % KC;
      tb[kk * (WIDTH + 1) + s] = col0 + s < P.n && k0 + kk < k
                                    ? LOAD(INB, ACC, 1, B + (k0 + kk) * P.b.rs + (col0 + s) * P.b.cs, 0)
                                    : (ST)(0);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int depth = (int)min((long)KC, k - k0);
    for (int kk = 0; kk < depth; kk++) {
      ST u[ROWS], v[COLS];
#pragma unroll
      for (int r = 0; r < ROWS; r++) u[r] = ta[kk * (HEIGHT + 1) + y + r * SIDE_Y];
#pragma unroll
      for (int s = 0; s < COLS; s++) v[s] = tb[kk * (WIDTH + 1) + x + s * SIDE_X];
#pragma unroll
      for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int s = 0; s < COLS; s++) t[r][s] = MAC(u[r], v[s], t[r][s]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int s = 0; s < COLS; s++) {
      const long row = row0 + y + r * SIDE_Y, col = col0 + x + s * SIDE_X;
      if (row < P.m && col < P.n) store_element(&E, row, col, t[r][s]);
    }
}
