// table[i] is the offset of index i: the distance of a tap, or a pixel, from the first one.
#include "conv/conv.h"

__kernel void conv_table(BUF(table), const MixedRadix R, long n, long n_per_item) {
  __global OFFSET* table = PTR(table, OFFSET);
  const long first = (long)get_global_id(0) * n_per_item, last = min(first + n_per_item, n);
  for (long at = first; at < last; at += 16) {
    long offset[16];
    offsets_from(&R, at, last, 16, offset);
    for (int j = 0; j < 16 && at + j < last; j++) table[at + j] = (OFFSET)offset[j];
  }
}
