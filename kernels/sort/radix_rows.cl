// Rows that a work-group sorts in local memory (radix.h): `sort_tile` takes one row, of a tile at most; `sort_rows`
// takes several rows at once if they are short. -D: those of radix.h.
#include "sort/radix.h"

__kernel FIXED_GROUP_SIZE void sort_tile(ROW_ARGS, const RadixParams params) {
  __local uint space[SPACE], sums[2 * GROUP];
  const RadixParams* L = &params;
  const row_t r = ROW_AT(get_group_id(0));
  key_t key[kRadixEach];
  uint place[kRadixEach];
  read_tile(L, &r, 0, (uint)L->n, key, place, space);
  sort_tile_by(0, BITS, key, place, space, sums);
  UNROLL for (int j = 0; j < kRadixEach; j++) {
    const uint i = j * GROUP + get_local_id(0);
    if (i < L->n) write_element(L, &r, i, key[j], place[j]);
  }
}

// Pairs compare by key, then by their order in the row, which also makes the network stable.
#if BITS == 64
#define PAIRS                    \
  __local ulong keys[kShortRow]; \
  __local ushort orders[kShortRow]
#define AFTER(i, j) (keys[i] > keys[j] || (keys[i] == keys[j] && orders[i] > orders[j]))
#define KEY_AT(i) keys[i]
#define ORDER_AT(i) orders[i]
#define SET_PAIR(i, key, order) (keys[i] = (key), orders[i] = (ushort)(order))
#else
#define PAIRS __local ulong pairs[kShortRow]
#define AFTER(i, j) (pairs[i] > pairs[j])
#define KEY_AT(i) ((uint)(pairs[i] >> 32))
#define ORDER_AT(i) ((uint)pairs[i])
#define SET_PAIR(i, key, order) (pairs[i] = (ulong)(key) << 32 | (order))
#endif

// A bitonic network. Rows are filled up to `width` pairs by such as come last.
__kernel FIXED_GROUP_SIZE void sort_rows(ROW_ARGS, const RadixParams params) {
  PAIRS;
  const RadixParams* L = &params;
  const uint t = get_local_id(0), width = (uint)L->width, n = (uint)L->n;
  const long per_group = kShortRow / width, first = (long)get_group_id(0) * per_group;
  const uint held = (uint)min(per_group, L->rows - first) * width;
  for (uint i = t; i < held; i += GROUP) {
    const uint at = i % width;
    key_t key = LAST_KEY;
    if (at < n) {
      const row_t r = ROW_AT(first + i / width);
      key = READ_KEY(L, &r, at);
    }
    SET_PAIR(i, key, at);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint size = 2; size <= width; size *= 2) {
    for (uint apart = size / 2; apart > 0; apart /= 2) {
      for (uint k = t; k < held / 2; k += GROUP) {
        const uint i = 2 * k - k % apart, j = i + apart;
        const int ascending = (i & (width - 1) & size) == 0;
        if (AFTER(i, j) == ascending) {
          const key_t key_i = KEY_AT(i), key_j = KEY_AT(j);
          const uint order_i = ORDER_AT(i), order_j = ORDER_AT(j);
          SET_PAIR(i, key_j, order_j);
          SET_PAIR(j, key_i, order_i);
        }
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }
  for (uint i = t; i < held; i += GROUP) {
    const uint at = i % width;
    if (at >= min(n, (uint)L->take)) continue;
    const row_t r = ROW_AT(first + i / width);
    write_element(L, &r, at, KEY_AT(i), READ_PLACE(&r, ORDER_AT(i)));
  }
}
