// Reductions into indexed places: scatter_add, scatter_reduce, index_add, index_put(accumulate), put(accumulate).
// -D: OUT and IN (storage tags of the destination and the source), BYTES (the size of OUT), ACC (compute tag), OP
// (sum, prod, amax, amin), VEC, NIDX, IDX, and ATOMIC if work-items may meet in one place. Without ATOMIC, the host
// lays out the space so that they cannot.
#include "common/combine.h"
#include "common/index_space.h"
#include "common/scalar.h"

__kernel void indexed_reduce(BUF(o), BUF(s), INDEX_BUFS BUF(e), int code, const IndexedTerm term,
                             const IndexSpaceParams L) {
  const ST alpha = scalar_of(term.alpha);
  __global int* err = PTR(e, int);
  const long begin = (long)get_global_id(0) * L.n_per_item, end = min(begin + L.n_per_item, L.n);
  long row = (long)get_global_id(1) * L.rows_per_item;
  const long last = min(row + L.rows_per_item, L.rows);
  if (row >= last || begin >= end) return;
  const long os = L.inner[0], ss = L.inner[1];
  row_t r = first_row(&L, row);
  for (;;) {
    const ulong o = o_off + r.off[0];
    __global const uchar* s = s_buf + s_off + r.off[1];
    const int fixed = INDEX_FIXED;
    long at = fixed ? INDEXED_OFFSET(begin) : 0, j = begin;
#if VEC > 1 && !defined(ATOMIC)
    if (fixed && os == sizeof(STORAGE(OUT)) && ss == sizeof(STORAGE(IN)) && !term.scaled && !term.fill) {
      __global STORAGE(OUT)* po = (__global STORAGE(OUT)*)(o_buf + o + at);
      __global const STORAGE(IN)* ps = (__global const STORAGE(IN)*)s;
      for (; j + VEC <= end; j += VEC) {
        const VTYPE(ACC, VEC) a = LOAD(OUT, ACC, VEC, po, j);
        const VTYPE(ACC, VEC) b = LOAD(IN, ACC, VEC, ps, j);
        STORE(OUT, ACC, VEC, po, j, REDUCE(a, b));
      }
    }
#endif
    for (; j < end; j++) {
      if (!fixed) at = INDEXED_OFFSET(j);
      ST v = alpha;
      if (!term.fill) {
        v = LOAD(IN, ACC, 1, (__global const STORAGE(IN)*)(s + j * ss), 0);
        if (term.scaled) v = RED_prod(v, alpha);
      }
      combine(o_buf, o + at + j * os, v);
    }
    if (++row >= last) break;
    next_row(&L, &r);
  }
}
