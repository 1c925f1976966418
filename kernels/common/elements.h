// elem_t: an unsigned integer, or a pair of them, of BYTES bytes, for kernels that move elements of any dtype.
// -D: BYTES (1, 2, 4, 8, 16).
#include "common/common.h"

#if BYTES == 1
typedef uchar elem_t;
#elif BYTES == 2
typedef ushort elem_t;
#elif BYTES == 4
typedef uint elem_t;
#elif BYTES == 8
typedef ulong elem_t;
#else
typedef ulong2 elem_t;
#endif

// The last vector of a run begins earlier if it would not be whole, and repeats some elements.
#define COPY_LAST(V)                                           \
  if (n >= V) {                                                \
    CAT(vstore, V)(CAT(vload, V)(0, s), 0, d);                 \
    CAT(vstore, V)(CAT(vload, V)(0, s + n - V), 0, d + n - V); \
    return;                                                    \
  }
static inline void copy_run(__global elem_t* d, __global const elem_t* s, long n) {
#if defined(BYTES) && BYTES < 16  // `destinations` of indexing.cl moves none
  if (n >= 16) {
    for (long j = 0; j + 16 <= n; j += 16) vstore16(vload16(0, s + j), 0, d + j);
    if (n % 16) vstore16(vload16(0, s + n - 16), 0, d + n - 16);
    return;
  }
  COPY_LAST(8)
  COPY_LAST(4)
#endif
  for (long j = 0; j < n; j++) d[j] = s[j];
}
