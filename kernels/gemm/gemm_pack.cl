// Copies A and B into the panels of gemm_cpu.cl, in one launch: the first a_items work-items take A, the others B.
// -D: INA, INB (storage tags), ACC, VEC, MR, and ENGINE_AMX or ENGINE_AVX512_BF16 with PARTS for a matrix engine.
#include "gemm/gemm_panels.h"

// The rows of k that this work-item packs; the last one packs those that pad.
#define K_BEGIN(P) ((long)get_global_id(2) * (P)->kc)
#define K_END(P) min(K_BEGIN(P) + (P)->kc, (long)PADDED_K((P)->k))

static inline void pack_a_panels(__global const STORAGE(INA)* A, __global panel_t* to, long begin, long end,
                                 const GemmParams* P) {
  const long kp = PADDED_K(P->k), deep = K_END(P), depth = P->a.cs == 1 ? P->kc : kPackDepth;
  for (long kk = K_BEGIN(P); kk < deep; kk += depth)
    for (long i = begin; i < end; i++)
      pack_a(A + i * MR * P->a.rs + kk * P->a.cs, P->a.rs, P->a.cs, (int)min((long)MR, P->m - i * MR),
             min(P->k - kk, depth), min(deep - kk, depth), to + (i * kp + kk) * MR * PARTS);
}
static inline void pack_b_panels(__global const STORAGE(INB)* B, __global panel_t* to, long begin, long end,
                                 const GemmParams* P) {
  const long kp = PADDED_K(P->k), deep = K_END(P), depth = P->b.rs == 1 ? P->kc : kPackDepth;
  for (long kk = K_BEGIN(P); kk < deep; kk += depth)
    for (long j = begin; j < end; j++)
      pack_b(B + j * NR * P->b.cs + kk * P->b.rs, P->b.cs, P->b.rs, (int)min((long)NR, P->n - j * NR),
             min(P->k - kk, depth), min(deep - kk, depth), to + (j * kp + kk) * NR * PARTS);
}

__kernel void gemm_pack(BUF(a), BUF(b), BUF(pa), BUF(pb), const GemmParams P) {
  const long batch = get_global_id(1), item = get_global_id(0), b_item = item - P.a_items;
  if (b_item < 0) {
    if (batch > 0 && P.a_panels == 0) return;
    pack_a_panels(matrix_a(PTR(a, const STORAGE(INA)), &P, P.batch0 + batch), PTR(pa, panel_t) + batch * P.a_panels,
                  item * P.m_tiles, min((item + 1) * P.m_tiles, (P.m + MR - 1) / MR), &P);
  } else {
    if (batch > 0 && P.b_panels == 0) return;
    pack_b_panels(matrix_b(PTR(b, const STORAGE(INB)), &P, P.batch0 + batch), PTR(pb, panel_t) + batch * P.b_panels,
                  b_item * P.n_tiles, min((b_item + 1) * P.n_tiles, (P.n + NR - 1) / NR), &P);
  }
}
