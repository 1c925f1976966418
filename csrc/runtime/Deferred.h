// Commands of a queue that are not enqueued yet, since a launch waits for its kernel (Builds.h).
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/OpenCL.h"

namespace netcl {

class Queue;

// Such a launch, or a command behind one. It holds references to the buffers that it uses, so that they are not
// released.
class DeferredCommand {
 public:
  DeferredCommand();
  virtual ~DeferredCommand();
  DeferredCommand(const DeferredCommand&) = delete;
  DeferredCommand& operator=(const DeferredCommand&) = delete;
  void hold(cl_mem mem);
  virtual const char* op() const { return op_.c_str(); }
  // Whether what it waits for is built; whether the build is over, be it by an error.
  virtual bool ready() const { return true; }
  virtual bool over() const { return true; }
  virtual void submit(Queue& queue) = 0;

 protected:
  std::string op_;  // for errors

 private:
  std::vector<cl_mem> held_;
};

class DeferredCommands {
 public:
  DeferredCommands(Queue& queue, c10::DeviceIndex device) : queue_(queue), device_(device) {}
  bool any() const { return any_.load(std::memory_order_acquire); }
  bool full() const;
  void add(std::unique_ptr<DeferredCommand> command);
  // Enqueues all; waits for their kernels.
  void settle() {
    if (__builtin_expect(any(), 0)) submit(Which::kAll);
  }
  // Enqueues those at the front whose kernels are built, or whose builds are over, be it by an error. What cannot be
  // enqueued is left out, and the next wait raises why (Failures.h).
  void settle_built() {
    if (any()) submit(Which::kBuilt);
  }
  void settle_over() {
    if (any()) submit(Which::kOver);
  }

 private:
  enum class Which { kAll, kBuilt, kOver };
  void submit(Which which);

  Queue& queue_;
  c10::DeviceIndex device_;
  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;  // protects `list_`
  std::deque<std::unique_ptr<DeferredCommand>> list_;
  std::mutex turn_;  // held by the thread that enqueues the commands of `list_`
  // The last command, if it could not be enqueued; `turn_` protects them.
  std::string op_;
  std::exception_ptr error_;
};

}  // namespace netcl
