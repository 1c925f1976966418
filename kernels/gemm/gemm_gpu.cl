// Matrix multiplication for GPUs (and for complex numbers on every device). A work-group of SIDE_X x SIDE_Y work-items
// computes a tile of C. Local memory holds two blocks each of A and B, KC deep: while one is multiplied, the next one
// is loaded into registers. A work-item computes ROWS x COLS elements, LVA rows and LVB columns of them side by side.
//
// -D: INA, INB, OUT, ADD (storage tags), ACC; VA, VB: elements that a work-item reads from global memory at once, LVA,
// LVB: from local memory; SIDE_X, SIDE_Y, ROWS, COLS, KC (csrc/aten/gemm/GroupTile.h).
#define WORK_GROUPS
#define VEC LVB
#include "gemm/gemm.h"

// half and bfloat16 are moved unchanged, and widened when local memory is read.
#define NARROW(S) CAT(narrow_, S)
#define narrow_f16 1
#define narrow_bf16 1
#ifdef HAVE_FP16
#define widen_f16(V, x) CAT(convert_float, CAT(V_, V))(CAT(as_half, CAT(V_, V))(x))
#else
static inline float widen_half(ushort x) { return vload_half(0, (const half*)&x); }
#define widen_f16(V, x) CAT(widen_half, V)(x)
#define widen_half1 widen_half
static inline float2 widen_half2(ushort2 x) { return (float2)(widen_half(x.x), widen_half(x.y)); }
static inline float4 widen_half4(ushort4 x) { return (float4)(widen_half2(x.lo), widen_half2(x.hi)); }
static inline float8 widen_half8(ushort8 x) { return (float8)(widen_half4(x.lo), widen_half4(x.hi)); }
#endif
#define widen_bf16(V, x) CAT(bf16_widen, V)(x)
#define widen_not(V, x) (x)

#if NARROW(INA)
#define MOVE_A u16
#define LOCAL_A u16
#define WIDEN_A CAT(widen_, INA)
#else
#define MOVE_A INA
#define LOCAL_A ACC
#define WIDEN_A widen_not
#endif
#if NARROW(INB)
#define MOVE_B u16
#define LOCAL_B u16
#define WIDEN_B CAT(widen_, INB)
#else
#define MOVE_B INB
#define LOCAL_B ACC
#define WIDEN_B widen_not
#endif
#ifdef ACC_COMPLEX
#define MOVED(MOVE) ST
#define ELEMENT(IN, MOVE, p, i) LOAD(IN, ACC, 1, p, i)
#define TO_LOCAL(LOC, V, x) (x)
#else
#define MOVED(MOVE) STORAGE(MOVE)
#define ELEMENT(IN, MOVE, p, i) (((__global const STORAGE(MOVE)*)(p))[i])
#define TO_LOCAL(LOC, V, x) CONVERT(LOC, V, x)
#endif

#include "gemm/gemm_blocks.h"
#include "gemm/gemm_tile.h"

// The loader of a strided operand: `lines` (rows of A, columns of B) by k. A vector of V elements lies along k or
// across the lines, whichever is contiguous.
#define OPERAND_TYPES(x, IN, MOVE, LOC, V)      \
  enum {                                        \
    x##_vectors = x##_lines * KC / (ITEMS * V), \
    x##_lines_apart = ITEMS * V / KC,           \
    x##_k_apart = ITEMS * V / x##_lines         \
  };                                            \
  typedef union {                               \
    CAT(MOVED(MOVE), CAT(V_, V)) v;             \
    MOVED(MOVE) s[V];                           \
  } x##_moved;                                  \
  typedef union {                               \
    VTYPE(LOC, V) v;                            \
    x##_local s[V];                             \
  } x##_stored;                                 \
  typedef struct {                              \
    __global const STORAGE(IN)* p;              \
    long next, unit, step;                      \
    int line, kk, lines, along_k, aligned;      \
  } x##_source;
#define OPERAND_BEGIN(x, IN, V)                                                                              \
  static inline x##_source x##_begin(__global const STORAGE(IN)* p, long line_stride, long k_stride, int id, \
                                     int lines, int aligned) {                                               \
    x##_source o;                                                                                            \
    o.along_k = k_stride == 1;                                                                               \
    o.aligned = aligned;                                                                                     \
    o.lines = lines;                                                                                         \
    o.line = o.along_k ? id / (KC / V) : id % (x##_lines / V) * V;                                           \
    o.kk = o.along_k ? id % (KC / V) * V : id / (x##_lines / V);                                             \
    o.unit = o.along_k ? k_stride : line_stride;                                                             \
    o.next = o.along_k ? x##_lines_apart * line_stride : x##_k_apart * k_stride;                             \
    o.step = KC * k_stride;                                                                                  \
    o.p = p + o.line * line_stride + o.kk * k_stride;                                                        \
    return o;                                                                                                \
  }
#define OPERAND_FETCH(x, IN, MOVE, V)                                                                      \
  static inline void x##_fetch(const x##_source* o, int left, x##_moved* r) {                              \
    _Pragma("unroll") for (int i = 0; i < x##_vectors; i++) {                                              \
      const int line = o->line + (o->along_k ? i * x##_lines_apart : 0);                                   \
      const int kk = o->kk + (o->along_k ? 0 : i * x##_k_apart);                                           \
      const int room = o->along_k ? (line < o->lines ? left - kk : 0) : (kk < left ? o->lines - line : 0); \
      __global const STORAGE(IN)* p = o->p + i * o->next;                                                  \
      if (V > 1 && o->aligned && room >= V) {                                                              \
        r[i].v = *(__global const CAT(MOVED(MOVE), CAT(V_, V))*)p;                                         \
      } else {                                                                                             \
        _Pragma("unroll") for (int j = 0; j < V; j++) {                                                    \
          r[i].s[j] = (MOVED(MOVE))(0);                                                                    \
          if (j < room) r[i].s[j] = ELEMENT(IN, MOVE, p, j * o->unit);                                     \
        }                                                                                                  \
      }                                                                                                    \
    }                                                                                                      \
  }
#define OPERAND_PUT(x, LOC, V)                                                                    \
  static inline void x##_next(x##_source* o) { o->p += o->step; }                                 \
  ALWAYS_INLINE void x##_put(const x##_source* o, const x##_moved* r, __local x##_local* block) { \
    _Pragma("unroll") for (int i = 0; i < x##_vectors; i++) {                                     \
      x##_stored w;                                                                               \
      w.v = TO_LOCAL(LOC, V, r[i].v);                                                             \
      if (o->along_k) {                                                                           \
        __local x##_local* to = block + o->kk * x##_pitch + o->line + i * x##_lines_apart;        \
        _Pragma("unroll") for (int j = 0; j < V; j++) to[j * x##_pitch] = w.s[j];                 \
      } else {                                                                                    \
        *(__local VTYPE(LOC, V)*)(block + (o->kk + i * x##_k_apart) * x##_pitch + o->line) = w.v; \
      }                                                                                           \
    }                                                                                             \
  }
#define OPERAND(x, IN, MOVE, LOC, V) \
  OPERAND_TYPES(x, IN, MOVE, LOC, V) \
  OPERAND_BEGIN(x, IN, V)            \
  OPERAND_FETCH(x, IN, MOVE, V)      \
  OPERAND_PUT(x, LOC, V)

OPERAND(a, INA, MOVE_A, LOCAL_A, VA)
OPERAND(b, INB, MOVE_B, LOCAL_B, VB)
#include "gemm/gemm_loop.h"

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void gemm_tiled(BUF(a), BUF(b), BUF(c), BUF(d),
                                                                            const GemmParams P, const GemmScalars S) {
  __local a_local ta[2 * KC * a_pitch] __attribute__((aligned(16)));
  __local b_local tb[2 * KC * b_pitch] __attribute__((aligned(16)));
  const int id = get_local_id(0);
  const Item I = {id % SIDE_X, id / SIDE_X};
  const GemmTile T = tile_of(&P, get_group_id(0));
  a_source A = a_begin(matrix_a(PTR(a, const STORAGE(INA)), &P, T.batch) + T.row0 * P.a.rs, P.a.rs, P.a.cs, id,
                       (int)min(P.m - T.row0, (long)HEIGHT), (int)P.a_aligned);
  b_source B = b_begin(matrix_b(PTR(b, const STORAGE(INB)), &P, T.batch) + T.col0 * P.b.cs, P.b.cs, P.b.rs, id,
                       (int)min(P.n - T.col0, (long)WIDTH), (int)P.b_aligned);

  ST t[ROWS][COLS];
  UNROLL for (int r = 0; r < ROWS; r++) UNROLL
    for (int s = 0; s < COLS; s++) t[r][s] = (ST)(0);
  multiply(depth_of(&P, T.batch), &A, &B, ta, tb, I, t);

  const Epilogue E = epilogue(PTR(c, STORAGE(OUT)), PTR(d, const STORAGE(ADD)), &P, T.batch, &S);
  UNROLL for (int r = 0; r < ROWS; r++) {
    const long row = T.row0 + row_of(r, I);
    if (row >= P.m) continue;
    UNROLL for (int s = 0; s < COLS; s += LVB) {
      const long col = T.col0 + column_of(s, I);
      lanes_t w;
      UNROLL for (int j = 0; j < LVB; j++)
        w.s[j] = t[r][s + j];
      store_part(&E, row, col, w, P.n - col);
    }
  }
}
