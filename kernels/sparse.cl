// Products with sparse matrices in CSR. -D: VAL (storage tag of all numbers), INDEX (i32 or i64), ACC, VEC (of the
// dense columns; 1 for complex numbers and on GPUs); MEAN to divide the sum of each row by the number of
// its elements; WHICH (greatest, least).
#define LS 1
#include "common/rows.h"
#include "args/sparse.h"

DEFINE_LANES(VAL)
#if defined(ACC_COMPLEX)
#define TIMES(a, b) C_MUL(ST, a, b)
#else
#define TIMES(a, b) ((a) * (b))
#endif
#define INDEX_AT(p, i) ((long)PTR(p, const STORAGE(INDEX))[i])
#define VALUE_AT(p, i) LOAD(VAL, ACC, 1, PTR(p, const STORAGE(VAL)), i)
typedef STORAGE(VAL) stored_t;

// An index that was never checked: one outside [0, size) is reported and becomes 0.
static inline long checked(long i, long size, __global int* err, int code) {
  if ((ulong)i < (ulong)size) return i;
  netcl_report(err, code, i, size);
  return 0;
}
#define ERR PTR(err, int), code
#define COLUMN(k) checked(INDEX_AT(col, k), P.inner, ERR)
#define FIRST_OF(row) max(INDEX_AT(crow, row), 0L)
#define LAST_OF(row) min(INDEX_AT(crow, (row) + 1), P.nnz)

#if defined(MEAN)
#define AVERAGE(sum) ((sum) / (ST)max(last - first, 1L))
#else
#define AVERAGE(sum) (sum)
#endif

// alpha * sum + beta * add, where `add` is null if beta is 0.
#define FINISH(p, i, lanes, sum)                                                                \
  {                                                                                             \
    VT total_ = TIMES(alpha, sum);                                                              \
    if (add_buf) total_ += TIMES(beta, LOAD_LANES(VAL, PTR(add, const stored_t), i, lanes, 0)); \
    STORE_LANES(VAL, p, i, lanes, total_);                                                      \
  }

// Rows of the product: `tiles` vectors of columns at once stay in registers, while the row's elements are read.
#define TILE 4
__kernel void spmm(BUF(out), BUF(add), BUF(crow), BUF(col), BUF(values), BUF(dense), BUF(err), int code,
                   const SpmmParams P, const ST alpha, const ST beta) {
  const long begin = (long)get_global_id(0) * P.per, end = min(begin + P.per, P.rows);
  __global stored_t* o = PTR(out, stored_t);
  __global const stored_t* d = PTR(dense, const stored_t);
  for (long row = begin; row < end; row++) {
    const long first = FIRST_OF(row), last = LAST_OF(row);
    long c = 0;
    for (; c + TILE * VEC <= P.n; c += TILE * VEC) {
      VT sum[TILE];
      UNROLL for (int t = 0; t < TILE; t++)
        sum[t] = (VT)(0);
      for (long k = first; k < last; k++) {
        const ST v = VALUE_AT(values, k);
        __global const stored_t* x = d + COLUMN(k) * P.stride + c;
        UNROLL for (int t = 0; t < TILE; t++)
          sum[t] += TIMES(v, LOAD(VAL, ACC, VEC, x, t * VEC));
      }
      UNROLL for (int t = 0; t < TILE; t++)
        FINISH(o, row * P.n + c + t * VEC, VEC, AVERAGE(sum[t]))
    }
    for (; c < P.n; c += VEC) {
      const int lanes = LANES(c, P.n);
      VT sum = (VT)(0);
      for (long k = first; k < last; k++)
        sum += TIMES(VALUE_AT(values, k), LOAD_LANES(VAL, d, COLUMN(k) * P.stride + c, lanes, 0));
      FINISH(o, row * P.n + c, lanes, AVERAGE(sum))
    }
  }
}

// The same on a GPU: neighbouring work-items take neighbouring columns of a row.
__kernel void spmm_each(BUF(out), BUF(add), BUF(crow), BUF(col), BUF(values), BUF(dense), BUF(err), int code,
                        const SpmmParams P, const ST alpha, const ST beta) {
  const long i = get_global_id(0), row = i / P.n, c = i - row * P.n;
  if (row >= P.rows) return;
  const long first = FIRST_OF(row), last = LAST_OF(row);
  ST sum = (ST)(0);
  for (long k = first; k < last; k++)
    sum += TIMES(VALUE_AT(values, k), LOAD(VAL, ACC, 1, PTR(dense, const stored_t), COLUMN(k) * P.stride + c));
  FINISH(PTR(out, stored_t), i, 1, AVERAGE(sum))
}

#if defined(WHICH)
#define BETTER_greatest(a, b) ((a) > (b) || (a) != (a))
#define BETTER_least(a, b) ((a) < (b) || (a) != (a))
#if defined(DEVICE_GPU)
#define COLUMNS 1
#else
#define COLUMNS 16
#endif
// The extreme product of each row and column, and the element that it comes from. A work-item takes some columns at
// once: on a GPU one, on a CPU all, for `per` rows.
__kernel void spmm_extreme(BUF(out), BUF(arg), BUF(crow), BUF(col), BUF(values), BUF(dense), BUF(err), int code,
                           const SpmmParams P) {
  const long id = get_global_id(0);
#if defined(DEVICE_GPU)
  const long begin = id / P.n, end = min(begin + 1, P.rows), c0 = id - begin * P.n, c1 = c0 + 1;
#else
  const long begin = id * P.per, end = min(begin + P.per, P.rows), c0 = 0, c1 = P.n;
#endif
  for (long row = begin; row < end; row++) {
    const long first = FIRST_OF(row), last = LAST_OF(row);
    for (long c = c0; c < c1; c += COLUMNS) {
      const int width = (int)min((long)COLUMNS, c1 - c);
      ST best[COLUMNS];
      long place[COLUMNS];
      for (int t = 0; t < width; t++) {
        best[t] = 0;
        place[t] = P.nnz;
      }
      for (long k = first; k < last; k++) {
        const ST v = VALUE_AT(values, k);
        __global const stored_t* x = PTR(dense, const stored_t) + COLUMN(k) * P.stride + c;
        for (int t = 0; t < width; t++) {
          const ST product = v * LOAD(VAL, ACC, 1, x, t);
          if (k == first || CAT(BETTER_, WHICH)(product, best[t])) {
            best[t] = product;
            place[t] = k;
          }
        }
      }
      for (int t = 0; t < width; t++) {
        STORE(VAL, ACC, 1, PTR(out, stored_t), row * P.n + c + t, best[t]);
        PTR(arg, long)[row * P.n + c + t] = place[t];
      }
    }
  }
}
#endif

// out[i] = alpha * (a[row[i]] . b[col[i]]) + beta * add[i], for contiguous rows of a and b.
__kernel void sampled(BUF(out), BUF(add), BUF(row), BUF(col), BUF(a), BUF(b), BUF(err), int code, const SampledParams P,
                      const ST alpha, const ST beta) {
  const long begin = (long)get_global_id(0) * P.per, end = min(begin + P.per, P.nnz);
  for (long i = begin; i < end; i++) {
    __global const stored_t* x = PTR(a, const stored_t) + checked(INDEX_AT(row, i), P.rows, ERR) * P.k;
    __global const stored_t* y = PTR(b, const stored_t) + checked(INDEX_AT(col, i), P.columns, ERR) * P.k;
    VT sums = (VT)(0);
    for (long c = 0; c < P.k; c += VEC) {
      const int lanes = LANES(c, P.k);
      sums += TIMES(LOAD_LANES(VAL, x, c, lanes, 0), LOAD_LANES(VAL, y, c, lanes, 0));
    }
    ST total = TIMES(alpha, sum_lanes(sums));
    if (add_buf) total += TIMES(beta, VALUE_AT(add, i));
    STORE(VAL, ACC, 1, PTR(out, stored_t), i, total);
  }
}
