// softmax and log_softmax of short rows on CPUs, forward and backward: 16 rows are transposed, so that each has a lane.
// softmax.cl has the other cases and says how NaN and infinities spread.
// -D: IN, OUT (forward) or GRAD, OUTPUT, GIN (backward) storage tags, ACC (f32), VEC (16), LONGEST (elements of the
// longest row, a multiple of VEC), LOG (log_softmax).
#include "common/exp_below.h"
#include "common/transpose.h"
#include "common/vector.h"

// Neighbouring rows of n elements; lanes beyond the last row repeat it.
typedef struct {
  long n;
  int rows;
} tile_t;
// Whether vectors are used. They may go on into the next row, which the last row has none of.
#define IN_VECTORS(t) ((t).rows == VEC && (t).n >= VEC)

// Reads a tile: column[i] is element i of each row.
#define DEFINE_READ(S)                                                                                    \
  ALWAYS_INLINE void read_##S(VT* column, __global const STORAGE(S)* p, const tile_t t) {                 \
    for (long i = 0; i < t.n && !IN_VECTORS(t); i++) {                                                    \
      lanes_t r;                                                                                          \
      for (int k = 0; k < VEC; k++) r.s[k] = LOAD(S, ACC, 1, p, min(k, t.rows - 1) * t.n + i);            \
      column[i] = r.v;                                                                                    \
    }                                                                                                     \
    for (long i = 0; i < t.n && IN_VECTORS(t); i += VEC) {                                                \
      VT v[VEC];                                                                                          \
      UNROLL for (int k = 0; k < VEC - 1; k++)                                                            \
        v[k] = LOAD(S, ACC, VEC, p, k * t.n + i);                                                         \
      if (i + VEC <= t.n) {                                                                               \
        v[VEC - 1] = LOAD(S, ACC, VEC, p, (VEC - 1) * t.n + i);                                           \
      } else {                                                                                            \
        lanes_t r;                                                                                        \
        for (int j = 0; j < VEC; j++) r.s[j] = LOAD(S, ACC, 1, p, (VEC - 1) * t.n + min(i + j, t.n - 1)); \
        v[VEC - 1] = r.v;                                                                                 \
      }                                                                                                   \
      TRANSPOSE16(VT, v)                                                                                  \
      UNROLL for (int k = 0; k < VEC; k++)                                                                \
        column[i + k] = v[k];                                                                             \
    }                                                                                                     \
  }

// Writes a tile, from the last columns to the first, and of these from the first row to the last: what a vector writes
// into the next row is written again.
#define DEFINE_WRITE(S)                                                                      \
  ALWAYS_INLINE void write_##S(__global STORAGE(S)* p, const VT* column, const tile_t t) {   \
    for (long i = 0; i < t.n && !IN_VECTORS(t); i++) {                                       \
      lanes_t r;                                                                             \
      r.v = column[i];                                                                       \
      for (int k = 0; k < t.rows; k++) STORE(S, ACC, 1, p, k * t.n + i, r.s[k]);             \
    }                                                                                        \
    for (long i = (t.n - 1) / VEC * VEC; i >= 0 && IN_VECTORS(t); i -= VEC) {                \
      VT v[VEC];                                                                             \
      UNROLL for (int k = 0; k < VEC; k++)                                                   \
        v[k] = column[i + k];                                                                \
      TRANSPOSE16(VT, v)                                                                     \
      UNROLL for (int k = 0; k < VEC - 1; k++)                                               \
        STORE(S, ACC, VEC, p, k * t.n + i, v[k]);                                            \
      if (i + VEC <= t.n) {                                                                  \
        STORE(S, ACC, VEC, p, (VEC - 1) * t.n + i, v[VEC - 1]);                              \
      } else {                                                                               \
        lanes_t r;                                                                           \
        r.v = v[VEC - 1];                                                                    \
        for (long j = i; j < t.n; j++) STORE(S, ACC, 1, p, (VEC - 1) * t.n + j, r.s[j - i]); \
      }                                                                                      \
    }                                                                                        \
  }

// Loops over the tiles of a work-item, which takes `rows_per` rows.
#define FOR_TILES(row, rows, rows_per) \
  for (long row = get_global_id(0) * (rows_per), end_ = min(row + (rows_per), rows); row < end_; row += VEC)
#define TILE(row) {n, (int)min((long)VEC, end_ - (row))}

#ifdef IN
DEFINE_READ(IN)
DEFINE_WRITE(OUT)

__kernel void softmax_tiles(BUF(out), BUF(in), long rows, long rows_per, long n) {
  FOR_TILES(row, rows, rows_per) {
    const tile_t t = TILE(row);
    VT column[LONGEST];
    read_IN(column, PTR(in, const STORAGE(IN)) + row * n, t);
    VT top = (VT)(-INFINITY), sum = (VT)(0);
    for (long i = 0; i < n; i++) top = column[i] > top ? column[i] : top;
#ifdef LOG
    for (long i = 0; i < n; i++) sum += EXP_BELOW(column[i] - top);
    const VT shift = log(sum);
    for (long i = 0; i < n; i++) column[i] = column[i] - top - shift;
#else
    for (long i = 0; i < n; i++) {
      column[i] = EXP_BELOW(column[i] - top);
      sum += column[i];
    }
    const VT scale = 1 / sum;
    for (long i = 0; i < n; i++) column[i] *= scale;
#endif
    write_OUT(PTR(out, STORAGE(OUT)) + row * n, column, t);
  }
  STORES_DONE();
}
#endif

#ifdef GIN
DEFINE_READ(GRAD)
DEFINE_READ(OUTPUT)
DEFINE_WRITE(GIN)

__kernel void softmax_tiles_backward(BUF(gin), BUF(grad), BUF(output), long rows, long rows_per, long n) {
  FOR_TILES(row, rows, rows_per) {
    const tile_t t = TILE(row);
    VT g[LONGEST], y[LONGEST], sum = (VT)(0);
    read_GRAD(g, PTR(grad, const STORAGE(GRAD)) + row * n, t);
    read_OUTPUT(y, PTR(output, const STORAGE(OUTPUT)) + row * n, t);
#ifdef LOG
    for (long i = 0; i < n; i++) sum += g[i];
    for (long i = 0; i < n; i++) g[i] -= exp(y[i]) * sum;
#else
    for (long i = 0; i < n; i++) sum += g[i] * y[i];
    for (long i = 0; i < n; i++) g[i] = (g[i] - sum) * y[i];
#endif
    write_GIN(PTR(gin, STORAGE(GIN)) + row * n, g, t);
  }
  STORES_DONE();
}
#endif
