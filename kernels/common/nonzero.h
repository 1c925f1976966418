// Whether an element of any dtype is not zero, by the caller's ChunkParams C. -D: BYTES (element size).
#include "common/elements.h"

#if BYTES == 16
#define LOW(v) ((v).x)
#define HIGH(v) ((v).y)
#else
#define LOW(v) ((ulong)(v))
#define HIGH(v) 0
#endif
#define ANY_BIT(v) (((LOW(v) & C.low) | (HIGH(v) & C.high)) != 0)
