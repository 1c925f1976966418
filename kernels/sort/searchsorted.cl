// searchsorted and bucketize: a bisection for each value, with ATen's comparisons, which decide how NaN compares.
// -D: IN and OUT (storage tags), ACC (compute tag), RIGHT (the place behind equal bounds), SORTER (the bounds are in
// the order of a table).
#include "common/vector.h"

// Values come in rows of `row`. Each row has bounds of its own, unless `shared`.
__kernel void search(BUF(out), BUF(bounds), BUF(values), BUF(sorter), const long n, const long row, const long bounds_n,
                     const long shared, const long chunk) {
  const long begin = (long)get_global_id(0) * chunk, end = min(begin + chunk, n);
  for (long i = begin; i < end; i++) {
    const ST x = LOAD(IN, ACC, 1, PTR(values, STORAGE(IN)), i);
    const long base = shared ? 0 : i / row * bounds_n;
    long low = 0, high = bounds_n;
    while (low < high) {
      const long mid = low + (high - low) / 2;
#if defined(SORTER)
      const long at = base + PTR(sorter, long)[base + mid];
#else
      const long at = base + mid;
#endif
      const ST y = LOAD(IN, ACC, 1, PTR(bounds, STORAGE(IN)), at);
#if defined(RIGHT)
      const int before = !(y > x);
#else
      const int before = !(y >= x);
#endif
      if (before)
        low = mid + 1;
      else
        high = mid;
    }
    PTR(out, STORAGE(OUT))[i] = low;
  }
}
