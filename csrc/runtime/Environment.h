// Environment variables.
#pragma once

#include <c10/util/Exception.h>

#include <cstdlib>

namespace netcl {

// True if `name` is set, and not to 0.
inline bool flag(const char* name) {
  const char* value = std::getenv(name);
  return value && *value && *value != '0';
}

// The number that `name` is set to, or `otherwise`.
inline long number(const char* name, long least, long most, long otherwise) {
  const char* value = std::getenv(name);
  if (!value || !*value) return otherwise;
  char* end = nullptr;
  const long n = std::strtol(value, &end, 10);
  TORCH_CHECK_VALUE(*end == '\0' && n >= least && n <= most, name, " must be a number from ", least, " to ", most,
                    ", got ", value);
  return n;
}

// NETCL_LAUNCH_BLOCKING=1: every command waits for its end.
inline bool launch_blocking() {
  static const bool on = flag("NETCL_LAUNCH_BLOCKING");
  return on;
}

}  // namespace netcl
