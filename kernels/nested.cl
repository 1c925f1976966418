// Sequences of different lengths, one after another in `values` [total, run], and padded to `length` each in `padded`
// [batch, length, run]: sequence b is the rows offsets[b] to offsets[b + 1] of values. Whole elements are moved.
// -D: BYTES (1, 2, 4, 8, 16) of an element, IDX (i32 or i64).
#include "args/nested.h"
#include "common/dtypes.h"
#include "common/elements.h"

#define OFFSET(b) LOAD(IDX, i64, 1, PTR(offsets, const STORAGE(IDX)), b)

// The rows of sequence b as (first, count). Rows outside of values are reported and skipped.
static inline long2 rows_of(long begin, long end, long total, __global int* err, int code) {
  if (begin < 0 || end < begin || end > total) {
    netcl_report(err, code, begin < 0 ? begin : end, total);
    return (long2)(0, 0);
  }
  return (long2)(begin, end - begin);
}

#if BYTES == 16
#define PADDING ((elem_t)(P.padding.low, P.padding.high))
#else
#define PADDING ((elem_t)P.padding.low)
#endif

// Fills the padded sequences from values if P.pads, else values from them. A work-item takes (a share of a sequence's
// rows, sequence); on a GPU, every n-th element of a sequence. What the source lacks becomes P.padding.
__kernel void copy_sequences(BUF(to), BUF(from), BUF(offsets), BUF(err), const NestedParams P) {
  const long b = get_global_id(1), share = get_global_id(0), shares = P.shares, run = P.run;
  if (b >= P.batch || share >= shares) return;
  const long2 rows = rows_of(OFFSET(b), OFFSET(b + 1), P.total, PTR(err, int), P.code);
  const long wanted = P.pads ? P.length : rows.y, given = P.pads ? rows.y : P.length;
  __global elem_t* to = PTR(to, elem_t) + (P.pads ? b * P.length : rows.x) * run;
  __global const elem_t* from = PTR(from, const elem_t) + (P.pads ? rows.x : b * P.length) * run;
  for (long i = share; !ON_CPU && i < wanted * run; i += shares) to[i] = i < given * run ? from[i] : PADDING;
  if (!ON_CPU) return;
  const long per = (wanted + shares - 1) / shares, first = share * per, last = min(first + per, wanted);
  if (first >= last) return;
  const long filled = clamp(given, first, last);
  copy_run(to + first * run, from + first * run, (filled - first) * run);
  for (long i = filled * run; i < last * run; i++) to[i] = PADDING;
}
