// JOIN_LANES(name, A, op) defines name(v): the lanes of a vector of VEC elements of tag A joined by `op`, in halves.
// sum_lanes(v) is that of ACC, if it is defined, and +. -D: VEC.
#include "common/vector.h"

#define JOIN_1(A, op, v) return v;
#define JOIN_2(A, op, v) return op((v).lo, (v).hi);
#define JOIN_4(A, op, v)                     \
  const VTYPE(A, 2) v2 = op((v).lo, (v).hi); \
  JOIN_2(A, op, v2)
#define JOIN_8(A, op, v)                     \
  const VTYPE(A, 4) v4 = op((v).lo, (v).hi); \
  JOIN_4(A, op, v4)
#define JOIN_16(A, op, v)                    \
  const VTYPE(A, 8) v8 = op((v).lo, (v).hi); \
  JOIN_8(A, op, v8)
#define JOIN_LANES(name, A, op) \
  static inline CTYPE(A) name(VTYPE(A, VEC) v) { CAT(JOIN_, VEC)(A, op, v) }
#define PLUS(a, b) ((a) + (b))
#ifdef ACC
JOIN_LANES(sum_lanes, ACC, PLUS)
#endif
