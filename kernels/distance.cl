// p-norm distances between the rows of two matrices (cdist) or of one (pdist: stored densely), and their gradients.
// -D: ACC (f32, f64), NORM (0, 1, 2, 3 = another p, 4 = infinity).
#include "args/distance.h"
#include "common/vector.h"

// The position of the distance between rows i and j.
static inline long place(const DistanceParams* D, long b, long i, long j) {
  if (!D->pairs) return (b * D->rows + i) * D->columns + j;
  const long first = min(i, j);
  return first * (2 * D->columns - first - 1) / 2 + max(i, j) - first - 1;
}

__kernel void distance_forward(BUF(out), BUF(x), BUF(y), ST p, const DistanceParams D) {
  const long item = get_global_id(0);
  if (item >= D.batch * D.rows * D.columns) return;
  const long j = item % D.columns, i = item / D.columns % D.rows, b = item / D.columns / D.rows;
  if (D.pairs && i >= j) return;
  __global const ST *u = PTR(x, const ST) + (b * D.rows + i) * D.m, *v = PTR(y, const ST) + (b * D.columns + j) * D.m;
  ST sum = 0;
  for (long k = 0; k < D.m; k++) {
    const ST d = fabs(u[k] - v[k]);
#if NORM == 0
    sum += d != 0;
#elif NORM == 1
    sum += d;
#elif NORM == 2
    sum += d * d;
#elif NORM == 3
    sum += pow(d, p);
#else
    sum = isnan(d) || d > sum ? d : sum;
#endif
  }
#if NORM == 2
  sum = sqrt(sum);
#elif NORM == 3
  sum = pow(sum, 1 / p);
#endif
  PTR(out, ST)[place(&D, b, i, j)] = sum;
}

// d(distance) / d(u) for one coordinate; diff = u - v.
static inline ST slope(ST diff, ST dist, ST p) {
  const ST sign = (diff > 0) - (diff < 0);
#if NORM == 1
  return sign;
#elif NORM == 2
  return dist == 0 ? 0 : diff / dist;
#elif NORM == 3
  if (dist == 0 || (diff == 0 && p < 1)) return 0;
  return p < 2 ? sign * pow(fabs(diff), p - 1) / pow(dist, p - 1) : diff * pow(fabs(diff), p - 2) / pow(dist, p - 1);
#else
  return sign * (fabs(diff) == dist);
#endif
}

// Computes one element of the gradient of x, which is a sum over all rows of y.
__kernel void distance_backward(BUF(gx), BUF(grad), BUF(x), BUF(y), BUF(dist), ST p, const DistanceParams D) {
  const long item = get_global_id(0);
  if (item >= D.batch * D.rows * D.m) return;
  const long k = item % D.m, i = item / D.m % D.rows, b = item / D.m / D.rows;
  const ST u = PTR(x, const ST)[item];
  ST sum = 0;
  for (long j = 0; j < D.columns; j++) {
    if (D.pairs && i == j) continue;
    const ST v = PTR(y, const ST)[(b * D.columns + j) * D.m + k];
    const long at = place(&D, b, i, j);
    sum += PTR(grad, const ST)[at] * slope(u - v, PTR(dist, const ST)[at], p);
  }
  PTR(gx, ST)[item] = sum;
}
