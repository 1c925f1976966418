// Whether an element of any dtype is not zero. -D: BYTES (element size).
#include "common/elements.h"

#if BYTES == 16
#define LOW(v) ((v).x)
#define HIGH(v) ((v).y)
#else
#define LOW(v) ((ulong)(v))
#define HIGH(v) 0
#endif

// An element counts as non-zero if it has a bit of `low` (`high`: for the second half of 16 bytes). These are all bits
// except the signs of floating-point numbers.
#define NONZERO_BITS ulong low, ulong high
#define NONZERO(v) (((LOW(v) & low) | (HIGH(v) & high)) != 0)
