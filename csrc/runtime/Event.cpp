#include "runtime/Event.h"

#include <c10/util/Exception.h>

#include "runtime/Counters.h"
#include "runtime/Shutdown.h"
#include "runtime/Waits.h"

namespace netcl {

Event::~Event() {
  if (mark_.event && !shutting_down()) cl().clReleaseEvent(mark_.event);
}

void Event::record(Queue& queue) {
  const Mark mark = queue.mark();
  if (mark_.event) cl().clReleaseEvent(mark_.event);
  mark_ = mark;
}

void Event::block(Queue& queue) const {
  if (mark_.event) queue.wait(mark_.event);
}

bool Event::query() const {
  if (!mark_.event) return true;
  cl_int status = CL_COMPLETE;
  NETCL_CL(clGetEventInfo(mark_.event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr));
  // A command that failed has ended too, and the caller must learn of it.
  if (status < CL_COMPLETE) raise_cl_error(status, "a command before the event");
  if (status > CL_COMPLETE) return false;
  ended();
  return true;
}

void Event::synchronize() const {
  if (!mark_.event) return;
  increment(counters.host_syncs);
  mark_.wait();
  stay_if_exiting();
  ended();
}

void Event::ended() const {
  mark_.note_ended();
  raise_earlier_errors(*mark_.queue, false);
}

int64_t Event::finished_at() const {
  TORCH_CHECK(mark_.event, "Both events must be recorded before calculating elapsed time.");
  cl_ulong when = 0;
  NETCL_CL(clGetEventProfilingInfo(mark_.event, CL_PROFILING_COMMAND_END, sizeof(when), &when, nullptr));
  return static_cast<int64_t>(when);
}

}  // namespace netcl
