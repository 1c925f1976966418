// Blocks in local memory, and the inner loop of the products for GPUs (gemm_gpu.cl, conv_gemm_gpu.cl). A work-group of
// SIDE_X x SIDE_Y work-items multiplies a block of A, KC x HEIGHT, by a block of B, KC x WIDTH. A work-item computes
// ROWS x COLS elements, LVA rows and LVB columns of them side by side.

#define HEIGHT (SIDE_Y * ROWS)
#define WIDTH (SIDE_X * COLS)
#define ITEMS (SIDE_X * SIDE_Y)
#define PITCH(T, lines) ((lines) + 16 / (int)sizeof(T))  // 16 bytes more put the next line into other banks

// The blocks of one operand. With x = a or b, x_take reads a work-item's lines (rows of A, columns of B) at one kk;
// WIDEN(V, v) converts them from LOC, the tag of what is kept.
#define BLOCKS(x, LOC, WIDEN, LV, EACH, SIDE)                                             \
  typedef CTYPE(LOC) x##_local;                                                           \
  enum { x##_lines = (SIDE) * (EACH), x##_pitch = PITCH(x##_local, (SIDE) * (EACH)) };    \
  typedef union {                                                                         \
    VTYPE(ACC, LV) v;                                                                     \
    ST s[LV];                                                                             \
  } x##_taken;                                                                            \
  ALWAYS_INLINE void x##_take(__local const x##_local* block, int kk, int place, ST* u) { \
    __local const x##_local* from = block + kk * x##_pitch + place * LV;                  \
    _Pragma("unroll") for (int q = 0; q < (EACH) / LV; q++) {                             \
      x##_taken w;                                                                        \
      w.v = WIDEN(LV, *(__local const VTYPE(LOC, LV)*)(from + q * (SIDE) * LV));          \
      _Pragma("unroll") for (int j = 0; j < LV; j++) u[q * LV + j] = w.s[j];              \
    }                                                                                     \
  }

// t += the product of two blocks, for work-item (x, y).
#define MULTIPLY_BLOCKS(ta, tb, x, y, t)                                                                        \
  _Pragma("unroll 2") for (int kk = 0; kk < KC; kk++) {                                                         \
    ST u[ROWS], v[COLS];                                                                                        \
    a_take(ta, kk, y, u);                                                                                       \
    b_take(tb, kk, x, v);                                                                                       \
    _Pragma("unroll") for (int r = 0; r < ROWS; r++) _Pragma("unroll") for (int s = 0; s < COLS; s++) t[r][s] = \
        MAC(u[r], v[s], t[r][s]);                                                                               \
  }

// Row r or column s of a work-item's elements, in the tile.
#define ROW_OF(r, y) (((r) / LVA * SIDE_Y + (y)) * LVA + (r) % LVA)
#define COLUMN_OF(s, x) (((s) / LVB * SIDE_X + (x)) * LVB + (s) % LVB)
