// Matrix multiplication on a GPU's matrix units, for 16-bit floats, and for float as tf32. Like gemm_gpu.cl: local
// memory holds two blocks each of A and B, KC deep; while one is multiplied, the next one is loaded into registers. A
// file of its own, since either kernel takes more registers when the compilers see what both need.
//
// -D: INA (= INB), OUT, ADD (storage tags), ACC=f32; VA, VB: elements that a work-item reads from global memory at
// once; and those of gemm_units.h.
#define WORK_GROUPS
#define VEC LVB
#include "gemm/gemm.h"

#define STRIP 8  // tiles down that are computed before the next ones across, so that B stays in the cache

#define TYPE_IS_16(S) CAT(is_16_, S)
#define is_16_f16 1
#define is_16_bf16 1
#if TYPE_IS_16(INA)
#define MOVE u16
#else
#define MOVE f32
#endif
#define element_t CTYPE(MOVE)
#include "gemm/gemm_units.h"

#if TYPE_IS_16(INA)
#define PUT_PAIR(to, low, high) (*(__local uint*)(to) = (uint)(low) | (uint)(high) << 16)
#else
#define PUT_PAIR(to, low, high)  // no unit that needs it takes floats
#endif

// One operand: `lines` (rows of A, columns of B) by k. A vector of V elements lies along k or across the lines. With
// x = a or b:
//   x_source   where a work-item's vectors of the next block lie
//   x_fetch    reads them; elements beyond the matrix are 0. left: the remaining depth
//   x_put      writes them to a block in local memory
// If vectors across must be put along k, a work-item has pairs of them at neighbouring k.
#define OPERAND(x, V, ALONG)                                                                                     \
  enum {                                                                                                         \
    x##_vectors = x##_lines * KC / (ITEMS * V),                                                                  \
    x##_turned = x##_along && !(ALONG),                                                                          \
    x##_pairs = x##_turned && x##_vectors % 2 == 0,                                                              \
    x##_apart = (ALONG) ? ITEMS * V / KC : ITEMS * V / x##_lines                                                 \
  };                                                                                                             \
  typedef union {                                                                                                \
    VTYPE(MOVE, V) v;                                                                                            \
    element_t s[V];                                                                                              \
  } x##_moved;                                                                                                   \
  typedef struct {                                                                                               \
    __global const element_t* p;                                                                                 \
    long stride; /* between lines, or along k: the other one is 1 */                                             \
    int line, kk, lines, aligned;                                                                                \
  } x##_source;                                                                                                  \
  ALWAYS_INLINE x##_source x##_begin(__global const element_t* p, long stride, int id, int lines, int aligned) { \
    x##_source o;                                                                                                \
    o.stride = stride;                                                                                           \
    o.aligned = aligned;                                                                                         \
    o.lines = lines;                                                                                             \
    o.line = (ALONG) ? id / (KC / V) : id % (x##_lines / V) * V;                                                 \
    o.kk = (ALONG) ? id % (KC / V) * V : id / (x##_lines / V) * (x##_pairs + 1);                                 \
    o.p = p + ((ALONG) ? o.line * stride + o.kk : o.kk * stride + o.line);                                       \
    return o;                                                                                                    \
  }                                                                                                              \
  /* How far vector i lies from the first one: lines if it lies along k, else k. */                              \
  ALWAYS_INLINE int x##_offset(int i) { return x##_pairs ? i / 2 * 2 * x##_apart + i % 2 : i * x##_apart; }      \
  ALWAYS_INLINE void x##_fetch(const x##_source* o, int left, x##_moved* r) {                                    \
    if (WHOLE_BLOCKS && o->aligned && o->lines >= x##_lines && left >= KC) {                                     \
      UNROLL for (int i = 0; i < x##_vectors; i++)                                                               \
        r[i].v = *(__global const VTYPE(MOVE, V)*)(o->p + x##_offset(i) * o->stride);                            \
      return;                                                                                                    \
    }                                                                                                            \
    UNROLL for (int i = 0; i < x##_vectors; i++) {                                                               \
      const int line = o->line + ((ALONG) ? x##_offset(i) : 0), kk = o->kk + ((ALONG) ? 0 : x##_offset(i));      \
      const int room = (ALONG) ? (line < o->lines ? left - kk : 0) : (kk < left ? o->lines - line : 0);          \
      __global const element_t* p = o->p + x##_offset(i) * o->stride;                                            \
      if (o->aligned && room >= V) {                                                                             \
        r[i].v = *(__global const VTYPE(MOVE, V)*)p;                                                             \
      } else {                                                                                                   \
        UNROLL for (int j = 0; j < V; j++)                                                                       \
          r[i].s[j] = j < room ? p[j] : 0;                                                                       \
      }                                                                                                          \
    }                                                                                                            \
  }                                                                                                              \
  ALWAYS_INLINE void x##_put(const x##_source* o, x##_moved* r, __local element_t* block) {                      \
    UNROLL for (int i = 0; i < x##_vectors; i++) UNROLL                                                          \
      for (int j = 0; j < V; j++) r[i].s[j] = UNIT_ROUND(r[i].s[j]);                                             \
    UNROLL for (int i = 0; i < x##_vectors; i++) {                                                               \
      const uint line = o->line + ((ALONG) ? x##_offset(i) : 0), kk = o->kk + ((ALONG) ? 0 : x##_offset(i));     \
      if (!x##_turned) {                                                                                         \
        *(__local VTYPE(MOVE, V)*)(block + x##_at(line, kk)) = r[i].v;                                           \
      } else if (!x##_pairs) {                                                                                   \
        UNROLL for (int j = 0; j < V; j++)                                                                       \
          block[x##_at(line + j, kk)] = r[i].s[j];                                                               \
      } else if (i % 2 == 0) {                                                                                   \
        UNROLL for (int j = 0; j < V; j++)                                                                       \
          PUT_PAIR(block + x##_at(line + j, kk), r[i].s[j], r[i + 1].s[j]);                                      \
      }                                                                                                          \
    }                                                                                                            \
  }
#ifdef UNIT_DPAS
#define WHOLE_BLOCKS 0  // with more code Intel's compiler keeps the sums in memory
#else
#define WHOLE_BLOCKS 1  // reads blocks inside the matrix without a check for each vector
#endif
OPERAND(a, VA, ALONG_A)
OPERAND(b, VB, ALONG_B)

// Stores LVB elements of one row; `end` columns exist from there on.
ALWAYS_INLINE void store_part(const Epilogue* E, long row, long col, const float* t, long end) {
  lanes_t w;
  UNROLL for (int j = 0; j < LVB; j++)
    w.s[j] = t[j];
  if (LVB > 1 && end >= LVB && E->c_col == 1 && (!E->has_d || E->d_col <= 1)) {
    store_vector(E, row, col, w.v, 0, LVB);
    return;
  }
  UNROLL for (int j = 0; j < LVB; j++)
    if (j < end) store_element(E, row, col + j, w.s[j]);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) UNIT_KERNEL void gemm_units(BUF(a), BUF(b), BUF(c), BUF(d),
                                                                                        const GemmParams P,
                                                                                        const float alpha,
                                                                                        const float beta) {
  __local element_t ta[2 * a_block] __attribute__((aligned(16)));
  __local element_t tb[2 * b_block] __attribute__((aligned(16)));
  UNIT_SCRATCH
  const uint id = get_local_id(0), lane = id % LANES, x = id / LANES % SIDE_X, y = id / LANES / SIDE_X;
  const uint m_tiles = (uint)P.m_tiles, n_tiles = (uint)P.n_tiles, group = get_group_id(0);
  const uint batch = group / (m_tiles * n_tiles), tile = group % (m_tiles * n_tiles);
  const uint strip = tile / (STRIP * n_tiles), inside = tile % (STRIP * n_tiles);
  const uint down = min((uint)STRIP, m_tiles - strip * STRIP);
  const long row0 = (long)(strip * STRIP + inside % down) * HEIGHT, col0 = (long)(inside / down) * WIDTH;
  const long k = depth_of(&P, batch);
  const long a_stride = ALONG_A ? P.a.rs : P.a.cs, b_stride = ALONG_B ? P.b.cs : P.b.rs;
  a_source A = a_begin(
      (__global const element_t*)matrix_a(PTR(a, const STORAGE(INA)), &P, batch) + row0 * (ALONG_A ? a_stride : 1),
      a_stride, id, (int)min(P.m - row0, (long)HEIGHT), (int)P.a_aligned);
  b_source B = b_begin(
      (__global const element_t*)matrix_b(PTR(b, const STORAGE(INB)), &P, batch) + col0 * (ALONG_B ? b_stride : 1),
      b_stride, id, (int)min(P.n - col0, (long)WIDTH), (int)P.b_aligned);

  sums_t t[ROWS][COLS];
  UNIT_LOOP for (int r = 0; r < ROWS; r++) UNIT_LOOP for (int s = 0; s < COLS; s++) t[r][s] = 0;
  a_moved ra[a_vectors];
  b_moved rb[b_vectors];
  a_fetch(&A, (int)min(k, (long)KC), ra);
  b_fetch(&B, (int)min(k, (long)KC), rb);
  a_put(&A, ra, ta);
  b_put(&B, rb, tb);
  barrier(CLK_LOCAL_MEM_FENCE);
  int now = 0;
  for (long left = k - KC;; left -= KC) {
    if (left > 0) {
      A.p += ALONG_A ? KC : KC * a_stride;
      B.p += ALONG_B ? KC : KC * b_stride;
      a_fetch(&A, (int)min(left, (long)KC), ra);
      b_fetch(&B, (int)min(left, (long)KC), rb);
    }
    MULTIPLY_BLOCKS(ta + now * a_block, tb + now * b_block, t)
    if (left <= 0) break;
    now = 1 - now;
    a_put(&A, ra, ta + now * a_block);
    b_put(&B, rb, tb + now * b_block);
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  const Epilogue E = epilogue(PTR(c, STORAGE(OUT)), PTR(d, const STORAGE(ADD)), &P, batch, alpha, beta);
  UNIT_LOOP for (int r = 0; r < ROWS; r++) UNIT_LOOP for (int s = 0; s < COLS; s++) {
    sums_by_number sums;
    sums.v = t[r][s];
    UNIT_LOOP for (int e = 0; e < UNIT_C_EACH; e += LVB) {
      const long row = row0 + (y * ROWS + r) * UNIT_M + UNIT_ROW(lane, e);
      const long col = col0 + (x * COLS + s) * UNIT_N + UNIT_COLUMN(lane, e);
      if (row < P.m) store_part(&E, row, col, sums.s + e, P.n - col);
    }
  }
}
