// The tile of matrix multiplication on CPUs, MR x 2 VEC: computed in explicit vectors, and stored.
// -D: ACC, VEC, MR; OUT and ADD (storage tags) to store it.
#include "gemm/gemm.h"

#if defined(MR) && !defined(ENGINE)
#define EACH_ROW(X, H) CAT(ROWS_, MR)(X, H)
#define ROWS_1(X, H) X(0, H)
#define ROWS_3(X, H) ROWS_1(X, H) X(1, H) X(2, H)
#define ROWS_6(X, H) ROWS_3(X, H) X(3, H) X(4, H) X(5, H)
#define ROWS_8(X, H) ROWS_6(X, H) X(6, H) X(7, H)
#define ROWS_12(X, H) ROWS_8(X, H) X(8, H) X(9, H) X(10, H) X(11, H)
// Row r of the tile is the vectors l<r> and h<r>. H keeps what computes the second one, or drops it.
#define BOTH_VECTORS(...) __VA_ARGS__
#define FIRST_VECTOR(...)
#define DECLARE_ROW(r, H) \
  VT l##r = (VT)(0);      \
  H(VT h##r = (VT)(0);)
#define UPDATE_ROW(r, H)               \
  {                                    \
    const VT x = (VT)(a[r * rs + kk]); \
    l##r = MAC(x, b0, l##r);           \
    H(h##r = MAC(x, b1, h##r);)        \
  }
// Adds column kk_ of A times row kk_ of B.
#define RANK_1_UPDATE(kk_, H)                          \
  {                                                    \
    const int kk = kk_;                                \
    const VT b0 = CAT(VLOAD_, VEC)(0, b + kk * bs);    \
    H(const VT b1 = CAT(VLOAD_, VEC)(1, b + kk * bs);) \
    EACH_ROW(UPDATE_ROW, H)                            \
  }
// NEON has 32 registers of 4 floats, and the sums take 24. Clang 18 keeps some of them in memory if two updates follow
// each other, and clang 19 if three do.
#ifdef __aarch64__
#define FOUR_UPDATES(H) _Pragma("unroll 1") for (int i = 0; i < 4; i++) RANK_1_UPDATE(i, H)
#else
#define FOUR_UPDATES(H) RANK_1_UPDATE(0, H) RANK_1_UPDATE(1, H) RANK_1_UPDATE(2, H) RANK_1_UPDATE(3, H)
#endif
#define KEEP_ROW(r, H) \
  t[2 * r] = l##r;     \
  H(t[2 * r + 1] = h##r;)

// t = A (MR x k) * B (k x NR). Element (r, kk) of A is a[r * rs + kk / 4 * as + kk % 4], and row kk of B starts at b +
// kk * bs. These may be panels (rs = 4, as = 4 * MR, bs = NR), or matrices with contiguous rows (as = 4). The sums are
// named variables, which stay in registers; an array might not.
#define DEFINE_MICRO_KERNEL(name, H)                                                                              \
  static inline void name(__global const ST* a, long rs, long as, __global const ST* b, long bs, long k, VT* t) { \
    EACH_ROW(DECLARE_ROW, H)                                                                                      \
    for (long fours = k >> 2; fours > 0; fours--) {                                                               \
      FOUR_UPDATES(H)                                                                                             \
      a += as;                                                                                                    \
      b += 4 * bs;                                                                                                \
    }                                                                                                             \
    for (int i = 0; i < (int)(k & 3); i++) RANK_1_UPDATE(i, H)                                                    \
    EACH_ROW(KEEP_ROW, H)                                                                                         \
  }
DEFINE_MICRO_KERNEL(whole_micro_kernel, BOTH_VECTORS)
DEFINE_MICRO_KERNEL(narrow_micro_kernel, FIRST_VECTOR)
// For a tile of `cols` columns; if they fit into one vector, only the first vectors of t are set.
#define micro_kernel_of(a, rs, as, b, bs, k, cols, t) \
  {                                                   \
    if ((cols) > VEC)                                 \
      whole_micro_kernel(a, rs, as, b, bs, k, t);     \
    else                                              \
      narrow_micro_kernel(a, rs, as, b, bs, k, t);    \
  }
#define micro_kernel(a, b, k, cols, t) micro_kernel_of(a, 4, 4 * MR, b, NR, k, cols, t)  // of panels
#define ENGINE_BEGIN()
#define ENGINE_END()
#define SPARE_VECTORS 0
#endif

#if defined(MR) && defined(OUT)
// Stores the part of the tile at (row, col) that lies inside an m x n matrix.
static inline void store_tile(const Epilogue* E, const VT* t, long row, long col, long m, long n) {
  const int rows = (int)min((long)MR, m - row);
  if (E->c_row == 1 && !E->has_d && rows == MR && n - col >= NR) {  // a transposed product
    const ST* s = (const ST*)t;
    for (int j = 0; j < NR; j++) {
      __global STORAGE(OUT)* to = E->c + row + (col + j) * E->c_col;
      for (int r = 0; r + 4 <= MR; r += 4)
        STORE(OUT, ACC, 4, to, r,
              E->alpha * (VTYPE(ACC, 4))(s[r * NR + j], s[(r + 1) * NR + j], s[(r + 2) * NR + j], s[(r + 3) * NR + j]));
#if MR % 4 == 2
      STORE(OUT, ACC, 2, to, MR - 2, E->alpha * (VTYPE(ACC, 2))(s[(MR - 2) * NR + j], s[(MR - 1) * NR + j]));
#endif
    }
    return;
  }
  if (E->c_col == 1 && !E->has_d && n - col >= NR) {
    __global STORAGE(OUT)* to = E->c + row * E->c_row + col;
    const long step = E->c_row;
    const ST alpha = E->alpha;
    for (int r = 0; r < rows; r++, to += step) {
      STORE(OUT, ACC, VEC, to, 0, t[2 * r] * alpha);
      STORE(OUT, ACC, VEC, to, VEC, t[2 * r + 1] * alpha);
    }
    return;
  }
  for (int r = 0; r < 2 * rows; r++) {
    const long j = col + (r & 1) * VEC;
    store_vector(E, row + (r >> 1), j, t[r], 0, (int)clamp(n - j, 0L, (long)VEC));
  }
}
#endif
