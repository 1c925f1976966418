// Shared by kernels that compute each element of some rows by itself. A CPU's work-item takes whole rows; a GPU's takes
// one element, so that neighbours write side by side.
#include "common/common.h"

// The rows [first, last), and of each the elements [begin, end).
typedef struct {
  long first, last, begin, end;
} Elements;

static inline Elements my_elements(long rows, long rows_per_item, long width) {
  Elements e;
  if (ON_CPU) {
    e.first = (long)get_global_id(0) * rows_per_item;
    e.last = min(e.first + rows_per_item, rows);
    e.begin = 0;
    e.end = width;
    return e;
  }
  const ulong at = get_global_id(0);
  if ((ulong)rows * width <= UINT_MAX - 4096) {  // a division of 32 bits takes a fraction of the time
    const uint row = (uint)at / (uint)width;
    e.first = row;
    e.begin = (uint)at - row * (uint)width;
  } else {
    e.first = at / width;
    e.begin = at - e.first * width;
  }
  e.last = min(e.first + 1, rows);
  e.end = e.begin + 1;
  return e;
}
