// How panels of gemm_cpu.cl are filled from a matrix of any strides: in the compute type, padded with zero
// levels. Lines beyond the matrix's edge hold anything: nothing of them is stored. A panel of a holds MR rows
// as [k / 4][MR][4], one of b NR columns as [k][NR]; `k` levels, padded to `kp`. -D MR where a is packed. Those of a
// matrix engine are in gemm_engine.h.
#ifndef NETCL_GEMM_PANELS_H
#define NETCL_GEMM_PANELS_H
#include "gemm/gemm.h"

#ifndef ENGINE
typedef VTYPE(ACC, 16) V16;
typedef VTYPE(ACC, 8) V8;
#define TRANSPOSE_4X4 s048c159d26ae37bf
#define TRANSPOSE_4X2 s02461357

// What the vector loops left: levels [first, kp), zeros from k on, so that what pads them adds nothing.
// at(l, q) is where line l of level q goes.
#define PACK_REST(S, from, ls, ks, lines, first, k, kp, to, at) \
  for (long q = first; q < kp; q++)                             \
    for (int l = 0; l < lines; l++)                             \
      (to)[at(l, q)] = q < k ? LOAD(S, ACC, 1, (from) + l * (ls) + q * (ks), 0) : (ST)(0);

#define AT_A(l, q) (((q) >> 2) * (4 * MR) + (l) * 4 + ((q) & 3))
#define AT_B(l, q) ((q) * NR + (l))

#if defined(INA) && defined(MR)
inline void pack_a(__global const STORAGE(INA) * from, long rs, long ks, int lines, long k, long kp,
                   __global ST* to) {
  const long whole = k & ~3L;
  long q = 0;
  if (ks == 1) {
    for (; q + 16 <= k; q += 16)
      for (int l = 0; l < MR; l++) {
        const V16 v = LOAD(INA, ACC, 16, from + min(l, lines - 1) * rs + q, 0);
        __global ST* t = to + q * MR + l * 4;
        vstore4(v.lo.lo, 0, t);
        vstore4(v.lo.hi, 0, t + 4 * MR);
        vstore4(v.hi.lo, 0, t + 8 * MR);
        vstore4(v.hi.hi, 0, t + 12 * MR);
      }
    for (; q < whole; q += 4)
      for (int l = 0; l < MR; l++)
        vstore4(LOAD(INA, ACC, 4, from + min(l, lines - 1) * rs + q, 0), 0, to + q * MR + l * 4);
  } else if (lines == MR && rs == 1) {
    for (; q < whole; q += 4) {
      for (int l = 0; l + 4 <= MR; l += 4) {
        __global const STORAGE(INA)* f = from + q * ks + l;
        const V16 v = (V16)(LOAD(INA, ACC, 4, f, 0), LOAD(INA, ACC, 4, f + ks, 0),
                            LOAD(INA, ACC, 4, f + 2 * ks, 0), LOAD(INA, ACC, 4, f + 3 * ks, 0));
        vstore16(v.TRANSPOSE_4X4, 0, to + q * MR + l * 4);
      }
#if MR % 4 == 2
      __global const STORAGE(INA)* f = from + q * ks + MR - 2;
      const V8 v = (V8)(LOAD(INA, ACC, 2, f, 0), LOAD(INA, ACC, 2, f + ks, 0), LOAD(INA, ACC, 2, f + 2 * ks, 0),
                        LOAD(INA, ACC, 2, f + 3 * ks, 0));
      vstore8(v.TRANSPOSE_4X2, 0, to + q * MR + (MR - 2) * 4);
#endif
    }
  }
  const long done = q;
  PACK_REST(INA, from, rs, ks, lines, done, k, kp, to, AT_A)
}
#endif

#ifdef INB
// Four lines of four levels each, to four levels of a panel.
#define STORE_4X4(to, a, b, c, d)                          \
  {                                                        \
    const V16 w = ((V16)(a, b, c, d)).TRANSPOSE_4X4;       \
    __global ST* level = to;                               \
    vstore4(w.lo.lo, 0, level);                            \
    vstore4(w.lo.hi, 0, level + NR);                       \
    vstore4(w.hi.lo, 0, level + 2 * NR);                   \
    vstore4(w.hi.hi, 0, level + 3 * NR);                   \
  }
inline void pack_b(__global const STORAGE(INB) * from, long ns, long ks, int lines, long k, long kp,
                   __global ST* to) {
  long q = 0;
  if (lines == NR && ns == 1) {
    for (; q < k; q++) {
      CAT(VSTORE_, VEC)(LOAD(INB, ACC, VEC, from + q * ks, 0), 0, to + q * NR);
      CAT(VSTORE_, VEC)(LOAD(INB, ACC, VEC, from + q * ks + VEC, 0), 0, to + q * NR + VEC);
    }
  } else if (ks == 1) {
    const int end = lines - 1;
    // Whole cache lines at a time: the lines of a power of two's stride push each other out of the first-level cache.
    for (; q + 16 <= k; q += 16)
      for (int l = 0; l < lines; l += 4) {
        __global const STORAGE(INB)* f = from + q;
        const V16 v0 = LOAD(INB, ACC, 16, f + l * ns, 0), v1 = LOAD(INB, ACC, 16, f + min(l + 1, end) * ns, 0),
                  v2 = LOAD(INB, ACC, 16, f + min(l + 2, end) * ns, 0),
                  v3 = LOAD(INB, ACC, 16, f + min(l + 3, end) * ns, 0);
        __global ST* t = to + q * NR + l;
        STORE_4X4(t, v0.lo.lo, v1.lo.lo, v2.lo.lo, v3.lo.lo)
        STORE_4X4(t + 4 * NR, v0.lo.hi, v1.lo.hi, v2.lo.hi, v3.lo.hi)
        STORE_4X4(t + 8 * NR, v0.hi.lo, v1.hi.lo, v2.hi.lo, v3.hi.lo)
        STORE_4X4(t + 12 * NR, v0.hi.hi, v1.hi.hi, v2.hi.hi, v3.hi.hi)
      }
    for (; q < (k & ~3L); q += 4)
      for (int l = 0; l < lines; l += 4) {
        __global const STORAGE(INB)* f = from + q;
        STORE_4X4(to + q * NR + l, LOAD(INB, ACC, 4, f + l * ns, 0), LOAD(INB, ACC, 4, f + min(l + 1, end) * ns, 0),
                  LOAD(INB, ACC, 4, f + min(l + 2, end) * ns, 0), LOAD(INB, ACC, 4, f + min(l + 3, end) * ns, 0))
      }
  }
  const long done = q;
  PACK_REST(INB, from, ns, ks, lines, done, k, kp, to, AT_B)
}
#endif

#endif

#endif
