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

// How many of a row's n pairs come before the first NaN.
static inline long numbers_of(__global const pair_t* from, long n) {
#if defined(ACC_FLOATING)
  long low = 0, high = n;
  while (low < high) {
    const long mid = low + (high - low) / 2;
    if (KEY(from[mid]) != LAST_KEY)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
#else
  return n;
#endif
}

// The index of the wanted one of a row's n pairs.
static inline long nth_of(__global const pair_t* from, long n, long nth) { return nth; }
static inline long median_of(__global const pair_t* from, long n, long nth) {
  const long numbers = numbers_of(from, n);
  return numbers < n ? numbers : (n - 1) / 2;  // a NaN wins
}
static inline long nanmedian_of(__global const pair_t* from, long n, long nth) {
  const long numbers = numbers_of(from, n);
  return numbers > 0 ? (numbers - 1) / 2 : 0;
}
static inline long mode_of(__global const pair_t* from, long n, long nth) {
  long at = nth, best = 0, run = 0;
  for (long i = 0; i < n; i++) {
    run = i > 0 && KEY(from[i]) == KEY(from[i - 1]) ? run + 1 : 1;
    if (run > best) {
      best = run;
      at = i;
    }
  }
  return at;
}

// A piece is a row. `take` is the nth for OP=nth.
__kernel void pick(BUF(out0), BUF(out1), BUF(in), BUF(from), const SortParams params) {
  const SortParams* L = &params;
  for (long p = first_piece(L); p < end_piece(L); p++) {
    const offsets_t row = offsets_at(&L->dims, p, 0);
    __global const pair_t* from = PTR(from, pair_t) + p * L->n;
    const long place = PLACE(from[CAT(OP, _of)(from, L->n, L->take)]);
    write_result(L, 0, place, in_buf + in_off + row.in, out0_buf + out0_off + row.out0, out1_buf + out1_off + row.out1);
  }
}
