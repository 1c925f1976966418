// Matrix multiplication without packing, for CPUs: small or skinny matrices, in one launch.
// -D: INA, INB, OUT, ADD (storage tags), ACC, VEC, ACC_FLOATING, ROWS (rows of a tile), KERNEL_ROWS |
// KERNEL_DOTS. gemm_rows: the columns of b are consecutive and n >= VEC; or, with PACK_B, a work-item first
// copies the panel of b that it works on, whatever its strides. gemm_dots: the levels of a and of b are
// consecutive.
#include "gemm_panels.h"

#define BEGIN                                                                             \
  const long batch = get_global_id(2);                                                    \
  const long i0 = batch / P.batch1, i1 = batch % P.batch1;                                \
  const long k = P.k_step ? min(P.k, P.k_total - batch * P.k_step) : P.k;                 \
  __global const STORAGE(INA)* A =                                                        \
      PTR(a, const STORAGE(INA)) + i0 * P.a.b0 + i1 * P.a.b1 + batch * P.k_step * P.a.cs; \
  __global const STORAGE(INB)* B =                                                        \
      PTR(b, const STORAGE(INB)) + i0 * P.b.b0 + i1 * P.b.b1 + batch * P.k_step * P.b.rs; \
  __global STORAGE(OUT)* C = PTR(c, STORAGE(OUT)) + i0 * P.c.b0 + i1 * P.c.b1;            \
  __global const STORAGE(ADD)* D = PTR(d, const STORAGE(ADD)) + i0 * P.d.b0 + i1 * P.d.b1;

#define LAST_ROW(r) min(row + (r), P.m - 1)

#ifdef KERNEL_ROWS
#ifdef PACK_B
#define END(col) (int)clamp(P.n - (col), 0L, (long)VEC)
#else
#define END(col) VEC
#endif
// A tile is ROWS x 2 VEC. At the right edge the vectors move left over columns that are already made, and
// only the new lanes are stored.
__kernel void gemm_rows(BUF(a), BUF(b), BUF(c), BUF(d), BUF(pb), const gemm_t P, const ST alpha,
                        const ST beta) {
  BEGIN
#ifdef PACK_B
  const long item = (batch * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
  __global ST* panel = PTR(pb, ST) + item * P.b_batch;
#endif
  const long m_begin = get_global_id(0) * P.mb * ROWS, m_end = min(m_begin + P.mb * ROWS, P.m);
  const long n_begin = get_global_id(1) * P.nb * NR, n_end = min(n_begin + P.nb * NR, P.n);
  for (long col = n_begin; col < n_end; col += NR) {
#ifdef PACK_B
    const long c0 = col, c1 = col + VEC;
    pack_b(B + col * P.b.cs, P.b.cs, P.b.rs, (int)min((long)NR, P.n - col), k, k, panel);
#else
    const long c0 = min(col, P.n - VEC), c1 = min(col + VEC, P.n - VEC);
#endif
    for (long row = m_begin; row < m_end; row += ROWS) {
      VT l[ROWS], h[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; r++) l[r] = h[r] = (VT)(0);
      for (long q = 0; q < k; q++) {
#ifdef PACK_B
        const VT b0 = CAT(VLOAD_, VEC)(2 * q, panel);
        const VT b1 = CAT(VLOAD_, VEC)(2 * q + 1, panel);
#else
        const VT b0 = LOAD(INB, ACC, VEC, B + q * P.b.rs + c0, 0);
        const VT b1 = LOAD(INB, ACC, VEC, B + q * P.b.rs + c1, 0);
#endif
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
          finish(to + c0 * P.c.cs, P.c.cs, from + c0 * P.d.cs, P.d.cs, P.add, l[r], alpha, beta,
                 (int)(col - c0), END(c0));
          finish(to + c1 * P.c.cs, P.c.cs, from + c1 * P.d.cs, P.d.cs, P.add, h[r], alpha, beta,
                 (int)min(col + VEC - c1, (long)VEC), END(c1));
        }
    }
  }
}
#endif

#ifdef KERNEL_VECTOR
// One row times b: a tile is 8 vectors, so that each level reads a long run of b.
#define RUN 8
__kernel void gemm_vector(BUF(a), BUF(b), BUF(c), BUF(d), const gemm_t P, const ST alpha, const ST beta) {
  BEGIN
  const long n_begin = get_global_id(1) * P.nb * RUN * VEC, n_end = min(n_begin + P.nb * RUN * VEC, P.n);
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
      finish(C + at[j] * P.c.cs, P.c.cs, D + at[j] * P.d.cs, P.d.cs, P.add, t[j], alpha, beta,
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
__kernel void gemm_dots(BUF(a), BUF(b), BUF(c), BUF(d), const gemm_t P, const ST alpha, const ST beta) {
  BEGIN
  const long m_begin = get_global_id(0) * P.mb * ROWS, m_end = min(m_begin + P.mb * ROWS, P.m);
  const long n_begin = get_global_id(1) * P.nb * COLS, n_end = min(n_begin + P.nb * COLS, P.n);
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
                  P.add, sum[r][s], alpha, beta);
    }
}
#endif
