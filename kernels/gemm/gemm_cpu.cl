// Matrix multiplication of packed panels, for CPUs: a register-blocked micro-kernel in explicit vectors.
// -D: ACC (compute tag), VEC and MR (the register tile is MR x 2 VEC), OUT and ADD (storage tags of c and d),
// ACC_FLOATING. gemm_panels.h describes the panels. One work-item makes a macro-tile of `mb` x `nb` panels.
// With ENGINE_AMX or ENGINE_AVX512_BF16 and PARTS, a matrix engine multiplies (gemm_engine.h).
#include "gemm/gemm_micro.h"

__kernel void gemm_packed(BUF(pa), BUF(pb), BUF(c), BUF(d), const GemmParams P, const ST alpha, const ST beta) {
  const long batch = get_global_id(2);
  const long i0 = (P.batch0 + batch) / P.batch1, i1 = (P.batch0 + batch) % P.batch1;
  const long kp = PADDED(P.k);
  __global const panel_t* A = PTR(pa, const panel_t) + batch * P.a_panels;
  __global const panel_t* B = PTR(pb, const panel_t) + batch * P.b_panels;
  __global STORAGE(OUT)* C = PTR(c, STORAGE(OUT)) + i0 * P.c.b0 + i1 * P.c.b1;
  __global const STORAGE(ADD)* D = PTR(d, const STORAGE(ADD)) + i0 * P.d.b0 + i1 * P.d.b1;
  const long m_begin = get_global_id(0) * P.m_tiles, m_end = min(m_begin + P.m_tiles, (P.m + MR - 1) / MR);
  const long n_begin = get_global_id(1) * P.n_tiles, n_end = min(n_begin + P.n_tiles, (P.n + NR - 1) / NR);
  VT t[2 * MR + SPARE];
  ENGINE_BEGIN();
  for (long pn = n_begin; pn < n_end; pn++)
    for (long pm = m_begin; pm < m_end; pm++) {
      micro(A + pm * kp * MR * PER_LEVEL, B + pn * kp * NR * PER_LEVEL, kp, t);
      finish_tile(C, P.c, D, P.d, P.has_d, t, alpha, beta, pm * MR, pn * NR, P.m, P.n);
    }
  ENGINE_END();
}
