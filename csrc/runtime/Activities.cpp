#include "runtime/Activities.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <utility>

namespace netcl {

namespace detail {
std::atomic<bool> recording{false};
}

namespace {
constexpr size_t kKeptEvents = 2048;
thread_local std::vector<uint64_t> correlations;
}  // namespace

Recording& Recording::instance() {
  static auto* s = new Recording();
  return *s;
}

int64_t host_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int64_t device_time(cl_event event, cl_profiling_info what) {
  cl_ulong when = 0;
  return cl().clGetEventProfilingInfo(event, what, sizeof(when), &when, nullptr) == CL_SUCCESS
             ? static_cast<int64_t>(when)
             : 0;
}

void Recording::settle(Pending& p) {
  p.activity.begin = device_time(p.event, CL_PROFILING_COMMAND_START);
  p.activity.end = device_time(p.event, CL_PROFILING_COMMAND_END);
  cl().clReleaseEvent(p.event);
  if (p.activity.begin) done.push_back(std::move(p.activity));
}

void Recorded::begin() { begin_ = host_nanoseconds(); }

void Recorded::finish() {
  Activity a{kind_,
             name_,
             op_ ? op_ : "",
             stream_.device_index(),
             stream_.id(),
             correlations.empty() ? 0 : correlations.back(),
             static_cast<int32_t>(syscall(SYS_gettid)),
             bytes_,
             begin_,
             host_nanoseconds(),
             0,
             0};
  auto& s = Recording::instance();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.pending.push_back({std::move(a), event_});
  // Drivers keep data for each event, so release those of finished commands before they become many.
  for (int n = 0; s.pending.size() > kKeptEvents && n < 64; n++) {
    cl_int status = CL_QUEUED;
    cl().clGetEventInfo(s.pending.front().event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr);
    if (status > CL_COMPLETE) break;
    s.settle(s.pending.front());
    s.pending.pop_front();
  }
}

void push_correlation(uint64_t id) { correlations.push_back(id); }
void pop_correlation() {
  if (!correlations.empty()) correlations.pop_back();
}

}  // namespace netcl
