// Moves whole elements through index tensors. There is no arithmetic, so a variant depends on the element's size, not
// on its dtype. -D: BYTES (1, 2, 4, 8, 16; not for `destinations`), NIDX, IDX; for `indexed` OP (GATHER: the index
// selects the source; SCATTER: the destination; FILL: the destination, which gets the value).
#include "common/elements.h"
#include "common/index_space.h"

#define GATHER 1
#define SCATTER 2
#define FILL 3

// Elements of 16 bytes are moved as pairs of longs.
#if BYTES == 16
#define VALUE value
#else
#define VALUE ((elem_t)value.x)
#endif
#define ELEMENT(p) (OP == FILL ? VALUE : *(__global const elem_t*)(p))

__kernel void indexed(BUF(o), BUF(s), INDEX_BUFS BUF(e), int code, ulong2 value, const IndexSpaceParams L) {
  __global int* err = PTR(e, int);
  const long begin = (long)get_global_id(0) * L.n_per_item, end = min(begin + L.n_per_item, L.n);
  long row = (long)get_global_id(1) * L.rows_per_item;
  const long last = min(row + L.rows_per_item, L.rows);
  if (row >= last || begin >= end) return;
  const long os = L.inner[0], ss = L.inner[1];
  row_t r = first_row(&L, row);
  for (;;) {
    __global uchar* o = o_buf + o_off + r.off[0];
    __global const uchar* s = s_buf + s_off + r.off[1];
    if (INDEX_FIXED) {
      const long at = INDEXED_OFFSET(0);
      if (OP == GATHER)
        s += at;
      else
        o += at;
      if (OP != FILL && os == BYTES && ss == BYTES) {
        copy_run((__global elem_t*)o + begin, (__global const elem_t*)s + begin, end - begin);
      } else {
        for (long j = begin; j < end; j++) *(__global elem_t*)(o + j * os) = ELEMENT(s + j * ss);
      }
    } else {
      for (long j = begin; j < end; j++) {
        const long at = INDEXED_OFFSET(j), from = OP == GATHER ? at : 0;
        *(__global elem_t*)(o + j * os + at - from) = ELEMENT(s + j * ss + from);
      }
    }
    if (++row >= last) break;
    next_row(&L, &r);
  }
}

// For GPUs in deterministic mode: where each row goes. No index changes along a row.
__kernel void destinations(BUF(o), BUF(s), INDEX_BUFS BUF(e), int code, BUF(keys), const IndexSpaceParams L) {
  const long row = get_global_id(0), j = 0;
  if (row >= L.rows) return;
  __global int* err = PTR(e, int);
  const row_t r = first_row(&L, row);
  PTR(keys, long)[row] = r.off[0] + INDEXED_OFFSET(j);
}
// Copies the last of the rows that go to one place. `order` holds the rows in the order of `keys`; a work-item takes an
// element.
__kernel void last_rows(BUF(o), BUF(s), INDEX_BUFS BUF(e), int code, BUF(keys), BUF(order), const IndexSpaceParams L) {
  const long item = get_global_id(0), i = item / L.n, j = item - i * L.n;
  if (i >= L.rows) return;
  const long key = PTR(keys, const long)[i];
  if (i + 1 < L.rows && PTR(keys, const long)[i + 1] == key) return;
  const row_t r = first_row(&L, PTR(order, const long)[i]);
  __global const uchar* s = s_buf + s_off + r.off[1] + j * L.inner[1];
  *(__global elem_t*)(o_buf + o_off + key + j * L.inner[0]) = *(__global const elem_t*)s;
}
