// Threads of netcl's own, which run until the process ends.
#pragma once

#include <functional>

namespace netcl {

// Starts a detached thread that takes no signals: those are for the program's own threads. A name has up to 15
// characters. False if the system gives no thread.
bool start_thread(const char* name, std::function<void()> work);

}  // namespace netcl
