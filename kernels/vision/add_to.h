// Adds to an element of the compute type in global memory.
// -D: ACC; ATOMIC if other work-items may add to it at the same time, with ACC_BYTES, the size of an element.
#ifndef NETCL_ADD_TO_H
#define NETCL_ADD_TO_H
#include "common/vector.h"

#ifndef ATOMIC
static inline void add_to(__global ST* p, ST v) { *p += v; }
#else
#if ACC_BYTES == 8
typedef ulong sum_bits;
#define SWAP_BITS(p, old, new) atom_cmpxchg(p, old, new)
#else
typedef uint sum_bits;
#define SWAP_BITS(p, old, new) atomic_cmpxchg(p, old, new)
#endif
static inline void add_to(__global ST* p, ST v) {
  union {
    sum_bits bits;
    ST value;
  } seen, sum;
  volatile __global sum_bits* place = (volatile __global sum_bits*)p;
  seen.bits = *place;
  for (;;) {
    sum.value = seen.value + v;
    const sum_bits before = SWAP_BITS(place, seen.bits, sum.bits);
    if (before == seen.bits) return;
    seen.bits = before;
  }
}
#endif

#endif
