// The number of the compute type that an argument holds.
#include "args/scalar.h"
#include "common/vector.h"

static inline ST scalar_of(Bits bits) {
  union {
    ulong2 bits;
    ST value;
  } scalar;
  scalar.bits = (ulong2)(bits.low, bits.high);
  return scalar.value;
}
