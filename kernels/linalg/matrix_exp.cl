// exp(A) of small matrices: a Taylor polynomial of A / 2^s, squared s times. One work-group per matrix.
// -D: those of linalg/columns.h.
#include "linalg/columns.h"

// For norms up to MOST_NORM, the terms that are left out are less than the last digit. Each halving costs a bit.
#if defined(ACC_DOUBLE)
#define TERMS 18
#define MOST_NORM 1
#else
#define TERMS 19
#define MOST_NORM 3
#endif

// out = A B / divisor, and + I if `unit`.
static inline void multiply(COLUMN out, CONST_COLUMN a, CONST_COLUMN b, long n, R divisor, int unit) {
  for (long j = TEAM_ID; j < n; j += TEAMS) {
    COLUMN y = out + j * n;
    for (long i = LANE; i < n; i += TEAM) y[i] = FROM_REAL((R)(unit && i == j));
    for (long k = 0; k < n; k++) add_scaled(y, b[j * n + k] / divisor, a + k * n, n);
  }
  SYNC();
}

// out: columns; work: two matrices. The polynomial is evaluated by Horner's rule, I + A / 1 (I + A / 2 (I + ...)).
__kernel void matrix_exp(MATRIX(a), BUF(out), BUF(work), long n) {
  __local VT scratch[GROUP];
  const long batch = get_group_id(0);
  COLUMN result = PTR(out, VT) + batch * n * n;
  COLUMN x = PTR(work, VT) + batch * 2 * n * n;
  COLUMN other = x + n * n;
  R norm = 0;
  for (long j = TEAM_ID; j < n; j += TEAMS) {
    R sum = 0;
    for (long i = LANE; i < n; i += TEAM) x[j * n + i] = AT(a, batch, i, j);
    for (long i = 0; i < n; i++) {
      const VT v = AT(a, batch, i, j);
      sum += PARTS == 2 ? hypot(REAL(v), IMAGINARY(v)) : fabs(REAL(v));
    }
    norm = sum > norm || isnan(sum) ? sum : norm;
  }
  norm = group_most(norm, scratch);
  // No return: PoCL takes the conditions behind one that skips a barrier for the same in all work-items.
  const int finite = norm < (R)INFINITY;
  int halvings = 0;
  for (R half_norm = finite ? norm : (R)0; half_norm > MOST_NORM; half_norm /= 2) halvings++;
  const R scale = ldexp((R)1, -(halvings / 2)), rest = ldexp((R)1, -(halvings - halvings / 2));
  for (long i = LID; i < n * n; i += GROUP) {
    x[i] = finite ? x[i] * scale * rest : (VT)NAN;
    result[i] = FROM_REAL((R)(i % (n + 1) == 0));
  }
  SYNC();
  for (int k = TERMS; k > 0; k--) {
    multiply(other, x, result, n, (R)k, 1);
    COLUMN t = result;
    result = other;
    other = t;
  }
  for (int k = 0; k < halvings; k++) {
    multiply(other, result, result, n, 1, 0);
    COLUMN t = result;
    result = other;
    other = t;
  }
  COLUMN last = PTR(out, VT) + batch * n * n;
  if (result != last) {
    for (long i = LID; i < n * n; i += GROUP) last[i] = result[i];
  }
}
