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

// M(0) M(1) … for the index tensors. With more than three, 8 arguments are declared; those that are missing repeat the
// last one with a stride of 0.
#define EACH_0(M)
#define EACH_1(M) M(0)
#define EACH_2(M) EACH_1(M) M(1)
#define EACH_3(M) EACH_2(M) M(2)
#define EACH_8(M) EACH_3(M) M(3) M(4) M(5) M(6) M(7)
#define EACH_INDEX(M) CAT(EACH_, NIDX)(M)
#define IDX_BUF(k) BUF(i##k),
#define IDX_ARG(k) , i##k##_buf + i##k##_off
#define IDX_PARAM(k) , __global const uchar* i##k
#define IDX_FIXED(k) &&L.inner[2 + k] == 0
#define IDX_OFFSET(k) \
  +lookup(L, k, (long)*(__global const STORAGE(IDX)*)(i##k + r->off[2 + k] + j * L->inner[2 + k]), err, code)
#define INDEX_BUFS EACH_INDEX(IDX_BUF)
// Whether all indices are constant along the inner dimension: a row is then one contiguous lookup.
#define INDEX_FIXED (1 EACH_INDEX(IDX_FIXED))

static inline long indexed_offset(const IndexSpaceParams* L, const row_t* r, long j, __global int* err,
                                  int code EACH_INDEX(IDX_PARAM)) {
  return 0 EACH_INDEX(IDX_OFFSET);
}
#define INDEXED_OFFSET(j) indexed_offset(&L, &r, j, err, code EACH_INDEX(IDX_ARG))
