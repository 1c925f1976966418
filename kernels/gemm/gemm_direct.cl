// Matrix multiplication in one launch, for CPUs: small or skinny matrices.
// -D: INA, INB, OUT, ADD (storage tags), ACC, VEC, ACC_FLOATING, and KERNEL_BLOCK with MR | KERNEL_ROWS
// with ROWS (of a tile): the columns of b are consecutive and n >= VEC | KERNEL_VECTOR: the same for one row |
// KERNEL_DOTS with ROWS: the levels of a and of b are consecutive.
#include "gemm/gemm_micro.h"
#include "gemm/gemm_panels.h"

#define BEGIN                                                                             \
  const long batch = get_global_id(2);                                                    \
  MATRICES
#define MATRICES                                                                          \
  const long i0 = batch / P.batch1, i1 = batch % P.batch1;                                \
  const long k = P.k_slice ? min(P.k, P.k_whole - batch * P.k_slice) : P.k;                 \
  __global const STORAGE(INA)* A =                                                        \
      PTR(a, const STORAGE(INA)) + i0 * P.a.b0 + i1 * P.a.b1 + batch * P.k_slice * P.a.cs; \
  __global const STORAGE(INB)* B =                                                        \
      PTR(b, const STORAGE(INB)) + i0 * P.b.b0 + i1 * P.b.b1 + batch * P.k_slice * P.b.rs; \
  __global STORAGE(OUT)* C = PTR(c, STORAGE(OUT)) + i0 * P.c.b0 + i1 * P.c.b1;            \
  __global const STORAGE(ADD)* D = PTR(d, const STORAGE(ADD)) + i0 * P.d.b0 + i1 * P.d.b1;

#define LAST_ROW(r) min(row + (r), P.m - 1)

#ifdef KERNEL_ROWS
// A tile is ROWS x 2 VEC. At the right edge the vectors move left over columns that are already made, and
// only the new lanes are stored.
__kernel void gemm_rows(BUF(a), BUF(b), BUF(c), BUF(d), const GemmParams P, const ST alpha, const ST beta) {
  BEGIN
  const long m_begin = get_global_id(0) * P.m_tiles * ROWS, m_end = min(m_begin + P.m_tiles * ROWS, P.m);
  const long n_begin = get_global_id(1) * P.n_tiles * NR, n_end = min(n_begin + P.n_tiles * NR, P.n);
  for (long col = n_begin; col < n_end; col += NR) {
    const long c0 = min(col, P.n - VEC), c1 = min(col + VEC, P.n - VEC);
    for (long row = m_begin; row < m_end; row += ROWS) {
      VT l[ROWS], h[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; r++) l[r] = h[r] = (VT)(0);
      for (long q = 0; q < k; q++) {
        const VT b0 = LOAD(INB, ACC, VEC, B + q * P.b.rs + c0, 0);
        const VT b1 = LOAD(INB, ACC, VEC, B + q * P.b.rs + c1, 0);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          const VT x = (VT)(LOAD(INA, ACC, 1, A + LAST_ROW(r) * P.a.rs + q * P.a.cs, 0));
          l[r] = MAC(x, b0, l[r]);
          h[r] = MAC(x, b1, h[r]);
        }
      }
#pragma unroll
      for (int r = 0; r < ROWS; r++)
        if (row + r < P.m) {
          __global STORAGE(OUT)* to = C + (row + r) * P.c.rs;
          __global const STORAGE(ADD)* from = D + (row + r) * P.d.rs;
          finish(to + c0 * P.c.cs, P.c.cs, from + c0 * P.d.cs, P.d.cs, P.has_d, l[r], alpha, beta,
                 (int)(col - c0), VEC);
          finish(to + c1 * P.c.cs, P.c.cs, from + c1 * P.d.cs, P.d.cs, P.has_d, h[r], alpha, beta,
                 (int)min(col + VEC - c1, (long)VEC), VEC);
        }
    }
  }
}
#endif

#ifdef KERNEL_BLOCK
// Work-items share out the matrices, the panels of rows and those of columns evenly, and each makes its part of c by
// itself. It reads a (A_IN_PLACE) and b (b_in_place) where they lie if multiply_tile() can and it pays, and packs what it
// needs of them if not, as it does at the edges. A k deeper than k_block goes in steps, whose sums are added up in c:
// there c is of the compute type, and there is no d. A matrix engine reads panels only.
#ifdef ENGINE
#define PACKED(depth) PADDED(depth)
#else
#define PACKED(depth) (depth)
#endif
#define SHARE(total, i) ((total) * (long)get_global_id(i) / (long)get_global_size(i))
#define SHARE_END(total, i) ((total) * (long)(get_global_id(i) + 1) / (long)get_global_size(i))
__kernel void gemm_block(BUF(a), BUF(b), BUF(c), BUF(d), BUF(panels), const GemmParams P, const ST alpha,
                         const ST beta) {
  const long item = (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
  __global panel_t* pb = PTR(panels, panel_t) + item * P.item_panels;
  __global panel_t* pa = pb + (P.b_in_place ? 1 : P.n_tiles) * NR * PACKED(P.kc) * PER_LEVEL;
  const long mp = (P.m + MR - 1) / MR, m_begin = SHARE(mp, 0), m_end = SHARE_END(mp, 0);
  const long np = (P.n + NR - 1) / NR, n_begin = SHARE(np, 1), n_end = SHARE_END(np, 1);
  const long n_packed = P.b_in_place ? min(P.n / NR, n_end) : n_begin;  // the first panel of b that is
  VT t[2 * MR + SPARE];
  ENGINE_BEGIN();
  for (long batch = SHARE(P.batches, 2); batch < SHARE_END(P.batches, 2); batch++) {
    MATRICES
    long k0 = 0;
    do {
      const long depth = min(k - k0, P.kc), kp = PACKED(depth);
      for (long pn = n_packed; pn < n_end; pn++)
        pack_b(B + pn * NR * P.b.cs + k0 * P.b.rs, P.b.cs, P.b.rs, (int)min((long)NR, P.n - pn * NR), depth, kp,
               pb + (pn - n_packed) * NR * kp * PER_LEVEL);
      for (long pm = m_begin; pm < m_end; pm++) {
        const int rows = (int)min((long)MR, P.m - pm * MR);
        __global const STORAGE(INA)* at = A + pm * MR * P.a.rs + k0 * P.a.cs;
#if defined(ENGINE)
        pack_a(at, P.a.rs, P.a.cs, rows, depth, kp, pa);
#elif defined(A_IN_PLACE)
        const bool in_place = rows == MR;
        if (!in_place) pack_a(at, P.a.rs, P.a.cs, rows, depth, depth, pa);
        __global const ST* x = in_place ? at : pa;
        const long rs = in_place ? P.a.rs : 4, as = in_place ? 4 : 4 * MR;
#else
        pack_a(at, P.a.rs, P.a.cs, rows, depth, depth, pa);
        __global const ST* x = pa;
        const long rs = 4, as = 4 * MR;  // constants save a register each
#endif
        for (long pn = n_begin; pn < n_end; pn++) {
#ifdef ENGINE
          micro(pa, pb + (pn - n_packed) * NR * kp * PER_LEVEL, kp, t);
#else
          const bool packed = pn >= n_packed;
          multiply_tile(x, rs, as,
                packed ? pb + (pn - n_packed) * NR * depth : (__global const ST*)B + pn * NR + k0 * P.b.rs,
                packed ? NR : P.b.rs, depth, t);
#endif
          if (k0)
            finish_tile(C, P.c, (__global const STORAGE(ADD)*)C, P.c, 1, t, alpha, (ST)(1), pm * MR, pn * NR, P.m, P.n);
          else
            finish_tile(C, P.c, D, P.d, P.has_d, t, alpha, beta, pm * MR, pn * NR, P.m, P.n);
        }
      }
      k0 += P.kc;
    } while (k0 < k);
  }
  ENGINE_END();
}
#endif

#ifdef KERNEL_VECTOR
// One row times b: a tile is 8 vectors, so that each level reads a long run of b.
#define RUN 8
__kernel void gemm_vector(BUF(a), BUF(b), BUF(c), BUF(d), const GemmParams P, const ST alpha, const ST beta) {
  BEGIN
  const long n_begin = get_global_id(1) * P.n_tiles * RUN * VEC, n_end = min(n_begin + P.n_tiles * RUN * VEC, P.n);
  for (long col = n_begin; col < n_end; col += RUN * VEC) {
    VT t[RUN];
    long at[RUN];
#pragma unroll
    for (int j = 0; j < RUN; j++) {
      t[j] = (VT)(0);
      at[j] = min(col + j * VEC, P.n - VEC);
    }
    for (long q = 0; q < k; q++) {
      const VT x = (VT)(LOAD(INA, ACC, 1, A + q * P.a.cs, 0));
#pragma unroll
      for (int j = 0; j < RUN; j++) t[j] = MAC(x, LOAD(INB, ACC, VEC, B + q * P.b.rs + at[j], 0), t[j]);
    }
    for (int j = 0; j < RUN; j++)
      finish(C + at[j] * P.c.cs, P.c.cs, D + at[j] * P.d.cs, P.d.cs, P.has_d, t[j], alpha, beta,
             (int)min(col + j * VEC - at[j], (long)VEC), VEC);
  }
}
#endif

#ifdef KERNEL_DOTS
#define SUM_HALVES(v) ((v).lo + (v).hi)
#if VEC == 16
#define SUM_LANES(v) sum4(SUM_HALVES(SUM_HALVES(v)))
#elif VEC == 8
#define SUM_LANES(v) sum4(SUM_HALVES(v))
#else
#define SUM_LANES(v) sum4(v)
#endif
inline ST sum4(VTYPE(ACC, 4) v) {
  const VTYPE(ACC, 2) x = v.lo + v.hi;
  return x.x + x.y;
}

// A tile is ROWS x 4 dot products, each kept as a vector over the levels.
#define COLS 4
__kernel void gemm_dots(BUF(a), BUF(b), BUF(c), BUF(d), const GemmParams P, const ST alpha, const ST beta) {
  BEGIN
  const long m_begin = get_global_id(0) * P.m_tiles * ROWS, m_end = min(m_begin + P.m_tiles * ROWS, P.m);
  const long n_begin = get_global_id(1) * P.n_tiles * COLS, n_end = min(n_begin + P.n_tiles * COLS, P.n);
  for (long col = n_begin; col < n_end; col += COLS)
    for (long row = m_begin; row < m_end; row += ROWS) {
      VT t[ROWS][COLS];
#pragma unroll
      for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int s = 0; s < COLS; s++) t[r][s] = (VT)(0);
      long q = 0;
      for (; q + VEC <= k; q += VEC) {
        VT y[COLS];
#pragma unroll
        for (int s = 0; s < COLS; s++) y[s] = LOAD(INB, ACC, VEC, B + min(col + s, P.n - 1) * P.b.cs + q, 0);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          const VT x = LOAD(INA, ACC, VEC, A + LAST_ROW(r) * P.a.rs + q, 0);
#pragma unroll
          for (int s = 0; s < COLS; s++) t[r][s] = MAC(x, y[s], t[r][s]);
        }
      }
      ST sum[ROWS][COLS];
#pragma unroll
      for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int s = 0; s < COLS; s++) sum[r][s] = SUM_LANES(t[r][s]);
      for (; q < k; q++) {
        ST y[COLS];
#pragma unroll
        for (int s = 0; s < COLS; s++) y[s] = LOAD(INB, ACC, 1, B + min(col + s, P.n - 1) * P.b.cs + q, 0);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          const ST x = LOAD(INA, ACC, 1, A + LAST_ROW(r) * P.a.rs + q, 0);
#pragma unroll
          for (int s = 0; s < COLS; s++) sum[r][s] = MAC(x, y[s], sum[r][s]);
        }
      }
      for (int r = 0; r < min((long)ROWS, P.m - row); r++)
        for (int s = 0; s < min((long)COLS, P.n - col); s++)
          finish1(C + (row + r) * P.c.rs + (col + s) * P.c.cs, D + (row + r) * P.d.rs + (col + s) * P.d.cs,
                  P.has_d, sum[r][s], alpha, beta);
    }
}
#endif
