// A pass over long rows (radix.h): `count_digits` counts the digits of each tile; `add_chunks` and `add_digits` turn
// the counts into the places where each tile's pairs of a digit begin; `scatter` sorts each tile by the digit and
// writes its pairs there. -D: those of radix.h.
#include "sort/radix.h"

#define COPIES 4  // of the counters, since equal digits wait for each other

// The counts of a tile's digits: [row][tile][digit].
__kernel FIXED_GROUP_SIZE void count_digits(BUF(counts), ROW_ARGS, const RadixParams params) {
  __local uint bins[COPIES * kRadixDigits];
  const RadixParams* L = &params;
  const long tile = get_group_id(0), row = tile / L->tiles;
  const uint t = get_local_id(0), begin = (uint)(tile - row * L->tiles) * TILE;
  const uint count = min((uint)L->n - begin, (uint)TILE);
  const row_t r = ROW_AT(row);
  for (uint d = t; d < COPIES * kRadixDigits; d += GROUP) bins[d] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint i = t; i < count; i += GROUP) {
    const uint digit = (uint)(READ_KEY(L, &r, begin + i) >> L->shift) & (kRadixDigits - 1);
    atomic_inc(&bins[t % COPIES * kRadixDigits + digit]);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  __global uint* to = PTR(counts, uint) + tile * kRadixDigits;
  for (uint d = t; d < kRadixDigits; d += GROUP) {
    uint sum = 0;
    for (uint k = 0; k < COPIES; k++) sum += bins[k * kRadixDigits + d];
    to[d] = sum;
  }
}

// Replaces n counts of a digit by the sums before them, from `sum` on. Returns the sum of all.
static inline uint add_up(__global uint* counts, long n, uint sum) {
  for (long i = 0; i < n; i++) {
    const uint count = counts[i * kRadixDigits];
    counts[i * kRadixDigits] = sum;
    sum += count;
  }
  return sum;
}

// Adds up the counts within each chunk of tiles; the chunks' sums are [row][chunk][digit].
__kernel FIXED_GROUP_SIZE void add_chunks(BUF(counts), BUF(sums), const RadixParams params) {
  const long chunk = get_group_id(0), row = chunk / params.chunks, first = (chunk - row * params.chunks) * kRadixChunk;
  const long n = min(params.tiles - first, (long)kRadixChunk);
  for (uint d = get_local_id(0); d < kRadixDigits; d += GROUP) {
    __global uint* counts = PTR(counts, uint) + (row * params.tiles + first) * kRadixDigits + d;
    PTR(sums, uint)[chunk * kRadixDigits + d] = add_up(counts, n, 0);
  }
}

// Makes the n counts [row][n][digit] the places where pairs begin: behind all of lower digits, and those before in
// order.
__kernel FIXED_GROUP_SIZE void add_digits(BUF(counts), const long n) {
  __local uint digits[kRadixDigits], sums[2 * GROUP];
  const uint t = get_local_id(0), share = kRadixDigits / GROUP;
  __global uint* counts = PTR(counts, uint) + (long)get_group_id(0) * n * kRadixDigits;
  for (uint d = t; d < kRadixDigits; d += GROUP) {
    uint sum = 0;
    for (long i = 0; i < n; i++) sum += counts[i * kRadixDigits + d];
    digits[d] = sum;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint own = 0, total;
  for (uint k = 0; k < share; k++) own += digits[t * share + k];
  uint before = sum_before(own, sums, &total);
  for (uint k = 0; k < share; k++) {
    const uint count = digits[t * share + k];
    digits[t * share + k] = before;
    before += count;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint d = t; d < kRadixDigits; d += GROUP) add_up(counts + d, n, digits[d]);
}

// `sums` is null if a row is one chunk.
__kernel FIXED_GROUP_SIZE void scatter(BUF(counts), BUF(sums), ROW_ARGS, BUF(keys_to), BUF(places_to),
                                       const RadixParams params) {
  __local uint space[SPACE], group_sums[2 * GROUP], starts[kRadixDigits];
  const RadixParams* L = &params;
  const long tile = get_group_id(0), row = tile / L->tiles, within = tile - row * L->tiles;
  const uint t = get_local_id(0), begin = (uint)within * TILE, count = min((uint)L->n - begin, (uint)TILE);
  const row_t r = ROW_AT(row);
  key_t key[kRadixEach];
  uint place[kRadixEach];
  read_tile(L, &r, begin, count, key, place, space);
  sort_tile_by((uint)L->shift, (uint)L->shift + 8, key, place, space, group_sums);
  // The first pair of each digit in the tile says where its equals go.
  uint digit[kRadixEach];
  UNROLL for (int j = 0; j < kRadixEach; j++) {
    digit[j] = (uint)(key[j] >> L->shift) & (kRadixDigits - 1);
    space[j * GROUP + t] = digit[j];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL for (int j = 0; j < kRadixEach; j++) {
    const uint i = j * GROUP + t;
    if (i == 0 || space[i - 1] != digit[j]) {
      uint start = PTR(counts, const uint)[tile * kRadixDigits + digit[j]];
      if (sums_buf) start += PTR(sums, const uint)[(row * L->chunks + within / kRadixChunk) * kRadixDigits + digit[j]];
      starts[digit[j]] = start - i;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL for (int j = 0; j < kRadixEach; j++) {
    const uint i = j * GROUP + t, to = starts[digit[j]] + i;
    if (i >= count) continue;
#if defined(LAST)
    write_element(L, &r, to, key[j], place[j]);
#else
    PTR(keys_to, key_t)[row * L->n + to] = key[j];
    PTR(places_to, uint)[row * L->n + to] = place[j];
#endif
  }
}
