// How the host waits for a queue with work in it.
#pragma once

#include "runtime/Queue.h"

namespace netcl {

// Call this before a blocking copy or map, which then finds the queue finished if the driver's own wait is poor.
void finish_before_copy(Queue& queue);

}  // namespace netcl
