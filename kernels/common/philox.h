// Philox 4x32-10 (Salmon et al. 2011). Each counter gives a block of four 32-bit words.
#include "common/dtypes.h"
#include "common/few.h"

// Sixteen blocks form a group of 16 * `values` numbers: number j comes from block j % 16, word (or pair of words)
// j / 16.
// A work-item of a CPU draws BLOCKS = 16 blocks at a time, as vectors. One of a GPU draws one, so that neighbours write
// neighbours. PLACE is where the k-th numbers of draw g lie.
#ifdef DEVICE_GPU
#define BLOCKS 1
#define BLOCK_NUMBERS 0
#define PLACE(g, k, values) ((g) / 16 * (16 * (values)) + (k) * 16 + (g) % 16)
#else
#define BLOCKS 16
#define BLOCK_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define PLACE(g, k, values) ((g) * (16 * (values)) + (k) * 16)
#endif
typedef VTYPE(u32, BLOCKS) uints;
typedef VTYPE(u64, BLOCKS) ulongs;
typedef VTYPE(f32, BLOCKS) floats;

typedef struct {
  uints w[4];
} words_t;

// Applies the rounds to the counter c0 … c3 with the key k0, k1; all have the type U or vectors of it.
#define PHILOX_ROUNDS(U)                                              \
  for (int round = 0; round < 10; round++) {                          \
    const U hi0 = mul_hi((U)0xD2511F53u, c0), lo0 = c0 * 0xD2511F53u; \
    const U hi1 = mul_hi((U)0xCD9E8D57u, c2), lo1 = c2 * 0xCD9E8D57u; \
    c0 = hi1 ^ c1 ^ k0;                                               \
    c1 = lo1;                                                         \
    c2 = hi0 ^ c3 ^ k1;                                               \
    c3 = lo0;                                                         \
    k0 += 0x9E3779B9u;                                                \
    k1 += 0xBB67AE85u;                                                \
  }

// Words of the blocks first … first + BLOCKS - 1.
static inline words_t philox_blocks(ulong seed, ulong first) {
  const ulongs block = (ulongs)(first) + (ulongs)(BLOCK_NUMBERS);
  uints c0 = CONVERT(u32, BLOCKS, block), c1 = CONVERT(u32, BLOCKS, block >> 32), c2 = 0, c3 = 0;
  uint k0 = (uint)seed, k1 = (uint)(seed >> 32);
  PHILOX_ROUNDS(uints)
  words_t r;
  r.w[0] = c0;
  r.w[1] = c1;
  r.w[2] = c2;
  r.w[3] = c3;
  return r;
}

// A stream of any number of words for one block, for rejection sampling. The third word of the counter is 0 in
// philox_blocks; here it counts groups of four words, so that no two streams share a word.
typedef struct {
  ulong seed, block;
  uint used;
  uint4 words;
} philox_stream_t;

static inline uint philox_next(philox_stream_t* s) {
  const uint k = s->used++ & 3;
  if (k == 0) {
    uint c0 = (uint)s->block, c1 = (uint)(s->block >> 32), c2 = 1 + (s->used >> 2), c3 = 0;
    uint k0 = (uint)s->seed, k1 = (uint)(s->seed >> 32);
    PHILOX_ROUNDS(uint)
    s->words = (uint4)(c0, c1, c2, c3);
  }
  return k == 0 ? s->words.x : k == 1 ? s->words.y : k == 2 ? s->words.z : s->words.w;
}

// Uniform numbers: [0, 1) with 24 bits; (0, 1] with 32 bits, from 2^-33 on as on CUDA, for logarithms; (-1/2, 1/2),
// symmetric and exact.
static inline floats uniform_closed_open(uints w) { return CONVERT(f32, BLOCKS, w >> 8) * 0x1p-24f; }
static inline floats uniform_open_closed(uints w) { return CONVERT(f32, BLOCKS, w) * 0x1p-32f + 0x1p-33f; }
static inline floats uniform_centred(uints w) {
  return (CONVERT(f32, BLOCKS, CONVERT(i32, BLOCKS, w >> 8) - 0x800000) + 0.5f) * 0x1p-24f;
}
