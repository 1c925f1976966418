// Matrix multiplication of packed panels, for CPUs: a register-blocked micro-kernel in explicit vectors.
// -D: ACC (compute tag), VEC and MR (the register tile is MR x 2 VEC), OUT and ADD (storage tags of c and d),
// ACC_FLOATING. gemm_panels.h describes the panels. One work-item makes a macro-tile of `mb` x `nb` panels.
// With ENGINE_AMX or ENGINE_AVX512_BF16 and PARTS, a matrix engine multiplies (gemm_engine.h).
#include "gemm.h"

#ifndef ENGINE
#define ENGINE_BEGIN()
#define ENGINE_END()
#define SPARE 0

#if MR == 12
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#elif MR == 6
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)
#endif
#define DECLARE(r) VT l##r = (VT)(0), h##r = (VT)(0);
#define STEP(r)                      \
  {                                  \
    const VT x = (VT)(a[4 * r + j]); \
    l##r = MAC(x, b0, l##r);         \
    h##r = MAC(x, b1, h##r);         \
  }
#define KEEP(r)    \
  t[2 * r] = l##r; \
  t[2 * r + 1] = h##r;

// The accumulators stay in registers: named variables, since an array might not.
inline void micro(__global const ST* a, __global const ST* b, long k, VT* t) {
  EACH_ROW(DECLARE)
  for (long q = 0; q < k; q += 4) {
#define LEVEL(level)                              \
  {                                               \
    const int j = level;                          \
    const VT b0 = CAT(VLOAD_, VEC)(2 * j, b);     \
    const VT b1 = CAT(VLOAD_, VEC)(2 * j + 1, b); \
    EACH_ROW(STEP)                                \
  }
    LEVEL(0)
    LEVEL(1)
    LEVEL(2)
    LEVEL(3)
    a += 4 * MR;
    b += 4 * NR;
  }
  EACH_ROW(KEEP)
}
#endif

__kernel void gemm_packed(BUF(pa), BUF(pb), BUF(c), BUF(d), const gemm_t P, const ST alpha, const ST beta) {
  const long batch = get_global_id(2);
  const long i0 = (P.batch0 + batch) / P.batch1, i1 = (P.batch0 + batch) % P.batch1;
  const long kp = PADDED(P.k);
  __global const panel_t* A = PTR(pa, const panel_t) + batch * P.a_batch;
  __global const panel_t* B = PTR(pb, const panel_t) + batch * P.b_batch;
  __global STORAGE(OUT)* C = PTR(c, STORAGE(OUT)) + i0 * P.c.b0 + i1 * P.c.b1;
  __global const STORAGE(ADD)* D = PTR(d, const STORAGE(ADD)) + i0 * P.d.b0 + i1 * P.d.b1;
  const long m_begin = get_global_id(0) * P.mb, m_end = min(m_begin + P.mb, (P.m + MR - 1) / MR);
  const long n_begin = get_global_id(1) * P.nb, n_end = min(n_begin + P.nb, (P.n + NR - 1) / NR);
  VT t[2 * MR + SPARE];
  ENGINE_BEGIN();
  for (long pn = n_begin; pn < n_end; pn++)
    for (long pm = m_begin; pm < m_end; pm++) {
      micro(A + pm * kp * MR * PER_LEVEL, B + pn * kp * NR * PER_LEVEL, kp, t);
      const int rows = (int)min((long)MR, P.m - pm * MR);
      for (int r = 0; r < 2 * rows; r++) {
        const long row = pm * MR + (r >> 1), col = pn * NR + (r & 1) * VEC;
        finish(C + row * P.c.rs + col * P.c.cs, P.c.cs, D + row * P.d.rs + col * P.d.cs, P.d.cs, P.add, t[r],
               alpha, beta, 0, (int)clamp(P.n - col, 0L, (long)VEC));
      }
    }
  ENGINE_END();
}
