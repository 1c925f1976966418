// Draws from rows of weights by inverting their cumulative sums. -D: ACC (f32 or f64), of weights and sums.
#include "args/random.h"
#include "common/vector.h"

__kernel void check_weights(BUF(weights), long n, long chunk, BUF(err), int code) {
  const long begin = (long)get_global_id(0) * chunk, end = min(begin + chunk, n);
  int bad = 0;
  for (long i = begin; i < end; i++) {
    const ST w = PTR(weights, const ST)[i];
    bad |= !(w >= 0 && w < INFINITY);
  }
  if (bad) netcl_report(PTR(err, int), code, 0, 0);
}

// Finds the first class whose cumulative sum exceeds the point, a fraction of the total. Sums computed in parallel may
// increase at a weight of 0, or end below the point; then the nearest class before with a weight is taken, as on CUDA.
__kernel void pick(BUF(found), BUF(points), BUF(cumulative), BUF(weights), BUF(err), const PickParams P) {
  const long begin = (long)get_global_id(0) * P.per, end = min(begin + P.per, P.n), classes = P.classes;
  for (long i = begin; i < end; i++) {
    const long row = i / P.samples * classes;
    __global const ST* sums = PTR(cumulative, const ST) + row;
    const ST total = sums[classes - 1], point = PTR(points, const ST)[i] * total;
    if (!(total > 0)) netcl_report(PTR(err, int), P.code, 0, 0);
    long low = 0, high = classes;
    while (low < high) {
      const long mid = (low + high) / 2;
      if (sums[mid] > point)
        high = mid;
      else
        low = mid + 1;
    }
    if (low == classes) low--;
    while (low > 0 && PTR(weights, const ST)[row + low] == 0) low--;
    PTR(found, long)[i] = low;
  }
}
