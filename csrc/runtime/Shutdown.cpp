#include "runtime/Shutdown.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace netcl {

namespace {

std::atomic<bool> exiting{false};
std::atomic<bool> drivers_used{false};
std::atomic<bool> forked{false};
std::thread::id ending;  // the thread that runs the exit handlers
std::atomic<int> users{0}, staying{0};

// Counts the threads that have used a device, except autograd's, for which backward() waits.
struct User {
  const bool counted = c10::getThreadName().rfind("pt_autograd", 0) != 0;
  User() { users.fetch_add(counted); }
  ~User() { users.fetch_sub(counted); }
  User(const User&) = delete;
  User& operator=(const User&) = delete;
};

// One binary serves every Python version, so it is not linked with Python. Without Python no thread holds the GIL.
bool holds_gil() {
  static const auto check = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  return !check || check() != 0;
}

}  // namespace

bool shutting_down() { return exiting.load(std::memory_order_relaxed) || forked.load(std::memory_order_relaxed); }

void begin_shutdown() {
  ending = std::this_thread::get_id();
  exiting.store(true);
  stay_if_exiting();  // counts this thread
  for (int ms = 0; ms < 1000 && staying.load() + 1 < users.load(); ms++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void stay_if_exiting() {
  static thread_local const User user;
  if (__builtin_expect(!exiting.load(), 1)) return;
  if (!user.counted || ending == std::this_thread::get_id() || holds_gil()) return;
  staying.fetch_add(1);
  for (;;) pause();
}

void note_drivers_used(bool used) {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] {
    if (drivers_used.load()) forked.store(true);
  });
  drivers_used.store(used);
}

void check_not_forked() {
  TORCH_CHECK(!forked.load(std::memory_order_relaxed),
              "netcl cannot be used in a process forked from one that has used it: OpenCL runtimes do not survive "
              "fork. Start workers with multiprocessing's 'spawn' method.");
}

}  // namespace netcl
