// Declares the functions of OpenCL C that kernels call, for compilers that parse a header with all of them for each
// program. PoCL would read the 18,000 lines of clang's opencl-c.h twice, which takes most of the time of compiling a
// small kernel. netcl defines the include guard of that header, _OPENCL_H_ (csrc/runtime/ProgramCache.cpp), and the
// declarations below take its place. A program that needs another function does not compile this way; it is compiled
// again with the compiler's own header. If a function is declared here, so are its overloads for all types
// that kernels compute in (not half, see dtypes.h) and all vectors but those of 3: if some were missing, a call could
// choose the wrong one.
#if defined(NETCL_BUILTINS) && !defined(NETCL_BUILTINS_H)
#define NETCL_BUILTINS_H

#define BUILTIN_OVERLOADED __attribute__((overloadable))
#define BUILTIN_VALUE_OF BUILTIN_OVERLOADED __attribute__((const))
#define BUILTIN_READS BUILTIN_OVERLOADED __attribute__((pure))

// BUILTIN_… are macros of this file alone. M(T, V) for each vector width of a type.
#define BUILTIN_WIDTHS(M, T) M(T, ) M(T, 2) M(T, 4) M(T, 8) M(T, 16)
#define BUILTIN_VECTORS(M, T) M(T, 2) M(T, 4) M(T, 8) M(T, 16)
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define BUILTIN_DOUBLES(declarations) declarations
#else
#define BUILTIN_DOUBLES(declarations)
#endif
#define BUILTIN_FLOATS(M) BUILTIN_WIDTHS(M, float) BUILTIN_DOUBLES(BUILTIN_WIDTHS(M, double))
#define BUILTIN_FLOAT_VECTORS(M) BUILTIN_VECTORS(M, float) BUILTIN_DOUBLES(BUILTIN_VECTORS(M, double))
#define BUILTIN_TYPES(M) \
  M(char) M(uchar) M(short) M(ushort) M(int) M(uint) M(long) M(ulong) M(float) BUILTIN_DOUBLES(M(double))
#define BUILTIN_SIGNED(M) \
  BUILTIN_WIDTHS(M, char) BUILTIN_WIDTHS(M, short) BUILTIN_WIDTHS(M, int) BUILTIN_WIDTHS(M, long)
#define BUILTIN_UNSIGNED(M) \
  BUILTIN_WIDTHS(M, uchar) BUILTIN_WIDTHS(M, ushort) BUILTIN_WIDTHS(M, uint) BUILTIN_WIDTHS(M, ulong)
#define BUILTIN_INTEGERS(M) BUILTIN_SIGNED(M) BUILTIN_UNSIGNED(M)
#define BUILTIN_INTEGER_VECTORS(M) \
  BUILTIN_VECTORS(M, char)         \
  BUILTIN_VECTORS(M, short)        \
  BUILTIN_VECTORS(M, int)          \
  BUILTIN_VECTORS(M, long)         \
  BUILTIN_VECTORS(M, uchar) BUILTIN_VECTORS(M, ushort) BUILTIN_VECTORS(M, uint) BUILTIN_VECTORS(M, ulong)

// Functions of one floating-point argument.
#define BUILTIN_UNARY(T, V)                                                                                      \
  T##V BUILTIN_VALUE_OF acos(T##V), acosh(T##V), asin(T##V), asinh(T##V), atan(T##V), atanh(T##V), ceil(T##V),   \
      cos(T##V), cosh(T##V), cospi(T##V), erf(T##V), erfc(T##V), exp(T##V), exp2(T##V), expm1(T##V), fabs(T##V), \
      floor(T##V), lgamma(T##V), log(T##V), log10(T##V), log1p(T##V), log2(T##V), rint(T##V), round(T##V),       \
      rsqrt(T##V), sign(T##V), sin(T##V), sinh(T##V), sinpi(T##V), sqrt(T##V), tan(T##V), tanh(T##V), trunc(T##V);
BUILTIN_FLOATS(BUILTIN_UNARY)

// Functions of two and three arguments.
#define BUILTIN_BINARY(T, V)                                                                                           \
  T##V BUILTIN_VALUE_OF atan2(T##V, T##V), copysign(T##V, T##V), fmax(T##V, T##V), fmin(T##V, T##V), fmod(T##V, T##V), \
      hypot(T##V, T##V), nextafter(T##V, T##V), pow(T##V, T##V), remainder(T##V, T##V), fma(T##V, T##V, T##V),         \
      mad(T##V, T##V, T##V), ldexp(T##V, int##V);
BUILTIN_FLOATS(BUILTIN_BINARY)
#define BUILTIN_FREXP(T, V) \
  T##V BUILTIN_OVERLOADED frexp(T##V, __global int##V*), frexp(T##V, __local int##V*), frexp(T##V, __private int##V*);
BUILTIN_FLOATS(BUILTIN_FREXP)
#define BUILTIN_WITH_SCALAR(T, V) T##V BUILTIN_VALUE_OF fmax(T##V, T), fmin(T##V, T), ldexp(T##V, int);
BUILTIN_FLOAT_VECTORS(BUILTIN_WITH_SCALAR)
#define BUILTIN_EXTREMES(T, V) T##V BUILTIN_VALUE_OF min(T##V, T##V), max(T##V, T##V), clamp(T##V, T##V, T##V);
BUILTIN_INTEGERS(BUILTIN_EXTREMES)
BUILTIN_FLOATS(BUILTIN_EXTREMES)
#define BUILTIN_EXTREMES_WITH_SCALAR(T, V) T##V BUILTIN_VALUE_OF min(T##V, T), max(T##V, T), clamp(T##V, T, T);
BUILTIN_INTEGER_VECTORS(BUILTIN_EXTREMES_WITH_SCALAR)
BUILTIN_FLOAT_VECTORS(BUILTIN_EXTREMES_WITH_SCALAR)

// Functions of integers.
#define BUILTIN_OF_INTEGERS(T, V)                      \
  T##V BUILTIN_VALUE_OF clz(T##V), mul_hi(T##V, T##V); \
  u##T##V BUILTIN_VALUE_OF abs(T##V);
#define BUILTIN_OF_UNSIGNED(T, V) T##V BUILTIN_VALUE_OF clz(T##V), mul_hi(T##V, T##V), abs(T##V);
BUILTIN_SIGNED(BUILTIN_OF_INTEGERS)
BUILTIN_UNSIGNED(BUILTIN_OF_UNSIGNED)

// any(), all(), the classes of floats, and select().
#define BUILTIN_ANY_ALL(T, V) int BUILTIN_VALUE_OF any(T##V), all(T##V);
BUILTIN_SIGNED(BUILTIN_ANY_ALL)
#define BUILTIN_CLASSES(T, V, I) \
  I##V BUILTIN_VALUE_OF isfinite(T##V), isinf(T##V), isnan(T##V), isnormal(T##V), signbit(T##V);
#define BUILTIN_FLOAT_CLASSES(T, V) BUILTIN_CLASSES(T, V, int)
#define BUILTIN_DOUBLE_CLASSES(T, V) BUILTIN_CLASSES(T, V, long)
#define BUILTIN_SELECTS(T, V, I) T##V BUILTIN_VALUE_OF select(T##V, T##V, I##V), select(T##V, T##V, u##I##V);
#define BUILTIN_SELECT_SIGNED(T, V) BUILTIN_SELECTS(T, V, T) BUILTIN_SELECTS(u##T, V, T)
#define BUILTIN_SELECT_FLOAT(T, V) BUILTIN_SELECTS(T, V, int)
#define BUILTIN_SELECT_DOUBLE(T, V) BUILTIN_SELECTS(T, V, long)
BUILTIN_WIDTHS(BUILTIN_FLOAT_CLASSES, float)
BUILTIN_SIGNED(BUILTIN_SELECT_SIGNED)
BUILTIN_WIDTHS(BUILTIN_SELECT_FLOAT, float)
#ifdef cl_khr_fp64
int BUILTIN_VALUE_OF isfinite(double), isinf(double), isnan(double), isnormal(double), signbit(double);
BUILTIN_VECTORS(BUILTIN_DOUBLE_CLASSES, double)
BUILTIN_WIDTHS(BUILTIN_SELECT_DOUBLE, double)
#endif

// Conversions from each type to each other one.
#define BUILTIN_CONVERT_WIDTH(T, S, V) T##V BUILTIN_VALUE_OF convert_##T##V(S##V);
#define BUILTIN_CONVERT_FROM(T, S) \
  BUILTIN_CONVERT_WIDTH(T, S, )    \
  BUILTIN_CONVERT_WIDTH(T, S, 2)   \
  BUILTIN_CONVERT_WIDTH(T, S, 4) BUILTIN_CONVERT_WIDTH(T, S, 8) BUILTIN_CONVERT_WIDTH(T, S, 16)
#define BUILTIN_CONVERT_FROM_INTEGERS(T) \
  BUILTIN_CONVERT_FROM(T, char)          \
  BUILTIN_CONVERT_FROM(T, uchar)         \
  BUILTIN_CONVERT_FROM(T, short)         \
  BUILTIN_CONVERT_FROM(T, ushort)        \
  BUILTIN_CONVERT_FROM(T, int)           \
  BUILTIN_CONVERT_FROM(T, uint) BUILTIN_CONVERT_FROM(T, long) BUILTIN_CONVERT_FROM(T, ulong)
#define BUILTIN_CONVERT_TO(T) \
  BUILTIN_CONVERT_FROM_INTEGERS(T) BUILTIN_CONVERT_FROM(T, float) BUILTIN_DOUBLES(BUILTIN_CONVERT_FROM(T, double))
BUILTIN_TYPES(BUILTIN_CONVERT_TO)
#define BUILTIN_CONVERT_uchar_sat(S) uchar BUILTIN_VALUE_OF convert_uchar_sat(S);
BUILTIN_TYPES(BUILTIN_CONVERT_uchar_sat)

// Loads and stores of vectors. PoCL's own consist of accesses to two elements, which its optimizer does not always join
// again. So stores of long vectors to global memory are defined here, and with WHOLE_LOADS loads, too (without it, a
// sum of loaded vectors stays a sum of pairs). Not every kernel gains: layer norm's gradient takes 1.1 times as long
// with WHOLE_LOADS, and conv_gemm 1.15 times without SPLIT_STORES.
#define BUILTIN_LOAD_STORE_NEAR(T, V)                                                           \
  T##V BUILTIN_READS vload##V(size_t, const __constant T*), vload##V(size_t, const __local T*), \
      vload##V(size_t, const __private T*);                                                     \
  void BUILTIN_OVERLOADED vstore##V(T##V, size_t, __local T*), vstore##V(T##V, size_t, __private T*);
#define BUILTIN_LOAD_GLOBAL(T, V) T##V BUILTIN_READS vload##V(size_t, const __global T*);
#define BUILTIN_STORE_GLOBAL(T, V) void BUILTIN_OVERLOADED vstore##V(T##V, size_t, __global T*);
#ifdef WHOLE_LOADS
#define BUILTIN_LOAD_GLOBAL_LONG(T, V)                                       \
  static inline T##V BUILTIN_READS vload##V(size_t i, const __global T* p) { \
    return ((const __global unaligned_##T##V*)p)[i];                         \
  }
#else
#define BUILTIN_LOAD_GLOBAL_LONG(T, V) BUILTIN_LOAD_GLOBAL(T, V)
#endif
#ifdef SPLIT_STORES
#define BUILTIN_STORE_GLOBAL_LONG(T, V) BUILTIN_STORE_GLOBAL(T, V)
#else
#define BUILTIN_STORE_GLOBAL_LONG(T, V)                                              \
  static inline void BUILTIN_OVERLOADED vstore##V(T##V v, size_t i, __global T* p) { \
    ((__global unaligned_##T##V*)p)[i] = v;                                          \
  }
#endif
#define BUILTIN_LOAD_STORE_LONG(T, V)                                \
  typedef T##V unaligned_##T##V __attribute__((aligned(sizeof(T)))); \
  BUILTIN_LOAD_GLOBAL_LONG(T, V)                                     \
  BUILTIN_STORE_GLOBAL_LONG(T, V)
#define BUILTIN_LOAD_STORE_TYPE(T)            \
  BUILTIN_VECTORS(BUILTIN_LOAD_STORE_NEAR, T) \
  BUILTIN_LOAD_GLOBAL(T, 2)                   \
  BUILTIN_LOAD_GLOBAL(T, 4)                   \
  BUILTIN_STORE_GLOBAL(T, 2) BUILTIN_STORE_GLOBAL(T, 4) BUILTIN_LOAD_STORE_LONG(T, 8) BUILTIN_LOAD_STORE_LONG(T, 16)
BUILTIN_TYPES(BUILTIN_LOAD_STORE_TYPE)
#define BUILTIN_LOAD_HALF(T, V)                                                                                  \
  T##V BUILTIN_READS vload_half##V(size_t, const __constant half*), vload_half##V(size_t, const __global half*), \
      vload_half##V(size_t, const __local half*), vload_half##V(size_t, const __private half*);
#define BUILTIN_STORE_HALF(T, V)                                                                                     \
  void BUILTIN_OVERLOADED vstore_half##V(T##V, size_t, __global half*), vstore_half##V(T##V, size_t, __local half*), \
      vstore_half##V(T##V, size_t, __private half*);
BUILTIN_WIDTHS(BUILTIN_LOAD_HALF, float)
BUILTIN_FLOATS(BUILTIN_STORE_HALF)

// Work-items, barriers and atomics.
size_t BUILTIN_VALUE_OF get_global_id(uint), get_global_size(uint), get_group_id(uint);
size_t BUILTIN_VALUE_OF get_local_id(uint), get_local_size(uint), get_num_groups(uint);
void BUILTIN_OVERLOADED __attribute__((convergent)) barrier(cl_mem_fence_flags);
#define ATOMICS(A, T)                                                                                         \
  T BUILTIN_OVERLOADED atomic_add(volatile A T*, T), atomic_inc(volatile A T*), atomic_max(volatile A T*, T), \
      atomic_min(volatile A T*, T), atomic_or(volatile A T*, T), atomic_cmpxchg(volatile A T*, T, T),         \
      atom_cmpxchg(volatile A T*, T, T);
ATOMICS(__global, int)
ATOMICS(__global, uint)
ATOMICS(__local, int)
ATOMICS(__local, uint)
#ifdef cl_khr_int64_base_atomics
long BUILTIN_OVERLOADED atom_add(volatile __global long*, long);
long BUILTIN_OVERLOADED atom_cmpxchg(volatile __global long*, long, long);
ulong BUILTIN_OVERLOADED atom_cmpxchg(volatile __global ulong*, ulong, ulong);
long BUILTIN_OVERLOADED atom_cmpxchg(volatile __local long*, long, long);
ulong BUILTIN_OVERLOADED atom_cmpxchg(volatile __local ulong*, ulong, ulong);
#endif

// csrc/runtime/Kernel.cpp looks for this line.
#undef ATOMICS

#endif
