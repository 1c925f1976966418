// The sum of a vector's lanes, in halves. -D: ACC, VEC (4, 8 or 16).
#ifndef NETCL_SUM_LANES_H
#define NETCL_SUM_LANES_H
#include "common/vector.h"

#define SUM_HALVES(v) ((v).lo + (v).hi)
static inline ST sum4(VTYPE(ACC, 4) v) {
  const VTYPE(ACC, 2) x = SUM_HALVES(v);
  return x.x + x.y;
}
#if VEC == 16
#define SUM_LANES(v) sum4(SUM_HALVES(SUM_HALVES(v)))
#elif VEC == 8
#define SUM_LANES(v) sum4(SUM_HALVES(v))
#else
#define SUM_LANES(v) sum4(v)
#endif

#endif
