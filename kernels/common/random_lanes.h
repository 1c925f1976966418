// Random numbers of generated kernels: one Philox block per lane, whose counter is the lane's offset.
#ifndef NETCL_RANDOM_LANES_H
#define NETCL_RANDOM_LANES_H
#include "common/philox.h"

typedef VECTOR(u32) words_of_lanes;
#define PHILOX_LANES(seed, offset)                                                                       \
  words_of_lanes c0 = CONVERT(u32, VEC, offset), c1 = CONVERT(u32, VEC, (offset) >> 32), c2 = 0, c3 = 0; \
  words_of_lanes k0 = CONVERT(u32, VEC, seed), k1 = CONVERT(u32, VEC, (seed) >> 32);                     \
  PHILOX_ROUNDS(words_of_lanes)

static inline VECTOR(f32) random_uniform(longs seed, longs offset) {
  PHILOX_LANES(seed, offset)
  return CONVERT(f32, VEC, c0 >> 8) * 0x1p-24f;
}
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

#endif
