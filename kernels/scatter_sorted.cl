// As scatter_gather.cl, for GPUs in deterministic mode: work-items that share the rows of long reductions, in an order
// that does not depend on timing; and for narrow sums in place that are rounded once. `destinations` of indexing.cl
// finds where each row goes, the host sorts these, `reduce_sorted` reduces runs of equal ones in chunks, and
// `join_sorted` the runs that cross a chunk's border.
// -D: those of scatter_gather.cl. No index changes along a row.
#include "args/sort.h"
#include "common/combine.h"
#include "common/index_space.h"
#include "common/scalar.h"

#define SPACE_ARGS BUF(o), BUF(s), INDEX_BUFS BUF(e), int code

#define KEY(i) PTR(keys, const long)[i]
// Two partial results of each chunk: that of the run which crosses its beginning, and of the run which begins in it and
// crosses its end.
#define PARTIAL(chunk, begins) PTR(partial, ST)[(2 * (chunk) + (begins)) * L.n + j]

// A work-item takes an element of the rows of a chunk. `order` holds the rows in the order of `keys`.
__kernel void reduce_sorted(SPACE_ARGS, BUF(keys), BUF(order), BUF(partial), const IndexedTerm term,
                            const IndexSpaceParams L) {
  const long item = get_global_id(0), chunk = item / L.n, j = item - chunk * L.n, begin = chunk * kSortedChunk;
  if (begin >= L.rows) return;
  const ST alpha = scalar_of(term.alpha);
  const long end = min(begin + kSortedChunk, L.rows), os = L.inner[0], ss = L.inner[1];
  long key = KEY(begin);
  int begins = begin == 0 || KEY(begin - 1) != key, first = 1;
  ST result = alpha;
  for (long i = begin; i < end; i++) {
    ST v = alpha;
    if (!term.fill) {
      const row_t r = first_row(&L, PTR(order, const long)[i]);
      v = LOAD(IN, ACC, 1, (__global const STORAGE(IN)*)(s_buf + s_off + r.off[1] + j * ss), 0);
      if (term.scaled) v = RED_prod(v, alpha);
    }
    const ST both = REDUCE(result, v);
    result = first ? v : both;
    const long next = i + 1 < L.rows ? KEY(i + 1) : -1;
    first = next != key;
    if (!first && i + 1 < end) continue;
    if (first && begins)
      combine(o_buf, o_off + key + j * os, result);
    else
      PARTIAL(chunk, begins) = result;
    begins = 1;
    key = next;
  }
}

// A work-item takes an element of the run that begins in a chunk and crosses its end.
__kernel void join_sorted(SPACE_ARGS, BUF(keys), BUF(partial), const IndexSpaceParams L) {
  const long item = get_global_id(0), chunk = item / L.n, j = item - chunk * L.n, begin = chunk * kSortedChunk;
  long end = begin + kSortedChunk;
  if (end >= L.rows) return;
  const long key = KEY(end - 1);
  if (KEY(end) != key || (begin > 0 && KEY(begin - 1) == key)) return;
  ST result = PARTIAL(chunk, 1);
  for (long k = chunk + 1; end < L.rows && KEY(end) == key; k++) {
    const ST other = PARTIAL(k, 0);
    result = REDUCE(result, other);
    end = min(end + kSortedChunk, L.rows);
  }
  combine(o_buf, o_off + key + j * L.inner[0], result);
}
