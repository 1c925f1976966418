// Device-side assertions with a message (those about an index are in Queue.h).
#pragma once

#include <string>

#include "runtime/Device.h"

namespace netcl {

// As assert_code(), but the next synchronising call raises RuntimeError with this text.
int assert_message_code(Device& device, const std::string& message);

}  // namespace netcl
