// The CPU fallback for all operators without a netcl kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace netcl {

// Counts a call of an operator that runs on the CPU, and warns or raises as the mode says. Kernels that leave some
// cases to the CPU call it. `by_choice`: it has kernels, but is faster there, so there is nothing to warn of.
void count_host_call(const std::string& name, bool by_choice = false);
// The operators that ran on the CPU since the last reset, with the number of calls.
std::vector<std::pair<std::string, int64_t>> cpu_fallback_ops();
void reset_cpu_fallback_ops();
// "warn" (once per operator), "error" or "silent"; NETCL_CPU_FALLBACK gives the initial mode.
std::string cpu_fallback_mode();
void set_cpu_fallback_mode(const std::string& mode);

}  // namespace netcl
