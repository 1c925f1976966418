#include "runtime/Waits.h"

namespace netcl {

namespace {

// clFinish and a wait for a marker's event keep all threads of both CPU runtimes busy. Within a blocking copy or map,
// Intel's runtime runs the commands before it in the waiting thread alone (a GPT's training step on 2 cores: 222 ms,
// with clFinish first 165), and PoCL wakes a thread for a copy that the host makes itself once the queue is finished.
// On a GPU a wait of its own would be a second round trip to the device.
bool copies_wait_poorly(const Device& device) { return (device.info().type & CL_DEVICE_TYPE_CPU) != 0; }

}  // namespace

void finish_before_copy(Queue& queue) {
  if (!queue.idle() && copies_wait_poorly(queue.device())) queue.finish();
}

}  // namespace netcl
