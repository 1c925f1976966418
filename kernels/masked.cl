// Masks: masked_fill, and on CPUs compaction (nonzero, masked_select, masked_scatter) in three steps: count per chunk,
// scan of the counts by one work-item, move. -D: BYTES (element size).
#include "args/masked.h"
#include "common/dtypes.h"
#include "common/elements.h"
#include "common/few.h"
#include "common/nonzero.h"

// The value is the element at v if v is given, else `imm`.
__kernel void masked_fill(BUF(o), BUF(m), BUF(v), ulong2 imm, const MaskedFillParams L) {
  const long begin = (long)get_global_id(0) * L.n_per_item, end = min(begin + L.n_per_item, L.n);
  const long last = min((long)(get_global_id(1) + 1) * L.rows_per_item, L.rows);
#if BYTES == 16
  elem_t value = imm;
#else
  elem_t value = (elem_t)imm.x;
#endif
  if (v_buf) value = *PTR(v, const elem_t);
  for (long row = (long)get_global_id(1) * L.rows_per_item; row < last; row++) {
    __global uchar* o = PTR(o, uchar);
    __global const uchar* m = PTR(m, const uchar);
    long rest = row;
    FOR_FEW(d, 0, L.ndim, kMaxFillOuter) {
      const long q = rest / L.size[d], at = rest - q * L.size[d];
      o += at * L.out_stride[d];
      m += at * L.mask_stride[d];
      rest = q;
    }
    long j = begin;
#if BYTES < 16
    if (L.out_inner == BYTES && L.mask_inner == 1) {
      for (; j + 16 <= end; j += 16) {
        const uchar16 on = vload16(0, m + j);
        __global elem_t* p = (__global elem_t*)o + j;
#define MASK16(T) (CAT3(convert_, T, 16)(on) != (CAT(T, 16))(0))
#if BYTES == 1
        vstore16(select(vload16(0, p), (uchar16)(value), MASK16(uchar)), 0, p);
#elif BYTES == 2
        vstore16(select(vload16(0, p), (ushort16)(value), MASK16(ushort)), 0, p);
#elif BYTES == 4
        vstore16(select(vload16(0, p), (uint16)(value), MASK16(uint)), 0, p);
#else
        vstore16(select(vload16(0, p), (ulong16)(value), MASK16(ulong)), 0, p);
#endif
      }
    }
#endif
    for (; j < end; j++) {
      if (m[j * L.mask_inner]) *(__global elem_t*)(o + j * L.out_inner) = value;
    }
  }
}

__kernel void count(BUF(x), BUF(counts), const ChunkParams C) {
  const long k = get_global_id(0), begin = k * C.chunk, end = min(begin + C.chunk, C.n);
  if (begin >= C.n) return;
  __global const elem_t* x = PTR(x, const elem_t);
  long found = 0;
  for (long i = begin; i < end; i++) found += ANY_BIT(x[i]) ? 1 : 0;
  PTR(counts, long)[k] = found;
}
__kernel void scan(BUF(counts), long n) {
  __global long* counts = PTR(counts, long);
  long sum = 0;
  for (long i = 0; i < n; i++) {
    const long c = counts[i];
    counts[i] = sum;
    sum += c;
  }
  counts[n] = sum;
}

__kernel void positions(BUF(o), BUF(x), BUF(counts), const ChunkParams C, const PositionParams L) {
  const long k = get_global_id(0), begin = k * C.chunk, end = min(begin + C.chunk, C.n);
  if (begin >= C.n) return;
  __global const elem_t* x = PTR(x, const elem_t);
  __global long* o = PTR(o, long);
  __global const long* counts = PTR(counts, const long);
  long rank = counts[k];
  const long limit = min(counts[k + 1], L.limit);
  const long inner = L.ndim > 1 ? L.size[0] : C.n;
  long row = begin / inner, column = begin - row * inner;
  for (long i = begin; i < end && rank < limit; i++) {
    // Writes before it is known whether the element counts. This avoids a branch, and the next element overwrites it.
    __global long* p = o + rank * L.out_row;
    p[(L.ndim - 1) * L.out_column] = column;
    if (L.ndim == 2) p[0] = row;
    const int counts_in = ANY_BIT(x[i]);
    if (L.ndim > 2 && counts_in) {
      long rest = row;
      FOR_FEW(d, 1, L.ndim - 1, kMaxPositionDims) {
        const long q = rest / L.size[d];
        p[(L.ndim - 1 - d) * L.out_column] = rest - q * L.size[d];
        rest = q;
      }
      p[0] = rest;
    }
    rank += counts_in;
    if (++column == inner) {
      column = 0;
      row++;
    }
  }
}

// Copies the marked elements of x in order or, if C.spreads, the elements of x in order to where the mask is set.
__kernel void move(BUF(o), BUF(x), BUF(m), BUF(counts), BUF(e), const ChunkParams C) {
  const long k = get_global_id(0), begin = k * C.chunk, end = min(begin + C.chunk, C.n);
  if (begin >= C.n) return;
  __global const uchar* m = PTR(m, const uchar);
  __global elem_t* o = PTR(o, elem_t);
  __global const elem_t* x = PTR(x, const elem_t);
  long rank = PTR(counts, const long)[k];
  const long limit = PTR(counts, const long)[k + 1];
  // Stores before it is known whether the element is marked, which avoids a branch.
  for (long i = begin; !C.spreads && i < end && rank < limit; i++) {
    o[rank] = x[i];
    rank += m[i] != 0;
  }
  for (long i = begin; C.spreads && i < end; i++) {
    if (!m[i]) continue;
    if (rank >= C.size) {
      netcl_report(PTR(e, int), C.code, rank, C.size);
      return;
    }
    o[i] = x[rank++];
  }
}
