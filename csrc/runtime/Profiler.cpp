#include "runtime/Profiler.h"

#include <limits>
#include <unordered_map>
#include <utility>

#include "runtime/Queue.h"

namespace netcl {

namespace {

// Host clock less device clock. The driver stamps the time when a command is queued, between two reads of the host's
// clock. The narrowest of a few tries is off by at most half its width.
int64_t clock_offset(c10::DeviceIndex index) {
  Queue& queue = current_queue(index);
  int64_t offset = 0, width = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 5; i++) {
    cl_event event = nullptr;
    int64_t before = 0, after = 0;
    queue.submit<Queue::kInCall>([&](cl_command_queue handle) {
      before = host_nanoseconds();
      const cl_int failed = cl().clEnqueueMarkerWithWaitList(handle, 0, nullptr, &event);
      after = host_nanoseconds();
      if (failed != CL_SUCCESS) return failed;
      cl().clFlush(handle);
      return cl().clWaitForEvents(1, &event);
    });
    if (!event) continue;
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

void start_recording() { detail::recording.store(true); }
void stop_recording() { detail::recording.store(false); }

std::vector<Activity> take_activities() {
  auto& s = Recording::instance();
  const std::lock_guard<std::mutex> lock(s.mutex);
  for (auto& p : s.pending) {
    const c10::Device device(c10::DeviceType::PrivateUse1, p.activity.device);
    if (!is_over(p.event)) queue_for(c10::Stream(c10::Stream::UNSAFE, device, p.activity.stream)).finish();
    s.settle(p);
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

}  // namespace netcl
