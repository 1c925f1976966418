// The gradient of an embedding table, and its renormalisation. It is deterministic: one work-item adds to a row of the
// table, in the order of the indices. -D: IN (gradient, table), IDX (i32 or i64), ACC, VEC.
#define GROUP 1
#include "args/embedding.h"
#include "common/rows.h"

DEFINE_LANES(IN)
DEFINE_LANES(ACC)

// A work-item takes (columns, a share of the table: rows that are `share` modulo P.shares). `total` must be zero.
// `counts` (how often each index occurs) is null unless gradients are divided by it.
__kernel void embedding_backward(BUF(total), BUF(grad), BUF(index), BUF(counts), BUF(err), const EmbeddingParams P) {
  const long c = (long)get_global_id(0) * VEC, share = get_global_id(1), width = P.width;
  if (c >= width) return;
  const int lanes = LANES(c, width);
  __global ST* t = PTR(total, ST) + c;
  __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN)) + c;
  for (long i = 0; i < P.n; i++) {
    const long row = LOAD(IDX, i64, 1, PTR(index, const STORAGE(IDX)), i);
    if (row == P.padding) continue;
    if (row < 0 || row >= P.rows) {
      netcl_report(PTR(err, int), P.code, row, P.rows);
      continue;
    }
    if (P.shares > 1 && row % P.shares != share) continue;
    VT v = LOAD_LANES(IN, g, i * width, lanes, 0);
    if (counts_buf) v /= (ST)(PTR(counts, const int)[row]);
    STORE_LANES(ACC, t, row * width, lanes, LOAD_LANES(ACC, t, row * width, lanes, 0) + v);
  }
}

// Counts how often each index occurs; `counts` must be zero.
__kernel void embedding_count(BUF(counts), BUF(index), long n, long rows, long per) {
  const long first = (long)get_global_id(0) * per, last = min(first + per, n);
  for (long i = first; i < last; i++) {
    const long row = LOAD(IDX, i64, 1, PTR(index, const STORAGE(IDX)), i);
    if (row >= 0 && row < rows) atomic_inc(PTR(counts, int) + row);
  }
}

static inline ST norm_term(ST x, ST p) {
  return p == 0 ? (ST)(x != 0) : p == 1 ? fabs(x) : p == 2 ? x * x : pow(fabs(x), p);
}
static inline ST norm_of_sum(ST s, ST p) { return p == 0 || p == 1 ? s : p == 2 ? sqrt(s) : pow(s, 1 / p); }

// Scales each row that occurs so that its norm is at most max_norm.
__kernel void embedding_renorm(BUF(table), BUF(counts), long rows, long rows_per, long width, WIDE(p), WIDE(max_norm)) {
  const long first = (long)get_global_id(0) * rows_per, last = min(first + rows_per, rows);
  for (long row = first; row < last; row++) {
    if (PTR(counts, const int)[row] == 0) continue;
    __global STORAGE(IN)* x = PTR(table, STORAGE(IN)) + row * width;
    ST s = p == -INFINITY ? INFINITY : 0;
    for (long c = 0; c < width; c++) {
      const ST v = LOAD(IN, ACC, 1, x, c);
      if (isinf(p)) {
        s = isnan(s) || isnan(v) ? NAN : p > 0 ? fmax(s, fabs(v)) : fmin(s, fabs(v));
      } else {
        s += norm_term(v, WIDE_VALUE(p));
      }
    }
    const ST norm = isinf(p) ? s : norm_of_sum(s, WIDE_VALUE(p));
    if (!(norm > WIDE_VALUE(max_norm))) continue;
    const ST scale = WIDE_VALUE(max_norm) / (norm + (ST)1e-7f);
    for (long c = 0; c < width; c++) STORE(IN, ACC, 1, x, c, LOAD(IN, ACC, 1, x, c) * scale);
  }
}
