// The end of a process's use of OpenCL: the interpreter's exit, and a fork.
#pragma once

namespace netcl {

// True once the interpreter shuts down, and in a forked child, which has its parent's handles but no driver behind
// them: nothing may be released to the driver any more.
bool shutting_down();
// To be called by the thread that runs the exit handlers. Waits up to a second until all others that have used a device
// stay in stay_if_exiting().
void begin_shutdown();

// CPython ends a thread that comes back to it after the interpreter is gone by unwinding its stack, and C++ frames that
// must not be left that way take the process down (std::terminate). So a thread that comes here once the exit handlers
// run stays for good, unless it is the one that runs them, holds the GIL, or is autograd's. To be called where a thread
// uses a device, and after it has waited for one, without locks held.
void stay_if_exiting();

// From now on (if `used`) the drivers have threads, which a forked child lacks: its first command would never end.
void note_drivers_used(bool used);
// Raises in a process that was forked from one that had used OpenCL.
void check_not_forked();

}  // namespace netcl
