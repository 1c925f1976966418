// Products with sparse matrices in CSR. -D: IO (storage tag of all numbers), IDX (i32 or i64), ACC, VEC (of the
// dense columns; 1 for complex numbers and on GPUs); OP: sum or mean for `spmm`, amax or amin for `spmm_extreme`.
#define GROUP 1
#include "common/rows.h"
#include "args/sparse.h"
#include "common/scalar.h"

DEFINE_LANES(IO)
#if defined(ACC_COMPLEX)
#define TIMES(a, b) C_MUL(ST, a, b)
#else
#define TIMES(a, b) ((a) * (b))
#endif
#define CSR BUF(crow), BUF(col), BUF(values)
#define COO BUF(row), BUF(col), BUF(values)
#define INDEX_AT(p, i) ((long)PTR(p, const STORAGE(IDX))[i])
#define VALUE_AT(p, i) LOAD(IO, ACC, 1, PTR(p, const STORAGE(IO)), i)
typedef STORAGE(IO) stored_t;

// An index that was never checked: one outside [0, size) is reported and becomes 0.
static inline long checked(long i, long size, __global int* err, int code) {
  if ((ulong)i < (ulong)size) return i;
  netcl_report(err, code, i, size);
  return 0;
}
#define ERR PTR(err, int), P.code
#define COLUMN(k) checked(INDEX_AT(col, k), P.inner, ERR)
#define FIRST_OF(row) max(INDEX_AT(crow, row), 0L)
#define LAST_OF(row) min(INDEX_AT(crow, (row) + 1), P.nnz)

#define RESULT_sum(sum) (sum)
#define RESULT_mean(sum) ((sum) / (ST)max(last - first, 1L))
#define RESULT CAT(RESULT_, OP)

// The rows and columns of a work-item: all columns of P.per rows, or an element on a GPU, where neighbouring work-items
// take neighbouring columns.
#define PART                                                                                          \
  const long item = get_global_id(0), begin = ON_CPU ? item * P.per : item / P.n;                     \
  const long end = min(begin + (ON_CPU ? P.per : 1), P.rows), left = ON_CPU ? 0 : item - begin * P.n; \
  const long right = ON_CPU ? P.n : left + 1;

// alpha * sum + beta * add, where `add` is null if beta is 0.
#define FINISH(p, i, lanes, sum)                                                               \
  {                                                                                            \
    VT total_ = TIMES(alpha, sum);                                                             \
    if (add_buf) total_ += TIMES(beta, LOAD_LANES(IO, PTR(add, const stored_t), i, lanes, 0)); \
    STORE_LANES(IO, p, i, lanes, total_);                                                      \
  }

// Rows of the product: `tiles` vectors of columns at once stay in registers, while the row's elements are read.
#define TILE 4
__kernel void spmm(BUF(out), BUF(add), CSR, BUF(dense), BUF(err), const SpmmParams P) {
  PART const ST alpha = scalar_of(P.alpha), beta = scalar_of(P.beta);
  __global stored_t* o = PTR(out, stored_t);
  __global const stored_t* d = PTR(dense, const stored_t);
  for (long row = begin; row < end; row++) {
    const long first = FIRST_OF(row), last = LAST_OF(row);
    long c = left;
    for (; c + TILE * VEC <= right; c += TILE * VEC) {
      VT sum[TILE];
      UNROLL for (int t = 0; t < TILE; t++)
        sum[t] = (VT)(0);
      for (long k = first; k < last; k++) {
        const ST v = VALUE_AT(values, k);
        __global const stored_t* x = d + COLUMN(k) * P.stride + c;
        UNROLL for (int t = 0; t < TILE; t++)
          sum[t] += TIMES(v, LOAD(IO, ACC, VEC, x, t * VEC));
      }
      UNROLL for (int t = 0; t < TILE; t++)
        FINISH(o, row * P.n + c + t * VEC, VEC, RESULT(sum[t]))
    }
    for (; c < right; c += VEC) {
      const int lanes = LANES(c, right);
      VT sum = (VT)(0);
      for (long k = first; k < last; k++)
        sum += TIMES(VALUE_AT(values, k), LOAD_LANES(IO, d, COLUMN(k) * P.stride + c, lanes, 0));
      FINISH(o, row * P.n + c, lanes, RESULT(sum))
    }
  }
}

#define BETTER_amax(a, b) ((a) > (b) || (a) != (a))
#define BETTER_amin(a, b) ((a) < (b) || (a) != (a))
#define COLUMNS (ON_CPU ? 16 : 1)
// The extreme product of each row and column, and the element that it comes from. A CPU's work-item takes some columns
// at once.
__kernel void spmm_extreme(BUF(out), BUF(arg), CSR, BUF(dense), BUF(err), const SpmmParams P) {
  PART for (long row = begin; row < end; row++) {
    const long first = FIRST_OF(row), last = LAST_OF(row);
    for (long c = left; c < right; c += COLUMNS) {
      const int width = (int)min((long)COLUMNS, right - c);
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
          const ST product = v * LOAD(IO, ACC, 1, x, t);
          if (k == first || CAT(BETTER_, OP)(product, best[t])) {
            best[t] = product;
            place[t] = k;
          }
        }
      }
      for (int t = 0; t < width; t++) {
        STORE(IO, ACC, 1, PTR(out, stored_t), row * P.n + c + t, best[t]);
        PTR(arg, long)[row * P.n + c + t] = place[t];
      }
    }
  }
}

// out[i] = alpha * (a[row[i]] . b[col[i]]) + beta * values[i], for contiguous rows of a and b; `values` may be null.
__kernel void sampled(BUF(out), COO, BUF(a), BUF(b), BUF(err), const SampledParams P) {
  const long begin = (long)get_global_id(0) * P.per, end = min(begin + P.per, P.nnz);
  for (long i = begin; i < end; i++) {
    __global const stored_t* x = PTR(a, const stored_t) + checked(INDEX_AT(row, i), P.rows, ERR) * P.k;
    __global const stored_t* y = PTR(b, const stored_t) + checked(INDEX_AT(col, i), P.columns, ERR) * P.k;
    VT sums = (VT)(0);
    for (long c = 0; c < P.k; c += VEC) {
      const int lanes = LANES(c, P.k);
      sums += TIMES(LOAD_LANES(IO, x, c, lanes, 0), LOAD_LANES(IO, y, c, lanes, 0));
    }
    ST total = TIMES(scalar_of(P.alpha), sum_lanes(sums));
    if (values_buf) total += TIMES(scalar_of(P.beta), VALUE_AT(values, i));
    STORE(IO, ACC, 1, PTR(out, stored_t), i, total);
  }
}
