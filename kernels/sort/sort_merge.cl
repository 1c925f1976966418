// A stable merge sort of rows: `runs` sorts short runs, `merge` doubles their length. -D: those of sort.h.
#include "sort/sort.h"

__kernel void runs(BUF(in), BUF(to), const SortParams params) {
  const SortParams* L = &params;
  for (long number = first_piece(L); number < end_piece(L); number++) {
    const piece_t p = piece_at(L, number);
    __global const uchar* row = in_buf + in_off + offsets_at(&L->dims, p.row, 0).in;
    __global pair_t* to = PTR(to, pair_t) + p.row * L->n;
    pair_t run[kShortRun];
    for (long at = p.begin; at < p.end; at += kShortRun) {
      const int n = (int)min((long)kShortRun, p.end - at);
      for (int i = 0; i < n; i++) {
        const pair_t x = pair_at(L, row, at + i);
        int j = i;
        for (; j > 0 && LESS(x, run[j - 1]); j--) run[j] = run[j - 1];
        run[j] = x;
      }
      for (int i = 0; i < n; i++) to[at + i] = run[i];
    }
  }
}

// Merges runs of `width` two by two. A piece of the result is made on its own: bisection finds where its part of both
// runs begins. `piece` divides 2 * width.
__kernel void merge(BUF(from), BUF(to), const SortParams params) {
  const SortParams* L = &params;
  for (long number = first_piece(L); number < end_piece(L); number++) {
    const piece_t p = piece_at(L, number);
    const long start = p.begin / (2 * L->width) * (2 * L->width);
    const long na = min(L->width, L->n - start), nb = min(L->width, L->n - start - na);
    __global const pair_t *a = PTR(from, pair_t) + p.row * L->n + start, *b = a + na;
    __global pair_t* to = PTR(to, pair_t) + p.row * L->n;
    const long skip = p.begin - start;
    long low = max(0L, skip - nb), high = min(skip, na);
    while (low < high) {
      const long mid = low + (high - low) / 2;
      if (LESS(b[skip - 1 - mid], a[mid]))
        high = mid;
      else
        low = mid + 1;
    }
    long i = low, j = skip - low, at = p.begin;
    while (at < p.end && i < na && j < nb) {
      const pair_t x = a[i], y = b[j];
      const int second = LESS(y, x);
      to[at++] = second ? y : x;
      i += !second;
      j += second;
    }
    while (at < p.end && i < na) to[at++] = a[i++];
    while (at < p.end && j < nb) to[at++] = b[j++];
  }
}
