// The loader (gemm_loop.h) of the operands of gemm_units.cl, and of the packed one of conv_units.cl.
#include "gemm/gemm_units.h"

#ifdef UNIT_DPAS
#define WHOLE_BLOCKS 0  // with more code Intel's compiler keeps the sums in memory
#else
#define WHOLE_BLOCKS 1
#endif

#if TYPE_IS_16(INA)
#define PUT_PAIR(to, low, high) (*(__local uint*)(to) = (uint)(low) | (uint)(high) << 16)
#else
#define PUT_PAIR(to, low, high)  // no unit that needs it takes floats
#endif

// One operand: `lines` (rows of A, columns of B) by k. A vector of V elements lies along k or across the lines. EVEN:
// whether all of a vector may be read whose first element may be. If vectors across must be put along k, a work-item
// has pairs of them at neighbouring k.
#define OPERAND_TYPES(x, V, ALONG)                                   \
  enum {                                                             \
    x##_vectors = x##_lines * KC / (ITEMS * V),                      \
    x##_turned = x##_along && !(ALONG),                              \
    x##_pairs = x##_turned && x##_vectors % 2 == 0,                  \
    x##_apart = (ALONG) ? ITEMS * V / KC : ITEMS * V / x##_lines     \
  };                                                                 \
  typedef union {                                                    \
    VTYPE(MOVE, V) v;                                                \
    element_t s[V];                                                  \
  } x##_moved;                                                       \
  typedef struct {                                                   \
    __global const element_t* p;                                     \
    long stride; /* between lines, or along k: the other one is 1 */ \
    int line, kk, lines, aligned;                                    \
  } x##_source;
#define OPERAND_BEGIN(x, V, ALONG)                                                                               \
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
  /* Reads a block inside the matrix without a check for each vector. */                                         \
  ALWAYS_INLINE void x##_fetch_whole(const x##_source* o, x##_moved* r) {                                        \
    UNROLL for (int i = 0; i < x##_vectors; i++)                                                                 \
      r[i].v = *(__global const VTYPE(MOVE, V)*)(o->p + x##_offset(i) * o->stride);                              \
  }
#define OPERAND_FETCH(x, V, ALONG, EVEN)                                                                    \
  ALWAYS_INLINE void x##_fetch(const x##_source* o, int left, x##_moved* r) {                               \
    if (WHOLE_BLOCKS && o->aligned && o->lines >= x##_lines && left >= KC) return x##_fetch_whole(o, r);    \
    UNROLL for (int i = 0; i < x##_vectors; i++) {                                                          \
      const int line = o->line + ((ALONG) ? x##_offset(i) : 0), kk = o->kk + ((ALONG) ? 0 : x##_offset(i)); \
      const int room = (ALONG) ? (line < o->lines ? left - kk : 0) : (kk < left ? o->lines - line : 0);     \
      __global const element_t* p = o->p + x##_offset(i) * o->stride;                                       \
      if (o->aligned && room >= ((EVEN) ? 1 : V)) {                                                         \
        r[i].v = *(__global const VTYPE(MOVE, V)*)p;                                                        \
      } else if (EVEN) {                                                                                    \
        r[i].v = 0;                                                                                         \
      } else {                                                                                              \
        UNROLL for (int j = 0; j < V; j++)                                                                  \
          r[i].s[j] = j < room ? p[j] : 0;                                                                  \
      }                                                                                                     \
    }                                                                                                       \
  }
#define OPERAND_PUT(x, V, ALONG)                                                                             \
  ALWAYS_INLINE void x##_next(x##_source* o) { o->p += (ALONG) ? KC : KC * o->stride; }                      \
  ALWAYS_INLINE void x##_put(const x##_source* o, x##_moved* r, __local element_t* block) {                  \
    UNROLL for (int i = 0; i < x##_vectors; i++) UNROLL                                                      \
      for (int j = 0; j < V; j++) r[i].s[j] = UNIT_ROUND(r[i].s[j]);                                         \
    UNROLL for (int i = 0; i < x##_vectors; i++) {                                                           \
      const uint line = o->line + ((ALONG) ? x##_offset(i) : 0), kk = o->kk + ((ALONG) ? 0 : x##_offset(i)); \
      if (!x##_turned) {                                                                                     \
        *(__local VTYPE(MOVE, V)*)(block + x##_at(line, kk)) = r[i].v;                                       \
      } else if (!x##_pairs) {                                                                               \
        UNROLL for (int j = 0; j < V; j++)                                                                   \
          block[x##_at(line + j, kk)] = r[i].s[j];                                                           \
      } else if (i % 2 == 0) {                                                                               \
        UNROLL for (int j = 0; j < V; j++)                                                                   \
          PUT_PAIR(block + x##_at(line + j, kk), r[i].s[j], r[i + 1].s[j]);                                  \
      }                                                                                                      \
    }                                                                                                        \
  }
#define OPERAND(x, V, ALONG, EVEN) \
  OPERAND_TYPES(x, V, ALONG)       \
  OPERAND_BEGIN(x, V, ALONG)       \
  OPERAND_FETCH(x, V, ALONG, EVEN) \
  OPERAND_PUT(x, V, ALONG)
