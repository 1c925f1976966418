// p-norm distances between the rows of two matrices (cdist) or of one (pdist), and their gradients. -D: ACC (f32, f64),
// NORM (0, 1, 2, 3 = another p, 4 = infinity), PAIRS (1: only the pairs i < j of one matrix, stored densely, as in
// pdist).
#include "common/vector.h"

// The position of the distance between rows i and j.
#if PAIRS
#define PLACE(i, j) ((i) < (j) ? PAIR(i, j) : PAIR(j, i))
#define PAIR(i, j) ((i) * (2 * columns - (i) - 1) / 2 + (j) - (i) - 1)
#else
#define PLACE(i, j) ((b * rows + (i)) * columns + (j))
#endif

__kernel void distance_forward(BUF(out), BUF(x), BUF(y), long batch, long rows, long columns, long m, ST p) {
  const long item = get_global_id(0);
  if (item >= batch * rows * columns) return;
  const long j = item % columns, i = item / columns % rows, b = item / columns / rows;
#if PAIRS
  if (i >= j) return;
#endif
  __global const ST *u = PTR(x, const ST) + (b * rows + i) * m, *v = PTR(y, const ST) + (b * columns + j) * m;
  ST sum = 0;
  for (long k = 0; k < m; k++) {
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
  PTR(out, ST)[PLACE(i, j)] = sum;
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
__kernel void distance_backward(BUF(gx), BUF(grad), BUF(x), BUF(y), BUF(dist), long batch, long rows, long columns,
                                long m, ST p) {
  const long item = get_global_id(0);
  if (item >= batch * rows * m) return;
  const long k = item % m, i = item / m % rows, b = item / m / rows;
  const ST u = PTR(x, const ST)[item];
  ST sum = 0;
  for (long j = 0; j < columns; j++) {
#if PAIRS
    if (i == j) continue;
#endif
    const ST v = PTR(y, const ST)[(b * columns + j) * m + k];
    sum += PTR(grad, const ST)[PLACE(i, j)] * slope(u - v, PTR(dist, const ST)[PLACE(i, j)], p);
  }
  PTR(gx, ST)[item] = sum;
}
