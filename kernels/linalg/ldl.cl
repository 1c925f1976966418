// A = L D L^T, or L D L^H of Hermitian matrices, with the pivots of Bunch and Kaufman. D has blocks of 1 x 1 and 2 x 2.
// Pivots count from 1; both of a 2 x 2 block are the negative row that was exchanged with its second.
// -D: those of linalg/columns.h.
#include "args/linalg.h"
#include "linalg/columns.h"

#define TURN(a) (P.hermitian ? CONJ(a) : (a))
#define DIAGONAL(a) (P.hermitian ? FROM_REAL(REAL(a)) : (a))
// (1 + sqrt(17)) / 8, which bounds the growth of the elements.
#define GROWTH ((R)0.6403882032022076)

// The largest magnitude in column j from row `first` on, and its row.
static inline R largest(__global const VT* column, long first, long n, long* row) {
  R most = 0;
  for (long i = first; i < n; i++) {
    const R here = MAGNITUDE(column[i]);
    if (here > most) {
      most = here;
      *row = i;
    }
  }
  return most;
}

static inline void exchange(__global VT* x, __global VT* y) {
  const VT t = *x;
  *x = *y;
  *y = t;
}

// One work-group per matrix. Columns are contiguous; all items choose the pivot, each for itself.
__kernel void ldl_factor(MATRIX(a), BUF(pivots), BUF(info), const LdlParams P) {
  const long batch = get_group_id(0), n = P.n;
  __global int* pivot = PTR(pivots, int) + batch * n;
  int size = 1;
  for (long k = 0; k < n; k += size) {
    COLUMN x = &AT(a, batch, 0, k);
    const R head = MAGNITUDE(DIAGONAL(x[k]));
    long row = k, chosen = k;
    const R below = largest(x, k + 1, n, &row);
    size = 1;
    const int singular = fmax(head, below) == 0 || isnan(head);
    if (!singular && head < GROWTH * below) {
      long unused = 0;
      R beside = largest(&AT(a, batch, 0, row), row + 1, n, &unused);
      for (long j = k; j < row; j++) beside = fmax(beside, MAGNITUDE(AT(a, batch, row, j)));
      if (head < GROWTH * below * (below / beside)) {
        chosen = row;
        size = MAGNITUDE(DIAGONAL(AT(a, batch, row, row))) >= GROWTH * beside ? 1 : 2;
      }
    }
    SYNC();
    const long at = k + size - 1;
    if (LID == 0) {
      if (singular && PTR(info, int)[batch] == 0) PTR(info, int)[batch] = (int)(k + 1);
      for (int s = 0; s < size; s++) pivot[k + s] = (int)(size == 1 ? chosen + 1 : -chosen - 1);
      if (chosen != at) {
        exchange(&AT(a, batch, at, at), &AT(a, batch, chosen, chosen));
        if (size == 2) exchange(&AT(a, batch, k + 1, k), &AT(a, batch, chosen, k));
        AT(a, batch, chosen, at) = TURN(AT(a, batch, chosen, at));
        AT(a, batch, chosen, chosen) = DIAGONAL(AT(a, batch, chosen, chosen));
      }
      x[k] = DIAGONAL(x[k]);
      AT(a, batch, at, at) = DIAGONAL(AT(a, batch, at, at));
    }
    for (long i = LID + chosen + 1; chosen != at && i < n; i += GROUP) {
      exchange(&AT(a, batch, i, at), &AT(a, batch, i, chosen));
    }
    for (long i = LID + at + 1; i < chosen; i += GROUP) {
      const VT t = TURN(AT(a, batch, i, at));
      AT(a, batch, i, at) = TURN(AT(a, batch, chosen, i));
      AT(a, batch, chosen, i) = t;
    }
    SYNC();
    // The inverse of D's block; that of two columns is scaled by its element beside the diagonal. No barrier stands in
    // a branch, since PoCL 3.0 computes such kernels wrongly.
    COLUMN y = &AT(a, batch, 0, at);
    const VT one = FROM_REAL((R)1), beside = size == 1 ? one : x[at];
    const VT d11 = DIV(y[at], beside), d22 = DIV(x[k], TURN(beside)), t = DIV(one, MUL(d11, d22) - one);
    const VT inverse = DIV(one, x[k]), scale_x = DIV(t, TURN(beside)), scale_y = DIV(t, beside);
    for (long j = at + 1 + TEAM_ID; !singular && j < n; j += TEAMS) {
      if (size == 1) {
        add_scaled(&AT(a, batch, j, j), -MUL(inverse, TURN(x[j])), x + j, n - j);
      } else {
        const VT wx = MUL(scale_x, MUL(d11, x[j]) - y[j]), wy = MUL(scale_y, MUL(d22, y[j]) - x[j]);
        add_scaled(&AT(a, batch, j, j), -TURN(wx), x + j, n - j);
        add_scaled(&AT(a, batch, j, j), -TURN(wy), y + j, n - j);
      }
      if (LANE == 0) AT(a, batch, j, j) = DIAGONAL(AT(a, batch, j, j));
    }
    SYNC();
    for (long j = at + 1 + LID; !singular && j < n; j += GROUP) {
      const VT wx = MUL(scale_x, MUL(d11, x[j]) - y[j]), wy = MUL(scale_y, MUL(d22, y[j]) - x[j]);
      x[j] = size == 1 ? MUL(x[j], inverse) : wx;
      if (size == 2) y[j] = wy;
    }
    SYNC();
  }
}

// Solves A X = B in place of B with the factors in a; one work-item per column. A pivot that is no row is reported.
__kernel void ldl_solve(MATRIX(a), VECTOR(pivot), MATRIX(b), BUF(err), const LdlParams P) {
  const long c = get_global_id(0), batch = get_global_id(1), n = P.n;
  if (c >= P.columns) return;
  __global const int* pivots = PTR(pivot, const int) + batch * pivot_batch;
  long size;
  for (long k = 0; k < n; k += size) {
    size = pivots[k] > 0 || k + 1 == n ? 1 : 2;
    const long at = k + size - 1, row = abs(pivots[k]) - 1L;
    if (row < 0 || row >= n) {
      netcl_report(PTR(err, int), P.code, 0, 0);
    } else {
      exchange(&AT(b, batch, at, c), &AT(b, batch, row, c));
    }
    const VT x = AT(b, batch, k, c), y = AT(b, batch, at, c);
    for (long i = at + 1; i < n; i++) {
      VT sum = MUL(AT(a, batch, i, k), x);
      if (size == 2) sum += MUL(AT(a, batch, i, at), y);
      AT(b, batch, i, c) -= sum;
    }
    if (size == 1) {
      AT(b, batch, k, c) = DIV(x, DIAGONAL(AT(a, batch, k, k)));
    } else {
      const VT beside = AT(a, batch, at, k), one = FROM_REAL((R)1);
      const VT d11 = DIV(DIAGONAL(AT(a, batch, k, k)), TURN(beside)), d22 = DIV(DIAGONAL(AT(a, batch, at, at)), beside);
      const VT u = DIV(x, TURN(beside)), v = DIV(y, beside), t = MUL(d11, d22) - one;
      AT(b, batch, k, c) = DIV(MUL(d22, u) - v, t);
      AT(b, batch, at, c) = DIV(MUL(d11, v) - u, t);
    }
  }
  for (long k = n - 1; k >= 0; k -= size) {
    size = pivots[k] > 0 || k == 0 ? 1 : 2;
    for (long s = 0; s < size; s++) {
      VT sum = 0;
      for (long i = k + 1; i < n; i++) sum += MUL(TURN(AT(a, batch, i, k - s)), AT(b, batch, i, c));
      AT(b, batch, k - s, c) -= sum;
    }
    const long row = abs(pivots[k]) - 1L;
    if (row >= 0 && row < n) exchange(&AT(b, batch, k, c), &AT(b, batch, row, c));
  }
}
