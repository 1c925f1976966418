// Short rows on CPUs: VEC rows are transposed, so that each has a lane. -D: ACC (f32), VEC (16), HELD (vectors that
// a work-item holds: elements of the longest row, a multiple of VEC).
#include "common/transpose.h"
#include "common/vector.h"

// Neighbouring rows of n elements; lanes beyond the last row repeat it.
typedef struct {
  long n;
  int rows;
} tile_t;
// Whether vectors are used. They may go on into the next row, which the last row has none of.
#define IN_VECTORS(t) ((t).rows == VEC && (t).n >= VEC)

// Elements of a storage tag that is known where these functions are inlined.
#define TAG_f32 0
#define TAG_f16 1
#define TAG_bf16 2
#define AS_TYPE(S, p) ((__global STORAGE(S)*)(p))
ALWAYS_INLINE VT load_vector(__global const void* p, long i, int tag) {
  if (tag == TAG_f16) return LOAD(f16, ACC, VEC, AS_TYPE(f16, p), i);
  return tag == TAG_bf16 ? LOAD(bf16, ACC, VEC, AS_TYPE(bf16, p), i) : LOAD(f32, ACC, VEC, AS_TYPE(f32, p), i);
}
ALWAYS_INLINE ST load_one(__global const void* p, long i, int tag) {
  if (tag == TAG_f16) return LOAD(f16, ACC, 1, AS_TYPE(f16, p), i);
  return tag == TAG_bf16 ? LOAD(bf16, ACC, 1, AS_TYPE(bf16, p), i) : LOAD(f32, ACC, 1, AS_TYPE(f32, p), i);
}
ALWAYS_INLINE void store_vector(__global void* p, long i, VT v, int tag) {
  if (tag == TAG_f16) STORE(f16, ACC, VEC, AS_TYPE(f16, p), i, v);
  if (tag == TAG_bf16) STORE(bf16, ACC, VEC, AS_TYPE(bf16, p), i, v);
  if (tag == TAG_f32) STORE(f32, ACC, VEC, AS_TYPE(f32, p), i, v);
}
ALWAYS_INLINE void store_one(__global void* p, long i, ST v, int tag) {
  if (tag == TAG_f16) STORE(f16, ACC, 1, AS_TYPE(f16, p), i, v);
  if (tag == TAG_bf16) STORE(bf16, ACC, 1, AS_TYPE(bf16, p), i, v);
  if (tag == TAG_f32) STORE(f32, ACC, 1, AS_TYPE(f32, p), i, v);
}

// Reads a tile: column[i] is element i of each row.
ALWAYS_INLINE void read_tile(VT* column, __global const void* p, const tile_t t, int tag) {
  for (long i = 0; i < t.n && !IN_VECTORS(t); i++) {
    lanes_t r;
    for (int k = 0; k < VEC; k++) r.s[k] = load_one(p, min(k, t.rows - 1) * t.n + i, tag);
    column[i] = r.v;
  }
  for (long i = 0; i < t.n && IN_VECTORS(t); i += VEC) {
    VT v[VEC];
    UNROLL for (int k = 0; k < VEC - 1; k++)
      v[k] = load_vector(p, k * t.n + i, tag);
    if (i + VEC <= t.n) {
      v[VEC - 1] = load_vector(p, (VEC - 1) * t.n + i, tag);
    } else {
      lanes_t r;
      for (int j = 0; j < VEC; j++) r.s[j] = load_one(p, (VEC - 1) * t.n + min(i + j, t.n - 1), tag);
      v[VEC - 1] = r.v;
    }
    TRANSPOSE16(VT, v)
    UNROLL for (int k = 0; k < VEC; k++)
      column[i + k] = v[k];
  }
}

// Writes a tile, from the last columns to the first, and of these from the first row to the last: what a vector writes
// into the next row is written again.
ALWAYS_INLINE void write_tile(__global void* p, const VT* column, const tile_t t, int tag) {
  for (long i = 0; i < t.n && !IN_VECTORS(t); i++) {
    lanes_t r;
    r.v = column[i];
    for (int k = 0; k < t.rows; k++) store_one(p, k * t.n + i, r.s[k], tag);
  }
  for (long i = (t.n - 1) / VEC * VEC; i >= 0 && IN_VECTORS(t); i -= VEC) {
    VT v[VEC];
    UNROLL for (int k = 0; k < VEC; k++)
      v[k] = column[i + k];
    TRANSPOSE16(VT, v)
    UNROLL for (int k = 0; k < VEC - 1; k++)
      store_vector(p, k * t.n + i, v[k], tag);
    if (i + VEC <= t.n) {
      store_vector(p, (VEC - 1) * t.n + i, v[VEC - 1], tag);
    } else {
      lanes_t r;
      r.v = v[VEC - 1];
      for (long j = i; j < t.n; j++) store_one(p, (VEC - 1) * t.n + j, r.s[j - i], tag);
    }
  }
}

#define WALK(W)                                                         \
  const long n = (W).n, first_ = (long)get_global_id(0) * (W).rows_per; \
  for (long row = first_, last_ = min(first_ + (W).rows_per, (W).rows); row < last_; row += VEC)
#define WALK_GROUP_SIZE
#define DEFINE_LANES(S)
#define TILE ((tile_t){n, (int)min((long)VEC, last_ - row)})
#define OPERAND(S, x, in) \
  VT x[HELD];             \
  read_tile(x, PTR(in, const STORAGE(S)) + row * n, TILE, CAT(TAG_, S))
#define RESULT(S, y, out, x) VT* const y = x
#define STORED(S, y, out) write_tile(PTR(out, STORAGE(S)) + row * n, y, TILE, CAT(TAG_, S));
#define EACH(STEP) \
  for (long i = 0; i < n; i++) STEP(i)
#define X(S, x, j) x[j]
#define COUNTED(j, v, fill) (v)
#define PUT(S, y, j, v) y[j] = v
#define KEEP(x, j, v) x[j] = v
#define KEPT(x, j, again) x[j]
#define AHEAD(x, j)
typedef VT row_t;
#define ROW_SUM(v) (v)
#define ROW_MAX(v) (v)
