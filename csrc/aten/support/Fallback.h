// The CPU fallback for all operators without a netcl kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace netcl {

// The operators that ran on the CPU since the last reset, with the number of calls.
std::vector<std::pair<std::string, int64_t>> cpu_fallback_ops();
void reset_cpu_fallback_ops();
// "warn" (once per operator), "error" or "silent"; NETCL_CPU_FALLBACK gives the initial mode.
std::string cpu_fallback_mode();
void set_cpu_fallback_mode(const std::string& mode);

}  // namespace netcl
