#include "runtime/LaunchGate.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <thread>
#include <utility>

#include "runtime/Drivers.h"
#include "runtime/Event.h"
#include "runtime/Shutdown.h"
#include "runtime/Threads.h"

namespace netcl {

namespace {

constexpr uint32_t kHeld = 16;
constexpr auto kTick = std::chrono::microseconds(500);  // a gate that is still closed at the next tick is opened
constexpr int kIdleTicks = 20;                          // the keeper sleeps after so many ticks without a launch

uint32_t capacity_for(const Device& device) {
  if (const char* wanted = std::getenv("NETCL_MAX_HELD_LAUNCHES"); wanted && *wanted) {
    return static_cast<uint32_t>(std::clamp(std::atoi(wanted), 0, 1024));
  }
  return (device.info().type & CL_DEVICE_TYPE_CPU) != 0 && is_pocl(device) ? kHeld : 0;
}

}  // namespace

// The thread that opens gates if nothing else does.
class GateKeeper {
 public:
  static GateKeeper& instance() {
    static auto* keeper = new GateKeeper();
    return *keeper;
  }

  void add(LaunchGate* gate) {
    const std::lock_guard<std::mutex> lock(mutex_);
    gates_.push_back(gate);
  }

  // Call this after closing a gate. False if no thread can be created.
  bool watch() {
    if (awake_.load()) return true;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!started_) started_ = start_thread("netcl_gates", [this] { run(); });
    if (!started_) return false;
    awake_.store(true);
    wake_.notify_one();
    return true;
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return awake_.load(); });
      for (int idle = 0; idle < kIdleTicks; idle++) {
        lock.unlock();
        std::this_thread::sleep_for(kTick);
        lock.lock();
        if (look()) idle = 0;
      }
      awake_.store(false);
      if (look()) awake_.store(true);  // someone closed it while it was still awake
    }
  }

  // Whether any gate is closed, or was since the last look.
  bool look() {
    bool any = false;
    for (LaunchGate* gate : gates_) {
      const uint64_t times = gate->times_.load();
      const bool closed = gate->closed_.load();
      any |= closed || times != gate->times_seen_;
      if (closed && times == gate->times_seen_) gate->open();
      gate->times_seen_ = times;
    }
    return any;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<LaunchGate*> gates_;
  std::atomic<bool> awake_{false};
  bool started_ = false;
};

LaunchGate::LaunchGate(const Device& device) : device_(device), capacity_(capacity_for(device)) {
  if (capacity()) GateKeeper::instance().add(this);
}

cl_event LaunchGate::make() {
  if (closed_.load(std::memory_order_relaxed) || shutting_down()) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (last_ && !is_over(last_)) return nullptr;  // when that command ends, the next one starts anyway
  cl_int err = CL_SUCCESS;
  cl_event gate = cl().clCreateUserEvent(device_.context(), &err);
  return err == CL_SUCCESS ? gate : nullptr;  // without an event, nothing is held back
}

void LaunchGate::close(cl_event gate) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(gate);
    times_.fetch_add(1);
    closed_.store(true);
  }
  if (!GateKeeper::instance().watch()) disable();
}

void LaunchGate::launched(cl_event event, Recorded& command) {
  command.share(event);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::swap(last_, event);
  }
  if (event) cl().clReleaseEvent(event);
}

void LaunchGate::open_all() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t kept = 0;
  for (cl_event gate : events_) {
    if (cl().clSetUserEventStatus(gate, CL_COMPLETE) == CL_SUCCESS) {
      cl().clReleaseEvent(gate);
    } else {
      events_[kept++] = gate;  // the keeper tries again
    }
  }
  events_.resize(kept);
  closed_.store(kept != 0);
}

}  // namespace netcl
