// Sums, means and maxima of bags of rows of an embedding table, and their gradients. Indices are int64. It is
// deterministic: one work-item adds to a row of the gradient, in the order of the indices.
// -D: IN (table, output, gradients, sample weights), ACC, VEC, OP (SUM, MEAN, MAX).
#define GROUP 1
#include "args/embedding.h"
#include "common/rows.h"

DEFINE_LANES(IN)
DEFINE_LANES(ACC)
enum { SUM, MEAN, MAX };

#define INDEX(i) (PTR(index, const long)[i])
#define IN_BAG(row, bag) ((bag) >= 0 && (bag) < P.bags && (row) != P.padding && (row) >= 0 && (row) < P.rows)
#define SAMPLE(i) (sample_buf ? LOAD(IN, ACC, 1, PTR(sample, const STORAGE(IN)), i) : (ST)(1))

// The indices and their weights (or null), the bag of each index, the bags' sizes, and the rows of maxima.
#define BAGS BUF(index), BUF(sample), BUF(bag_of), BUF(bag_size), BUF(where)

// The vectors of a row that a work-item adds at once.
enum { MANY = VEC == 1 ? 1 : OP == MAX ? 1 : 4 };

// A work-item takes (MANY vectors of columns, `shares` bags). The last bag takes all remaining indices, as on CUDA,
// even if there is one more offset that says where it ends.
__kernel void embedding_bag(BUF(out), BUF(table), BUF(offsets), BAGS, BUF(err), const EmbeddingParams P) {
  const long c = (long)get_global_id(0) * VEC * MANY, n = P.n, width = P.width;
  if (c >= width && c > 0) return;
  const int lanes = LANES(c, width), whole = c + VEC * MANY <= width;
  const long first = (long)get_global_id(1) * P.shares, last = min(first + P.shares, P.bags);
  for (long bag = first; bag < last; bag++) {
    const long given = PTR(offsets, const long)[bag];
    const long after = bag + 1 < P.offsets ? PTR(offsets, const long)[bag + 1] : n;
    const long begin = clamp(given, 0L, n), end = bag + 1 < P.bags ? clamp(after, begin, n) : n;
    if (begin != given || after < begin || after > n || (bag == 0 && begin != 0))
      netcl_report(PTR(err, int), P.bad_offset, 0, 0);
    lanes_t sum[MANY];
    UNROLL for (int k = 0; k < MANY; k++)
      sum[k].v = (VT)(0);
    __global long* top = PTR(where, long) + bag * width + c;
    for (int j = 0; OP == MAX && j < lanes; j++) top[j] = -1;
    long count = 0;
    for (long i = begin; i < end; i++) {
      if (c == 0) PTR(bag_of, long)[i] = bag;
      const long row = INDEX(i);
      if (row < 0 || row >= P.rows) {
        netcl_report(PTR(err, int), P.code, row, P.rows);
        continue;
      }
      if (row == P.padding) continue;
      __global const STORAGE(IN)* x = PTR(table, const STORAGE(IN)) + row * width + c;
      const ST weight = SAMPLE(i);
      if (OP == MAX) {
        lanes_t v;
        v.v = LOAD_LANES(IN, x, 0, lanes, 0);
        for (int j = 0; j < lanes; j++)
          if (count == 0 || v.s[j] > sum[0].s[j] || isnan(v.s[j])) {
            sum[0].s[j] = v.s[j];
            top[j] = row;
          }
      } else if (whole) {
        UNROLL for (int k = 0; k < MANY; k++)
          sum[k].v += LOAD(IN, ACC, VEC, x + k * VEC, 0) * weight;
      } else {
        UNROLL for (int k = 0; k < MANY; k++)
          if (c + k * VEC < width) sum[k].v += LOAD_LANES(IN, x, k * VEC, LANES(c + k * VEC, width), 0) * weight;
      }
      count++;
    }
    if (c == 0) PTR(bag_size, long)[bag] = count;
    UNROLL for (int k = 0; k < MANY; k++) {
      if (OP == MEAN && count > 0) sum[k].v /= (ST)count;
      if (c + k * VEC < width)
        STORE_LANES(IN, PTR(out, STORAGE(IN)), bag * width + c + k * VEC, LANES(c + k * VEC, width), sum[k].v);
    }
  }
}

// A work-item takes (columns, a share of the table's rows). `total` must be zero; `counts` is as in embedding.cl.
__kernel void embedding_bag_backward(BUF(total), BUF(grad), BAGS, BUF(counts), const EmbeddingParams P) {
  const long c = (long)get_global_id(0) * VEC, share = get_global_id(1), width = P.width;
  if (c >= width) return;
  const int lanes = LANES(c, width);
  __global ST* t = PTR(total, ST) + c;
  __global const STORAGE(IN)* g = PTR(grad, const STORAGE(IN)) + c;
  for (long bag = 0; OP == MAX && bag < P.bags; bag++)
    for (int j = 0; j < lanes; j++) {
      const long row = PTR(where, const long)[bag * width + c + j];
      if (row >= 0 && row < P.rows && row % P.shares == share)
        t[row * width + j] += LOAD(IN, ACC, 1, g, bag * width + j);
    }
  for (long i = 0; OP != MAX && i < P.n; i++) {
    const long row = INDEX(i), bag = PTR(bag_of, const long)[i];
    if (!IN_BAG(row, bag) || row % P.shares != share) continue;
    ST s = SAMPLE(i);
    if (OP == MEAN) s /= PTR(bag_size, const long)[bag];
    if (counts_buf) s /= PTR(counts, const int)[row];
    const VT v = LOAD_LANES(ACC, t, row * width, lanes, 0) + LOAD_LANES(IN, g, bag * width, lanes, 0) * s;
    STORE_LANES(ACC, t, row * width, lanes, v);
  }
}

// The gradient of the sample weights.
__kernel void embedding_bag_sample_grad(BUF(out), BUF(grad), BUF(table), BUF(index), BUF(bag_of),
                                        const EmbeddingParams P) {
  const long i = get_global_id(0), width = P.width;
  if (i >= P.n) return;
  const long row = INDEX(i), bag = PTR(bag_of, const long)[i];
  VT s = (VT)(0);
  if (IN_BAG(row, bag))
    for (long c = 0; c < width; c += VEC) {
      const int lanes = LANES(c, width);
      s += LOAD_LANES(IN, PTR(grad, const STORAGE(IN)), bag * width + c, lanes, 0) *
           LOAD_LANES(IN, PTR(table, const STORAGE(IN)), row * width + c, lanes, 0);
    }
  STORE(IN, ACC, 1, PTR(out, STORAGE(IN)), i, sum_lanes(s));
}
