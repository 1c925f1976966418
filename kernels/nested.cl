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

static inline void fill_elements(__global elem_t* to, elem_t value, long n) {
  for (long j = 0; j < n; j++) to[j] = value;
}

#if BYTES == 16
#define PADDING ((elem_t)(P.padding.low, P.padding.high))
#else
#define PADDING ((elem_t)P.padding.low)
#endif

// A work-item takes (P.part rows of a padded sequence, sequence); on a GPU, one element of a sequence.
__kernel void to_padded(BUF(padded), BUF(values), BUF(offsets), BUF(err), const NestedParams P) {
  const long b = get_global_id(1), length = P.length, run = P.run;
  if (b >= P.batch) return;
  const long2 rows = rows_of(OFFSET(b), OFFSET(b + 1), P.total, PTR(err, int), P.code);
  __global elem_t* to = PTR(padded, elem_t) + b * length * run;
  __global const elem_t* from = PTR(values, const elem_t) + rows.x * run;
#ifdef DEVICE_CPU
  const long first = (long)get_global_id(0) * P.part, last = min(first + P.part, length);
  const long filled = clamp(rows.y, first, max(first, last));
  copy_run(to + first * run, from + first * run, (filled - first) * run);
  if (last > filled) fill_elements(to + filled * run, PADDING, (last - filled) * run);
#else
  const long i = get_global_id(0);
  if (i < length * run) to[i] = i < rows.y * run ? from[i] : PADDING;
#endif
}

// A work-item takes (a share of a sequence's rows, sequence); on a GPU, every n-th element of a sequence. Rows beyond
// the padded length become zero.
__kernel void from_padded(BUF(values), BUF(padded), BUF(offsets), BUF(err), const NestedParams P) {
  const long b = get_global_id(1), share = get_global_id(0), shares = P.part, length = P.length, run = P.run;
  if (b >= P.batch || share >= shares) return;
  const long2 rows = rows_of(OFFSET(b), OFFSET(b + 1), P.total, PTR(err, int), P.code);
  __global elem_t* to = PTR(values, elem_t) + rows.x * run;
  __global const elem_t* from = PTR(padded, const elem_t) + b * length * run;
#ifdef DEVICE_CPU
  const long per = (rows.y + shares - 1) / shares, first = share * per, last = min(first + per, rows.y);
  if (first >= last) return;
  const long filled = clamp(length, first, last);
  copy_run(to + first * run, from + first * run, (filled - first) * run);
  fill_elements(to + filled * run, (elem_t)(0), (last - filled) * run);
#else
  for (long i = share; i < rows.y * run; i += shares) to[i] = i < length * run ? from[i] : (elem_t)(0);
#endif
}
