// Events: cl_event markers in a stream.
#pragma once

#include <cstdint>

#include "runtime/Queue.h"

namespace netcl {

// An event as in torch.Event. An event that was never recorded counts as complete.
class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  // Records a marker after everything enqueued so far.
  void record(Queue& queue);
  // Everything enqueued on `queue` from now on waits for this event.
  void block(Queue& queue) const;
  bool query() const;
  // Waits on the host; the wait is counted.
  void synchronize() const;
  // The time of completion, in nanoseconds of the device's clock.
  int64_t finished_at() const;
  // The device that it was recorded on; -1 if it was not.
  c10::DeviceIndex device() const { return mark_.queue ? mark_.queue->device().index() : c10::DeviceIndex{-1}; }

 private:
  // Call this when it is known to be complete: notes that, and raises what went wrong before it.
  void ended() const;

  Mark mark_;
};

}  // namespace netcl
