// p-norm distances between the rows of two matrices (cdist) or of one (pdist: stored densely), and their gradients.
// -D: ACC (f32, f64), VEC (at most m), OP (l0, l1, l2, lp, linf: the norm).
#include "args/distance.h"
#include "common/join_lanes.h"

// The position of the distance between rows i and j.
static inline long place(const DistanceParams* D, long b, long i, long j) {
  if (!D->pairs) return (b * D->rows + i) * D->columns + j;
  const long first = min(i, j);
  return first * (2 * D->columns - first - 1) / 2 + max(i, j) - first - 1;
}

// A norm joins what its coordinates, of absolute value d, give: their maximum or sum.
enum { l0, l1, l2, lp, linf };
#define JOIN_NORM(a, b) (OP == linf ? (isnan(b) || (b) > (a) ? (b) : (a)) : (a) + (b))
JOIN_LANES(join_lanes, ACC, JOIN_NORM)
static inline VT term(VT d, ST p) {
  if (OP == l0) return d > 1 ? (VT)(1) : ceil(d);  // NaN stays NaN
  return OP == lp ? pow(d, (VT)(p)) : OP == l2 ? d * d : d;
}

// Computes D.per distances. The last vector of a row begins earlier if it would not be whole, and its first lanes are
// 0.
__kernel void distance_forward(BUF(out), BUF(x), BUF(y), ST p, const DistanceParams D) {
  const long begin = get_global_id(0) * D.per, end = min(begin + D.per, D.batch * D.rows * D.columns);
  long j = begin % D.columns, row = begin / D.columns, b = row / D.rows;
  for (long item = begin; item < end; item++, j++) {
    if (j == D.columns) j = 0, row++, b = row / D.rows;
    if (D.pairs && row >= j) continue;
    __global const ST *u = PTR(x, const ST) + row * D.m, *v = PTR(y, const ST) + (b * D.columns + j) * D.m;
    VT sum = (VT)(0);
    for (long k = 0; k < D.m; k += VEC) {
      const long at = min(k, D.m - VEC);
      const VT d = fabs(CAT(VLOAD_, VEC)(0, u + at) - CAT(VLOAD_, VEC)(0, v + at));
      sum = JOIN_NORM(sum, term((VT)LANE_NUMBERS(VEC) < (ST)(k - at) ? (VT)(0) : d, p));
    }
    const ST all = join_lanes(sum);
    PTR(out, ST)[place(&D, b, row - b * D.rows, j)] = OP == l2 ? sqrt(all) : OP == lp ? pow(all, 1 / p) : all;
  }
}

// d(distance) / d(u) for some coordinates; diff = u - v. That of l0 is not asked for.
static inline VT slope(VT diff, ST dist, ST p) {
  if (OP == l1) return sign(diff);
  if (OP == linf) return fabs(diff) == dist ? sign(diff) : (VT)(0);
  if (dist == 0) return (VT)(0);
  if (OP == l2) return diff * (1 / dist);
  const VT power = pow(fabs(diff), (VT)(p < 2 ? p - 1 : p - 2)) / pow(dist, p - 1);
  return p < 1 && diff == 0 ? (VT)(0) : power * (p < 2 ? sign(diff) : diff);
}

// Computes D.per vectors of the gradient of x, which are sums over all rows of y. The last of a row may begin earlier.
__kernel void distance_backward(BUF(gx), BUF(grad), BUF(x), BUF(y), BUF(dist), ST p, const DistanceParams D) {
  const long vectors = (D.m + VEC - 1) / VEC, begin = get_global_id(0) * D.per;
  for (long item = begin; item < min(begin + D.per, D.batch * D.rows * vectors); item++) {
    const long row = item / vectors, b = row / D.rows, i = row % D.rows;
    const long k = min(item % vectors * VEC, D.m - VEC);
    const VT u = CAT(VLOAD_, VEC)(0, PTR(x, const ST) + row * D.m + k);
    VT sum = (VT)(0);
    for (long j = 0; j < D.columns; j++) {
      if (D.pairs && i == j) continue;
      const VT v = CAT(VLOAD_, VEC)(0, PTR(y, const ST) + (b * D.columns + j) * D.m + k);
      const long at = place(&D, b, i, j);
      sum += PTR(grad, const ST)[at] * slope(u - v, PTR(dist, const ST)[at], p);
    }
    CAT(VSTORE_, VEC)(sum, 0, PTR(gx, ST) + row * D.m + k);
  }
}
