// Matrix multiplication for GPUs (and for complex numbers anywhere): a group of SIDE_X x SIDE_Y work-items makes a tile
// in local memory, DEPTH levels at a time; each makes ROWS x COLS elements, SIDE apart so that neighbours write
// neighbours. -D: INA, INB, OUT, ADD (storage tags), ACC, ACC_FLOATING | ACC_COMPLEX | neither, and csrc/aten/gemm/GroupTile.h.
#define WORK_GROUPS
#include "gemm/gemm.h"

#define HEIGHT (SIDE_Y * ROWS)
#define WIDTH (SIDE_X * COLS)
#define ITEMS (SIDE_X * SIDE_Y)

__kernel __attribute__((reqd_work_group_size(SIDE_X, SIDE_Y, 1))) void gemm_tiled(BUF(a), BUF(b), BUF(c), BUF(d),
                                                                                  const GemmParams P, const ST alpha,
                                                                                  const ST beta) {
  __local ST ta[DEPTH * (HEIGHT + 1)], tb[DEPTH * (WIDTH + 1)];
  const long batch = get_global_id(2);
  const long i0 = batch / P.batch1, i1 = batch % P.batch1;
  const long k = P.k_slice ? min(P.k, P.k_whole - batch * P.k_slice) : P.k;
  __global const STORAGE(INA)* A =
      PTR(a, const STORAGE(INA)) + i0 * P.a.b0 + i1 * P.a.b1 + batch * P.k_slice * P.a.cs;
  __global const STORAGE(INB)* B =
      PTR(b, const STORAGE(INB)) + i0 * P.b.b0 + i1 * P.b.b1 + batch * P.k_slice * P.b.rs;
  __global STORAGE(OUT)* C = PTR(c, STORAGE(OUT)) + i0 * P.c.b0 + i1 * P.c.b1;
  __global const STORAGE(ADD)* D = PTR(d, const STORAGE(ADD)) + i0 * P.d.b0 + i1 * P.d.b1;
  const int x = get_local_id(0), y = get_local_id(1), id = y * SIDE_X + x;
  const long row0 = (long)get_group_id(1) * HEIGHT, col0 = (long)get_group_id(0) * WIDTH;

  ST t[ROWS][COLS];
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int s = 0; s < COLS; s++) t[r][s] = (ST)(0);
  for (long q0 = 0; q0 < k; q0 += DEPTH) {
    // Neighbouring work-items read neighbouring elements, whichever way the matrix runs.
    for (int e = id; e < HEIGHT * DEPTH; e += ITEMS) {
      const int r = P.a.cs == 1 ? e / DEPTH : e % HEIGHT, q = P.a.cs == 1 ? e % DEPTH : e / HEIGHT;
      ta[q * (HEIGHT + 1) + r] = row0 + r < P.m && q0 + q < k
                                     ? LOAD(INA, ACC, 1, A + (row0 + r) * P.a.rs + (q0 + q) * P.a.cs, 0)
                                     : (ST)(0);
    }
    for (int e = id; e < WIDTH * DEPTH; e += ITEMS) {
      const int s = P.b.cs == 1 ? e % WIDTH : e / DEPTH, q = P.b.cs == 1 ? e / WIDTH : e % DEPTH;
      tb[q * (WIDTH + 1) + s] = col0 + s < P.n && q0 + q < k
                                    ? LOAD(INB, ACC, 1, B + (q0 + q) * P.b.rs + (col0 + s) * P.b.cs, 0)
                                    : (ST)(0);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int depth = (int)min((long)DEPTH, k - q0);
    for (int q = 0; q < depth; q++) {
      ST u[ROWS], v[COLS];
#pragma unroll
      for (int r = 0; r < ROWS; r++) u[r] = ta[q * (HEIGHT + 1) + y + r * SIDE_Y];
#pragma unroll
      for (int s = 0; s < COLS; s++) v[s] = tb[q * (WIDTH + 1) + x + s * SIDE_X];
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
      if (row < P.m && col < P.n)
        finish1(C + row * P.c.rs + col * P.c.cs, D + row * P.d.rs + col * P.d.cs, P.has_d, t[r][s], alpha,
                beta);
    }
}
