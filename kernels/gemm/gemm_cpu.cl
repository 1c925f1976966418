// Matrix multiplication of packed panels, for CPUs. A work-item computes m_tiles x n_tiles tiles; gemm_panels.h
// describes the panels. -D: ACC, VEC and MR (the tile is MR x 2 VEC), OUT and ADD (storage tags of C and D),
// ENGINE_AMX or ENGINE_AVX512_BF16 with PARTS if a matrix engine multiplies (gemm_engine.h).
#include "gemm/gemm_micro.h"

// Panel i of A from k0 on, the distance of its rows, and a quarter of it as what a product prefetches. A_IN_PLACE: the
// matrix itself, of whole panels whose rows begin at cache lines.
#ifdef A_IN_PLACE
#define A_AT(i, k0) (A + (i) * MR * P.a.rs + (k0))
#define A_LINE P.a.rs
#define A_QUARTER(i, k0, n) {A_AT(i, k0) + (n) * (MR / 4) * P.a.rs, 2 * P.a.rs}
#else
#define A_AT(i, k0) (A + ((i) * kp + (k0)) * MR * PARTS)
#define A_LINE 32
#define A_QUARTER(i, k0, n) {A_AT(i, (k0) + (n) * depth / 4), 512}
#endif

// If k has several blocks, kc deep, SUMS is the number of a macro-tile's tiles, whose sums stay in the second-level
// cache meanwhile: there local memory lies.
__kernel void gemm_packed(BUF(pa), BUF(pb), BUF(c), BUF(d), const GemmParams P, const GemmScalars S) {
#ifdef SUMS
  __local VT sums[SUMS][2 * MR];
#endif
  const long batch = get_global_id(2), kp = PADDED_K(P.k);
#ifdef A_IN_PLACE
  const long entry = P.batch0 + batch;
  __global const panel_t* A = PTR(pa, const panel_t) + entry / P.batch1 * P.a.b0 + entry % P.batch1 * P.a.b1;
#else
  __global const panel_t* A = PTR(pa, const panel_t) + batch * P.a_panels;
#endif
  __global const panel_t* B = PTR(pb, const panel_t) + batch * P.b_panels;
  const Epilogue E = epilogue(PTR(c, STORAGE(OUT)), PTR(d, const STORAGE(ADD)), &P, P.batch0 + batch, &S);
  const long m_begin = get_global_id(0) * P.m_tiles, m_end = min(m_begin + P.m_tiles, (P.m + MR - 1) / MR);
  const long n_begin = get_global_id(1) * P.n_tiles, n_end = min(n_begin + P.n_tiles, (P.n + NR - 1) / NR);
  VT t[2 * MR + SPARE_VECTORS];
  ENGINE_BEGIN();
  for (long k0 = 0; k0 < kp; k0 += P.kc) {
    const long depth = min(P.kc, kp - k0), next = k0 + depth < kp ? k0 + depth : 0;
    for (long i = m_begin; i < m_end; i++)
      for (long j = n_begin; j < n_end; j++) {
        const long tile = (i - m_begin) * P.n_tiles + j - n_begin;
        __global const panel_t* a = A_AT(i, k0);
        __global const panel_t* b = B + (j * kp + k0) * NR * PARTS;
#ifdef SUMS
        __local VT* s = sums[tile];
#else
        VT* s = t;
#endif
#ifdef ENGINE_AMX
        // Four tiles prefetch a panel of the next block, or of A below this macro-tile.
        const long panel = tile / 4, below = next ? 0 : P.m_tiles;
        const fetch_t of_a = A_QUARTER(min(m_begin + below + panel, (P.m - 1) / MR), next, tile % 4);
        const fetch_t of_b = {
            B + (min(n_begin + panel - P.m_tiles, (P.n - 1) / NR) * kp + next + tile % 4 * depth / 4) * NR * PARTS,
            512};
        multiply_panels(a, A_LINE, b, depth / 32, k0 ? (ulong)s : 0, next ? (ulong)s : (ulong)t,
                        panel < P.m_tiles ? of_a : of_b);
#else
        micro_kernel(a, b, depth, P.n - j * NR, t);
        for (int x = 0; k0 && x < 2 * MR; x++) t[x] += s[x];
        for (int x = 0; next && x < 2 * MR; x++) s[x] = t[x];
#endif
        if (!next) store_tile(&E, t, i * MR, j * NR, P.m, P.n);
      }
  }
  ENGINE_END();
}
