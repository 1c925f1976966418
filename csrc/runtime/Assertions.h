// Device-side assertions: an error that a kernel reports raises at the next synchronising call.
//
// A kernel that may meet an index out of range takes `__global int* err` (the Buf of assert_buffer()) and a code, and
// calls NETCL_ASSERT_INDEX (kernels/common/common.h).
#pragma once

#include <string>

#include "runtime/Queue.h"

namespace netcl {

// The buffer that kernels report to. Also notes that the current stream's buffer must be checked.
// Kernels that may report run on `queue` once more.
void arm_assertions(Queue& queue);
const void* assert_buffer(Device& device);
// The code with which a kernel of `op` reports a bad index; it raises an IndexError that names the operator.
int assert_code(Device& device, const char* op);
// The code that raises a RuntimeError with this text.
int assert_message_code(Device& device, const std::string& message);

// Raises what kernels of this queue's device reported. Call it after a wait for the queue, or, with `whole` false, for
// a command of the queue: then it does not wait for those behind it.
void raise_device_assertions(Queue& queue, bool whole = true);

}  // namespace netcl
