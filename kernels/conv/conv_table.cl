// table[i] is the offset of index i: the distance of a tap, or a pixel, from the first one. On GPUs, the first ones
// follow the last one again.
#include "conv/conv.h"

#ifdef DEVICE_CPU
#define AT_ONCE 16
#define INDEX(at) (at)
#else
#define AT_ONCE 1
#define INDEX(at) ((at) % (R.size[0] * R.size[1] * R.size[2] * R.size[3]))
#endif

__kernel void conv_table(BUF(table), const MixedRadix R, long n, long n_per_item) {
  __global offset_t* table = PTR(table, offset_t);
  const long first = (long)get_global_id(0) * n_per_item, last = min(first + n_per_item, n);
  for (long at = first; at < last; at += AT_ONCE) {
    long offset[AT_ONCE];
    offsets_from(&R, INDEX(at), last, AT_ONCE, offset);
    for (int j = 0; j < AT_ONCE && at + j < last; j++) table[at + j] = (offset_t)offset[j];
  }
}
