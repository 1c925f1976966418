#include "runtime/Threads.h"

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

namespace netcl {

bool start_thread(const char* name, std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  bool ok = true;
  try {
    std::thread([name, work = std::move(work)] {
      pthread_setname_np(pthread_self(), name);
      work();
    }).detach();
  } catch (const std::system_error&) {
    ok = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return ok;
}

}  // namespace netcl
