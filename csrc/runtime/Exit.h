// Threads that use a device while the interpreter ends.
#pragma once

namespace netcl {

// CPython ends a thread that comes back to it after the interpreter is gone by unwinding its stack, and C++ frames that
// must not be left that way take the process down (std::terminate). So a thread that comes here once the exit handlers
// run stays for good, unless it is the one that runs them, holds the GIL, or is autograd's. set_shutting_down() waits
// up to a second until all that have used a device stay. To be called where a thread uses a device, and after it has
// waited for one, without locks held.
void stay_if_exiting();

// Whether every stream has come to its end, be it by an error. Until then the drivers' threads run, and may compile:
// PoCL makes a kernel for a work-group's size when its first command runs, by LLVM, whose statics exit() destroys.
bool all_streams_idle() noexcept;

}  // namespace netcl
