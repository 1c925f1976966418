// Holding launches back for a moment, where the driver starts each command as soon as it is enqueued.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/Profiler.h"

namespace netcl {

// PoCL wakes its threads for a command that finds them asleep, which takes several times as long as to enqueue a small
// kernel or to run it. So a small launch that finds its queue empty waits for an event of ours, the gate, and in an
// in-order queue all that follows waits behind it: the threads are woken once for all of them. The queue opens the gate
// after a few launches, for a large one, and before anything waits for it; a thread of ours opens it after a
// millisecond at the latest, whatever the host does meanwhile.
class LaunchGate {
 public:
  explicit LaunchGate(const Device& device);

  // The most launches that are held back at a time; 0 where the driver submits when it is told to.
  uint32_t capacity() const { return capacity_.load(std::memory_order_relaxed); }

  // Calls `enqueue(count, events, event)`: the kernel's wait list, and where its own event goes.
  template <class Enqueue>
  cl_int launch(Recorded& command, bool may_wait, Enqueue&& enqueue) {
    if (capacity() == 0) return enqueue(cl_uint{0}, static_cast<const cl_event*>(nullptr), command.event());
    const cl_event gate = may_wait ? make() : nullptr;
    cl_event event = nullptr;
    const cl_int err = enqueue(cl_uint{gate != nullptr}, gate ? &gate : nullptr, &event);
    if (gate) close(gate);  // even where the launch failed: then nothing is behind it
    if (event) launched(event, command);
    return err;
  }
  void open() noexcept {
    if (closed_.load()) open_all();
  }
  // Opens it for good, for queues on which others wait as well.
  void disable() {
    capacity_.store(0);
    open();
  }

 private:
  friend class GateKeeper;
  cl_event make();  // null unless the queue is empty and the gate open
  void close(cl_event gate);
  void launched(cl_event event, Recorded& command);
  void open_all() noexcept;

  const Device& device_;
  std::atomic<uint32_t> capacity_{0};
  std::atomic<bool> closed_{false};
  std::atomic<uint64_t> times_{0};  // how often it was closed
  uint64_t times_seen_ = 0;         // by the keeper, when it last looked
  std::mutex mutex_;
  std::vector<cl_event> events_;  // what closes it
  cl_event last_ = nullptr;       // of the last launch
};

}  // namespace netcl
