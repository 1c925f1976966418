// One element of each row of pairs (kthvalue, median, mode). -D: those of sort.h, and OP: which element (nth,
// median, nanmedian, mode).
#include "sort/sort.h"

// Which of a row's n pairs is wanted, of which some are no numbers.
#define nth_of(n, numbers, nth) (nth)
#define median_of(n, numbers, nth) ((numbers) < (n) ? (numbers) : ((n) - 1) / 2)  // a NaN wins
#define nanmedian_of(n, numbers, nth) (max((numbers) - 1, 0L) / 2)
#define mode_of nth_of

// Pair nth in the order of n pairs. Those of its highest digit are moved to the front, then of these those of its next,
// until few or equal keys are left, in the order of their places.
static inline pair_t select_pair(__global pair_t* from, long n, long nth) {
  for (int shift = BITS - 8; shift >= 0 && n > kShortRun; shift -= 8) {
    uint counts[256] = {0};
    for (long i = 0; i < n; i++) counts[KEY(from[i]) >> shift & 255]++;
    key_t digit = 0;
    for (; nth >= counts[digit]; digit++) nth -= counts[digit];
    if (counts[digit] == n) continue;
    long kept = 0;
    for (long i = 0; i < n; i++) {
      const pair_t x = from[i];
      from[kept] = x;
      kept += (KEY(x) >> shift & 255) == digit;
    }
    n = kept;
  }
  for (long i = 0; n <= kShortRun; i++) {
    long before = 0;
    for (long k = 0; k < n; k++) before += LESS(from[k], from[i]);
    if (before == nth) return from[i];
  }
  return from[nth];
}

// The most frequent of n pairs in order: the last pair of its run.
static inline pair_t longest_run(__global const pair_t* from, long n) {
  long at = 0, best = 0, run = 0;
  for (long i = 0; i < n; i++) {
    run = i > 0 && KEY(from[i]) == KEY(from[i - 1]) ? run + 1 : 1;
    if (run > best) best = run, at = i;
  }
  return from[at];
}

// A piece is a row. `from` has sorted pairs if `width` is not 0, else it is scratch memory; `take` is the nth.
__kernel void pick(ROW_ARGS, const SortParams params) {
  const SortParams* L = &params;
  for (long p = first_piece(L); p < end_piece(L); p++) {
    const row_t r = ROW_AT(p);
    long n = L->n, numbers = n;
    for (long i = 0; i < n && !L->width; i++) {
      r.from[i] = pair_at(L, &r, i);
#if INFINITY_BITS
      numbers -= KEY(r.from[i]) == LAST_KEY;
#endif
    }
    put_pair(L, &r, 0, L->width ? longest_run(r.from, n) : select_pair(r.from, n, CAT(OP, _of)(n, numbers, L->take)));
  }
}
