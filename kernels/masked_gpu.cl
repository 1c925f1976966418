// Compaction as in masked.cl, on GPUs: a work-group takes a chunk, tile by tile, in which a work-item takes EACH
// neighbours. -D: BYTES (element size), GROUP (work-items per work-group), IDX (i32, or i64 from 2^31 elements on).
#include "args/masked.h"
#include "common/dtypes.h"
#include "common/few.h"
#include "common/nonzero.h"
#include "common/sum_before.h"

#define EACH 4
#define TILE (GROUP * EACH)
typedef CTYPE(IDX) index_t;

// The rank of this work-item's first marked element, if it has `found` of them; `before` counts those of earlier tiles.
ALWAYS_INLINE long rank_in_tile(uint found, long* before, __local uint* sums) {
  uint total;
  const long rank = *before + sum_before(found, sums, &total);
  *before += total;
  barrier(CLK_LOCAL_MEM_FENCE);
  return rank;
}

// counts[0] becomes 0, and counts[k + 1] the number in chunk k.
__kernel FIXED_GROUP_SIZE void count(BUF(x), BUF(counts), const ChunkParams C) {
  __local uint sums[2 * GROUP];
  const long k = get_group_id(0), t = get_local_id(0), end = min((k + 1) * C.chunk, C.n);
  __global const elem_t* x = PTR(x, const elem_t);
  uint found = 0, total;
  for (long i = k * C.chunk + t; i < end; i += GROUP) found += ANY_BIT(x[i]) ? 1 : 0;
  sum_before(found, sums, &total);
  if (t > 0) return;
  PTR(counts, long)[k + 1] = total;
  if (k == 0) PTR(counts, long)[0] = 0;
}

__kernel FIXED_GROUP_SIZE void positions(BUF(o), BUF(x), BUF(counts), const ChunkParams C, const PositionParams L) {
  __local uint sums[2 * GROUP];
  const long k = get_group_id(0), end = min((k + 1) * C.chunk, C.n);
  __global const elem_t* x = PTR(x, const elem_t);
  __global const long* counts = PTR(counts, const long);
  long before = counts[k];
  const long limit = min(counts[k + 1], L.limit);
  for (long tile = k * C.chunk; tile < end && before < limit; tile += TILE) {
    const long first = tile + get_local_id(0) * EACH, last = min(first + EACH, end);
    uint found = 0;
    for (long i = first; i < last; i++) found += ANY_BIT(x[i]) ? 1 : 0;
    long rank = rank_in_tile(found, &before, sums);
    for (long i = first; i < last && rank < limit; i++) {
      if (!ANY_BIT(x[i])) continue;
      __global long* p = PTR(o, long) + rank++ * L.out_row;
      index_t rest = (index_t)i;
      FOR_FEW(d, 0, L.ndim - 1, kMaxPositionDims) {
        const index_t q = rest / (index_t)L.size[d];
        p[(L.ndim - 1 - d) * L.out_column] = rest - q * (index_t)L.size[d];
        rest = q;
      }
      p[0] = rest;
    }
  }
}

// Copies the marked elements of x in order or, if C.spreads, the elements of x in order to where the mask is set.
__kernel FIXED_GROUP_SIZE void move(BUF(o), BUF(x), BUF(m), BUF(counts), BUF(e), const ChunkParams C) {
  __local uint sums[2 * GROUP];
  const long k = get_group_id(0), end = min((k + 1) * C.chunk, C.n);
  __global const uchar* m = PTR(m, const uchar);
  __global const long* counts = PTR(counts, const long);
  long before = counts[k];
  const long limit = counts[k + 1];
  for (long tile = k * C.chunk; tile < end && before < limit; tile += TILE) {
    const long first = tile + get_local_id(0) * EACH, last = min(first + EACH, end);
    uint found = 0;
    for (long i = first; i < last; i++) found += m[i] ? 1 : 0;
    long rank = rank_in_tile(found, &before, sums);
    for (long i = first; i < last; i++) {
      if (!m[i]) continue;
      if (C.spreads && rank >= C.size)
        netcl_report(PTR(e, int), C.code, rank, C.size);
      else
        PTR(o, elem_t)[C.spreads ? i : rank] = PTR(x, const elem_t)[C.spreads ? rank : i];
      rank++;
    }
  }
}
