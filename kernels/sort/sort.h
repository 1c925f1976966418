// Shared by the sorting kernels. They use these words:
//
//   pair    a key, and the place in its row of the element that it stands for. Keys compare as unsigned integers in the
//           order of the elements; pairs compare by key, then by place, so that sorting is stable.
//   run     neighbours that are in order. sort_merge.cl makes short runs and merges them two by two.
//   piece   params.piece neighbours of a row, less at its end. A work-item takes some pieces one after another, so that
//           one long row keeps a device as busy as many short ones.
//
// -D: IN (storage tag), BYTES (of an element), ACC (tag of the type that elements are compared in: f32 i32, or f64 i64
// u64).
#include "args/sort.h"
#include "common/elements.h"
#include "common/offsets.h"
#include "common/vector.h"

#if defined(ACC_WIDE)
typedef ulong key_t;
typedef ulong2 pair_t;
#define PAIR(key, place) ((ulong2)(key, place))
#define KEY(p) ((p).x)
#define PLACE(p) ((long)(p).y)
#define LESS(a, b) ((a).x < (b).x || ((a).x == (b).x && (a).y < (b).y))
#define LAST_PAIR ((ulong2)(ULONG_MAX, ULONG_MAX))
#define SIGN 0x8000000000000000UL
#define LAST_KEY ULONG_MAX
#else
typedef uint key_t;
typedef ulong pair_t;
#define PAIR(key, place) (((ulong)(key) << 32) | (ulong)(place))
#define KEY(p) ((uint)((p) >> 32))
#define PLACE(p) ((long)((p) & 0xffffffffUL))
#define LESS(a, b) ((a) < (b))
#define LAST_PAIR ULONG_MAX
#define SIGN 0x80000000u
#define LAST_KEY UINT_MAX
#endif

// NaN is the greatest value, and 0 equals -0.
#define bits_f32(x) as_uint(x)
#define bits_f64(x) as_ulong(x)
#define is_unsigned_u64 1
static inline key_t ascending_key(ST x) {
#if defined(ACC_FLOATING)
  if (isnan(x)) return LAST_KEY;
  if (x == 0) return SIGN;
  const key_t u = CAT(bits_, ACC)(x);
  return (u & SIGN) ? ~u : (u | SIGN);
#elif CAT(is_unsigned_, ACC)
  return x;
#else
  return (key_t)x ^ SIGN;
#endif
}
// The pair of the element at place `i` of a row that begins at `row`.
static inline pair_t pair_at(const SortParams* L, __global const uchar* row, long i) {
  const ST x = LOAD(IN, ACC, 1, (__global const STORAGE(IN)*)(row + i * L->in_stride), 0);
  return PAIR(ascending_key(x) ^ (key_t)L->flip, i);
}

// The pieces of a work-item, [first, end), and what a piece holds: elements [begin, end) of `row`.
static inline long first_piece(const SortParams* L) { return (long)get_global_id(0) * L->pieces_per_item; }
static inline long end_piece(const SortParams* L) { return min(first_piece(L) + L->pieces_per_item, L->pieces); }
typedef struct {
  long row, begin, end;
} piece_t;
static inline piece_t piece_at(const SortParams* L, long number) {
  const long per_row = (L->n + L->piece - 1) / L->piece, row = number / per_row;
  const long begin = (number - row * per_row) * L->piece;
  const piece_t p = {row, begin, min(begin + L->piece, L->n)};
  return p;
}
