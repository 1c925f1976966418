// elem_t: an unsigned integer, or a pair of them, of BYTES bytes, for kernels that move elements of any dtype.
// -D: BYTES (1, 2, 4, 8, 16).
#ifndef NETCL_ELEMENTS_H
#define NETCL_ELEMENTS_H

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

#endif
