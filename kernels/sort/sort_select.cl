// The first few of each row (topk), without sorting the row. -D: those of sort.h.
#include "sort/sort.h"

// Writes the first `take` pairs of each piece in order; sort_merge.cl merges those of a row. A piece with fewer pairs
// is filled with the largest possible pair. More than `take` of the pairs seen are held before they are sorted.
__kernel void select_first(ROW_ARGS, const SortParams params) {
  const SortParams* L = &params;
  const long k = L->take, most = k < kShortRun ? k + 1 : 2 * k;
  for (long number = first_piece(L); number < end_piece(L); number++) {
    const piece_t p = piece_at(L, number);
    row_t r = ROW_AT(p.row);
    r.to = PTR(to, pair_t) + number * k;
    __global pair_t *spare = PTR(from, pair_t) + number * 2 * most, *held = spare;
    long n = 0, sorted = 0;
    pair_t worst = LAST_PAIR;
    for (long i = p.begin; i < p.end; i++) {
      const pair_t x = pair_at(L, &r, i);
      if (LESS(x, worst)) held[n++] = x;
      if (n < most && i + 1 < p.end) continue;
      held = sort_pairs(held, held == spare ? spare + most : spare, n, sorted);
      n = sorted = min(n, k);
      if (n == k) worst = held[k - 1];
    }
    for (long i = 0; i < k; i++) put_pair(L, &r, i, i < n ? held[i] : LAST_PAIR);
  }
}
