// Commands that were kept for later (Deferred.h) and that could not be enqueued then. The next wait of the host raises
// why (Waits.h), so that no other operator takes the blame.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include <exception>
#include <string>

namespace netcl {

// A command of `op` was not enqueued: `error` says why it, or one before it of the same operator, could not be.
void note_failure(c10::DeviceIndex device, const std::exception_ptr& error, const std::string& op);
// A wait for the device failed, which the next one is to raise.
void note_failure(c10::DeviceIndex device, const std::exception_ptr& error);
// Calls `check`, and raises what was noted for the device, with what `check` raises.
void raise_failures(c10::DeviceIndex device, c10::function_ref<void()> check);
// At exit: warns of what no wait has raised.
void warn_of_failures() noexcept;

}  // namespace netcl
