// Which CPU PoCL compiles kernels for, and whether its built-in functions can be inlined there.
#pragma once

#include "runtime/OpenCL.h"

namespace netcl {

// A distribution's PoCL contains its built-in functions as bitcode for a few CPUs (haswell, skylake-avx512, …). If it
// uses another name for this machine's CPU, two things go wrong:
// - PoCL calls a CPU newer than its LLVM "generic"; its own clang then refuses that name, and every build fails.
// - LLVM does not inline a function that was compiled with a CPU feature (tuning included) that the caller lacks. On
//   AMD's CPUs each mad() and vload8() is then a call with its vectors in memory, and matrix products run at a tenth of
//   the speed.
// This gives the device the name of a CPU that the library has bitcode for and whose instructions this machine has.
// Returns that name; or null, without a change, if the name is fine or the library was built for the machine's own CPU.
const char* repair_pocl_cpu_name(cl_device_id device, const char* platform_version, const char* device_version);

}  // namespace netcl
