// For tests: an OpenCL entry point that fails once. It exchanges pointers in the table that cl() returns, so that
// calls cost nothing more while nothing is injected.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/OpenCL.h"

namespace netcl {

// From now on every call of an entry point is counted; that of `function` with number `after` (0 = the next one)
// returns `code` without reaching the driver. An empty `function` only counts. No other thread may be in an OpenCL
// call.
void inject_error(const std::string& function, cl_int code, int64_t after);
// Puts the driver's functions back. How often each was called since inject_error(), in the order of the table.
std::vector<std::pair<std::string, int64_t>> end_injection();

}  // namespace netcl
