// Commands of a queue that are not enqueued yet, since a launch waits for its kernel (Builds.h).
#pragma once

#include <c10/core/Device.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

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

// Where the random numbers of a replay come from: a generator's seed, and what is added to the offsets of the capture.
struct Draw {
  uint64_t seed, shift;
};

// Such a launch, or a command behind one. It holds references to the buffers that it uses, so that they are not
// released.
class DeferredCommand {
 public:
  DeferredCommand();
  virtual ~DeferredCommand();
  DeferredCommand(const DeferredCommand&) = delete;
  DeferredCommand& operator=(const DeferredCommand&) = delete;
  void hold(cl_mem mem);
  void release_held();
  virtual const char* op() const { return op_.c_str(); }
  virtual std::string text() const { return op_.empty() ? "a copy" : "a copy of " + op_; }
  // Whether what it waits for is built; whether the build is over, be it by an error.
  virtual bool ready() const { return true; }
  virtual bool over() const { return true; }
  virtual void submit(Queue& queue) = 0;
  // Call this before each submit() of a captured command, with one entry per generator of the capture.
  virtual void draw(c10::ArrayRef<Draw> /*draws*/) {}
  // The device addresses that it uses, and another one in the place of the i-th.
  c10::ArrayRef<const void*> addresses() const { return addresses_; }
  virtual void set_address(size_t i, const void* address) { addresses_[i] = address; }
  // Call this between set_address() and submit(): false if the command cannot use these addresses.
  virtual bool prepare() { return true; }

 protected:
  std::string op_;  // for errors
  std::vector<const void*> addresses_;

 private:
  std::vector<cl_mem> held_;
};

// Commands that are kept for any number of replays (Capture.h), in place of being enqueued.
struct Capture {
  // A generator from which commands draw, its offset when the capture first drew, and how far the capture moved it.
  struct Source {
    c10::intrusive_ptr<c10::GeneratorImpl> generator;
    uint64_t first = 0, count = 0;
  };
  // Memory that was allocated behind so many commands.
  struct Allocation {
    const void* address;
    size_t commands;
  };
  std::vector<std::unique_ptr<DeferredCommand>> commands;
  std::vector<Source> sources;
  std::vector<Allocation> allocations;
};

class DeferredCommands {
 public:
  DeferredCommands(Queue& queue, c10::DeviceIndex device) : queue_(queue), device_(device) {}
  bool any() const { return any_.load(std::memory_order_acquire); }
  bool full() const;
  // From now on add() keeps commands in `capture` (Capture.h) and nothing is enqueued, until this is called with null.
  void set_capture(Capture* capture);
  Capture* capture() const { return capture_.load(std::memory_order_acquire); }
  void add(std::unique_ptr<DeferredCommand> command);
  // Enqueues all; waits for their kernels. An error during a capture.
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
  std::atomic<Capture*> capture_{nullptr};
  mutable std::mutex mutex_;  // protects `list_`
  std::deque<std::unique_ptr<DeferredCommand>> list_;
  std::mutex turn_;  // held by the thread that enqueues the commands of `list_`
  // The last command, if it could not be enqueued; `turn_` protects them.
  std::string op_;
  std::exception_ptr error_;
};

}  // namespace netcl
