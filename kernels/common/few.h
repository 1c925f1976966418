// Loops over arrays of a few elements.

// for (int i = from; i < n; i++), if n is at most `most`. A GPU's registers have no index: arrays that a loop counts
// through lie in its memory, unless the loop is unrolled.
#ifdef DEVICE_GPU
#define FOR_FEW(i, from, n, most) _Pragma("unroll") for (int i = (from); i < (most); i++) if (i < (n))
#else
#define FOR_FEW(i, from, n, most) for (int i = (from); i < (n); i++)
#endif
