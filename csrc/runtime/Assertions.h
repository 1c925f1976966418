// Device-side assertions: what a kernel found wrong raises at the next synchronising call.
//
// A kernel that can meet a bad index takes `__global int* err` (Buf of assert_buffer()) and a code, and calls
// NETCL_ASSERT_INDEX (kernels/common/common.h).
#pragma once

#include <string>

#include "runtime/Queue.h"

namespace netcl {

// Where kernels report. Notes that the current stream has something to be looked at.
const void* assert_buffer(Device& device);
// The code that a kernel of `op` reports with a bad index: raises IndexError that names the operator.
int assert_code(Device& device, const char* op);
// The code that raises RuntimeError with this text.
int assert_message_code(Device& device, const std::string& message);

// Raises what kernels of this queue's device reported. To be called after a wait for the queue.
void raise_device_assertions(Queue& queue);

}  // namespace netcl
