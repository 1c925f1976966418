// Separate threads build kernels, several at a time, while the host runs on. If a kernel is not ready, its launch is
// kept with its arguments, and so are the commands that follow it in its queue. Thus all launches of a training step
// may be known before its first kernel is built. Whatever else uses the queue waits (Queue::handle).
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/Kernel.h"
#include "runtime/OpName.h"

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
// True if the calling thread is one of these threads.
bool is_build_thread();
// Queues `work` for one of these threads. If there is no thread, the caller runs it at once.
std::shared_ptr<Build> start_build(const Device& device, std::function<void()> work);
bool builds_under_way() noexcept;
// Waits until no build is under way.
void finish_builds();

// A command that is not enqueued yet, since a launch waits for its kernel: this one or one before it. It holds
// references to the buffers that it uses, so that they are not released.
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

// A launch that waits: the arguments of Kernel::launch.
struct DeferredLaunch : DeferredCommand {
  explicit DeferredLaunch(Kernel& k) : kernel(k) {}
  void add(size_t size, const void* value);
  const char* op() const override { return name; }
  // A launch whose kernel failed stays until the host waits, so that the rest of its operator lies behind it.
  bool ready() const override { return kernel.built(); }
  bool over() const override { return !kernel.building(); }
  void submit(Queue& queue) override;

  Kernel& kernel;
  const char* name = nullptr;  // of the operator
  cl_uint dims = 1;
  std::array<size_t, 3> global{1, 1, 1}, local{1, 1, 1};
  struct Arg {
    size_t size, at;  // at: in `bytes`, or kLocal
  };
  static constexpr size_t kLocal = ~size_t{0};
  std::vector<Arg> args;
  std::vector<unsigned char> bytes;
};

// Any other command: `enqueue` is a function that enqueues it.
template <class Enqueue>
struct DeferredCall : DeferredCommand {
  explicit DeferredCall(Enqueue&& e) : enqueue(std::move(e)) {}
  void submit(Queue& queue) override {
    const OpName scope(op_.empty() ? nullptr : op_.c_str());
    enqueue(queue);
  }
  Enqueue enqueue;
};

struct DeferredCommands {
  std::mutex mutex;  // protects `list`
  std::deque<std::unique_ptr<DeferredCommand>> list;
  std::mutex turn;  // held by the thread that enqueues the commands of `list`
  // The last command, if it could not be enqueued; `turn` protects them.
  std::string op;
  std::exception_ptr error;
};

// Calls enqueue(queue), which uses the queue's driver_handle(). If launches of the queue wait for their kernels, the
// call is made after those launches.
template <class Enqueue>
void enqueue_in_order(Queue& queue, std::initializer_list<cl_mem> buffers, Enqueue&& enqueue) {
  if (__builtin_expect(!queue.has_deferred(), 1)) return enqueue(queue);
  if (!queue.may_defer()) {
    queue.settle();
    return enqueue(queue);
  }
  auto command = std::make_unique<DeferredCall<std::decay_t<Enqueue>>>(std::forward<Enqueue>(enqueue));
  for (cl_mem mem : buffers) command->hold(mem);
  queue.defer(std::move(command));
}

}  // namespace netcl
