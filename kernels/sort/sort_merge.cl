// A stable sort of rows: `runs` sorts runs by digits, `merge` doubles their length. -D: those of sort.h.
#include "sort/sort.h"

// A piece is a run.
__kernel void runs(ROW_ARGS, const SortParams params) {
  const SortParams* L = &params;
  for (long number = first_piece(L); number < end_piece(L); number++) {
    const piece_t p = piece_at(L, number);
    const row_t r = ROW_AT(p.row);
    const long n = p.end - p.begin;
    __global pair_t *from = r.from + p.begin, *to = r.to + p.begin;
    for (long i = 0; i < n; i++) to[i] = pair_at(L, &r, p.begin + i);
    __global const pair_t* sorted = sort_pairs(to, from, n, 0);
    const long end = LAST ? min(n, L->take) : sorted == to ? 0 : n;
    for (long i = 0; i < end; i++) put_pair(L, &r, p.begin + i, sorted[i]);
  }
}

// Merges runs of `width` two by two. A piece of the result is made on its own: bisection finds where its part of both
// runs begins. `piece` divides 2 * width. The places of the first run come before those of the second.
__kernel void merge(ROW_ARGS, const SortParams params) {
  const SortParams* L = &params;
  for (long number = first_piece(L); number < end_piece(L); number++) {
    const piece_t p = piece_at(L, number);
    const row_t r = ROW_AT(p.row);
    const long start = p.begin / (2 * L->width) * (2 * L->width);
    const long na = min(L->width, L->n - start), nb = min(L->width, L->n - start - na);
    __global const pair_t *a = r.from + start, *b = a + na;
    const long end = LAST ? min(p.end, L->take) : p.end;
    const long skip = p.begin - start;
    long low = max(0L, skip - nb), high = min(skip, na);
    while (low < high) {
      const long mid = low + (high - low) / 2;
      if (KEY(b[skip - 1 - mid]) < KEY(a[mid]))
        high = mid;
      else
        low = mid + 1;
    }
    long i = low, j = skip - low, at = p.begin;
    while (at < end && i < na && j < nb) {
      const int second = KEY(b[j]) < KEY(a[i]);
      put_pair(L, &r, at++, *(second ? b + j : a + i));
      i += !second;
      j += second;
    }
    while (at < end && i < na) put_pair(L, &r, at++, a[i++]);
    while (at < end && j < nb) put_pair(L, &r, at++, b[j++]);
  }
}
