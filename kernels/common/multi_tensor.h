// One launch over many tensors; csrc/aten/support/MultiTensor.h is the host's part. Work-group g handles chunk g of
// kChunk elements; the table tells which tensor it belongs to. A row of the table is: first chunk, length, scalar, then
// COLUMNS words of (slab << 56 | byte offset).
// -D: ACC (compute tag), VEC, GROUP (work-items per group; 1 on a CPU), COLUMNS.
#include "args/multi_tensor.h"

// Defaults, for programs that have no chunks.
#ifndef ACC
#define ACC f32
#endif
#ifndef VEC
#define VEC 16
#define GROUP 1
#define COLUMNS 6
#endif
#include "common/vector.h"

#define MT_HEADER 3
#define MT_WORDS (MT_HEADER + COLUMNS)

#define MT_PARAMS                                                                                     \
  __global uchar *m0, __global uchar *m1, __global uchar *m2, __global uchar *m3, __global uchar *m4, \
      __global uchar *m5, __global uchar *m6, __global uchar *m7, BUF(table), const long mt_rows, const long mt_base

typedef struct {
  __global uchar *m0, *m1, *m2, *m3, *m4, *m5, *m6, *m7;
} slabs_t;
#define MT_SLABS const slabs_t mt_slabs = {m0, m1, m2, m3, m4, m5, m6, m7};

// The address that a word of the table says.
ALWAYS_INLINE __global uchar* mt_address(const slabs_t* s, ulong word) {
  const int k = (int)(word >> 56);
  __global uchar* lo = k < 2 ? (k == 0 ? s->m0 : s->m1) : (k == 2 ? s->m2 : s->m3);
  __global uchar* hi = k < 6 ? (k == 4 ? s->m4 : s->m5) : (k == 6 ? s->m6 : s->m7);
  return (k < 4 ? lo : hi) + (word & 0x00ffffffffffffffUL);
}

// The row that holds `chunk`: the last row whose first chunk is not after it.
static inline __global const ulong* mt_find(__global const ulong* table, long rows, long chunk) {
  long lo = 0, hi = rows - 1;
  while (lo < hi) {
    const long mid = (lo + hi + 1) >> 1;
    if ((long)table[mid * MT_WORDS] <= chunk)
      lo = mid;
    else
      hi = mid - 1;
  }
  return table + lo * MT_WORDS;
}

// The chunk of this work-group: its row, and its elements [mt_begin, mt_end).
#define MT_CHUNK                                                                      \
  MT_SLABS                                                                            \
  const long mt_chunk = get_group_id(0);                                              \
  const int mt_lane = get_local_id(0);                                                \
  __global const ulong* mt_row = mt_find(PTR(table, const ulong), mt_rows, mt_chunk); \
  const long mt_begin = (mt_chunk - (long)mt_row[0]) * kChunk;                        \
  const long mt_end = min(mt_begin + kChunk, (long)mt_row[1]);
// The row of this work-item, for launches of one work-item per row.
#define MT_ROW \
  MT_SLABS     \
  __global const ulong* mt_row = PTR(table, const ulong) + get_global_id(0) * MT_WORDS;

// Column k of the row, as a pointer to storage type S.
#define MT_PTR(k, S) ((__global STORAGE(S)*)mt_address(&mt_slabs, mt_row[MT_HEADER + (k)]))
#ifdef ACC_DOUBLE
#define MT_SCALAR as_double(mt_row[2])
#else
#define MT_SCALAR as_float((uint)mt_row[2])
#endif

// Runs BODY(V, i) for all elements of the chunk: vectors of VEC, then one by one.
#define MT_FOR_EACH(BODY)                                                               \
  {                                                                                     \
    const long mt_tail = mt_begin + (mt_end - mt_begin) / VEC * VEC;                    \
    for (long i = mt_begin + mt_lane * VEC; i < mt_tail; i += GROUP * VEC) BODY(VEC, i) \
    for (long i = mt_tail + mt_lane; i < mt_end; i += GROUP) BODY(1, i)                 \
  }
