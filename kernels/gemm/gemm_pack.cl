// Copies a and b into the panels of gemm_cpu.cl, in one launch.
// -D: INA, INB (storage tags), ACC, VEC, MR, and ENGINE_AMX or ENGINE_AVX512_BF16 with PARTS for a matrix engine.
#include "gemm/gemm_panels.h"

// Where lines lie side by side, all panels of a work-item take so many levels (a multiple of 32) before any takes the
// next ones: neighbouring panels read neighbouring bytes of the same pages. Lines of consecutive levels are read to
// their ends.
#define LEVELS 64

__kernel void gemm_pack(BUF(a), BUF(b), BUF(pa), BUF(pb), const GemmParams P) {
  const long batch = get_global_id(1), item = get_global_id(0);
  const long i0 = (P.batch0 + batch) / P.batch1, i1 = (P.batch0 + batch) % P.batch1;
  const long kp = PADDED(P.k);
  if (item < P.a_items) {
    if (batch > 0 && P.a_panels == 0) return;
    __global const STORAGE(INA)* A = PTR(a, const STORAGE(INA)) + i0 * P.a.b0 + i1 * P.a.b1;
    __global panel_t* to = PTR(pa, panel_t) + batch * P.a_panels;
    const long end = min((item + 1) * P.m_tiles, (P.m + MR - 1) / MR);
    const long levels = P.a.cs == 1 ? kp : LEVELS;
    for (long q = 0; q < kp; q += levels)
      for (long p = item * P.m_tiles; p < end; p++)
        pack_a(A + p * MR * P.a.rs + q * P.a.cs, P.a.rs, P.a.cs, (int)min((long)MR, P.m - p * MR),
               min(P.k - q, levels), min(kp - q, levels), to + (p * kp + q) * MR * PER_LEVEL);
  } else {
    if (batch > 0 && P.b_panels == 0) return;
    __global const STORAGE(INB)* B = PTR(b, const STORAGE(INB)) + i0 * P.b.b0 + i1 * P.b.b1;
    __global panel_t* to = PTR(pb, panel_t) + batch * P.b_panels;
    const long end = min((item - P.a_items + 1) * P.n_tiles, (P.n + NR - 1) / NR);
    const long levels = P.b.rs == 1 ? kp : LEVELS;
    for (long q = 0; q < kp; q += levels)
      for (long p = (item - P.a_items) * P.n_tiles; p < end; p++)
        pack_b(B + p * NR * P.b.cs + q * P.b.rs, P.b.cs, P.b.rs, (int)min((long)NR, P.n - p * NR),
               min(P.k - q, levels), min(kp - q, levels), to + (p * kp + q) * NR * PER_LEVEL);
  }
}
