// Drivers with ways of their own.
#pragma once

#include "runtime/Device.h"

namespace netcl {

// It compiles one program at a time, locks a context meanwhile, and starts each command at once.
inline bool is_pocl(const Device& device) { return device.info().platform_name == "Portable Computing Language"; }
inline bool is_intel_cpu(const Device& device) { return device.info().platform_name == "Intel(R) OpenCL"; }

}  // namespace netcl
