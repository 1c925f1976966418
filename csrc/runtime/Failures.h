// Commands that were kept for later (Builds.h) and that could not be enqueued then. The next wait of the host raises
// why, so that no other operator takes the blame.
#pragma once

#include <exception>
#include <string>

#include "runtime/Queue.h"

namespace netcl {

// A command of `op` was not enqueued: `error` says why it, or one before it of the same operator, could not be.
void note_failure(const Queue& queue, const std::exception_ptr& error, const std::string& op);
// A wait for the queue failed, which the next one is to raise.
void note_failure(const Queue& queue, const std::exception_ptr& error);
// Raises what was noted for the queue's device, else what kernels reported (Assertions.h). Call it after a wait for
// the queue, or, with `whole` false, for an event of the queue.
void raise_earlier_errors(Queue& queue, bool whole = true);
// At exit: warns of what no wait has raised.
void warn_of_failures() noexcept;

}  // namespace netcl
