// -D: ACC.
#include "common/vector.h"

// A double of the host as two floats, since a device without fp64 takes no double as an argument.
#define WIDE(x) const float x, const float x##_low
#define WIDE_VALUE(x) ((ST)(x) + (ST)(x##_low))
#define WIDE_OF(x) ((ST)(x).high + (ST)(x).low)  // of a WideFloat
