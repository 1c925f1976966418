// Matrix multiplication of packed panels, for CPUs. A work-item computes m_tiles x n_tiles tiles; gemm_panels.h
// describes the panels. -D: ACC, VEC and MR (the tile is MR x 2 VEC), OUT and ADD (storage tags of C and D),
// ENGINE_AMX or ENGINE_AVX512_BF16 with PARTS if a matrix engine multiplies (gemm_engine.h).
#include "gemm/gemm_micro.h"

__kernel void gemm_packed(BUF(pa), BUF(pb), BUF(c), BUF(d), const GemmParams P, const GemmScalars S) {
  const long batch = get_global_id(2), kp = PADDED_K(P.k);
  __global const panel_t* A = PTR(pa, const panel_t) + batch * P.a_panels;
  __global const panel_t* B = PTR(pb, const panel_t) + batch * P.b_panels;
  const Epilogue E = epilogue(PTR(c, STORAGE(OUT)), PTR(d, const STORAGE(ADD)), &P, P.batch0 + batch, &S);
  const long m_begin = get_global_id(0) * P.m_tiles, m_end = min(m_begin + P.m_tiles, (P.m + MR - 1) / MR);
  const long n_begin = get_global_id(1) * P.n_tiles, n_end = min(n_begin + P.n_tiles, (P.n + NR - 1) / NR);
  VT t[2 * MR + SPARE_VECTORS];
  ENGINE_BEGIN();
  for (long j = n_begin; j < n_end; j++)
    for (long i = m_begin; i < m_end; i++) {
      micro_kernel(A + i * kp * MR * PARTS, B + j * kp * NR * PARTS, kp, P.n - j * NR, t);
      store_tile(&E, t, i * MR, j * NR, P.m, P.n);
    }
  ENGINE_END();
}
