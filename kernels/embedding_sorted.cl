// The gradient of an embedding table on GPUs, from indices that were sorted: the sums of runs of equal indices, in
// their order. `sum_sorted` takes chunks of the indices; a run that crosses a chunk's border leaves a partial sum in
// each chunk, and `join_sorted` adds these. -D: IN (gradient), IDX (i32 or i64), ACC.
#include "args/embedding.h"
#include "args/sort.h"
#include "common/vector.h"

#define SORTED(i) LOAD(IDX, i64, 1, PTR(sorted, const STORAGE(IDX)), i)
// Two partial sums of each chunk: that of the run which crosses its beginning, and of the run which begins in it and
// crosses its end.
#define PARTIAL(chunk, begins) PTR(partial, ST)[(2 * (chunk) + (begins)) * P.width + c]
#define ARGS BUF(total), BUF(partial), BUF(sorted), BUF(err), const EmbeddingParams P
#define IS_ROW(row) ((row) != P.padding && (row) >= 0 && (row) < P.rows)

// `order` holds the places of the sorted indices. The gradient is multiplied by a bag's or an index's `sample`, and
// divided by the bag's size and by how often the index occurs, unless these are null. A bad index is reported if `err`
// is given.
__kernel void sum_sorted(ARGS, BUF(grad), BUF(order), BUF(bag_of), BUF(bag_size), BUF(sample), BUF(counts)) {
  const long item = get_global_id(0), n = P.n, width = P.width;
  const long chunk = item / width, c = item - chunk * width, begin = chunk * kSortedChunk;
  if (begin >= n) return;
  const long end = min(begin + kSortedChunk, n);
  long row = SORTED(begin);
  int begins = begin == 0 || SORTED(begin - 1) != row;
  ST sum = 0;
  for (long i = begin; i < end; i++) {
    const long at = PTR(order, const long)[i];
    const int counted = IS_ROW(row);
    const long from = bag_of_buf ? PTR(bag_of, const long)[at] : at;
    if (counted && from >= 0) {
      ST x = LOAD(IN, ACC, 1, PTR(grad, const STORAGE(IN)), from * width + c);
      if (bag_of_buf) {
        ST scale = sample_buf ? LOAD(IN, ACC, 1, PTR(sample, const STORAGE(IN)), at) : (ST)1;
        if (bag_size_buf) scale /= PTR(bag_size, const long)[from];
        if (counts_buf) scale /= PTR(counts, const int)[row];
        x *= scale;
      } else if (counts_buf) {
        x /= (ST)(PTR(counts, const int)[row]);
      }
      sum += x;
    }
    const long next = i + 1 < n ? SORTED(i + 1) : 0;
    const int ends = i + 1 == n || next != row;
    if (!ends && i + 1 < end) continue;
    if (!ends || !begins)
      PARTIAL(chunk, begins) = sum;
    else if (counted)
      PTR(total, ST)[row * width + c] = sum;
    else if (err_buf && row != P.padding)
      netcl_report(PTR(err, int), P.code, row, P.rows);
    begins = 1;
    sum = 0;
    row = next;
  }
}

// A work-item takes a column of a chunk: the run that begins there and crosses its end.
__kernel void join_sorted(ARGS) {
  const long item = get_global_id(0), n = P.n, width = P.width;
  const long chunk = item / width, c = item - chunk * width, begin = chunk * kSortedChunk;
  long end = begin + kSortedChunk;
  if (end >= n) return;
  const long row = SORTED(end - 1);
  if (SORTED(end) != row || (begin > 0 && SORTED(begin - 1) == row)) return;
  ST sum = PARTIAL(chunk, 1);
  for (long k = chunk + 1; end < n && SORTED(end) == row; k++) {
    sum += PARTIAL(k, 0);
    end = min(end + kSortedChunk, n);
  }
  if (IS_ROW(row))
    PTR(total, ST)[row * width + c] = sum;
  else if (err_buf && row != P.padding)
    netcl_report(PTR(err, int), P.code, row, P.rows);
}
