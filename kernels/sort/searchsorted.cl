// searchsorted and bucketize: a bisection for each value, with ATen's comparisons, which decide how NaN compares.
// `sorter`, unless it is null, holds the bounds' order. -D: IN and OUT (storage tags), ACC (compute tag).
#include "args/sort.h"
#include "common/vector.h"

__kernel void search(BUF(out), BUF(bounds), BUF(values), BUF(sorter), const SearchParams P) {
  const long begin = (long)get_global_id(0) * P.per, end = min(begin + P.per, P.n);
  for (long i = begin; i < end; i++) {
    const ST x = LOAD(IN, ACC, 1, PTR(values, STORAGE(IN)), i);
    const long base = P.shared ? 0 : i / P.row * P.bounds;
    long low = 0, high = P.bounds;
    while (low < high) {
      const long mid = low + (high - low) / 2;
      const long at = base + (sorter_buf ? PTR(sorter, long)[base + mid] : mid);
      const ST y = LOAD(IN, ACC, 1, PTR(bounds, STORAGE(IN)), at);
      const int before = P.right ? !(y > x) : !(y >= x);
      if (before)
        low = mid + 1;
      else
        high = mid;
    }
    PTR(out, STORAGE(OUT))[i] = low;
  }
}
