// What PoCL compiles kernels for, and whether its own functions can be inlined there.
#pragma once

#include "runtime/OpenCL.h"

namespace netcl {

// A distributed PoCL brings its built-in functions as bitcode for a few CPUs (haswell, skylake-avx512, …). If it
// calls this machine's CPU by another name, two things go wrong:
// - A CPU newer than its LLVM is "generic", which its own clang then refuses: every build fails.
// - LLVM inlines no function compiled for a CPU with a feature (tuning included) that the caller's lacks. On AMD's CPUs
//   each mad() and vload8() is then a call with its vectors in memory: matrix products at a tenth of the speed.
// Gives the device the name of that one of the library's CPUs whose instructions this machine has. Returns that name;
// null, having touched nothing, if the name is fine or the library was built for the machine's own CPU.
const char* repair_pocl_cpu_name(cl_device_id device, const char* platform_version, const char* device_version);

}  // namespace netcl
