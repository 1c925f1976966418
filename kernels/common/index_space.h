// The iteration space of every indexed operator: an inner dimension of n elements, up to kMaxIndexOuter outer ones, a
// destination, a source, and NIDX index tensors that are read at each position. Index k adds index * index_stride[k]
// bytes to the offset of the operand that it selects from. See kernels/args/index_space.h.
// -D: NIDX (0 to 8), IDX (dtype tag of the indices).
#include "args/index_space.h"
#include "common/vector.h"

// The position of the current row; it advances like an odometer, so only the start needs divisions.
typedef struct {
  long at[kMaxIndexOuter];
  long off[NIDX + 2];
} row_t;

static inline row_t first_row(const IndexSpaceParams* L, long row) {
  row_t r;
  UNROLL for (int k = 0; k < NIDX + 2; k++)
    r.off[k] = 0;
  UNROLL for (int d = 0; d < kMaxIndexOuter; d++)
    r.at[d] = 0;
#if defined(DEVICE_GPU)
  // No index may vary, and no branches may share a load: see offsets_at(). A missing dimension adds nothing.
  UNROLL for (int d = 0; d < kMaxIndexOuter; d++) {
    const long size = L->size[d], q = d + 1 < L->ndim ? row / size : 0;
    r.at[d] = row - q * size;
    row = q;
    UNROLL for (int k = 0; k < NIDX + 2; k++)
      r.off[k] += r.at[d] * L->stride[d][k];
  }
#else
  for (int d = 0; d < L->ndim; d++) {
    const long q = row / L->size[d];
    r.at[d] = row - q * L->size[d];
    row = q;
    UNROLL for (int k = 0; k < NIDX + 2; k++)
      r.off[k] += r.at[d] * L->stride[d][k];
  }
#endif
  return r;
}
static inline void next_row(const IndexSpaceParams* L, row_t* r) {
#if defined(DEVICE_GPU)
  int step = 1;
  UNROLL for (int d = 0; d < kMaxIndexOuter; d++) {
    const long next = r->at[d] + 1, size = L->size[d];
    const int wraps = next == size;
    const long by = !step ? 0 : wraps ? 1 - size : 1;
    UNROLL for (int k = 0; k < NIDX + 2; k++)
      r->off[k] += by * L->stride[d][k];
    r->at[d] += by;
    step &= wraps;
  }
#else
  for (int d = 0; d < L->ndim; d++) {
    if (++r->at[d] < L->size[d]) {
      UNROLL for (int k = 0; k < NIDX + 2; k++)
        r->off[k] += L->stride[d][k];
      return;
    }
    r->at[d] = 0;
    UNROLL for (int k = 0; k < NIDX + 2; k++)
      r->off[k] -= (L->size[d] - 1) * L->stride[d][k];
  }
#endif
}

// The bytes that index k adds; a bad index is reported and becomes 0.
static inline long lookup(const IndexSpaceParams* L, int k, long index, __global int* err, int code) {
  const long size = L->index_size[k];
  if (index >= size || index < (L->wrap ? -size : 0)) {
    netcl_report(err, code, index, size);
    index = 0;
  }
  return (index < 0 ? index + size : index) * L->index_stride[k];
}

#if NIDX > 0
typedef STORAGE(IDX) idx_t;
#define READ_INDEX(k) \
  lookup(L, k, (long)*(__global const idx_t*)(i##k + r->off[2 + k] + j * L->inner[2 + k]), err, code)
#define IDX_FIXED_0 (L.inner[2] == 0)
#define IDX_BUF_0 BUF(i0),
#define IDX_ARG_0 , i0_buf + i0_off
#define IDX_PARAM_0 , __global const uchar* i0
#define IDX_SUM_0 READ_INDEX(0)
#else
#define IDX_FIXED_0 1
#define IDX_BUF_0
#define IDX_ARG_0
#define IDX_PARAM_0
#define IDX_SUM_0 0
#endif
#if NIDX > 1
#define IDX_FIXED_1 &&(L.inner[3] == 0)
#define IDX_BUF_1 BUF(i1),
#define IDX_ARG_1 , i1_buf + i1_off
#define IDX_PARAM_1 , __global const uchar* i1
#define IDX_SUM_1 +READ_INDEX(1)
#else
#define IDX_FIXED_1
#define IDX_BUF_1
#define IDX_ARG_1
#define IDX_PARAM_1
#define IDX_SUM_1
#endif
#if NIDX > 2
#define IDX_FIXED_2 &&(L.inner[4] == 0)
#define IDX_BUF_2 BUF(i2),
#define IDX_ARG_2 , i2_buf + i2_off
#define IDX_PARAM_2 , __global const uchar* i2
#define IDX_SUM_2 +READ_INDEX(2)
#else
#define IDX_FIXED_2
#define IDX_BUF_2
#define IDX_ARG_2
#define IDX_PARAM_2
#define IDX_SUM_2
#endif
// With more than three index tensors, 8 arguments are declared; those that are missing repeat the last one with a
// stride of 0.
#if NIDX > 3
#define IDX_FIXED_3 &&(L.inner[5] == 0 && L.inner[6] == 0 && L.inner[7] == 0 && L.inner[8] == 0 && L.inner[9] == 0)
#define IDX_BUF_3 BUF(i3), BUF(i4), BUF(i5), BUF(i6), BUF(i7),
#define IDX_ARG_3 , i3_buf + i3_off, i4_buf + i4_off, i5_buf + i5_off, i6_buf + i6_off, i7_buf + i7_off
#define IDX_PARAM_3                                                                                         \
  , __global const uchar *i3, __global const uchar *i4, __global const uchar *i5, __global const uchar *i6, \
      __global const uchar *i7
#define IDX_SUM_3 +READ_INDEX(3) + READ_INDEX(4) + READ_INDEX(5) + READ_INDEX(6) + READ_INDEX(7)
#else
#define IDX_FIXED_3
#define IDX_BUF_3
#define IDX_ARG_3
#define IDX_PARAM_3
#define IDX_SUM_3
#endif

// Whether all indices are constant along the inner dimension: a row is then one contiguous lookup.
#define INDEX_FIXED (IDX_FIXED_0 IDX_FIXED_1 IDX_FIXED_2 IDX_FIXED_3)
#define INDEX_BUFS IDX_BUF_0 IDX_BUF_1 IDX_BUF_2 IDX_BUF_3
#define INDEX_ARGS IDX_ARG_0 IDX_ARG_1 IDX_ARG_2 IDX_ARG_3

static inline long indexed_offset(const IndexSpaceParams* L, const row_t* r, long j, __global int* err,
                                  int code IDX_PARAM_0 IDX_PARAM_1 IDX_PARAM_2 IDX_PARAM_3) {
  return IDX_SUM_0 IDX_SUM_1 IDX_SUM_2 IDX_SUM_3;
}
#define INDEXED_OFFSET(j) indexed_offset(&L, &r, j, err, code INDEX_ARGS)
