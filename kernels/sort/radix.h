// Shared by the sorting kernels for GPUs, which know an element by its bits. They use these words:
//
//   key      the bits, changed so that keys compare as unsigned integers in the order of the elements
//   pair     a key, and the place of its element in the row
//   digit    eight bits of a key. Passes over the digits sort the pairs, the lowest digit first; each pass is stable
//   tile     the GROUP * kRadixEach neighbours of a row that a work-group takes
//   blocked  a work-item holds neighbours; striped: it holds every GROUP-th pair of the tile, as memory is read best
//
// -D: IN (storage tag), BYTES (of an element: 1, 2, 4, 8); GROUP (work-items of a group, a power of two up to 256);
// FIRST (pairs come from the tensor, not from arrays); LAST (they are the results).
#define WORK_GROUPS
#include "args/sort.h"
#include "common/offsets.h"
#include "common/sum_before.h"
#include "sort/keys.h"

#define TILE (GROUP * kRadixEach)

// Where a row's elements come from, and where its pairs or results go.
typedef struct {
  __global const uchar* in;
  __global uchar *value, *index;
  __global const key_t* keys;
  __global const uint* places;
} row_t;
#define ROW_ARGS BUF(value), BUF(index), BUF(in), BUF(keys), BUF(places)
#define ROW_AT(row)                                                                                     \
  row_at(&params, row, value_buf + value_off, index_buf + index_off, in_buf + in_off, PTR(keys, key_t), \
         PTR(places, uint))
static inline row_t row_at(const RadixParams* L, long row, __global uchar* value, __global uchar* index,
                           __global const uchar* in, __global const key_t* keys, __global const uint* places) {
  const offsets_t off = offsets_at(&L->dims, row, 0);
  const row_t r = {in + off.in, value + off.out0, index + off.out1, keys + row * L->n, places + row * L->n};
  return r;
}
#if defined(FIRST)
#define READ_KEY(L, r, i) (key_of(*ELEMENT_AT(L, r, i)) ^ FLIP(L))
#define READ_PLACE(r, i) (i)
#else
#define READ_KEY(L, r, i) ((r)->keys[i])
#define READ_PLACE(r, i) ((r)->places[i])
#endif

static inline void write_element(const RadixParams* L, const row_t* r, uint to, key_t key, uint place) {
  if (to >= L->take) return;
  *(__global elem_t*)(r->value + to * L->out0_stride) = element_of(key ^ FLIP(L), ELEMENT_AT(L, r, place));
  *(__global long*)(r->index + to * L->out1_stride) = place;
}

// --- sorting a tile by four bits ----------------------------------------------------------------------------------

// Local memory has 32 banks: with these gaps, work-items that read blocked pairs find them in different ones.
#define SPREAD(i) ((i) + ((i) >> 5))
#define SPACE (SPREAD(TILE) + 1)

// Finds the rank of each blocked pair in the order of four bits. Work-item t counts its pairs of each digit in column t
// of `space`: two counters a word, of the digits d and d + 8.
ALWAYS_INLINE void rank_pairs(const key_t* key, uint shift, __local uint* space, __local uint* sums, uint* rank) {
  const uint t = get_local_id(0);
  UNROLL for (uint d = 0; d < 8; d++)
    space[SPREAD(d * GROUP + t)] = 0;
  UNROLL for (int j = 0; j < kRadixEach; j++) {
    const uint digit = (uint)(key[j] >> shift) & 15, upper = digit / 8 * 16;
    __local uint* counter = &space[SPREAD(digit % 8 * GROUP + t)];
    rank[j] = *counter >> upper & 0xffff;
    *counter += 1u << upper;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint count[8], sum = 0, total;
  UNROLL for (uint d = 0; d < 8; d++) {
    count[d] = space[SPREAD(t * 8 + d)];
    sum += count[d];
  }
  uint before = sum_before(sum, sums, &total);
  before += total << 16;  // the digits from 8 on come after all others
  UNROLL for (uint d = 0; d < 8; d++) {
    space[SPREAD(t * 8 + d)] = before;
    before += count[d];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL for (int j = 0; j < kRadixEach; j++) {
    const uint digit = (uint)(key[j] >> shift) & 15, upper = digit / 8 * 16;
    rank[j] += space[SPREAD(digit % 8 * GROUP + t)] >> upper & 0xffff;
  }
  barrier(CLK_LOCAL_MEM_FENCE);
}

// Moves each word to its rank; the work-items then hold blocked or striped words.
ALWAYS_INLINE void move_words(uint* word, const uint* rank, int striped, __local uint* space) {
  const uint t = get_local_id(0);
  UNROLL for (int j = 0; j < kRadixEach; j++)
    space[SPREAD(rank[j])] = word[j];
  barrier(CLK_LOCAL_MEM_FENCE);
  UNROLL for (uint j = 0; j < kRadixEach; j++)
    word[j] = space[SPREAD(striped ? j * GROUP + t : t * kRadixEach + j)];
  barrier(CLK_LOCAL_MEM_FENCE);
}
ALWAYS_INLINE void move_pairs(key_t* key, uint* place, const uint* rank, int striped, __local uint* space) {
#if BITS == 64
  uint low[kRadixEach], high[kRadixEach];
  UNROLL for (int j = 0; j < kRadixEach; j++) {
    low[j] = (uint)key[j];
    high[j] = (uint)(key[j] >> 32);
  }
  move_words(low, rank, striped, space);
  move_words(high, rank, striped, space);
  UNROLL for (int j = 0; j < kRadixEach; j++)
    key[j] = (ulong)high[j] << 32 | low[j];
#else
  move_words(key, rank, striped, space);
#endif
  move_words(place, rank, striped, space);
}

// Reads the tile that begins at `begin`, blocked; what is beyond its `count` pairs comes last.
ALWAYS_INLINE void read_tile(const RadixParams* L, const row_t* r, uint begin, uint count, key_t* key, uint* place,
                             __local uint* space) {
  uint rank[kRadixEach];
  UNROLL for (int j = 0; j < kRadixEach; j++) {
    const uint i = j * GROUP + get_local_id(0);
    rank[j] = i;
    key[j] = LAST_KEY;
    place[j] = 0;
    if (i < count) {
      key[j] = READ_KEY(L, r, begin + i);
      place[j] = READ_PLACE(r, begin + i);
    }
  }
  move_pairs(key, place, rank, 0, space);
}
// Sorts a tile by the bits [from, to), from blocked to striped.
ALWAYS_INLINE void sort_tile_by(uint from, uint to, key_t* key, uint* place, __local uint* space, __local uint* sums) {
  uint rank[kRadixEach];
  for (uint shift = from; shift < to; shift += 4) {
    rank_pairs(key, shift, space, sums, rank);
    move_pairs(key, place, rank, shift + 4 >= to, space);
  }
}
