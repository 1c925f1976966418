// The parts of matrix factorisations and triangular solves that are not matrix products: blocks on the diagonal,
// panels, exchanges of rows. GPUs have kernels of their own for all but the last, in linalg_gpu.cl.
// -D: those of linalg/matrices.h (ACC=i64 for exchanges only), BLOCK.
#define WORK_GROUPS
#include "args/linalg.h"
#include "linalg/matrices.h"

#if !defined(ACC_INTEGRAL)
// Solves A X = B in place of B for an n x n block A of which one triangle is read; one work-item per column.
__kernel void solve_block(MATRIX(a), MATRIX(b), long n, long columns, int upper, int unit) {
  const long column = get_global_id(0), batch = get_global_id(1);
  if (column >= columns) return;
  VT x[BLOCK];
  for (int s = 0; s < n; s++) {
    const long i = upper ? n - 1 - s : s;
    VT left = AT(b, batch, i, column);
    for (int t = 0; t < s; t++) {
      const long k = upper ? n - 1 - t : t;
      left -= MUL(AT(a, batch, i, k), x[k]);
    }
    x[i] = unit ? left : DIV(left, AT(a, batch, i, i));
    AT(b, batch, i, column) = x[i];
  }
}

// A = L L^H in place of A's lower triangle; one work-item per matrix. info: the first row (1-based) whose minor is not
// positive.
__kernel void cholesky_block(MATRIX(a), BUF(info), long batches, long n, long first) {
  const long batch = get_global_id(0);
  if (batch >= batches) return;
  for (long j = 0; j < n; j++) {
    R square = REAL(AT(a, batch, j, j));
    for (long k = 0; k < j; k++) square -= REAL(MUL(AT(a, batch, j, k), CONJ(AT(a, batch, j, k))));
    if (!(square > 0) && PTR(info, int)[batch] == 0) PTR(info, int)[batch] = (int)(first + j + 1);
    const R root = sqrt(square);
    AT(a, batch, j, j) = FROM_REAL(root);
    for (long i = j + 1; i < n; i++) {
      VT left = AT(a, batch, i, j);
      for (long k = 0; k < j; k++) left -= MUL(AT(a, batch, i, k), CONJ(AT(a, batch, j, k)));
      AT(a, batch, i, j) = left / root;
    }
  }
}

// P A = L U of a panel, in place. Pivots (1-based) count from row 1 of the matrix. One work-item per matrix. info: the
// first column (1-based) without a pivot.
__kernel void lu_panel(MATRIX(a), VECTOR(pivot), BUF(info), const PanelParams P) {
  const long batch = get_global_id(0), rows = P.rows, columns = P.columns;
  if (batch >= P.batches) return;
  for (long j = 0; j < min(rows, columns); j++) {
    long p = j;
    R best = MAGNITUDE(AT(a, batch, j, j));
    for (long i = j + 1; P.exchange && i < rows; i++) {
      const R other = MAGNITUDE(AT(a, batch, i, j));
      if (other > best) {
        best = other;
        p = i;
      }
    }
    PTR(pivot, int)[batch * pivot_batch + j] = (int)(P.first + p + 1);
    if (best == 0) {
      if (PTR(info, int)[batch] == 0) PTR(info, int)[batch] = (int)(P.first + j + 1);
      continue;
    }
    for (long c = 0; c < columns && p != j; c++) {
      const VT other = AT(a, batch, p, c);
      AT(a, batch, p, c) = AT(a, batch, j, c);
      AT(a, batch, j, c) = other;
    }
    const VT head = AT(a, batch, j, j);
    for (long i = j + 1; i < rows; i++) AT(a, batch, i, j) = DIV(AT(a, batch, i, j), head);
    for (long c = j + 1; c < columns; c++) {
      const VT factor = AT(a, batch, j, c);
      for (long i = j + 1; i < rows; i++) AT(a, batch, i, c) -= MUL(AT(a, batch, i, j), factor);
    }
  }
}
#endif

// Exchanges rows k and pivot[k] - 1; one work-item per column. If `err` is given, a pivot that is not a row is reported
// and skipped.
__kernel void exchange_rows(MATRIX(a), VECTOR(pivot), BUF(err), const ExchangeParams P) {
  const long column = get_global_id(0), batch = get_global_id(1);
  if (column >= P.columns) return;
  for (long s = P.begin; s < P.end; s++) {
    const long k = P.down ? P.begin + P.end - 1 - s : s, p = PTR(pivot, const int)[batch * pivot_batch + k] - 1;
    if (p < 0 || p >= P.rows) {
      netcl_report(PTR(err, int), P.code, 0, 0);
      continue;
    }
    const VT other = AT(a, batch, p, column);
    AT(a, batch, p, column) = AT(a, batch, k, column);
    AT(a, batch, k, column) = other;
  }
}
