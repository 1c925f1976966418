// A random permutation of 0 … n - 1, each of whose elements depends on its place alone: a Feistel network permutes all
// numbers of a few bits, fewer than 2 n, and one beyond n goes through it again (Black and Rogaway, "Ciphers with
// arbitrary finite domains", 2002).
#include "args/random.h"
#include "common/philox.h"
#define VEC BLOCKS
#define ACC i32
#include "common/vector.h"

#define ROUNDS 10

// The finaliser of MurmurHash3 (Appleby).
static inline uints mixed(uints x, uint key) {
  x = (x ^ key) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}

// A work-item takes `per` elements. The keys of the rounds are a Philox stream.
__kernel void randperm(BUF(out), ulong seed, ulong offset, const PermutationParams P) {
  uint keys[ROUNDS];
  philox_stream_t stream = {seed, offset, 0};
  UNROLL for (int k = 0; k < ROUNDS; k++)
    keys[k] = philox_next(&stream);
  const uint low_mask = (uint)((1UL << P.low_bits) - 1), high_mask = (uint)((1UL << P.high_bits) - 1);
  const uint low_end = (uint)P.n & low_mask, high_end = (uint)(P.n >> P.low_bits);
  const long first = (long)get_global_id(0) * P.per, last = min(first + P.per, P.n);
  for (long i = first; i < last; i += VEC) {
    const ulongs place = min((ulongs)((ulong)i) + (ulongs)LANE_NUMBERS(VEC), (ulongs)((ulong)P.n - 1));
    uints low = CONVERT(u32, VEC, place) & low_mask, high = CONVERT(u32, VEC, place >> P.low_bits);
    VT beyond = (VT)(-1);
    do {
      uints l = low, h = high;
      UNROLL for (int k = 0; k < ROUNDS; k += 2) {
        h ^= mixed(l, keys[k]) & high_mask;
        l ^= mixed(h, keys[k + 1]) & low_mask;
      }
      low = beyond ? l : low;
      high = beyond ? h : high;
      beyond = (high > high_end) | ((high == high_end) & (low >= low_end));
    } while (ANY_LANE(VEC, beyond));
    const ulongs value = CONVERT(u64, VEC, high) << P.low_bits | CONVERT(u64, VEC, low);
    __global long* to = PTR(out, long) + i;
    if (i + VEC <= last) {
      STORE(i64, i64, VEC, to, 0, CONVERT(i64, VEC, value));
    } else {
      union {
        ulongs v;
        ulong s[VEC];
      } left;
      left.v = value;
      for (int k = 0; i + k < last; k++) to[k] = (long)left.s[k];
    }
  }
}
