// What the kernels of matrix multiplication share.
#ifndef NETCL_GEMM_H
#define NETCL_GEMM_H
#include "args/gemm.h"
#include "common/dtypes.h"

// A micro-tile of the packed kernel: MR rows (a multiple of 2) by NR columns.
#define NR (2 * VEC)

#ifdef ACC
typedef CTYPE(ACC) ST;
#ifdef VEC
typedef VTYPE(ACC, VEC) VT;
typedef union {
  VT v;
  ST s[VEC];
} lanes_t;
#endif

#if defined(ACC_COMPLEX)
#define MAC(a, b, c) ((c) + (ST)((a).x * (b).x - (a).y * (b).y, (a).x * (b).y + (a).y * (b).x))
#define MUL(a, b) ((ST)((a).x * (b).x - (a).y * (b).y, (a).x * (b).y + (a).y * (b).x))
#else
// OpenCL lets a compiler contract this to one instruction, and all do; PoCL's mad() stays a product and a sum.
#define MAC(a, b, c) ((a) * (b) + (c))
#define MUL(a, b) ((a) * (b))
#endif
#endif

#if defined(OUT) && defined(ADD)
// c = alpha * v + beta * d for one element.
inline void finish1(__global STORAGE(OUT) * c, __global const STORAGE(ADD) * d, long add, ST v, ST alpha,
                    ST beta) {
  v = MUL(v, alpha);
  if (add) v = MAC(beta, LOAD(ADD, ACC, 1, d, 0), v);
  STORE(OUT, ACC, 1, c, 0, v);
}
#ifdef VEC
// The same for lanes [first, end) of a vector that runs along a row.
inline void finish(__global STORAGE(OUT) * c, long cs, __global const STORAGE(ADD) * d, long ds, long add,
                   VT v, ST alpha, ST beta, int first, int end) {
  if (first == 0 && end == VEC && cs == 1 && (!add || ds <= 1)) {
    v = v * alpha;
    if (add) v = MAC((VT)(beta), ds ? LOAD(ADD, ACC, VEC, d, 0) : (VT)(LOAD(ADD, ACC, 1, d, 0)), v);
    STORE(OUT, ACC, VEC, c, 0, v);
    return;
  }
  lanes_t t;
  t.v = v;
  for (int x = first; x < end; x++) finish1(c + x * cs, d + x * ds, add, t.s[x], alpha, beta);
}
#endif
#endif

#if defined(ENGINE_AMX) || defined(ENGINE_AVX512_BF16)
#define ENGINE
#include "common/transpose.h"
#include "common/vector.h"
#include "gemm/gemm_engine.h"
#elif defined(ACC)
typedef ST panel_t;  // what panels hold, how many for each level of a line, and of how many levels a panel is a multiple
#define PER_LEVEL 1
#define PANEL_LEVELS 4
#endif
#define PADDED(k) (((k) + PANEL_LEVELS - 1) & ~(long)(PANEL_LEVELS - 1))

#endif
