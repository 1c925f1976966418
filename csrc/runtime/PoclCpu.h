// Which CPU PoCL compiles kernels for, and whether its built-in functions can be inlined there.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/OpenCL.h"

namespace netcl {

// A distribution's PoCL contains its built-in functions as bitcode for a few CPUs (haswell, skylake-avx512, …). If it
// uses another name for this machine's CPU, two things go wrong:
// - PoCL calls a CPU newer than its LLVM "generic"; its own clang then refuses that name, and every build fails.
// - LLVM does not inline a function that was compiled with a CPU feature (tuning included) that the caller lacks. On
//   AMD's CPUs each mad() and vload8() is then a call with its vectors in memory, and matrix products run at a tenth of
//   the speed.
// This gives the device the name of a CPU that the library has bitcode for and whose instructions this machine has.
// Returns that name, and where in the device object the pointer to it lies; or nothing, without a change, if the name
// is fine or the library was built for the machine's own CPU. It holds for this process, so a process that builds
// programs for this one must do the same (torch_netcl/_builder.py).
struct PoclCpu {
  const char* name;
  size_t offset;  // in bytes
};
std::optional<PoclCpu> repair_pocl_cpu_name(cl_device_id device, const char* platform_version,
                                            const char* device_version);

// Whether the loader will find a release of PoCL whose devices are called "pthread" and "basic". Asks the library
// itself, which lists no devices for it.
bool pocl_has_basic();

// PoCL's devices "pthread" and "basic" run the same code, but a binary names the device that it was made for. Returns
// the binary of `device` as one for `other`; empty if it has another form than expected.
std::vector<unsigned char> pocl_binary_for(cl_device_id other, cl_device_id device, std::vector<unsigned char> binary);

}  // namespace netcl
