// Environment variables.
#pragma once

#include <cstdlib>

namespace netcl {

// The value of `name`, or of its former name; null if neither is set. runtime/Device.cpp warns of former names.
inline const char* environment(const char* name, const char* former) {
  const char* value = std::getenv(name);
  return value ? value : std::getenv(former);
}

// Whether `name` is set, and not to 0.
inline bool flag(const char* name) {
  const char* value = std::getenv(name);
  return value && *value && *value != '0';
}

}  // namespace netcl
