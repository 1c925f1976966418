// The tile of a work-group on matrix units, for gemm_units.cl and conv_units.cl. Each of SIDE_X x SIDE_Y sub-groups of
// LANES work-items computes ROWS x COLS fragments of C, UNIT_M x UNIT_N elements each. A fragment's elements are
// distributed over the lanes' registers as the vendor documents it.
//
// -D: UNIT_MMA (75 or 80: the least compute capability), UNIT_WMMA, UNIT_MFMA (CDNA 1 or 2) or UNIT_DPAS: the
// instruction; EMULATED: compute it without the instruction; SIDE_X, SIDE_Y, ROWS, COLS, KC; LVB: a lane's columns side
// by side; ALONG_A, ALONG_B: whether the operand's elements are adjacent along k; LANES. The unit_*.h define, with
// X = A or B:
//   UNIT_M, UNIT_N, UNIT_K              the size of the fragments
//   UNIT_X_EACH, UNIT_X_RUN             elements of a lane; as many of them are adjacent along k
//   UNIT_X_LINE(lane, i), UNIT_X_K(..)  the place of element i in the fragment: row of A or column of B, and k
//   UNIT_C_EACH, UNIT_ROW(lane, e), UNIT_COLUMN(lane, e)  the same for C; UNIT_DOWN: rows are stored side by side
//   UNIT_X_REGISTERS                    the vector type that the instruction takes
//   UNIT_ACROSS                         1 if an operand may lie across k in local memory
//   unit_multiply(a, b, c)              c += a * b
//   UNIT_ROUND(x), UNIT_KERNEL          an element as the instruction takes it; the kernel's attributes; if needed

#define TYPE_IS_16(S) CAT(is_16_, S)
#define is_16_f16 1
#define is_16_bf16 1
#if TYPE_IS_16(INA)
#define MOVE u16
#else
#define MOVE f32
#endif
#define element_t CTYPE(MOVE)

#if defined(UNIT_MMA)
#include "gemm/unit_mma.h"
#elif defined(UNIT_WMMA)
#include "gemm/unit_wmma.h"
#elif defined(UNIT_MFMA)
#include "gemm/unit_mfma.h"
#else
#include "gemm/unit_dpas.h"
#endif

#define HEIGHT (SIDE_Y * ROWS * UNIT_M)
#define WIDTH (SIDE_X * COLS * UNIT_N)
#define ITEMS (SIDE_X * SIDE_Y * LANES)

// An element's place in a block of `length` elements per row. The 16-byte chunks of a row are permuted, so that equal
// chunks of neighbouring rows lie in different banks.
ALWAYS_INLINE uint place(uint row, uint column, uint length) {
  const uint chunk = 16 / sizeof(element_t), chunks = min(length / chunk, 8u);
  return row * length + ((column / chunk) ^ (row / (8 / chunks) % chunks)) * chunk + column % chunk;
}

// The blocks of one operand: [line][k], or [k][line] if the operand lies so in global memory and the instruction can
// transpose it. x_take reads a fragment whose first element is (line, kk).
#define BLOCKS(x, X, ALONG, SUBGROUPS, EACH, UNIT)                                                                     \
  typedef VTYPE(MOVE, UNIT_##X##_RUN) x##_run;                                                                         \
  typedef union {                                                                                                      \
    element_t s[UNIT_##X##_EACH];                                                                                      \
    x##_run runs[UNIT_##X##_EACH / UNIT_##X##_RUN];                                                                    \
    UNIT_##X##_REGISTERS v;                                                                                            \
  } x##_unit;                                                                                                          \
  enum { x##_lines = (SUBGROUPS) * (EACH) * (UNIT), x##_block = x##_lines * KC, x##_along = (ALONG) || !UNIT_ACROSS }; \
  ALWAYS_INLINE uint x##_at(uint line, uint kk) {                                                                      \
    return x##_along ? place(line, kk, KC) : place(kk, line, x##_lines);                                               \
  }                                                                                                                    \
  TAKE(x, X)

#define TAKE_RUNS(x, X)                                                                                     \
  ALWAYS_INLINE void x##_take(__local const element_t* block, uint line, uint kk, uint lane, x##_unit* u) { \
    UNROLL for (int i = 0; i < UNIT_##X##_EACH; i += UNIT_##X##_RUN) {                                      \
      const uint at = x##_at(line + UNIT_##X##_LINE(lane, i), kk + UNIT_##X##_K(lane, i));                  \
      u->runs[i / UNIT_##X##_RUN] = *(__local const x##_run*)(block + at);                                  \
    }                                                                                                       \
  }
#ifndef TAKE
#define TAKE TAKE_RUNS
#endif

BLOCKS(a, A, ALONG_A, SIDE_Y, ROWS, UNIT_M)
BLOCKS(b, B, ALONG_B, SIDE_X, COLS, UNIT_N)
typedef CAT(float, UNIT_C_EACH) sums_t;
typedef element_t a_local;
typedef element_t b_local;
typedef union {
  sums_t v;
  float s[UNIT_C_EACH];
} sums_by_number;

enum { ends_early = 1 };

// A lane of sub-group (x, y).
typedef struct {
  uint lane, x, y;
  __local element_t* exchange;  // UNIT_SCRATCH
} Item;
ALWAYS_INLINE Item item_of(uint id, __local element_t* exchange) {
  const Item I = {id % LANES, id / LANES % SIDE_X, id / LANES / SIDE_X, exchange};
  return I;
}

#ifndef UNIT_ROUND
#define UNIT_ROUND(x) (x)
#endif
#ifndef UNIT_KERNEL
#define UNIT_KERNEL
#endif
#ifdef EMULATED
#include "gemm/unit_emulated.h"
#else
#define UNIT_SCRATCH(name) __local element_t* name = 0
#define UNIT_LOOP UNROLL
#define UNIT_MULTIPLY(u, v, t) unit_multiply(&(u), &(v), &(t));
#endif

// t += the product of two blocks.
ALWAYS_INLINE void multiply_blocks(__local const element_t* ta, __local const element_t* tb, Item I,
                                   sums_t (*t)[COLS]) {
  UNIT_LOOP for (int kk = 0; kk < KC; kk += UNIT_K) {
    b_unit v[COLS];
    UNIT_LOOP for (int s = 0; s < COLS; s++) b_take(tb, (I.x * COLS + s) * UNIT_N, kk, I.lane, &v[s]);
    UNIT_LOOP for (int r = 0; r < ROWS; r++) {
      a_unit u;
      a_take(ta, (I.y * ROWS + r) * UNIT_M, kk, I.lane, &u);
      UNIT_LOOP for (int s = 0; s < COLS; s++) UNIT_MULTIPLY(u, v[s], t[r][s])
    }
  }
}

// Element e of fragment (r, s): its row and column in the tile.
static inline int row_of(int r, int e, Item I) { return (I.y * ROWS + r) * UNIT_M + UNIT_ROW(I.lane, e); }
static inline int column_of(int s, int e, Item I) { return (I.x * COLS + s) * UNIT_N + UNIT_COLUMN(I.lane, e); }
