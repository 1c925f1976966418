// Matrix multiplication in one launch, for CPUs: small or skinny matrices. Each kernel is a program of its own:
//   gemm_fused   packs and multiplies; needs MR (gemm_micro.h)
//   gemm_rows    few rows; B is read in place; the rows of B are contiguous, n >= VEC. A tile is ROWS x ACROSS * VEC
//   gemv         the same for one row
//   gemm_dots    dot products of contiguous rows of A and columns of B. A tile is ROWS x kDotColumns
// -D: INA, INB, OUT, ADD (storage tags), ACC, VEC, and MR or ROWS.
#include "common/join_lanes.h"
#include "gemm/gemm_micro.h"
#include "gemm/gemm_panels.h"

// The tiles of a work-item take P.kc rows of B at a time, since rows lie in pages of their own. At the right edge, the
// vectors move left over columns that are already computed, and only the new lanes are stored.
// A is packed if it has to be converted, and if a tile has more than eight rows, whose addresses registers do not hold.
#define IN_A(row, kk) LOAD(INA, ACC, 1, A + min(row, P.m - 1) * P.a.rs + (k0 + (kk)) * P.a.cs, 0)
__kernel void gemm_rows(BUF(a), BUF(b), BUF(c), BUF(d), const GemmParams P, const GemmScalars S) {
  enum { ACROSS = ROWS > 8 ? 1 : 2, PACKS_A = ROWS > 8 ? 1 : sizeof(STORAGE(INA)) < sizeof(ST) };
  __local ST kept[kKeptBytes / sizeof(ST)], of_a[PACKS_A ? kKeptDepth * (kFewRows + ROWS) : 1];
  const long k = depth_of(&P, get_global_id(2));
  __global const STORAGE(INA)* A = matrix_a(PTR(a, const STORAGE(INA)), &P, get_global_id(2));
  __global const STORAGE(INB)* B = matrix_b(PTR(b, const STORAGE(INB)), &P, get_global_id(2));
  const Epilogue E = epilogue(PTR(c, STORAGE(OUT)), PTR(d, const STORAGE(ADD)), &P, get_global_id(2), &S);
  const long m_begin = get_global_id(0) * P.m_tiles * ROWS, m_end = min(m_begin + P.m_tiles * ROWS, P.m);
  const long tile = ACROSS * VEC, n_begin = get_global_id(1) * P.n_tiles * tile;
  const long n_end = min(n_begin + P.n_tiles * tile, P.n);
  const long columns = kKeptBytes / (long)sizeof(ST) / (P.m_tiles * ROWS * tile) * tile;
  for (long first = n_begin; first < n_end; first += columns)
    for (long k0 = 0; k0 == 0 || k0 < k; k0 += P.kc) {
      const int depth = (int)min(P.kc, k - k0);
      for (long i = 0; PACKS_A && i < P.m_tiles * ROWS; i++)
        for (int kk = 0; kk < depth; kk++) of_a[(i / ROWS * kKeptDepth + kk) * ROWS + i % ROWS] = IN_A(m_begin + i, kk);
      __local ST* sums = kept;
      for (long col = first; col < min(first + columns, n_end); col += tile) {
        const long c0 = min(col, P.n - VEC), c1 = min(col + VEC, P.n - VEC);
        for (long row = m_begin; row < m_end; row += ROWS, sums += ROWS * tile) {
          __local const ST* x = of_a + (row - m_begin) * kKeptDepth;
          VT t[ACROSS * ROWS];
          UNROLL for (int i = 0; i < ACROSS * ROWS; i++)
            t[i] = k0 ? CAT(VLOAD_, VEC)(i, sums) : (VT)(0);
          for (int kk = 0; kk < depth; kk++) {
            const VT b0 = LOAD(INB, ACC, VEC, B + (k0 + kk) * P.b.rs + c0, 0);
            const VT b1 = ACROSS == 1 ? b0 : LOAD(INB, ACC, VEC, B + (k0 + kk) * P.b.rs + c1, 0);
            UNROLL for (int r = 0; r < ROWS; r++) {
              const VT a_rk = (VT)(PACKS_A ? x[kk * ROWS + r] : IN_A(row + r, kk));
              t[ACROSS * r] = MAC(a_rk, b0, t[ACROSS * r]);
              if (ACROSS == 2) t[2 * r + 1] = MAC(a_rk, b1, t[2 * r + 1]);
            }
          }
          if (k0 + depth < k) {
            UNROLL for (int i = 0; i < ACROSS * ROWS; i++)
              CAT(VSTORE_, VEC)(t[i], i, sums);
            continue;
          }
          // One copy of the code that stores, for all vectors: each copy costs 0.1 s of compiling.
          for (int i = 0; i < ACROSS * (int)min((long)ROWS, P.m - row); i++) {
            const long from = col + i % ACROSS * VEC, at = i % ACROSS ? c1 : c0;
            store_vector(&E, row + i / ACROSS, at, t[i], (int)min(from - at, (long)VEC), VEC);
          }
        }
      }
    }
}

// Work-items divide the matrices, the panels of A and those of B evenly, and each computes its part of C alone. It
// reads A (A_IN_PLACE) and B (b_in_place) in place if micro_kernel_of() can and it pays; otherwise, and at the edges,
// it packs what it needs. A k deeper than kc is divided into blocks, whose sums are added up in C; then C has the
// compute type, and there is no D. AMX keeps them in memory of its own; then there is one panel of A.
#ifdef ENGINE
#define PACKED_K(depth) PADDED_K(depth)
#else
#define PACKED_K(depth) (depth)
#endif
#define SHARE(total, i) ((total) * (long)get_global_id(i) / (long)get_global_size(i))
#define SHARE_END(total, i) ((total) * (long)(get_global_id(i) + 1) / (long)get_global_size(i))
__kernel void gemm_fused(BUF(a), BUF(b), BUF(panels), BUF(c), BUF(d), const GemmParams P, const GemmScalars S) {
  const long item = (get_global_id(2) * get_global_size(1) + get_global_id(1)) * get_global_size(0) + get_global_id(0);
  __global panel_t* pb = PTR(panels, panel_t) + item * P.item_panels;
  __global panel_t* pa = pb + (P.b_in_place ? 1 : P.n_tiles) * NR * PACKED_K(P.kc) * PARTS;
  const long mp = (P.m + MR - 1) / MR, m_begin = SHARE(mp, 0), m_end = SHARE_END(mp, 0);
  const long np = (P.n + NR - 1) / NR, n_begin = SHARE(np, 1), n_end = SHARE_END(np, 1);
  const long n_packed = P.b_in_place ? min(P.n / NR, n_end) : n_begin;  // the first packed panel of B
#ifdef ENGINE_AMX
  __global panel_t* kept = pa + MR * PACKED_K(P.kc) * PARTS;  // the sums of each tile, between blocks of k
#endif
  VT t[2 * MR + SPARE_VECTORS];
  ENGINE_BEGIN();
  for (long batch = SHARE(P.batches, 2); batch < SHARE_END(P.batches, 2); batch++) {
    const long k = depth_of(&P, batch);
    __global const STORAGE(INA)* A = matrix_a(PTR(a, const STORAGE(INA)), &P, batch);
    __global const STORAGE(INB)* B = matrix_b(PTR(b, const STORAGE(INB)), &P, batch);
    Epilogue E = epilogue(PTR(c, STORAGE(OUT)), PTR(d, const STORAGE(ADD)), &P, batch, &S);
    long k0 = 0;
    do {
      const long depth = min(k - k0, P.kc), kp = PACKED_K(depth);
#ifdef ENGINE_AMX
      const int last = k0 + P.kc >= k;
#else
      if (k0) {  // adds to the sums of earlier blocks in C
        E.d = (__global const STORAGE(ADD)*)E.c;
        E.d_row = E.c_row;
        E.d_col = E.c_col;
        E.has_d = 1;
        E.beta = (ST)(1);
      }
#endif
      for (long j = n_packed; j < n_end; j++)
        pack_b(B + j * NR * P.b.cs + k0 * P.b.rs, P.b.cs, P.b.rs, (int)min((long)NR, P.n - j * NR), depth, kp,
               pb + (j - n_packed) * NR * kp * PARTS);
      for (long i = m_begin; i < m_end; i++) {
        const int rows = (int)min((long)MR, P.m - i * MR);
        __global const STORAGE(INA)* at = A + i * MR * P.a.rs + k0 * P.a.cs;
#if defined(A_IN_PLACE)
        const bool in_place = rows == MR;
#else
        const bool in_place = false;
#endif
        if (!in_place) pack_a(at, P.a.rs, P.a.cs, rows, depth, kp, pa);
#if defined(ENGINE_AMX)
        __global const panel_t* x = in_place ? (__global const panel_t*)at : pa;
        const long rs = in_place ? P.a.rs : 32;
#elif defined(ENGINE)
#elif defined(A_IN_PLACE)
        __global const ST* x = in_place ? at : pa;
        const long rs = in_place ? P.a.rs : 4, as = in_place ? 4 : 4 * MR;
#else
        __global const ST* x = pa;
        const long rs = 4, as = 4 * MR;  // each constant saves a register
#endif
        for (long j = n_begin; j < n_end; j++) {
#if defined(ENGINE_AMX)
          // Each product prefetches a part of the rows that are packed next.
          const long part = (j - n_begin) * kp / 32 * 512;
          __global const uchar* rows_below = (__global const uchar*)(at + MR * P.a.rs);
          __global const panel_t* b = pb + (j - n_packed) * NR * kp * PARTS;
          const fetch_t next = {rows_below + part, 512};
          const ulong sums = (ulong)(kept + (j - n_begin) * (MR * NR * sizeof(float) / sizeof(panel_t)));
          multiply_panels(x, rs, b, kp / 32, k0 ? sums : 0, last ? (ulong)t : sums, next);
          if (!last) continue;
#elif defined(ENGINE)
          micro_kernel(pa, pb + (j - n_packed) * NR * kp * PARTS, kp, P.n - j * NR, t);
#else
          const bool packed = j >= n_packed;
          micro_kernel_of(x, rs, as,
                          packed ? pb + (j - n_packed) * NR * depth : (__global const ST*)B + j * NR + k0 * P.b.rs,
                          packed ? NR : P.b.rs, depth, P.n - j * NR, t);
#endif
          store_tile(&E, t, i * MR, j * NR, P.m, P.n);
        }
      }
      k0 += P.kc;
    } while (k0 < k);  // runs once if k is 0
  }
  ENGINE_END();
}

// One row times B. A tile is several vectors wide, so that a long stretch of each row of B is read.
__kernel void gemv(BUF(a), BUF(b), BUF(c), BUF(d), const GemmParams P, const GemmScalars S) {
  const long k = depth_of(&P, get_global_id(2));
  __global const STORAGE(INA)* A = matrix_a(PTR(a, const STORAGE(INA)), &P, get_global_id(2));
  __global const STORAGE(INB)* B = matrix_b(PTR(b, const STORAGE(INB)), &P, get_global_id(2));
  const Epilogue E = epilogue(PTR(c, STORAGE(OUT)), PTR(d, const STORAGE(ADD)), &P, get_global_id(2), &S);
  const long n_begin = get_global_id(1) * P.n_tiles * kGemvVectors * VEC;
  const long n_end = min(n_begin + P.n_tiles * kGemvVectors * VEC, P.n);
  for (long col = n_begin; col < n_end; col += kGemvVectors * VEC) {
    VT t[kGemvVectors];
    long at[kGemvVectors];
    UNROLL for (int v = 0; v < kGemvVectors; v++) {
      t[v] = (VT)(0);
      at[v] = min(col + v * VEC, P.n - VEC);
    }
    for (long kk = 0; kk < k; kk++) {
      const VT x = (VT)(LOAD(INA, ACC, 1, A + kk * P.a.cs, 0));
      UNROLL for (int v = 0; v < kGemvVectors; v++)
        t[v] = MAC(x, LOAD(INB, ACC, VEC, B + kk * P.b.rs + at[v], 0), t[v]);
    }
    for (int v = 0; v < kGemvVectors; v++)
      store_vector(&E, 0, at[v], t[v], (int)min(col + v * VEC - at[v], (long)VEC), VEC);
  }
}

// The sums of each dot product are kept in a vector.
// Rows of 16-bit elements end too soon for the processor to fetch the next tile's itself.
#define LINE (64 / (long)sizeof(STORAGE(INB)))
__kernel void gemm_dots(BUF(a), BUF(b), BUF(c), BUF(d), const GemmParams P, const GemmScalars S) {
  const long k = depth_of(&P, get_global_id(2));
  __global const STORAGE(INA)* A = matrix_a(PTR(a, const STORAGE(INA)), &P, get_global_id(2));
  __global const STORAGE(INB)* B = matrix_b(PTR(b, const STORAGE(INB)), &P, get_global_id(2));
  const Epilogue E = epilogue(PTR(c, STORAGE(OUT)), PTR(d, const STORAGE(ADD)), &P, get_global_id(2), &S);
  const long m_begin = get_global_id(0) * P.m_tiles * ROWS, m_end = min(m_begin + P.m_tiles * ROWS, P.m);
  const long n_begin = get_global_id(1) * P.n_tiles * kDotColumns, n_end = min(n_begin + P.n_tiles * kDotColumns, P.n);
  for (long col = n_begin; col < n_end; col += kDotColumns)
    for (long row = m_begin; row < m_end; row += ROWS) {
      VT t[ROWS][kDotColumns];
      UNROLL for (int r = 0; r < ROWS; r++) UNROLL
        for (int s = 0; s < kDotColumns; s++) t[r][s] = (VT)(0);
      long kk = 0;
      for (; kk + VEC <= k; kk += VEC) {
        if (sizeof(STORAGE(INB)) == 2 && kk % LINE == 0) UNROLL
          for (int s = 0; s < kDotColumns; s++) FETCH_LINE(B + (col + kDotColumns + s) * P.b.cs + kk);
        VT y[kDotColumns];
        UNROLL for (int s = 0; s < kDotColumns; s++)
          y[s] = LOAD(INB, ACC, VEC, B + min(col + s, P.n - 1) * P.b.cs + kk, 0);
        UNROLL for (int r = 0; r < ROWS; r++) {
          const VT x = LOAD(INA, ACC, VEC, A + min(row + r, P.m - 1) * P.a.rs + kk, 0);
          UNROLL for (int s = 0; s < kDotColumns; s++)
            t[r][s] = MAC(x, y[s], t[r][s]);
        }
      }
      ST sum[ROWS][kDotColumns];
      UNROLL for (int r = 0; r < ROWS; r++) UNROLL
        for (int s = 0; s < kDotColumns; s++) sum[r][s] = sum_lanes(t[r][s]);
      for (; kk < k; kk++) {
        ST y[kDotColumns];
        UNROLL for (int s = 0; s < kDotColumns; s++)
          y[s] = LOAD(INB, ACC, 1, B + min(col + s, P.n - 1) * P.b.cs + kk, 0);
        UNROLL for (int r = 0; r < ROWS; r++) {
          const ST x = LOAD(INA, ACC, 1, A + min(row + r, P.m - 1) * P.a.rs + kk, 0);
          UNROLL for (int s = 0; s < kDotColumns; s++)
            sum[r][s] = MAC(x, y[s], sum[r][s]);
        }
      }
      for (int r = 0; r < min((long)ROWS, P.m - row); r++)
        for (int s = 0; s < min((long)kDotColumns, P.n - col); s++) store_element(&E, row + r, col + s, sum[r][s]);
    }
}
