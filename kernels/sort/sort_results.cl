// Values and indices from rows of sorted pairs: `finish` writes the first of each row (sort, topk), `pick` one of each
// (kthvalue, median, mode). Values are fetched from the input, so they keep its bits: -0, a NaN's.
// -D: those of sort.h, and for `pick` OP: which element (nth, median, nanmedian, mode).
#include "sort/sort.h"

// Writes result i of a row: the element at `place`.
static inline void write_result(const SortParams* L, long i, long place, __global const uchar* in,
                                __global uchar* value, __global uchar* index) {
  *(__global elem_t*)(value + i * L->out0_stride) = *(__global const elem_t*)(in + place * L->in_stride);
  *(__global long*)(index + i * L->out1_stride) = place;
}

// n is the number of pairs of a row, of which the first `take` are written.
__kernel void finish(BUF(out0), BUF(out1), BUF(in), BUF(from), const SortParams params) {
  const SortParams* L = &params;
  for (long number = first_piece(L); number < end_piece(L); number++) {
    const piece_t p = piece_at(L, number);
    const offsets_t row = offsets_at(&L->dims, p.row, 0);
    __global const pair_t* from = PTR(from, pair_t) + p.row * L->n;
    const long end = min(p.end, L->take);
    for (long i = p.begin; i < end; i++)
      write_result(L, i, PLACE(from[i]), in_buf + in_off + row.in, out0_buf + out0_off + row.out0,
                   out1_buf + out1_off + row.out1);
  }
}

// Which of a row's n pairs is wanted, of which some are no numbers.
#define nth_of(n, numbers, nth) (nth)
#define median_of(n, numbers, nth) ((numbers) < (n) ? (numbers) : ((n) - 1) / 2)  // a NaN wins
#define nanmedian_of(n, numbers, nth) (max((numbers) - 1, 0L) / 2)
#define mode_of nth_of

// Pair nth in the order of n pairs. Those of its highest digit are moved to the front, then of these those of its next,
// until few or equal keys are left, in the order of their places.
static inline pair_t select_pair(__global pair_t* from, long n, long nth) {
  for (int shift = 8 * sizeof(key_t) - 8; shift >= 0 && n > kShortRun; shift -= 8) {
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
__kernel void pick(BUF(out0), BUF(out1), BUF(in), BUF(from), const SortParams params) {
  const SortParams* L = &params;
  for (long p = first_piece(L); p < end_piece(L); p++) {
    const offsets_t off = offsets_at(&L->dims, p, 0);
    __global const uchar* row = in_buf + in_off + off.in;
    __global pair_t* from = PTR(from, pair_t) + p * L->n;
    long n = L->n, numbers = n;
    for (long i = 0; i < n && !L->width; i++) {
      from[i] = pair_at(L, row, i);
      numbers -= (ST)0.5 != 0 && KEY(from[i]) == LAST_KEY;  // integers have no NaN
    }
    const pair_t x = L->width ? longest_run(from, n) : select_pair(from, n, CAT(OP, _of)(n, numbers, L->take));
    write_result(L, 0, PLACE(x), row, out0_buf + out0_off + off.out0, out1_buf + out1_off + off.out1);
  }
}
