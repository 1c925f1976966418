// Copies a and b into the panels of gemm_cpu.cl, in one launch.
// -D: INA, INB (storage tags), ACC, VEC.
#include "gemm_panels.h"

__kernel void gemm_pack(BUF(a), BUF(b), BUF(pa), BUF(pb), const gemm_t P) {
  const long batch = get_global_id(1), item = get_global_id(0);
  const long i0 = (P.batch0 + batch) / P.batch1, i1 = (P.batch0 + batch) % P.batch1;
  const long kp = (P.k + 3) & ~3L;
  if (item < P.a_items) {
    if (batch > 0 && P.a_batch == 0) return;
    __global const STORAGE(INA)* A = PTR(a, const STORAGE(INA)) + i0 * P.a.b0 + i1 * P.a.b1;
    const long end = min((item + 1) * P.mb, (P.m + MR - 1) / MR);
    for (long p = item * P.mb; p < end; p++)
      pack_a(A + p * MR * P.a.rs, P.a.rs, P.a.cs, (int)min((long)MR, P.m - p * MR), P.k, kp,
             PTR(pa, ST) + batch * P.a_batch + p * MR * kp);
  } else {
    if (batch > 0 && P.b_batch == 0) return;
    __global const STORAGE(INB)* B = PTR(b, const STORAGE(INB)) + i0 * P.b.b0 + i1 * P.b.b1;
    const long end = min((item - P.a_items + 1) * P.nb, (P.n + NR - 1) / NR);
    for (long p = (item - P.a_items) * P.nb; p < end; p++)
      pack_b(B + p * NR * P.b.cs, P.b.cs, P.b.rs, (int)min((long)NR, P.n - p * NR), P.k, kp,
             PTR(pb, ST) + batch * P.b_batch + p * NR * kp);
  }
}
