// Environment variables that had another name before.
#pragma once

#include <cstdlib>

namespace netcl {

// The value of `name`, or of its former name; null if neither is set. runtime/Device.cpp warns of former names.
inline const char* environment(const char* name, const char* former) {
  const char* value = std::getenv(name);
  return value ? value : std::getenv(former);
}

}  // namespace netcl
