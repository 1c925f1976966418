// Shared by the sorting kernels. They use these words:
//
//   pair    a key (keys.h), and the place in its row of the element that it stands for. Pairs compare by key, then by
//           place, so that sorting is stable.
//   run     neighbours that are in order. sort_merge.cl makes runs and merges them two by two.
//   piece   params.piece neighbours of a row, less at its end. A work-item takes some pieces one after another, so that
//           one long row keeps a device as busy as many short ones.
//
// -D: IN (storage tag), BYTES (of an element), LAST (1 if the pairs are the results).
#include "args/sort.h"
#include "common/offsets.h"
#include "sort/keys.h"

#if BYTES == 8
typedef ulong2 pair_t;
#define PAIR(key, place) ((ulong2)(key, place))
#define KEY(p) ((p).x)
#define PLACE(p) ((long)(p).y)
#define LESS(a, b) ((a).x < (b).x || ((a).x == (b).x && (a).y < (b).y))
#define LAST_PAIR ((ulong2)(ULONG_MAX, ULONG_MAX))
#else
typedef ulong pair_t;
#define PAIR(key, place) (((ulong)(key) << 32) | (ulong)(place))
#define KEY(p) ((uint)((p) >> 32))
#define PLACE(p) ((long)((p) & 0xffffffffUL))
#define LESS(a, b) ((a) < (b))
#define LAST_PAIR ULONG_MAX
#endif

// A row: its elements, its results, and its pairs before and after the kernel.
typedef struct {
  __global const uchar* in;
  __global uchar *value, *index;
  __global pair_t *from, *to;
} row_t;
#define ROW_ARGS BUF(value), BUF(index), BUF(in), BUF(from), BUF(to)
#define ROW_AT(row)                                                                                      \
  row_at(&params, row, value_buf + value_off, index_buf + index_off, in_buf + in_off, PTR(from, pair_t), \
         PTR(to, pair_t))
static inline row_t row_at(const SortParams* L, long row, __global uchar* value, __global uchar* index,
                           __global const uchar* in, __global pair_t* from, __global pair_t* to) {
  const offsets_t off = offsets_at(&L->dims, row, 0);
  const row_t r = {in + off.in, value + off.out0, index + off.out1, from + row * L->n, to + row * L->n};
  return r;
}
static inline pair_t pair_at(const SortParams* L, const row_t* r, long i) {
  return PAIR(key_of(*ELEMENT_AT(L, r, i)) ^ FLIP(L), i);
}
// Writes pair i of a row.
static inline void put_pair(const SortParams* L, const row_t* r, long i, pair_t x) {
#if LAST
  *(__global elem_t*)(r->value + i * L->out0_stride) = element_of(KEY(x) ^ FLIP(L), ELEMENT_AT(L, r, PLACE(x)));
  *(__global long*)(r->index + i * L->out1_stride) = PLACE(x);
#else
  r->to[i] = x;
#endif
}

// Sorts n pairs, of which the first `sorted` are in order: by one digit of eight bits after the other, the lowest
// first, but for those that all keys share. Returns the result, which is in `from` or in `other`.
static inline __global pair_t* sort_pairs(__global pair_t* from, __global pair_t* other, long n, long sorted) {
  if (n <= kShortRun) {
    for (long i = sorted; i < n; i++) {
      const pair_t x = from[i];
      long j = i;
      for (; j > 0 && LESS(x, from[j - 1]); j--) from[j] = from[j - 1];
      from[j] = x;
    }
    return from;
  }
  uint counts[BYTES][256] = {{0}};
  for (long i = 0; i < n; i++) {
    const key_t key = KEY(from[i]);
    UNROLL for (int d = 0; d < BYTES; d++)
      counts[d][key >> 8 * d & 255]++;
  }
  for (uint shift = 0; shift < BITS; shift += 8) {
    uint *next = counts[shift / 8], sum = 0;
    if (next[KEY(from[0]) >> shift & 255] == n) continue;
    for (int d = 0; d < 256; d++) {
      const uint count = next[d];
      next[d] = sum;
      sum += count;
    }
    for (long i = 0; i < n; i++) {
      const pair_t x = from[i];
      other[next[KEY(x) >> shift & 255]++] = x;
    }
    __global pair_t* const result = other;
    other = from;
    from = result;
  }
  return from;
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
