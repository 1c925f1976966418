// Separate threads build kernels, several at a time, while the host runs on. If a kernel is not ready, its launch is
// kept with its arguments, and so are the commands that follow it in its queue (Deferred.h). Thus all launches of a
// training step may be known before its first kernel is built. Whatever else uses the queue waits (Queue::handle).
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>

#include "runtime/Device.h"

namespace netcl {

// Work that one of these threads does. An exception is kept and raised by wait().
class Build {
 public:
  explicit Build(std::function<void()> work) : work_(std::move(work)) {}
  bool over() const { return over_.load(std::memory_order_acquire); }
  bool failed() const { return over() && error_; }
  // Returns when the work has ended; raises the exception that the work raised.
  void wait();
  void run();

 private:
  std::function<void()> work_;
  std::exception_ptr error_;
  std::atomic<bool> over_{false};
};

// The number of threads for a device's kernels (NETCL_COMPILE_THREADS). 0: the thread that needs a kernel builds it.
int build_threads(const Device& device);
// The number of the calling thread among these threads, or -1 if it is none of them.
int build_thread();
// Queues `work` for one of these threads. If there is no thread, the caller runs it at once.
std::shared_ptr<Build> start_build(const Device& device, std::function<void()> work);
bool builds_under_way() noexcept;
// Waits until no build is under way.
void finish_builds();

}  // namespace netcl
