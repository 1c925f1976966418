// Sums over the work-items of a work-group. -D: GROUP, their number, a power of two.
#include "common/vector.h"

// The sum of the work-items' x before this one; `total` is that of all. `sums` holds 2 GROUP elements, and may be used
// again after a barrier.
ALWAYS_INLINE uint sum_before(uint x, __local uint* sums, uint* total) {
  const uint t = get_local_id(0);
  uint sum = x, side = 0;
  sums[t] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint apart = 1; apart < GROUP; apart *= 2) {
    if (t >= apart) sum += sums[side + t - apart];
    side ^= GROUP;
    sums[side + t] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  *total = sums[side + GROUP - 1];
  return sum - x;
}
