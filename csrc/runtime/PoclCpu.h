// PoCL's LLVM may not know a CPU that is newer than itself.
#pragma once

#include "runtime/OpenCL.h"

namespace netcl {

// PoCL 3.0 (LLVM 14) names a CPU it does not know "generic", which its own clang then refuses: every build fails
// with "unknown target CPU 'generic'". Gives the device the name of the newest CPU that LLVM 14 knows and whose
// instructions this machine has. Touches nothing where PoCL recognised the CPU. Returns whether it changed something.
bool repair_pocl_cpu_name(cl_device_id device, const char* platform_version, const char* device_version);

}  // namespace netcl
