// Matrix multiplication for GPUs (and for complex numbers anywhere): tiles of 64 x 64 in local memory, 16
// levels at a time; each of 16 x 16 work-items makes 4 x 4 elements, 16 apart so that neighbours write
// neighbours. -D: INA, INB, OUT, ADD (storage tags), ACC, ACC_FLOATING | ACC_COMPLEX | neither.
#include "gemm.h"

#define TILE 64
#define DEPTH 16
#define SIDE 16
#define PER 4
#define PITCH (TILE + 1)

__kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1))) void gemm_tiled(BUF(a), BUF(b), BUF(c), BUF(d),
                                                                              const gemm_t P, const ST alpha,
                                                                              const ST beta) {
  __local ST ta[DEPTH * PITCH], tb[DEPTH * PITCH];
  const long batch = get_global_id(2);
  const long i0 = batch / P.batch1, i1 = batch % P.batch1;
  const long k = P.k_step ? min(P.k, P.k_total - batch * P.k_step) : P.k;
  __global const STORAGE(INA)* A =
      PTR(a, const STORAGE(INA)) + i0 * P.a.b0 + i1 * P.a.b1 + batch * P.k_step * P.a.cs;
  __global const STORAGE(INB)* B =
      PTR(b, const STORAGE(INB)) + i0 * P.b.b0 + i1 * P.b.b1 + batch * P.k_step * P.b.rs;
  __global STORAGE(OUT)* C = PTR(c, STORAGE(OUT)) + i0 * P.c.b0 + i1 * P.c.b1;
  __global const STORAGE(ADD)* D = PTR(d, const STORAGE(ADD)) + i0 * P.d.b0 + i1 * P.d.b1;
  const int x = get_local_id(0), y = get_local_id(1), id = y * SIDE + x;
  const long row0 = (long)get_group_id(1) * TILE, col0 = (long)get_group_id(0) * TILE;

  ST t[PER][PER];
#pragma unroll
  for (int r = 0; r < PER; r++)
#pragma unroll
    for (int s = 0; s < PER; s++) t[r][s] = (ST)(0);
  for (long q0 = 0; q0 < k; q0 += DEPTH) {
    for (int e = id; e < TILE * DEPTH; e += SIDE * SIDE) {
      // Neighbouring work-items read neighbouring elements, whichever way the matrix runs.
      const int ra = P.a.cs == 1 ? e / DEPTH : e % TILE, qa = P.a.cs == 1 ? e % DEPTH : e / TILE;
      const int sb = P.b.cs == 1 ? e % TILE : e / DEPTH, qb = P.b.cs == 1 ? e / TILE : e % DEPTH;
      ta[qa * PITCH + ra] = row0 + ra < P.m && q0 + qa < k
                                ? LOAD(INA, ACC, 1, A + (row0 + ra) * P.a.rs + (q0 + qa) * P.a.cs, 0)
                                : (ST)(0);
      tb[qb * PITCH + sb] = col0 + sb < P.n && q0 + qb < k
                                ? LOAD(INB, ACC, 1, B + (q0 + qb) * P.b.rs + (col0 + sb) * P.b.cs, 0)
                                : (ST)(0);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int depth = (int)min((long)DEPTH, k - q0);
    for (int q = 0; q < depth; q++) {
      ST u[PER], v[PER];
#pragma unroll
      for (int r = 0; r < PER; r++) u[r] = ta[q * PITCH + y + r * SIDE];
#pragma unroll
      for (int s = 0; s < PER; s++) v[s] = tb[q * PITCH + x + s * SIDE];
#pragma unroll
      for (int r = 0; r < PER; r++)
#pragma unroll
        for (int s = 0; s < PER; s++) t[r][s] = MAC(u[r], v[s], t[r][s]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (int r = 0; r < PER; r++)
#pragma unroll
    for (int s = 0; s < PER; s++) {
      const long row = row0 + y + r * SIDE, col = col0 + x + s * SIDE;
      if (row < P.m && col < P.n)
        finish1(C + row * P.c.rs + col * P.c.cs, D + row * P.d.rs + col * P.d.cs, P.add, t[r][s], alpha,
                beta);
    }
}
