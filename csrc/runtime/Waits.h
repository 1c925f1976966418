// Waits of the host, which are counted, and which raise what went wrong before them.
#pragma once

#include "runtime/Queue.h"

namespace netcl {

// Raises what was noted for the queue's device (Failures.h), else what kernels reported (Assertions.h). Call it after a
// wait for the queue, or, with `whole` false, for an event of the queue.
void raise_earlier_errors(Queue& queue, bool whole = true);
// Waits for everything enqueued so far.
void synchronize(Queue& queue);
// The same, if other streams of the device are in use, which may read what was written here and do not wait. A stream
// that is used for the first time waits for the others.
void synchronize_for_others(Queue& queue);
// Waits for all streams of the device.
void synchronize_device(c10::DeviceIndex index);
// Whether all that was enqueued so far has ended.
bool query(Queue& queue);

}  // namespace netcl
