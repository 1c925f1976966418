// The one CPU fallback for operators that netcl has no kernel for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace netcl {

// Operators that ran on the CPU since the last reset, with the number of calls.
std::vector<std::pair<std::string, int64_t>> cpu_fallback_ops();
void reset_cpu_fallback_ops();
// "warn" (once an operator), "error" or "silent"; the start value is NETCL_CPU_FALLBACK.
std::string cpu_fallback_mode();
void set_cpu_fallback_mode(const std::string& mode);

}  // namespace netcl
