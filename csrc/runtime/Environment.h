// Environment variables.
#pragma once

#include <cstdlib>

namespace netcl {

// True if `name` is set, and not to 0.
inline bool flag(const char* name) {
  const char* value = std::getenv(name);
  return value && *value && *value != '0';
}

// NETCL_LAUNCH_BLOCKING=1: every command waits for its end.
inline bool launch_blocking() {
  static const bool on = flag("NETCL_LAUNCH_BLOCKING");
  return on;
}

}  // namespace netcl
