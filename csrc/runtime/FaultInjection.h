// For tests: makes an OpenCL entry point fail once. It replaces pointers in the table that cl() returns, so calls cost
// nothing more while nothing is injected.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/OpenCL.h"

namespace netcl {

// From now on counts the calls of every entry point. `times` calls of `function`, from number `after` on (0 = the next
// one), return `code` without reaching the driver. With an empty `function`, calls are only counted. No other thread
// may be in an OpenCL call.
void inject_error(const std::string& function, cl_int code, int64_t after, int64_t times = 1);
// Restores the driver's functions. Returns the number of calls of each since inject_error(), in the table's order.
std::vector<std::pair<std::string, int64_t>> end_injection();

// Whether calls are counted now.
bool injecting();

}  // namespace netcl
