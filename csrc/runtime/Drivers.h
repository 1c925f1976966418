// Drivers with ways of their own.
#pragma once

#include "runtime/Device.h"

namespace netcl {

// It compiles one program at a time, locks a context meanwhile, and starts each command at once.
inline bool is_pocl(const Device& device) { return device.info().platform_name == "Portable Computing Language"; }
inline bool is_intel_cpu(const Device& device) { return device.info().platform_name == "Intel(R) OpenCL"; }

// Whether the compiler takes a CPU's matrix instructions. The process ends with PoCL 6, which fails an assertion, and
// with Mesa, which knows no inline assembly.
inline bool takes_matrix_instructions(const Device& device) {
  return is_intel_cpu(device) ||
         (is_pocl(device) && device.info().platform_version.find("PoCL 3.") != std::string::npos);
}

}  // namespace netcl
