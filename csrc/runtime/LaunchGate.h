// Holds launches back for a moment, for drivers that start each command as soon as it is enqueued.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/Profiler.h"

namespace netcl {

// PoCL wakes its threads for each command that finds them asleep. This takes several times as long as enqueueing or
// running a small kernel. So a small launch that finds its queue empty waits for a user event, the gate, and in an
// in-order queue everything after it waits too; the threads then wake once for all of them. The queue opens the gate
// after a few launches, for a large launch, and before anything waits for the queue. A thread opens it after a
// millisecond at the latest, whatever the host does.
class LaunchGate {
 public:
  explicit LaunchGate(const Device& device);

  // The most launches that are held back at a time; 0 if the driver starts commands only when they are flushed.
  uint32_t capacity() const { return capacity_.load(std::memory_order_relaxed); }

  // Calls `enqueue(count, events, event)` with the kernel's wait list and the place for its own event.
  template <class Enqueue>
  cl_int launch(Recorded& command, bool may_wait, Enqueue&& enqueue) {
    if (capacity() == 0) return enqueue(cl_uint{0}, static_cast<const cl_event*>(nullptr), command.event());
    const cl_event gate = may_wait ? make() : nullptr;
    cl_event event = nullptr;
    const cl_int err = enqueue(cl_uint{gate != nullptr}, gate ? &gate : nullptr, &event);
    if (gate) close(gate);  // even if the launch failed: then nothing waits for the gate
    if (event) launched(event, command);
    return err;
  }
  void open() noexcept {
    if (closed_.load()) open_all();
  }
  // Opens the gate and never closes it again, for queues on which others may wait as well.
  void disable() {
    capacity_.store(0);
    open();
  }

 private:
  friend class GateKeeper;
  cl_event make();  // null unless the queue is empty and the gate is open
  void close(cl_event gate);
  void launched(cl_event event, Recorded& command);
  void open_all() noexcept;

  const Device& device_;
  std::atomic<uint32_t> capacity_{0};
  std::atomic<bool> closed_{false};
  std::atomic<uint64_t> times_{0};  // how often the gate was closed
  uint64_t times_seen_ = 0;         // the count that the keeper saw last
  std::mutex mutex_;
  std::vector<cl_event> events_;  // the user events that keep the gate closed
  cl_event last_ = nullptr;       // the last launch's event
};

}  // namespace netcl
