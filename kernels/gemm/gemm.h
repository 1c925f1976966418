// Shared by the kernels of matrix multiplication, C (m x n) = alpha * A (m x k) * B (k x n) + beta * D. The words are
// those of BLIS and the literature:
//
//                                 n
//                          NR    NR    NR
//                        +-----+-----+-----+
//                        |  p  |     |     |
//                      k |  a  |     |     |   B
//            k           |  n  |     |     |
//     +--------------+   |  e  |     |     |
//  MR |  panel       |   |  l  |     |     |
//     +--------------+   +-----+-----+-----+
//  MR |              |   |tile |     |     |
//   m +--------------+   +-----+-----+-----+
//  MR |              |   |     |     |     |   C
//     +--------------+   +-----+-----+-----+
//            A
//
//   tile          MR x NR elements of C, which a CPU's work-item keeps in registers: MR rows of two vectors
//   panel         the part of A (MR rows) or of B (NR columns) that a tile needs, packed: copied to contiguous memory
//   micro-kernel  computes a tile from two panels
//   kc            the depth of a block of k: panels of that depth stay in a cache
//   slice         a part of k, if k is split among work-items; gemm_sum.cl adds up the slices' sums (split-k)
//   epilogue      applies alpha, beta and D to a tile that is stored: store_element(), store_vector(), store_tile()
//   batch         A, B, C and D may be many matrices each, along two batch dimensions
//
// In the kernels kk counts along k. -D: INA, INB, OUT, ADD (storage tags of A, B, C, D), ACC (tag of the compute type),
// VEC (elements of a vector), MR.
#include "common/vector.h"
#include "args/gemm.h"

#define NR (2 * VEC)

#ifdef ACC
#if defined(ACC_COMPLEX)
#define MAC(a, b, c) ((c) + C_MUL(ST, a, b))
#define MUL(a, b) C_MUL(ST, a, b)
#else
// OpenCL lets compilers contract this to one instruction, and all of them do; PoCL's mad() remains a product and a sum.
#define MAC(a, b, c) ((a) * (b) + (c))
#define MUL(a, b) ((a) * (b))
#endif
#endif

// Tiles on CPUs store half a vector as one; elsewhere there is none.
#ifdef MR
#define HALF_VEC CAT(HALF_OF_, VEC)
#define HALF_OF_4 2
#define HALF_OF_8 4
#define HALF_OF_16 8
#define STORE_HALF(E, row, col, v) STORE(OUT, ACC, HALF_VEC, (E)->c, (row) * (E)->c_row + (col), (v).lo * (E)->alpha)
#else
#define HALF_VEC (VEC + 1)
#define STORE_HALF(E, row, col, v)
#endif

#if defined(OUT) && defined(ADD)
// One matrix C of the batch, and how a sum is stored to it: C = alpha * sum + beta * D.
typedef struct {
  __global STORAGE(OUT)* c;
  __global const STORAGE(ADD)* d;
  long c_row, c_col, d_row, d_col;  // strides
  long has_d;
  ST alpha, beta;
} Epilogue;

static inline Epilogue epilogue(__global STORAGE(OUT)* c, __global const STORAGE(ADD)* d, const GemmParams* P,
                                long batch, const GemmScalars* S) {
  const long outer = batch / P->batch1, inner = batch % P->batch1;
  Epilogue E;
  E.c = c + outer * P->c.b0 + inner * P->c.b1;
  E.d = d + outer * P->d.b0 + inner * P->d.b1;
  E.c_row = P->c.rs;
  E.c_col = P->c.cs;
  E.d_row = P->d.rs;
  E.d_col = P->d.cs;
  E.has_d = P->has_d;
  E.alpha = S->alpha;
  E.beta = S->beta;
  return E;
}

static inline void store_element(const Epilogue* E, long row, long col, ST v) {
  v = MUL(v, E->alpha);
  if (E->has_d) v = MAC(E->beta, LOAD(ADD, ACC, 1, E->d, row * E->d_row + col * E->d_col), v);
  STORE(OUT, ACC, 1, E->c, row * E->c_row + col * E->c_col, v);
}

#ifdef VEC
// Stores the lanes [first, end) of a vector along a row; lane 0 is at (row, col).
static inline void store_vector(const Epilogue* E, long row, long col, VT v, int first, int end) {
  if (first == 0 && end == VEC && E->c_col == 1 && (!E->has_d || E->d_col <= 1)) {
    v = v * E->alpha;
    __global const STORAGE(ADD)* d = E->d + row * E->d_row + col * E->d_col;
    if (E->has_d) v = MAC((VT)(E->beta), E->d_col ? LOAD(ADD, ACC, VEC, d, 0) : (VT)(LOAD(ADD, ACC, 1, d, 0)), v);
    STORE(OUT, ACC, VEC, E->c, row * E->c_row + col, v);
    return;
  }
  lanes_t t;
  t.v = v;
  if (first == 0 && end >= HALF_VEC && E->c_col == 1 && !E->has_d) {
    STORE_HALF(E, row, col, v);
    first = HALF_VEC;
  }
  for (int x = first; x < end; x++) store_element(E, row, col + x, t.s[x]);
}
#endif
#endif

// The start of a batch entry's matrices, and their depth: an entry may be a slice of k.
#if defined(INA) && defined(INB)
static inline __global const STORAGE(INA)* matrix_a(__global const STORAGE(INA)* a, const GemmParams* P, long batch) {
  return a + batch / P->batch1 * P->a.b0 + batch % P->batch1 * P->a.b1 + batch * P->k_slice * P->a.cs;
}
static inline __global const STORAGE(INB)* matrix_b(__global const STORAGE(INB)* b, const GemmParams* P, long batch) {
  return b + batch / P->batch1 * P->b.b0 + batch % P->batch1 * P->b.b1 + batch * P->k_slice * P->b.rs;
}
static inline long depth_of(const GemmParams* P, long batch) {
  return P->k_slice ? min(P->k, P->k_whole - batch * P->k_slice) : P->k;
}
#endif

// Panels hold numbers of panel_t, PARTS per element; their depth is a multiple of K_UNROLL.
#if defined(ENGINE_AMX) || defined(ENGINE_AVX512_BF16)
#define ENGINE
#include "common/transpose.h"
#include "gemm/gemm_engine.h"
#elif defined(ACC)
typedef ST panel_t;
#define PARTS 1
#define K_UNROLL 4
#endif
#define PADDED_K(k) (((k) + K_UNROLL - 1) & ~(long)(K_UNROLL - 1))
