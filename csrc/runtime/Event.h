// Events: cl_event markers in a stream.
#pragma once

#include <cstdint>

#include "runtime/Queue.h"

namespace netcl {

// Whether the command has ended, well or not. One whose state the driver does not tell is taken for running.
inline bool is_over(cl_event event) {
  cl_int status = CL_QUEUED;
  cl().clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr);
  return status <= CL_COMPLETE;
}

// As torch.Event has it. One that was never recorded counts as done.
class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  // Behind everything enqueued so far.
  void record(Queue& queue);
  // Everything enqueued on `queue` from now on waits for it.
  void block(Queue& queue) const;
  bool query() const;
  // A host wait: counted.
  void synchronize() const;
  // Nanoseconds of the device's clock.
  int64_t finished_at() const;

 private:
  cl_event handle_ = nullptr;
};

}  // namespace netcl
