#include "runtime/Builds.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/BuildProcess.h"
#include "runtime/Drivers.h"
#include "runtime/Environment.h"
#include "runtime/Shutdown.h"
#include "runtime/Threads.h"

namespace netcl {

namespace {

constexpr int kMostThreads = 8;

thread_local int this_build_thread = -1;

// -1 if the user does not say.
int wanted_threads() { return static_cast<int>(number("NETCL_COMPILE_THREADS", 0, 1024, -1)); }

class Pool {
 public:
  static Pool& instance() {
    static auto* pool = new Pool();  // never destroyed: its threads outlive main()
    return *pool;
  }

  // False if there can be no thread.
  bool add(const std::shared_ptr<Build>& build, int most) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (threads_ < most && waiting_.size() >= static_cast<size_t>(idle_) &&
        start_thread("netcl_builds", [this, number = threads_] { run(number); })) {
      threads_++;
    }
    if (threads_ == 0) return false;
    waiting_.push_back(build);
    under_way_++;
    work_.notify_one();
    return true;
  }

  void wait(const Build& build) {
    std::unique_lock<std::mutex> lock(mutex_);
    over_.wait(lock, [&] { return build.over(); });
  }
  void wait_for_all() {
    std::unique_lock<std::mutex> lock(mutex_);
    over_.wait(lock, [&] { return under_way_ == 0; });
  }
  bool any() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return under_way_ != 0;
  }

 private:
  void run(int number) {
    this_build_thread = number;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      idle_++;
      work_.wait(lock, [this] { return !waiting_.empty(); });
      idle_--;
      const std::shared_ptr<Build> build = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      build->run();
      lock.lock();
      under_way_--;
      over_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable work_, over_;
  std::deque<std::shared_ptr<Build>> waiting_;
  int threads_ = 0, idle_ = 0, under_way_ = 0;
};

}  // namespace

void Build::run() {
  try {
    work_();
  } catch (...) {
    error_ = std::current_exception();
  }
  work_ = nullptr;
  over_.store(true, std::memory_order_release);
}

void Build::wait() {
  if (!over()) Pool::instance().wait(*this);
  if (error_) std::rethrow_exception(error_);
}

int build_threads(const Device& device) {
  static const int wanted = wanted_threads();
  if (launch_blocking()) return 0;
  if (wanted >= 0) return wanted;
  if (is_pocl(device) && !has_builder()) return 0;  // its threads would only wait for each other
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
}

int build_thread() { return this_build_thread; }

std::shared_ptr<Build> start_build(const Device& device, std::function<void()> work) {
  auto build = std::make_shared<Build>(std::move(work));
  const int threads = build_threads(device);
  if (threads == 0 || shutting_down() || !Pool::instance().add(build, threads)) build->run();
  return build;
}

bool builds_under_way() noexcept { return Pool::instance().any(); }
void finish_builds() { Pool::instance().wait_for_all(); }

}  // namespace netcl
