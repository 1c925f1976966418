// p-norm distances between the rows of two matrices (cdist) or of one (pdist: stored densely), and their gradients.
// -D: ACC (f32, f64), OP (l0, l1, l2, lp, linf: the norm).
#include "args/distance.h"
#include "common/vector.h"

// The position of the distance between rows i and j.
static inline long place(const DistanceParams* D, long b, long i, long j) {
  if (!D->pairs) return (b * D->rows + i) * D->columns + j;
  const long first = min(i, j);
  return first * (2 * D->columns - first - 1) / 2 + max(i, j) - first - 1;
}

// Each norm: a sum with the absolute difference d of one more coordinate, and the distance that a sum of all gives.
#define l0_TERM(sum, d, p) ((sum) + (d != 0))
#define l1_TERM(sum, d, p) ((sum) + (d))
#define l2_TERM(sum, d, p) ((sum) + (d) * (d))
#define lp_TERM(sum, d, p) ((sum) + pow(d, p))
#define linf_TERM(most, d, p) (isnan(d) || d > (most) ? d : (most))
#define l0_END(sum, p) (sum)
#define l1_END(sum, p) (sum)
#define l2_END(sum, p) sqrt(sum)
#define lp_END(sum, p) pow(sum, 1 / p)
#define linf_END(most, p) (most)

__kernel void distance_forward(BUF(out), BUF(x), BUF(y), ST p, const DistanceParams D) {
  const long item = get_global_id(0);
  if (item >= D.batch * D.rows * D.columns) return;
  const long j = item % D.columns, i = item / D.columns % D.rows, b = item / D.columns / D.rows;
  if (D.pairs && i >= j) return;
  __global const ST *u = PTR(x, const ST) + (b * D.rows + i) * D.m, *v = PTR(y, const ST) + (b * D.columns + j) * D.m;
  ST sum = 0;
  for (long k = 0; k < D.m; k++) {
    const ST d = fabs(u[k] - v[k]);
    sum = CAT(OP, _TERM)(sum, d, p);
  }
  PTR(out, ST)[place(&D, b, i, j)] = CAT(OP, _END)(sum, p);
}

// d(distance) / d(u) for one coordinate; diff = u - v. That of l0 is not asked for.
#define SIGN(x) (ST)((x > 0) - (x < 0))
static inline ST slope_l1(ST diff, ST dist, ST p) { return SIGN(diff); }
static inline ST slope_l2(ST diff, ST dist, ST p) { return dist == 0 ? 0 : diff / dist; }
static inline ST slope_lp(ST diff, ST dist, ST p) {
  if (dist == 0 || (diff == 0 && p < 1)) return 0;
  return p < 2 ? SIGN(diff) * pow(fabs(diff), p - 1) / pow(dist, p - 1)
               : diff * pow(fabs(diff), p - 2) / pow(dist, p - 1);
}
static inline ST slope_linf(ST diff, ST dist, ST p) { return SIGN(diff) * (fabs(diff) == dist); }

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
    sum += PTR(grad, const ST)[at] * CAT(slope_, OP)(u - v, PTR(dist, const ST)[at], p);
  }
  PTR(gx, ST)[item] = sum;
}
