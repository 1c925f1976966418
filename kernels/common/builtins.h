// Declares the functions of OpenCL C that kernels call, for compilers that parse a header with all of them for each
// program. PoCL would read the 18,000 lines of clang's opencl-c.h twice, which takes most of the time of compiling a
// small kernel. netcl defines the include guard of that header, _OPENCL_H_ (csrc/runtime/ProgramCache.cpp), and the
// declarations below take its place. A program that needs another function does not compile this way; it is compiled
// again with the compiler's own header. If a function is declared here, so are its overloads for all types
// that kernels compute in (not half, see dtypes.h) and all vectors but those of 3: if some were missing, a call could
// choose the wrong one.
#if defined(NETCL_BUILTINS) && !defined(NETCL_BUILTINS_H)
#define NETCL_BUILTINS_H

#define OVERLOADED __attribute__((overloadable))
#define VALUE_OF OVERLOADED __attribute__((const))
#define READS OVERLOADED __attribute__((pure))

// M(T, V) for each vector width of a type.
#define WIDTHS(M, T) M(T, ) M(T, 2) M(T, 4) M(T, 8) M(T, 16)
#define VECTORS(M, T) M(T, 2) M(T, 4) M(T, 8) M(T, 16)
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define FLOATS(M) WIDTHS(M, float) WIDTHS(M, double)
#define FLOAT_VECTORS(M) VECTORS(M, float) VECTORS(M, double)
#define TYPES(M) M(char) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong) M(float) M(double)
#else
#define FLOATS(M) WIDTHS(M, float)
#define FLOAT_VECTORS(M) VECTORS(M, float)
#define TYPES(M) M(char) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong) M(float)
#endif
#define SIGNED(M) WIDTHS(M, char) WIDTHS(M, short) WIDTHS(M, int) WIDTHS(M, long)
#define UNSIGNED(M) WIDTHS(M, uchar) WIDTHS(M, ushort) WIDTHS(M, uint) WIDTHS(M, ulong)
#define INTEGERS(M) SIGNED(M) UNSIGNED(M)
#define INTEGER_VECTORS(M) \
  VECTORS(M, char)         \
  VECTORS(M, short)        \
  VECTORS(M, int) VECTORS(M, long) VECTORS(M, uchar) VECTORS(M, ushort) VECTORS(M, uint) VECTORS(M, ulong)

// Functions of one floating-point argument.
#define UNARY(T, V)           \
  T##V VALUE_OF acos(T##V);   \
  T##V VALUE_OF acosh(T##V);  \
  T##V VALUE_OF asin(T##V);   \
  T##V VALUE_OF asinh(T##V);  \
  T##V VALUE_OF atan(T##V);   \
  T##V VALUE_OF atanh(T##V);  \
  T##V VALUE_OF ceil(T##V);   \
  T##V VALUE_OF cos(T##V);    \
  T##V VALUE_OF cosh(T##V);   \
  T##V VALUE_OF cospi(T##V);  \
  T##V VALUE_OF erf(T##V);    \
  T##V VALUE_OF erfc(T##V);   \
  T##V VALUE_OF exp(T##V);    \
  T##V VALUE_OF exp2(T##V);   \
  T##V VALUE_OF expm1(T##V);  \
  T##V VALUE_OF fabs(T##V);   \
  T##V VALUE_OF floor(T##V);  \
  T##V VALUE_OF lgamma(T##V); \
  T##V VALUE_OF log(T##V);    \
  T##V VALUE_OF log10(T##V);  \
  T##V VALUE_OF log1p(T##V);  \
  T##V VALUE_OF log2(T##V);   \
  T##V VALUE_OF rint(T##V);   \
  T##V VALUE_OF round(T##V);  \
  T##V VALUE_OF rsqrt(T##V);  \
  T##V VALUE_OF sign(T##V);   \
  T##V VALUE_OF sin(T##V);    \
  T##V VALUE_OF sinh(T##V);   \
  T##V VALUE_OF sinpi(T##V);  \
  T##V VALUE_OF sqrt(T##V);   \
  T##V VALUE_OF tan(T##V);    \
  T##V VALUE_OF tanh(T##V);   \
  T##V VALUE_OF trunc(T##V);
FLOATS(UNARY)

// Functions of two and three arguments.
#define BINARY(T, V)                   \
  T##V VALUE_OF atan2(T##V, T##V);     \
  T##V VALUE_OF copysign(T##V, T##V);  \
  T##V VALUE_OF fmax(T##V, T##V);      \
  T##V VALUE_OF fmin(T##V, T##V);      \
  T##V VALUE_OF fmod(T##V, T##V);      \
  T##V VALUE_OF hypot(T##V, T##V);     \
  T##V VALUE_OF nextafter(T##V, T##V); \
  T##V VALUE_OF pow(T##V, T##V);       \
  T##V VALUE_OF remainder(T##V, T##V); \
  T##V VALUE_OF fma(T##V, T##V, T##V); \
  T##V VALUE_OF mad(T##V, T##V, T##V); \
  T##V VALUE_OF ldexp(T##V, int##V);
FLOATS(BINARY)
#define FREXP(T, V)                              \
  T##V OVERLOADED frexp(T##V, __global int##V*); \
  T##V OVERLOADED frexp(T##V, __local int##V*);  \
  T##V OVERLOADED frexp(T##V, __private int##V*);
FLOATS(FREXP)
#define WITH_SCALAR(T, V)      \
  T##V VALUE_OF fmax(T##V, T); \
  T##V VALUE_OF fmin(T##V, T); \
  T##V VALUE_OF ldexp(T##V, int);
FLOAT_VECTORS(WITH_SCALAR)
#define EXTREMES(T, V)           \
  T##V VALUE_OF min(T##V, T##V); \
  T##V VALUE_OF max(T##V, T##V); \
  T##V VALUE_OF clamp(T##V, T##V, T##V);
INTEGERS(EXTREMES)
FLOATS(EXTREMES)
#define EXTREMES_WITH_SCALAR(T, V) \
  T##V VALUE_OF min(T##V, T);      \
  T##V VALUE_OF max(T##V, T);      \
  T##V VALUE_OF clamp(T##V, T, T);
INTEGER_VECTORS(EXTREMES_WITH_SCALAR)
FLOAT_VECTORS(EXTREMES_WITH_SCALAR)

// Functions of integers.
#define OF_INTEGERS(T, V)           \
  T##V VALUE_OF clz(T##V);          \
  T##V VALUE_OF mul_hi(T##V, T##V); \
  u##T##V VALUE_OF abs(T##V);
#define OF_UNSIGNED(T, V)           \
  T##V VALUE_OF clz(T##V);          \
  T##V VALUE_OF mul_hi(T##V, T##V); \
  T##V VALUE_OF abs(T##V);
SIGNED(OF_INTEGERS)
UNSIGNED(OF_UNSIGNED)

// any(), all(), the classes of floats, and select().
#define ANY_ALL(T, V)     \
  int VALUE_OF any(T##V); \
  int VALUE_OF all(T##V);
SIGNED(ANY_ALL)
#define CLASSES(T, V, I)        \
  I##V VALUE_OF isfinite(T##V); \
  I##V VALUE_OF isinf(T##V);    \
  I##V VALUE_OF isnan(T##V);    \
  I##V VALUE_OF isnormal(T##V); \
  I##V VALUE_OF signbit(T##V);
#define FLOAT_CLASSES(T, V) CLASSES(T, V, int)
#define DOUBLE_CLASSES(T, V) CLASSES(T, V, long)
#define SELECTS(T, V, I)                  \
  T##V VALUE_OF select(T##V, T##V, I##V); \
  T##V VALUE_OF select(T##V, T##V, u##I##V);
#define SELECT_SIGNED(T, V) SELECTS(T, V, T) SELECTS(u##T, V, T)
#define SELECT_FLOAT(T, V) SELECTS(T, V, int)
#define SELECT_DOUBLE(T, V) SELECTS(T, V, long)
WIDTHS(FLOAT_CLASSES, float)
SIGNED(SELECT_SIGNED)
WIDTHS(SELECT_FLOAT, float)
#ifdef cl_khr_fp64
int VALUE_OF isfinite(double);
int VALUE_OF isinf(double);
int VALUE_OF isnan(double);
int VALUE_OF isnormal(double);
int VALUE_OF signbit(double);
VECTORS(DOUBLE_CLASSES, double)
WIDTHS(SELECT_DOUBLE, double)
#endif

// Conversions from each type to each other one.
#define CONVERT_WIDTH(T, S, V) T##V VALUE_OF convert_##T##V(S##V);
#define CONVERT_FROM(T, S) \
  CONVERT_WIDTH(T, S, ) CONVERT_WIDTH(T, S, 2) CONVERT_WIDTH(T, S, 4) CONVERT_WIDTH(T, S, 8) CONVERT_WIDTH(T, S, 16)
#define CONVERT_char(S) CONVERT_FROM(char, S)
#define CONVERT_uchar(S) CONVERT_FROM(uchar, S)
#define CONVERT_short(S) CONVERT_FROM(short, S)
#define CONVERT_ushort(S) CONVERT_FROM(ushort, S)
#define CONVERT_int(S) CONVERT_FROM(int, S)
#define CONVERT_uint(S) CONVERT_FROM(uint, S)
#define CONVERT_long(S) CONVERT_FROM(long, S)
#define CONVERT_ulong(S) CONVERT_FROM(ulong, S)
#define CONVERT_float(S) CONVERT_FROM(float, S)
#define CONVERT_uchar_sat(S) uchar VALUE_OF convert_uchar_sat(S);
TYPES(CONVERT_char)
TYPES(CONVERT_uchar)
TYPES(CONVERT_short)
TYPES(CONVERT_ushort)
TYPES(CONVERT_int)
TYPES(CONVERT_uint)
TYPES(CONVERT_long)
TYPES(CONVERT_ulong)
TYPES(CONVERT_float)
TYPES(CONVERT_uchar_sat)
#ifdef cl_khr_fp64
#define CONVERT_double(S) CONVERT_FROM(double, S)
TYPES(CONVERT_double)
#endif

// Loads and stores of vectors. PoCL's own consist of accesses to two elements, which its optimizer does not always join
// again. So stores of long vectors to global memory are defined here, and with WHOLE_LOADS loads, too (without it, a
// sum of loaded vectors stays a sum of pairs). Not every kernel gains: layer norm's gradient takes 1.1 times as long
// with WHOLE_LOADS, and conv_gemm 1.15 times without SPLIT_STORES.
#define LOAD_STORE_NEAR(T, V)                          \
  T##V READS vload##V(size_t, const __constant T*);    \
  T##V READS vload##V(size_t, const __local T*);       \
  T##V READS vload##V(size_t, const __private T*);     \
  void OVERLOADED vstore##V(T##V, size_t, __local T*); \
  void OVERLOADED vstore##V(T##V, size_t, __private T*);
#define LOAD_GLOBAL(T, V) T##V READS vload##V(size_t, const __global T*);
#define STORE_GLOBAL(T, V) void OVERLOADED vstore##V(T##V, size_t, __global T*);
#ifdef WHOLE_LOADS
#define LOAD_GLOBAL_LONG(T, V) \
  static inline T##V READS vload##V(size_t i, const __global T* p) { return ((const __global unaligned_##T##V*)p)[i]; }
#else
#define LOAD_GLOBAL_LONG(T, V) LOAD_GLOBAL(T, V)
#endif
#ifdef SPLIT_STORES
#define STORE_GLOBAL_LONG(T, V) STORE_GLOBAL(T, V)
#else
#define STORE_GLOBAL_LONG(T, V) \
  static inline void OVERLOADED vstore##V(T##V v, size_t i, __global T* p) { ((__global unaligned_##T##V*)p)[i] = v; }
#endif
#define LOAD_STORE_LONG(T, V)                                        \
  typedef T##V unaligned_##T##V __attribute__((aligned(sizeof(T)))); \
  LOAD_GLOBAL_LONG(T, V)                                             \
  STORE_GLOBAL_LONG(T, V)
#define LOAD_STORE_TYPE(T)    \
  VECTORS(LOAD_STORE_NEAR, T) \
  LOAD_GLOBAL(T, 2)           \
  LOAD_GLOBAL(T, 4)           \
  STORE_GLOBAL(T, 2) STORE_GLOBAL(T, 4) LOAD_STORE_LONG(T, 8) LOAD_STORE_LONG(T, 16)
TYPES(LOAD_STORE_TYPE)
#define LOAD_HALF(T, V)                                     \
  T##V READS vload_half##V(size_t, const __constant half*); \
  T##V READS vload_half##V(size_t, const __global half*);   \
  T##V READS vload_half##V(size_t, const __local half*);    \
  T##V READS vload_half##V(size_t, const __private half*);
#define STORE_HALF(T, V)                                        \
  void OVERLOADED vstore_half##V(T##V, size_t, __global half*); \
  void OVERLOADED vstore_half##V(T##V, size_t, __local half*);  \
  void OVERLOADED vstore_half##V(T##V, size_t, __private half*);
WIDTHS(LOAD_HALF, float)
FLOATS(STORE_HALF)

// Work-items, barriers and atomics.
size_t VALUE_OF get_global_id(uint);
size_t VALUE_OF get_global_size(uint);
size_t VALUE_OF get_group_id(uint);
size_t VALUE_OF get_local_id(uint);
size_t VALUE_OF get_local_size(uint);
size_t VALUE_OF get_num_groups(uint);
void OVERLOADED __attribute__((convergent)) barrier(cl_mem_fence_flags);
#define ATOMICS(A, T)                               \
  T OVERLOADED atomic_add(volatile A T*, T);        \
  T OVERLOADED atomic_cmpxchg(volatile A T*, T, T); \
  T OVERLOADED atomic_inc(volatile A T*);           \
  T OVERLOADED atomic_max(volatile A T*, T);        \
  T OVERLOADED atomic_min(volatile A T*, T);        \
  T OVERLOADED atomic_or(volatile A T*, T);         \
  T OVERLOADED atom_cmpxchg(volatile A T*, T, T);
ATOMICS(__global, int)
ATOMICS(__global, uint)
ATOMICS(__local, int)
ATOMICS(__local, uint)
#ifdef cl_khr_int64_base_atomics
long OVERLOADED atom_add(volatile __global long*, long);
long OVERLOADED atom_cmpxchg(volatile __global long*, long, long);
ulong OVERLOADED atom_cmpxchg(volatile __global ulong*, ulong, ulong);
long OVERLOADED atom_cmpxchg(volatile __local long*, long, long);
ulong OVERLOADED atom_cmpxchg(volatile __local ulong*, ulong, ulong);
#endif

// The macros above are for this file alone.
#undef OVERLOADED
#undef VALUE_OF
#undef READS
#undef WIDTHS
#undef VECTORS
#undef FLOATS
#undef FLOAT_VECTORS
#undef TYPES
#undef SIGNED
#undef UNSIGNED
#undef INTEGERS
#undef INTEGER_VECTORS
#undef UNARY
#undef BINARY
#undef FREXP
#undef WITH_SCALAR
#undef EXTREMES
#undef EXTREMES_WITH_SCALAR
#undef OF_INTEGERS
#undef OF_UNSIGNED
#undef ANY_ALL
#undef CLASSES
#undef FLOAT_CLASSES
#undef DOUBLE_CLASSES
#undef SELECTS
#undef SELECT_SIGNED
#undef SELECT_FLOAT
#undef SELECT_DOUBLE
#undef CONVERT_WIDTH
#undef CONVERT_FROM
#undef CONVERT_char
#undef CONVERT_uchar
#undef CONVERT_short
#undef CONVERT_ushort
#undef CONVERT_int
#undef CONVERT_uint
#undef CONVERT_long
#undef CONVERT_ulong
#undef CONVERT_float
#undef CONVERT_uchar_sat
#undef CONVERT_double
#undef LOAD_STORE
#undef LOAD_STORE_TYPE
#undef LOAD_HALF
#undef STORE_HALF
#undef ATOMICS

#endif
