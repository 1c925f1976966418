// The first `take` pairs of long rows, without sorting the rows (radix.h). For each digit of the keys, the highest
// first, `count_candidates` counts the digits of the keys that may be the last one taken, and `choose_digit` fixes the
// digit of that key. `count_taken`, `add_taken` and `collect` then move the pairs to arrays, in their order in the row.
// -D: those of radix.h, with FIRST.
#include "sort/radix.h"

// Of a row: the last key taken, as far as it is known, and how many pairs of that key are taken.
typedef struct {
  ulong key;
  ulong wanted;
} choice_t;

// A group takes `width` elements. The counts are [row][digit]; they must be 0.
__kernel FIXED_GROUP_SIZE void count_candidates(BUF(counts), BUF(choices), ROW_ARGS, const RadixParams params) {
  __local uint bins[kRadixDigits];
  const RadixParams* L = &params;
  const long group = get_group_id(0), row = group / L->tiles, begin = (group - row * L->tiles) * L->width;
  const long end = min(begin + L->width, L->n);
  const uint t = get_local_id(0);
  const row_t r = ROW_AT(row);
  const int all = L->shift + 8 == BITS;
  const key_t chosen = all ? 0 : (key_t)PTR(choices, const choice_t)[row].key;
  for (uint d = t; d < kRadixDigits; d += GROUP) bins[d] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (long i = begin + t; i < end; i += GROUP) {
    const key_t key = READ_KEY(L, &r, (uint)i);
    if (all || (key ^ chosen) >> L->shift >> 8 == 0) atomic_inc(&bins[(uint)(key >> L->shift) & (kRadixDigits - 1)]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint d = t; d < kRadixDigits; d += GROUP)
    if (bins[d] > 0) atomic_add(PTR(counts, uint) + row * kRadixDigits + d, bins[d]);
}

// A group takes a row. It leaves the counts 0 again.
__kernel FIXED_GROUP_SIZE void choose_digit(BUF(counts), BUF(choices), const RadixParams params) {
  __local uint sums[2 * GROUP];
  const uint t = get_local_id(0), share = kRadixDigits / GROUP;
  const long row = get_group_id(0);
  const int all = params.shift + 8 == BITS;
  __global uint* counts = PTR(counts, uint) + row * kRadixDigits + t * share;
  __global choice_t* choice = PTR(choices, choice_t) + row;
  const ulong key = all ? 0 : choice->key, wanted = all ? params.take : choice->wanted;
  uint own = 0, total;
  for (uint k = 0; k < share; k++) own += counts[k];
  ulong before = sum_before(own, sums, &total);
  barrier(CLK_GLOBAL_MEM_FENCE);  // all have read the choice
  for (uint k = 0; k < share; k++) {
    const uint count = counts[k];
    counts[k] = 0;
    if (before < wanted && wanted <= before + count) {
      choice->key = key | (ulong)(t * share + k) << params.shift;
      choice->wanted = wanted - before;
    }
    before += count;
  }
}

// How many keys of each tile come before the last key taken, and how many equal it: [row][tile].
__kernel FIXED_GROUP_SIZE void count_taken(BUF(taken), BUF(choices), ROW_ARGS, const RadixParams params) {
  __local uint sums[2 * GROUP];
  const RadixParams* L = &params;
  const long tile = get_group_id(0), row = tile / L->tiles;
  const uint t = get_local_id(0), begin = (uint)(tile - row * L->tiles) * TILE;
  const uint count = min((uint)L->n - begin, (uint)TILE);
  const row_t r = ROW_AT(row);
  const key_t last = (key_t)PTR(choices, const choice_t)[row].key;
  uint own = 0, total;
  for (uint i = t; i < count; i += GROUP) {
    const key_t key = READ_KEY(L, &r, begin + i);
    own += (key < last) + ((uint)(key == last) << 16);
  }
  sum_before(own, sums, &total);
  if (t == 0) PTR(taken, uint2)[tile] = (uint2)(total & 0xffff, total >> 16);
}

// A group replaces the counts of a row's tiles by the sums before them.
__kernel FIXED_GROUP_SIZE void add_taken(BUF(taken), const long tiles) {
  __local uint sums[2 * GROUP];
  __global uint2* taken = PTR(taken, uint2) + (long)get_group_id(0) * tiles;
  uint2 before = 0;
  for (long first = 0; first < tiles; first += GROUP) {
    const long i = first + get_local_id(0);
    const uint2 own = i < tiles ? taken[i] : (uint2)(0);
    uint2 sum, total;
    uint x;
    sum.x = sum_before(own.x, sums, &x);
    total.x = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    sum.y = sum_before(own.y, sums, &x);
    total.y = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i < tiles) taken[i] = before + sum;
    before += total;
  }
}

// The pairs before the last key taken come first, then those that equal it.
__kernel FIXED_GROUP_SIZE void collect(BUF(taken), BUF(choices), ROW_ARGS, BUF(keys_to), BUF(places_to),
                                       const RadixParams params) {
  __local uint sums[2 * GROUP];
  __local uchar marks[TILE];
  const RadixParams* L = &params;
  const long tile = get_group_id(0), row = tile / L->tiles;
  const uint t = get_local_id(0), begin = (uint)(tile - row * L->tiles) * TILE;
  const uint count = min((uint)L->n - begin, (uint)TILE);
  const row_t r = ROW_AT(row);
  const choice_t choice = PTR(choices, const choice_t)[row];
  const key_t last = (key_t)choice.key;
  for (uint i = t; i < TILE; i += GROUP) {
    marks[i] = 0;
    if (i < count) {
      const key_t key = READ_KEY(L, &r, begin + i);
      marks[i] = key < last ? 1 : key == last ? 2 : 0;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint own = 0, total;
  for (uint j = 0; j < kRadixEach; j++) {
    const uint mark = marks[t * kRadixEach + j];
    own += (mark & 1) + ((mark & 2) << 15);
  }
  const uint before = sum_before(own, sums, &total);
  const uint2 rows_before = PTR(taken, const uint2)[tile];
  const uint take = (uint)L->take, lower = take - (uint)choice.wanted;
  uint next = rows_before.x + (before & 0xffff), next_equal = lower + rows_before.y + (before >> 16);
  for (uint j = 0; j < kRadixEach; j++) {
    const uint i = t * kRadixEach + j, mark = marks[i];
    if (mark == 0) continue;
    const uint to = mark == 1 ? next++ : next_equal++;
    if (to >= take) continue;
    PTR(keys_to, key_t)[row * take + to] = READ_KEY(L, &r, begin + i);
    PTR(places_to, uint)[row * take + to] = begin + i;
  }
}
