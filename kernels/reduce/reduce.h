// What reductions and scans (kernels/scan.cl) share, and their words:
//
//              reduced
//           +-----------+     kept     dimensions that the result has
//           |  | segment|     reduced  those that become one element (a scan's: those it runs along)
//     kept  |  |        |     segment  a part of the reduced elements. A reduction that would leave the device idle is
//     cut
//           +--+        |              in segments; a second kernel merges what they make. No atomics, no order that
//           |tile       |              changes: the same result every time
//           +-----------+     tile     the outputs that a work-item makes side by side
//
//   lanes   elements of a vector, VEC of them: a CPU reads them along the reduced dimension (reduce_inner.cl) or along
//   a
//           kept one (reduce_outer.cl). A GPU has one lane, and neighbours in place of lanes
//   panel   up to PANEL vectors side by side: the width of a tile
//   pivot   the first element: what variances are measured from
//
// -D: IN (storage tag), ACC (compute tag), VEC, ACC_FLOATING | ACC_INTEGRAL | ACC_COMPLEX, ACC_WIDE (indices have 64
// bits), IN_ABS (a complex input, of which only the magnitude counts).
#ifndef NETCL_REDUCE_H
#define NETCL_REDUCE_H
#include "common/dtypes.h"
#include "common/extremes.h"
#include "common/vector.h"

// Vectors of places, as wide as the numbers that stand there.
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
#define ELEMENT ((long)sizeof(STORAGE(IN)))
#if defined(IN_ABS)
#define READ1(p) hypot(((__global const STORAGE(IN)*)(p))->x, ((__global const STORAGE(IN)*)(p))->y)
#define READ(p) READ1(p)
#else
#define READ1(p) LOAD(IN, ACC, 1, (__global const STORAGE(IN)*)(p), 0)
#define READ(p) LOAD(IN, ACC, VEC, (__global const STORAGE(IN)*)(p), 0)
#endif
// The first `lanes` elements of a vector, and the last one of them in the other lanes.
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

#endif
