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
inline long positive(const char* name, long otherwise) {
  const char* value = std::getenv(name);
  if (!value || !*value) return otherwise;
  const long n = std::strtol(value, nullptr, 10);
  TORCH_CHECK(n >= 1, name, " must be a positive number, got ", value);
  return n;
}

// NETCL_LAUNCH_BLOCKING=1: every command waits for its end.
inline bool launch_blocking() {
  static const bool on = flag("NETCL_LAUNCH_BLOCKING");
  return on;
}

}  // namespace netcl
