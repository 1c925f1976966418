// Random numbers of generated kernels. The uniform number in (0, 1) at place p is word p / 16 % 4 of the Philox block
// p / 64 * 16 + p % 16, as in dropout.cl, so sixteen blocks serve 64 neighbours. A work-item of a CPU keeps them for
// its next vectors. The other distributions need two words each, and take a block per number.
#include "common/philox.h"

// Inductor makes exponential and Gumbel noise of the logarithm of a uniform number, so 0 becomes the least other one.
#define NOT_ZERO(u) fmax(u, 0x1p-24f)

typedef VECTOR(u32) words_of_lanes;
#define PHILOX_LANES(seed, block)                                                                      \
  words_of_lanes c0 = CONVERT(u32, VEC, block), c1 = CONVERT(u32, VEC, (block) >> 32), c2 = 0, c3 = 0; \
  words_of_lanes k0 = CONVERT(u32, VEC, seed), k1 = CONVERT(u32, VEC, (seed) >> 32);                   \
  PHILOX_ROUNDS(words_of_lanes)

// The words of 64 places, for each place where a kernel draws uniform numbers.
typedef struct {
  words_t words;
  long seed, group;  // the group is -1 before the first draw
} drawn_t;
#if VEC == 1
#define DRAWN(name)
#define RANDOM_UNIFORM(drawn, seed, places) random_uniform(seed, places)
#else
#define DRAWN(name) \
  drawn_t name;     \
  name.group = -1;
#define RANDOM_UNIFORM(drawn, seed, places) random_uniform_next(&drawn, seed, places)
#endif

static inline VECTOR(f32) random_uniform(longs seed, longs places) {
  const longs block = (places >> 6) * 16 + (places & 15);
  PHILOX_LANES(seed, block)
  const VECTOR(i32) word = CONVERT(i32, VEC, (places >> 4) & 3);
  const words_of_lanes w = word < 2 ? (word < 1 ? c0 : c1) : (word < 3 ? c2 : c3);
  return NOT_ZERO(CONVERT(f32, VEC, w >> 8) * 0x1p-24f);
}
// Without the bits that a 16-bit type lacks, since a number next to 1 would be rounded to 1.
static inline VECTOR(f32) random_of_16_bits(VECTOR(f32) u, int lacking) {
  return CAT(CAT(as_, CTYPE(f32)), CAT(V_, VEC))(CAT(CAT(as_, CTYPE(u32)), CAT(V_, VEC))(u) >> lacking << lacking);
}
#if VEC == 16
ALWAYS_INLINE float16 random_uniform_next(drawn_t* drawn, longs seeds, longs places) {
  const long seed = seeds.s0, place = places.s0;
  if ((place & 15) != 0 || any(places != (longs)(place) + LANE_LONGS)) return random_uniform(seeds, places);
  if (drawn->group != place >> 6 || drawn->seed != seed) {
    drawn->words = philox_blocks((ulong)seed, (ulong)(place >> 6) * 16);
    drawn->seed = seed;
    drawn->group = place >> 6;
  }
  return NOT_ZERO(uniform_closed_open(drawn->words.w[(place >> 4) & 3]));
}
#endif
// The Box-Muller transform of a uniform number in (0, 1] and an angle.
static inline VECTOR(f32) random_normal(longs seed, longs offset) {
  PHILOX_LANES(seed, offset)
  const VECTOR(f32) u = CONVERT(f32, VEC, c0) * 0x1p-32f + 0x1p-33f, angle = CONVERT(f32, VEC, c1 >> 8) * 0x1p-24f;
  return sqrt(-2 * log(u)) * cos(angle * (float)(2 * M_PI));
}
static inline longs random_integer(longs seed, longs offset, longs low, longs high) {
  PHILOX_LANES(seed, offset)
  typedef VECTOR(u64) bits_of_lanes;
  const bits_of_lanes bits = CONVERT(u64, VEC, c0) << 32 | CONVERT(u64, VEC, c1);
  const bits_of_lanes range = CONVERT(u64, VEC, high - low);
  return low + CONVERT(i64, VEC, bits % range);
}
