// The end of a process's use of OpenCL: at the interpreter's exit and after a fork.
#pragma once

namespace netcl {

// True once the interpreter shuts down, and in a forked child. The child has its parent's handles but no driver
// threads, so nothing may be released to the driver any more.
bool shutting_down();
// To be called by the thread that runs the exit handlers. Waits up to a second until all other threads that have used a
// device are stopped in stay_if_exiting().
void begin_shutdown();

// When a thread returns to CPython after the interpreter is gone, CPython ends it by unwinding its stack; the C++
// frames on that stack then end the process (std::terminate). So a thread that calls this function after the exit
// handlers have begun never returns from it, unless it runs these handlers, holds the GIL, or belongs to autograd. To
// be called when a thread uses a device, and after it has waited for one, without locks held.
void stay_if_exiting();

// If `used`, the drivers have threads from now on. A forked child lacks them, so its first command would never end.
void note_drivers_used(bool used);
// Raises in a process that was forked from one that had used OpenCL.
void check_not_forked();

}  // namespace netcl
