// kernels/args holds the structs that the host passes to kernels, in one definition that OpenCL C and C++ both read.
// They hold only fixed-width numbers. SAME_SIZE makes each compiler check the size.
#pragma once

#ifdef __OPENCL_VERSION__
typedef int int32_t;
typedef long int64_t;
typedef uint uint32_t;
typedef ulong uint64_t;
#define BEGIN_ARGS
#define END_ARGS
#define SAME_SIZE(type, bytes) typedef char type##_size_t[sizeof(type) == (bytes) ? 1 : -1];
#define CONSTANT(name, value) enum { name = value };
// A struct in which a kernel's -D options determine a type or an array's length.
#define TEMPLATE_STRUCT(parameters, name) \
  typedef struct name name;               \
  struct name
#else
#include <cstdint>
#define BEGIN_ARGS namespace netcl {
#define END_ARGS }
#define SAME_SIZE(type, bytes) static_assert(sizeof(type) == (bytes));
#define CONSTANT(name, value) constexpr int name = value;
#define TEMPLATE_STRUCT(parameters, name) \
  template <parameters>                   \
  struct name
#endif
