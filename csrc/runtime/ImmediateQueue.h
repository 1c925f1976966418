// A second queue of a CPU device, whose commands the calling thread runs itself, before the call returns.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "runtime/Device.h"

namespace netcl {

// What clEnqueueNDRangeKernel takes. `offset` and `local` may be null.
struct Grid {
  cl_uint dims;
  const size_t *offset, *global, *local;
};

// To wake a driver's thread, and to be woken by it, takes several times as long as a small kernel. Intel's runtime
// offers queues whose commands run in the calling thread (cl_intel_exec_by_local_thread). PoCL has a device of its own
// for it, "basic", which shares memory and binaries with the one of several threads. A launch may go here only if all
// that was enqueued on its stream has ended (Queue::idle); so streams stay in order, and what looks at a stream later
// finds this launch ended too. One thread of the process at a time uses such queues of a device: a command of "basic"
// that has to wait for another one never ends (PoCL 3.0 then locks the waiting command's event twice).
class ImmediateQueue {
 public:
  explicit ImmediateQueue(const Device& device);

  // False too after many launches for which the host did not wait: then the threads of the device run the next ones.
  bool available() const { return handle_ != nullptr && unasked_.load(std::memory_order_relaxed) < kMostUnasked; }
  // A launch took so long here. One that took no longer than its way to the threads would does not count.
  void note_launch(int64_t nanoseconds) {
    if (nanoseconds > kHandOver) unasked_.fetch_add(1, std::memory_order_relaxed);
  }
  // The host has asked for a result of the stream.
  void note_wait() { unasked_.store(0, std::memory_order_relaxed); }
  // Owns its mutex if no other thread runs anything here.
  std::unique_lock<std::mutex> claim() { return std::unique_lock<std::mutex>(mutex_, std::try_to_lock); }
  // Runs the kernel with the arguments that are set, by the thread that has the claim. After an error nothing has run.
  cl_int run(cl_kernel kernel, const Grid& grid);
  // Where the host finds the buffer's bytes, if the device works on the memory that the buffer was made of; else null.
  char* host_address(cl_mem mem, size_t bytes);

 private:
  static constexpr uint32_t kMostUnasked = 192;
  static constexpr int64_t kHandOver = 8000;  // measured: benchmarks/operators.py, overhead/add_16
  cl_command_queue handle_ = nullptr;
  std::mutex& mutex_;
  std::atomic<uint32_t> unasked_{0};  // launches that counted since the host last asked for a result
};

// The most microseconds that a launch may take here; above, the device's threads are worth waking.
// NETCL_IMMEDIATE_MICROSECONDS; 0: no launch runs here.
int64_t immediate_microseconds(const Device& device);

// What a thread knows of the times of launches, by kernel, arguments and work-items.
class ImmediateTimes {
 public:
  static ImmediateTimes& of_thread();
  // Whether a launch may run in this thread: it was short before, or is worth a try.
  bool admits(uint64_t launch, const void* kernel);
  // Call this after a launch that was admitted.
  void took(uint64_t launch, const void* kernel, int64_t nanoseconds, int64_t most);
  // This kernel cannot run here.
  void refuse(const void* kernel);

 private:
  struct Launch {
    uint64_t key = 0;
    uint32_t skip = 0;  // so many launches go to the device's threads before the next try
    uint16_t long_ones = 0;
    bool known = false;
  };
  // Unknown launches of a kernel, e.g. of ever new shapes, are tried less and less often if they turn out long.
  struct Tries {
    const void* kernel = nullptr;
    uint32_t skip = 0, exponent = 0;
    uint32_t slow_starts = 0;  // the first runs may load the program
  };
  static constexpr size_t kLaunches = 1024, kKernels = 256;
  Launch& launch_of(uint64_t key) { return launches_[key % kLaunches]; }
  Tries& tries_of(const void* kernel);

  Launch launches_[kLaunches];
  Tries tries_[kKernels];
};

}  // namespace netcl
