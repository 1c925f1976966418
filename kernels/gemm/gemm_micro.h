// The register tile of matrix multiplication on CPUs, MR x 2 VEC: how it is made, in explicit vectors, and stored.
// -D: ACC, VEC, MR; OUT and ADD (storage tags of c and d) to store it.
#ifndef NETCL_GEMM_MICRO_H
#define NETCL_GEMM_MICRO_H
#include "gemm/gemm.h"

#if defined(MR) && !defined(ENGINE)
#if MR == 12
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#elif MR == 6
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)
#endif
#define DECLARE(r) VT l##r = (VT)(0), h##r = (VT)(0);
#define STEP(r)                       \
  {                                   \
    const VT x = (VT)(a[r * rs + j]); \
    l##r = MAC(x, b0, l##r);          \
    h##r = MAC(x, b1, h##r);          \
  }
#define LEVEL(level)                               \
  {                                                \
    const int j = level;                           \
    const VT b0 = CAT(VLOAD_, VEC)(0, b + j * bs); \
    const VT b1 = CAT(VLOAD_, VEC)(1, b + j * bs); \
    EACH_ROW(STEP)                                 \
  }
#define KEEP(r)    \
  t[2 * r] = l##r; \
  t[2 * r + 1] = h##r;

// t = a (MR x k) * b (k x NR). Level q of row r is a[r * rs + q / 4 * as + q % 4], level q of b starts at b + q * bs: panels
// (rs = 4, as = 4 * MR, bs = NR), or matrices where the levels of a are consecutive (as = 4), and the columns of b.
// The accumulators stay in registers: named variables, since an array might not.
inline void multiply_tile(__global const ST* a, long rs, long as, __global const ST* b, long bs, long k, VT* t) {
  EACH_ROW(DECLARE)
  for (long q = k >> 2; q > 0; q--) {
    LEVEL(0)
    LEVEL(1)
    LEVEL(2)
    LEVEL(3)
    a += as;
    b += 4 * bs;
  }
  const int rest = k & 3;
  for (int q = 0; q < rest; q++) LEVEL(q)
  EACH_ROW(KEEP)
}
#define micro(a, b, k, t) multiply_tile(a, 4, 4 * MR, b, NR, k, t)  // of panels
#define ENGINE_BEGIN()
#define ENGINE_END()
#define SPARE 0
#endif

#if defined(MR) && defined(OUT)
// Stores the micro-tile at (row, col) of an m x n matrix, what of it is inside.
inline void finish_tile(__global STORAGE(OUT) * C, MatrixStrides c, __global const STORAGE(ADD) * D, MatrixStrides d, long add,
                        const VT* t, ST alpha, ST beta, long row, long col, long m, long n) {
  const int rows = (int)min((long)MR, m - row);
  if (c.rs == 1 && !add && rows == MR && n - col >= NR) {  // a product that was swapped: columns of c lie side by side
    const ST* s = (const ST*)t;
    for (int j = 0; j < NR; j++) {
      __global STORAGE(OUT)* to = C + row + (col + j) * c.cs;
      for (int r = 0; r + 4 <= MR; r += 4)
        STORE(OUT, ACC, 4, to, r,
              alpha * (VTYPE(ACC, 4))(s[r * NR + j], s[(r + 1) * NR + j], s[(r + 2) * NR + j], s[(r + 3) * NR + j]));
#if MR % 4 == 2
      STORE(OUT, ACC, 2, to, MR - 2, alpha * (VTYPE(ACC, 2))(s[(MR - 2) * NR + j], s[(MR - 1) * NR + j]));
#endif
    }
    return;
  }
  for (int r = 0; r < 2 * rows; r++) {
    const long i = row + (r >> 1), j = col + (r & 1) * VEC;
    finish(C + i * c.rs + j * c.cs, c.cs, D + i * d.rs + j * d.cs, d.cs, add, t[r], alpha, beta, 0,
           (int)clamp(n - j, 0L, (long)VEC));
  }
}
#endif

#endif
