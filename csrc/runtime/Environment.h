// Environment variables.
#pragma once

#include <cstdlib>

namespace netcl {

// True if `name` is set, and not to 0.
inline bool flag(const char* name) {
  const char* value = std::getenv(name);
  return value && *value && *value != '0';
}

}  // namespace netcl
