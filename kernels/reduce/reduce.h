// Shared by reductions and scans (kernels/scan.cl). They use these words:
//
//              reduced
//           +-----------+
//           |  | segment|
//     kept  |  |        |
//           +--+        |
//           |tile       |
//           +-----------+
//
//   kept     the dimensions that the result has
//   reduced  the dimensions that become one element (of a scan: those it runs along)
//   segment  a part of the reduced elements. If a reduction would leave the device idle, its elements are divided into
//            segments, whose results a second kernel merges. There are no atomics, and the order is fixed, so the
//            result is the same every time
//   tile     the outputs that a work-item computes side by side
//   lanes    the VEC elements of a vector. A CPU reads them along the reduced dimension (reduce_inner.cl) or along a
//            kept one (reduce_outer.cl). A GPU has lanes only along a dense reduced dimension (reduce_group.cl); else
//            neighbouring work-items take their place
//   panel    up to PANEL vectors side by side: the width of a tile
//   pivot    the first element, from which variances are measured
//
// -D: IN (storage tag), ACC (compute tag), VEC.
#include "common/dtypes.h"
#include "common/extremes.h"
#include "common/vector.h"

// Vectors of positions, as wide as the numbers there.
#if defined(ACC_WIDE)
#define INDEX i64
#else
#define INDEX i32
#endif
typedef CTYPE(INDEX) index_t;
typedef VTYPE(INDEX, VEC) index_vec_t;
typedef union {
  index_vec_t v;
  index_t s[VEC];
} index_lanes_t;

#if defined(ACC_COMPLEX)
#define TIMES(a, b) C_MUL(ST, a, b)
#define ONE ((ST)(1, 0))
#define IS_NAN(a) (isnan((a).x) || isnan((a).y))
#else
#define TIMES(a, b) ((a) * (b))
#define ONE 1
#define IS_NAN(a) isnan(a)
#endif

// --- reading and writing; strides count bytes ---------------------------------------------------------------------
typedef __global const uchar* src_t;
#define IN_PTR ((src_t)(in_buf + in_off))
#define ELEMENT ((long)sizeof(STORAGE(IN)))
#if CAT(is_complex_, CLASS(IN))&& !defined(ACC_COMPLEX)  // only the magnitude counts
#define READ1(p) hypot(((__global const STORAGE(IN)*)(p))->x, ((__global const STORAGE(IN)*)(p))->y)
#define READ(p) READ1(p)
#else
#define READ1(p) LOAD(IN, ACC, 1, (__global const STORAGE(IN)*)(p), 0)
#define READ(p) LOAD(IN, ACC, VEC, (__global const STORAGE(IN)*)(p), 0)
#endif
// The first `lanes` elements of a vector; the other lanes repeat the last of them.
static inline VT gather(src_t p, long stride, int lanes) {
  lanes_t r;
  if (lanes == VEC) {
    for (int k = 0; k < VEC; k++) r.s[k] = READ1(p + stride * k);
  } else {
    for (int k = 0; k < VEC; k++) r.s[k] = READ1(p + stride * min(k, lanes - 1));
  }
  return r.v;
}
#define WRITE(S, A, p, v) STORE(S, A, 1, (__global STORAGE(S)*)(p), 0, v)
