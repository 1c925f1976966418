// Every kernel file includes this: extensions, buffer arguments, token pasting, device-side assertions.
#include "common/builtins.h"

#ifdef HAVE_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#include "common/double_lanes.h"
#ifdef HAVE_INT64_ATOMICS
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#endif

// Clang's questions, for compilers that lack them: the answer is no.
#ifndef __has_attribute
#define __has_attribute(x) 0
#endif
#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
#ifndef __has_warning
#define __has_warning(x) 0
#endif

// Without AVX-512, PoCL's clang warns that vectors of 64 bytes would be passed differently with it. Nothing here is
// linked with code for another CPU.
#if __has_warning("-Wpsabi")
#pragma clang diagnostic ignored "-Wpsabi"
#endif

// On a CPU device a work-group is one work-item, unless a file defines WORK_GROUPS. If the compiler knows that, it
// makes one kernel that fits every launch, without loops over work-items and without vectors of them. Intel's compiler
// makes those vectors all the same unless it is told not to: nothing calls them, and with AVX-512 they take minutes for
// some kernels.
#if defined(DEVICE_CPU) && !defined(WORK_GROUPS)
#if __has_attribute(intel_vec_len_hint)
#define __kernel __attribute__((reqd_work_group_size(1, 1, 1), intel_vec_len_hint(1))) __kernel
#else
#define __kernel __attribute__((reqd_work_group_size(1, 1, 1))) __kernel
#endif
#endif

// For conditions in plain C.
#ifdef DEVICE_CPU
#define ON_CPU 1
#else
#define ON_CPU 0
#endif

// Of a kernel that is launched with groups of GROUP work-items only.
#define FIXED_GROUP_SIZE __attribute__((reqd_work_group_size(GROUP, 1, 1)))

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define CAT3_(a, b, c) a##b##c
#define CAT3(a, b, c) CAT3_(a, b, c)

// The class of a dtype's numbers, by its tag.
#define CLASS(A) CAT(class_, A)
#define class_f32 floating
#define class_f64 floating
#define class_i8 integer
#define class_i16 integer
#define class_i32 integer
#define class_i64 integer
#define class_u8 integer
#define class_u16 integer
#define class_u32 integer
#define class_u64 integer
#define class_bool truth
#define class_c64 complex
#define class_c128 complex
// Those that are only stored are classes of their own.
#define class_f16 f16
#define class_bf16 bf16
#define class_c32 c32
// What the tag ACC of the compute type says, and COMMON, the dtype that inputs are cast to. -D: perhaps ACC, COMMON.
#define is_floating_floating 1
#define is_complex_complex 1
#define is_truth_truth 1
#define is_double_f64 1
#define is_double_c128 1
#define is_wide_f64 1
#define is_wide_i64 1
#define is_wide_u64 1
#if defined(ACC) && CAT(is_floating_, CLASS(ACC))
#define ACC_FLOATING
#elif defined(ACC) && CAT(is_complex_, CLASS(ACC))
#define ACC_COMPLEX
#elif defined(ACC)
#define ACC_INTEGRAL
#endif
#if CAT(is_double_, ACC)  // made of doubles
#define ACC_DOUBLE
#endif
#if CAT(is_wide_, ACC)  // a number of 64 bits
#define ACC_WIDE
#endif
#if CAT(is_truth_, CLASS(COMMON))  // 0 or 1
#define ACC_BOOL
#endif

// A tensor argument is a buffer and a byte offset, since many tensors share one buffer. BUF(x) declares both; PTR(x,
// type) is the typed pointer.
#define BUF(name) __global uchar *name##_buf, ulong name##_off
#define PTR(name, type) ((__global type*)(name##_buf + name##_off))

// Prefetches the cache line of an address, which may lie beyond the buffer, into the second-level cache. Callers
// prefetch some KB ahead; in the first-level cache, one row and the next would evict each other.
#if defined(DEVICE_CPU) && defined(HAVE_CPU_BUILTINS)
#define FETCH_LINE(p) __builtin_prefetch((const void*)((ulong)(p)), 0, 2)
#else
#define FETCH_LINE(p) ((void)(p))
#endif

// Reports the first bad index: err[0] = code of the operator, err[1..2] = index (low, high), err[3] = size. The host
// raises IndexError at its next synchronising call.
static inline void netcl_report(__global int* err, int code, long index, long size) {
  if (atomic_cmpxchg(err, 0, code) == 0) {
    err[1] = (int)index;
    err[2] = (int)(index >> 32);
    err[3] = (int)size;
  }
}
// `index` may be as low as -size, as in PyTorch's advanced indexing. An index out of range is reported and becomes 0.
#define NETCL_ASSERT_INDEX(index, size, err, code)            \
  do {                                                        \
    if ((index) < -(long)(size) || (index) >= (long)(size)) { \
      netcl_report(err, code, (long)(index), (long)(size));   \
      (index) = 0;                                            \
    }                                                         \
  } while (0)
