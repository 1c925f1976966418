// Records what devices did and when, while someone asks for it (csrc/Profiler.cpp does for torch.profiler).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/Queue.h"

namespace netcl {

struct Activity {
  enum Kind { kKernel, kCopy, kFill } kind;
  std::string name, op;
  c10::DeviceIndex device;
  c10::StreamId stream;
  uint64_t correlation;                // innermost push_correlation() at the time of enqueueing, 0 for none
  int32_t thread;                      // the operating system's id of the thread that enqueued it
  size_t bytes;                        // of a copy or fill
  int64_t enqueue_begin, enqueue_end;  // all times in nanoseconds since the Unix epoch
  int64_t begin, end;
};

namespace detail {
extern std::atomic<bool> recording;
}
inline bool recording() { return detail::recording.load(std::memory_order_relaxed); }

// Put one around an enqueue call, and pass `event()` as the call's last argument; it is null unless someone records.
class Recorded {
 public:
  Recorded(Activity::Kind kind, const char* name, const char* op, const Queue& queue, size_t bytes = 0)
      : kind_(kind), name_(name), op_(op), queue_(queue), bytes_(bytes) {
    if (__builtin_expect(recording(), 0)) begin();
  }
  ~Recorded() {
    if (__builtin_expect(event_ != nullptr, 0)) finish();
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  cl_event* event() { return begin_ ? &event_ : nullptr; }
  // For a command whose event the caller needs itself.
  void share(cl_event event) {
    if (begin_ && cl().clRetainEvent(event) == CL_SUCCESS) event_ = event;
  }

 private:
  void begin();
  void finish();

  Activity::Kind kind_;
  const char *name_, *op_;
  const Queue& queue_;
  size_t bytes_;
  int64_t begin_ = 0;
  cl_event event_ = nullptr;
};

void start_recording();
void stop_recording();
// Waits for everything recorded since start_recording() and returns it.
std::vector<Activity> take_activities();

// The operator of PyTorch that this thread runs, by the profiler's id for it.
void push_correlation(uint64_t id);
void pop_correlation();

}  // namespace netcl
