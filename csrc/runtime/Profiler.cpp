#include "runtime/Profiler.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <deque>
#include <limits>
#include <unordered_map>

namespace netcl {

namespace detail {
std::atomic<bool> recording{false};
}

namespace {

constexpr size_t kKeptEvents = 2048;

struct Pending {
  Activity activity;
  cl_event event;
};

struct Recording {
  std::mutex mutex;
  std::deque<Pending> pending;
  std::vector<Activity> done;  // begin and end are still times of the device's clock
};
Recording& state() {
  static auto* s = new Recording();
  return *s;
}

thread_local std::vector<uint64_t> correlations;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int64_t device_time(cl_event event, cl_profiling_info what) {
  cl_ulong when = 0;
  return cl().clGetEventProfilingInfo(event, what, sizeof(when), &when, nullptr) == CL_SUCCESS
             ? static_cast<int64_t>(when)
             : 0;
}

void settle(Recording& s, Pending& p) {
  p.activity.begin = device_time(p.event, CL_PROFILING_COMMAND_START);
  p.activity.end = device_time(p.event, CL_PROFILING_COMMAND_END);
  cl().clReleaseEvent(p.event);
  if (p.activity.begin) s.done.push_back(std::move(p.activity));
}

// Host clock less device clock. The driver stamps the time when a command is queued, between two reads of the host's
// clock. The narrowest of a few tries is off by at most half its width.
int64_t clock_offset(c10::DeviceIndex index) {
  Queue& queue = current_queue(index);
  int64_t offset = 0, width = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 5; i++) {
    cl_event event = nullptr;
    const int64_t before = now();
    if (cl().clEnqueueMarkerWithWaitList(queue.handle(), 0, nullptr, &event) != CL_SUCCESS) continue;
    const int64_t after = now();
    queue.prepare_wait();
    cl().clFlush(queue.handle());
    cl().clWaitForEvents(1, &event);
    int64_t queued = device_time(event, CL_PROFILING_COMMAND_QUEUED);
    if (!queued) queued = device_time(event, CL_PROFILING_COMMAND_SUBMIT);  // Intel's markers have no QUEUED
    cl().clReleaseEvent(event);
    if (queued && after - before < width) {
      width = after - before;
      offset = before + width / 2 - queued;
    }
  }
  return offset;
}

}  // namespace

void Recorded::begin() { begin_ = now(); }

void Recorded::finish() {
  Activity a{kind_,
             name_,
             op_ ? op_ : "",
             queue_.device().index(),
             queue_.id(),
             correlations.empty() ? 0 : correlations.back(),
             static_cast<int32_t>(syscall(SYS_gettid)),
             bytes_,
             begin_,
             now(),
             0,
             0};
  auto& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.pending.push_back({std::move(a), event_});
  // Drivers keep data for each event, so release those of finished commands before they become many.
  for (int n = 0; s.pending.size() > kKeptEvents && n < 64; n++) {
    cl_int status = CL_QUEUED;
    cl().clGetEventInfo(s.pending.front().event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr);
    if (status > CL_COMPLETE) break;
    settle(s, s.pending.front());
    s.pending.pop_front();
  }
}

void start_recording() { detail::recording.store(true); }
void stop_recording() { detail::recording.store(false); }

std::vector<Activity> take_activities() {
  auto& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  for (auto& p : s.pending) {
    const c10::Device device(c10::DeviceType::PrivateUse1, p.activity.device);
    queue_for(c10::Stream(c10::Stream::UNSAFE, device, p.activity.stream)).flush();
    cl().clWaitForEvents(1, &p.event);
    settle(s, p);
  }
  s.pending.clear();
  std::unordered_map<c10::DeviceIndex, int64_t> offsets;
  for (auto& a : s.done) {
    auto found = offsets.find(a.device);
    if (found == offsets.end()) found = offsets.emplace(a.device, clock_offset(a.device)).first;
    a.begin += found->second;
    a.end += found->second;
  }
  return std::exchange(s.done, {});
}

void push_correlation(uint64_t id) { correlations.push_back(id); }
void pop_correlation() {
  if (!correlations.empty()) correlations.pop_back();
}

}  // namespace netcl
