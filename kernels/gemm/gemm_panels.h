// Panels are filled from a matrix of any strides, in the compute type, with zeros from k to kp. Rows or columns beyond
// the matrix's edge hold anything, since nothing of them is stored. A panel of A holds MR rows as [k / 4][MR][4]; one
// of B holds NR columns as [k][NR]. -D MR if A is packed. A matrix engine's panels are in gemm_engine.h.
#include "gemm/gemm.h"

#ifndef ENGINE
typedef VTYPE(ACC, 16) V16;
typedef VTYPE(ACC, 8) V8;
#define TRANSPOSE_4X4 s048c159d26ae37bf
#define TRANSPOSE_4X2 s02461357

// The position of element (i, kk) of A, or (kk, j) of B, in its panel.
#define AT_A(i, kk) (((kk) >> 2) * (4 * MR) + (i) * 4 + ((kk) & 3))
#define AT_B(j, kk) ((kk) * NR + (j))

#if defined(INA) && defined(MR)
// Packs `rows` rows of A, which are `rs` apart; their elements are `ks` apart.
static inline void pack_a(__global const STORAGE(INA)* from, long rs, long ks, int rows, long k, long kp,
                          __global ST* to) {
  const long whole = k & ~3L;
  long kk = 0;
  if (ks == 1) {
    for (; kk + 16 <= k; kk += 16)
      for (int i = 0; i < MR; i++) {
        const V16 v = LOAD(INA, ACC, 16, from + min(i, rows - 1) * rs + kk, 0);
        __global ST* t = to + AT_A(i, kk);
        vstore4(v.lo.lo, 0, t);
        vstore4(v.lo.hi, 0, t + 4 * MR);
        vstore4(v.hi.lo, 0, t + 8 * MR);
        vstore4(v.hi.hi, 0, t + 12 * MR);
      }
    for (; kk < whole; kk += 4)
      for (int i = 0; i < MR; i++)
        vstore4(LOAD(INA, ACC, 4, from + min(i, rows - 1) * rs + kk, 0), 0, to + kk * MR + i * 4);
  } else if (rows == MR && rs == 1) {
    for (; kk < whole; kk += 4) {
      for (int i = 0; i + 4 <= MR; i += 4) {
        __global const STORAGE(INA)* f = from + kk * ks + i;
        const V16 v = (V16)(LOAD(INA, ACC, 4, f, 0), LOAD(INA, ACC, 4, f + ks, 0), LOAD(INA, ACC, 4, f + 2 * ks, 0),
                            LOAD(INA, ACC, 4, f + 3 * ks, 0));
        vstore16(v.TRANSPOSE_4X4, 0, to + kk * MR + i * 4);
      }
      if (MR % 4 == 2) {
        __global const STORAGE(INA)* f = from + kk * ks + MR - 2;
        const V8 v = (V8)(LOAD(INA, ACC, 2, f, 0), LOAD(INA, ACC, 2, f + ks, 0), LOAD(INA, ACC, 2, f + 2 * ks, 0),
                          LOAD(INA, ACC, 2, f + 3 * ks, 0));
        vstore8(v.TRANSPOSE_4X2, 0, to + kk * MR + (MR - 2) * 4);
      }
    }
  }
  // What the vectors left, and zeros from k on, which add nothing.
  for (; kk < kp; kk++)
    for (int i = 0; i < rows; i++) to[AT_A(i, kk)] = kk < k ? LOAD(INA, ACC, 1, from + i * rs + kk * ks, 0) : (ST)(0);
}
#endif

#ifdef INB
// Stores four columns of four elements each as four rows of a panel.
static inline void store_4x4(VTYPE(ACC, 4) a, VTYPE(ACC, 4) b, VTYPE(ACC, 4) c, VTYPE(ACC, 4) d, __global ST* to) {
  const V16 w = ((V16)(a, b, c, d)).TRANSPOSE_4X4;
  vstore4(w.lo.lo, 0, to);
  vstore4(w.lo.hi, 0, to + NR);
  vstore4(w.hi.lo, 0, to + 2 * NR);
  vstore4(w.hi.hi, 0, to + 3 * NR);
}
// Packs `cols` columns of B, which are `cs` apart; their elements are `ks` apart.
static inline void pack_b(__global const STORAGE(INB)* from, long cs, long ks, int cols, long k, long kp,
                          __global ST* to) {
  const int last = cols - 1;
  long kk = 0;
  if (cols == NR && cs == 1) {
    for (; kk < k; kk++) {
      CAT(VSTORE_, VEC)(LOAD(INB, ACC, VEC, from + kk * ks, 0), 0, to + kk * NR);
      CAT(VSTORE_, VEC)(LOAD(INB, ACC, VEC, from + kk * ks + VEC, 0), 0, to + kk * NR + VEC);
    }
  } else if (ks == 1) {
    // Whole cache lines at a time, since columns whose stride is a power of two evict each other from the first-level
    // cache.
    for (; kk + 16 <= k; kk += 16)
      for (int j = 0; j < cols; j += 4) {
        __global const STORAGE(INB)* f = from + kk;
        const V16 v0 = LOAD(INB, ACC, 16, f + j * cs, 0), v1 = LOAD(INB, ACC, 16, f + min(j + 1, last) * cs, 0),
                  v2 = LOAD(INB, ACC, 16, f + min(j + 2, last) * cs, 0),
                  v3 = LOAD(INB, ACC, 16, f + min(j + 3, last) * cs, 0);
        __global ST* t = to + kk * NR + j;
        store_4x4(v0.lo.lo, v1.lo.lo, v2.lo.lo, v3.lo.lo, t);
        store_4x4(v0.lo.hi, v1.lo.hi, v2.lo.hi, v3.lo.hi, t + 4 * NR);
        store_4x4(v0.hi.lo, v1.hi.lo, v2.hi.lo, v3.hi.lo, t + 8 * NR);
        store_4x4(v0.hi.hi, v1.hi.hi, v2.hi.hi, v3.hi.hi, t + 12 * NR);
      }
    for (; kk < (k & ~3L); kk += 4)
      for (int j = 0; j < cols; j += 4) {
        __global const STORAGE(INB)* f = from + kk;
        store_4x4(LOAD(INB, ACC, 4, f + j * cs, 0), LOAD(INB, ACC, 4, f + min(j + 1, last) * cs, 0),
                  LOAD(INB, ACC, 4, f + min(j + 2, last) * cs, 0), LOAD(INB, ACC, 4, f + min(j + 3, last) * cs, 0),
                  to + kk * NR + j);
      }
  }
  for (; kk < kp; kk++)
    for (int j = 0; j < cols; j++) to[AT_B(j, kk)] = kk < k ? LOAD(INB, ACC, 1, from + j * cs + kk * ks, 0) : (ST)(0);
}
#endif

#endif
