// Environment variables.
#pragma once

#include <cstdlib>

namespace netcl {

// True if `name` is set, and not to 0.
inline bool flag(const char* name) {
  const char* value = std::getenv(name);
  return value && *value && *value != '0';
}

// The number that `name` is set to, or `otherwise`.
inline long number(const char* name, long otherwise) {
  const char* value = std::getenv(name);
  char* end = nullptr;
  const long n = value ? std::strtol(value, &end, 10) : otherwise;
  return end == value ? otherwise : n;
}

// NETCL_LAUNCH_BLOCKING=1: every command waits for its end.
inline bool launch_blocking() {
  static const bool on = flag("NETCL_LAUNCH_BLOCKING");
  return on;
}

}  // namespace netcl
