// What devices do and when: recorded while someone asks for it (Profiler.h).
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/OpenCL.h"

namespace netcl {

struct Activity {
  enum Kind { kKernel, kCopy } kind;
  std::string name, op;
  c10::DeviceIndex device;
  c10::StreamId stream;
  uint64_t correlation;                // innermost push_correlation() at the time of enqueueing, 0 for none
  int32_t thread;                      // the operating system's id of the thread that enqueued it
  size_t bytes;                        // of a copy
  int64_t enqueue_begin, enqueue_end;  // all times in nanoseconds since the Unix epoch
  int64_t begin, end;
};

namespace detail {
extern std::atomic<bool> recording;
}
inline bool recording() { return detail::recording.load(std::memory_order_relaxed); }

// One lives around an enqueue call, whose last argument is `event()`: null unless someone records.
class Recorded {
 public:
  Recorded(Activity::Kind kind, const char* name, const char* op, c10::Stream stream, size_t bytes)
      : kind_(kind), name_(name), op_(op), stream_(stream), bytes_(bytes) {
    if (__builtin_expect(recording(), 0)) begin();
  }
  ~Recorded() {
    if (__builtin_expect(event_ != nullptr, 0)) finish();
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  cl_event* event() { return begin_ ? &event_ : nullptr; }
  // For a command whose event the caller needs itself.
  void retain(cl_event event) {
    if (begin_ && cl().clRetainEvent(event) == CL_SUCCESS) event_ = event;
  }

 private:
  void begin();
  void finish();

  Activity::Kind kind_;
  const char *name_, *op_;
  c10::Stream stream_;
  size_t bytes_;
  int64_t begin_ = 0;
  cl_event event_ = nullptr;
};

// What was recorded: commands that may still run, and those that have ended, whose times are of the device's clock.
struct Recording {
  struct Pending {
    Activity activity;
    cl_event event;
  };
  std::mutex mutex;
  std::deque<Pending> pending;
  std::vector<Activity> done;

  static Recording& instance();
  void settle(Pending& pending);
};
// A time of an event, by the device's clock; 0 if the driver has none.
int64_t device_time(cl_event event, cl_profiling_info what);
int64_t host_nanoseconds();

// The operator of PyTorch that this thread runs, by the profiler's id for it.
void push_correlation(uint64_t id);
void pop_correlation();

}  // namespace netcl
