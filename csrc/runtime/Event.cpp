#include "runtime/Event.h"

#include <c10/util/Exception.h>

#include "runtime/Counters.h"
#include "runtime/Failures.h"
#include "runtime/Shutdown.h"

namespace netcl {

Event::~Event() {
  if (handle_ && !shutting_down()) cl().clReleaseEvent(handle_);
}

void Event::record(Queue& queue) {
  queue.settle();
  const uint64_t before = queue.commands();
  cl_event marker = queue.enqueue_marker();
  if (handle_) cl().clReleaseEvent(handle_);
  handle_ = marker;
  queue_ = &queue;
  commands_ = before;
}

void Event::block(Queue& queue) const {
  if (handle_) queue.wait(handle_);
}

bool Event::query() const {
  if (!handle_) return true;
  cl_int status = CL_COMPLETE;
  NETCL_CL(clGetEventInfo(handle_, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr));
  // A command that failed has ended too, and the caller must learn of it.
  if (status < CL_COMPLETE) raise_cl_error(status, "a command before the event");
  if (status > CL_COMPLETE) return false;
  ended();
  return true;
}

void Event::synchronize() const {
  if (!handle_) return;
  increment(counters.host_syncs);
  queue_->wait_on_host(handle_);
  stay_if_exiting();
  ended();
}

void Event::ended() const {
  queue_->note_ended(commands_);
  raise_earlier_errors(*queue_, false);
}

int64_t Event::finished_at() const {
  TORCH_CHECK(handle_, "Both events must be recorded before calculating elapsed time.");
  cl_ulong when = 0;
  NETCL_CL(clGetEventProfilingInfo(handle_, CL_PROFILING_COMMAND_END, sizeof(when), &when, nullptr));
  return static_cast<int64_t>(when);
}

}  // namespace netcl
