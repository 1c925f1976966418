// Adds to an element of the compute type in global memory.
// -D: ACC; ATOMIC if other work-items may add to it at the same time, with BYTES, the size of an element.
#define OUT ACC
#define OP sum
#include "common/combine.h"

static inline void add_to(__global ST* p, ST v) { combine((__global uchar*)p, 0, v); }
