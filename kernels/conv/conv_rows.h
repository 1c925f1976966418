// Pixels along a row, for conv_direct.cl and conv_direct_weight.cl.
#include "conv/conv.h"

#if VEC > 1
// Loads VEC elements that are `step` apart; a step of 2 reads nothing beyond the last of them.
ALWAYS_INLINE VT load_row(__global const ST* p, long step) {
  if (step == 1) return CAT(VLOAD_, VEC)(0, p);
  if (step == 2) return (VT)(CAT(VLOAD_, VEC)(0, p).even, CAT(VLOAD_, VEC)(0, p + VEC - 1).odd);
  ST v[VEC];
  for (int k = 0; k < VEC; k++) v[k] = p[k * step];
  return CAT(VLOAD_, VEC)(0, v);
}
#endif
