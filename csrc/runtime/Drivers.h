// Drivers with ways of their own.
#pragma once

#include "runtime/Device.h"

namespace netcl {

// It compiles one program at a time per process, locks a context meanwhile, and starts each command at once.
inline bool is_pocl(const Device& device) { return device.info().platform_name == "Portable Computing Language"; }
inline bool is_intel_cpu(const Device& device) { return device.info().platform_name == "Intel(R) OpenCL"; }

// Whether the compiler takes a CPU's matrix instructions. Others may end the process, as those of PoCL 6 and Mesa 25
// do.
inline bool takes_matrix_instructions(const Device& device) {
  return is_intel_cpu(device) ||
         (is_pocl(device) && device.info().platform_version.find("PoCL 3.") != std::string::npos);
}

}  // namespace netcl
