// Blocks in local memory, and their product, for gemm_gpu.cl and conv_gemm_gpu.cl. A work-group of SIDE_X x SIDE_Y
// work-items multiplies a block of A, KC x HEIGHT, by a block of B, KC x WIDTH. A work-item computes ROWS x COLS
// elements, LVA rows and LVB columns of them side by side. With x = a or b and X = A or B, LOCAL_X is the tag of what
// is kept, and WIDEN_X(V, v) converts a vector of it to ACC.

#define HEIGHT (SIDE_Y * ROWS)
#define WIDTH (SIDE_X * COLS)
#define ITEMS (SIDE_X * SIDE_Y)

enum { ends_early = 0 };
typedef ST sums_t;
typedef struct {
  int x, y;
} Item;

// x_take reads a work-item's lines (rows of A, columns of B) at one kk. In the pitch, 16 bytes more put the next line
// into other banks.
#define BLOCKS(x, LOC, WIDEN, LV, EACH, SIDE)                                             \
  typedef CTYPE(LOC) x##_local;                                                           \
  enum {                                                                                  \
    x##_lines = (SIDE) * (EACH),                                                          \
    x##_pitch = (SIDE) * (EACH) + 16 / (int)sizeof(x##_local),                            \
    x##_block = KC * x##_pitch                                                            \
  };                                                                                      \
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
BLOCKS(a, LOCAL_A, WIDEN_A, LVA, ROWS, SIDE_Y)
BLOCKS(b, LOCAL_B, WIDEN_B, LVB, COLS, SIDE_X)

// t += the product of two blocks. As a function it would take 10 more registers of conv_gemm_gpu.cl's on NVIDIA's GPUs.
#define multiply_blocks(ta, tb, I, t)                                    \
  UNROLL_BY_TWO for (int kk = 0; kk < KC; kk++) {                        \
    ST u[ROWS], v[COLS];                                                 \
    a_take(ta, kk, I.y, u);                                              \
    b_take(tb, kk, I.x, v);                                              \
    UNROLL for (int r = 0; r < ROWS; r++) UNROLL                         \
      for (int s = 0; s < COLS; s++) t[r][s] = MAC(u[r], v[s], t[r][s]); \
  }
#define UNROLL_BY_TWO _Pragma("unroll 2")

// Row r or column s of a work-item's elements, in the tile.
static inline int row_of(int r, Item I) { return (r / LVA * SIDE_Y + I.y) * LVA + r % LVA; }
static inline int column_of(int s, Item I) { return (s / LVB * SIDE_X + I.x) * LVB + s % LVB; }
