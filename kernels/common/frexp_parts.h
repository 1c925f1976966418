// The two results of frexp, for generated kernels.
#include "unary.cl"

static inline VT frexp_mantissa(VT x) {
  VT exponent;
  return frexp_lanes(x, &exponent);
}
static inline VT frexp_exponent(VT x) {
  VT exponent;
  frexp_lanes(x, &exponent);
  return exponent;
}
#define OP_frexp_mantissa(x) frexp_mantissa(x)
#define OP_frexp_exponent(x) frexp_exponent(x)
