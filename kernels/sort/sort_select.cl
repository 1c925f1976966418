// The first few of each row (topk), without sorting the row. -D: those of sort.h.
#include "sort/sort.h"

// Writes the first `take` pairs of each piece in order; sort_merge.cl merges those of a row. A piece with fewer pairs
// is filled with the largest possible pair.
__kernel void select_first(BUF(in), BUF(to), const SortParams params) {
  const SortParams* L = &params;
  const long k = L->take;
  for (long number = first_piece(L); number < end_piece(L); number++) {
    const piece_t p = piece_at(L, number);
    __global const uchar* row = in_buf + in_off + offsets_at(&L->dims, p.row, 0).in;
    __global pair_t* to = PTR(to, pair_t) + number * k;
    long held = 0;
    pair_t worst = LAST_PAIR;
    for (long i = p.begin; i < p.end; i++) {
      const pair_t x = pair_at(L, row, i);
      if (held == k && !LESS(x, worst)) continue;
      long j = held < k ? held++ : k - 1;
      for (; j > 0 && LESS(x, to[j - 1]); j--) to[j] = to[j - 1];
      to[j] = x;
      worst = to[held - 1];
    }
    for (; held < k; held++) to[held] = LAST_PAIR;
  }
}
