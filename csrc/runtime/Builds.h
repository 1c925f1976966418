// Kernels are built by threads of their own, several at a time, while the host runs on. A launch of one that is not
// ready is kept with its arguments, and so is what follows it in its queue: the whole of a training step may be known
// before its first kernel is built. Whatever else uses the queue waits (Queue::handle).
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

// Work that one of the threads does. Its exception is kept for those who wait.
class Build {
 public:
  explicit Build(std::function<void()> work) : work_(std::move(work)) {}
  bool over() const { return over_.load(std::memory_order_acquire); }
  bool failed() const { return over() && error_; }
  // Returns at the end; raises what the work raised.
  void wait();
  void run();

 private:
  std::function<void()> work_;
  std::exception_ptr error_;
  std::atomic<bool> over_{false};
};

// NETCL_COMPILE_THREADS: how many threads there are, by default one per core, eight at most. 0: whoever needs a kernel
// builds it.
int build_threads();
// True on one of these threads.
bool is_build_thread();
// For one of them to do.
std::shared_ptr<Build> start_build(std::function<void()> work);
bool builds_under_way() noexcept;
// Waits until none is.
void finish_builds();

// A command that is not enqueued yet, since a launch before it waits for its kernel. It holds the buffers that it uses,
// lest they be released.
class DeferredCommand {
 public:
  DeferredCommand();
  virtual ~DeferredCommand();
  DeferredCommand(const DeferredCommand&) = delete;
  DeferredCommand& operator=(const DeferredCommand&) = delete;
  void hold(cl_mem mem);
  virtual bool ready() const { return true; }
  virtual void submit(Queue& queue) = 0;

 protected:
  std::string op_;  // for errors

 private:
  std::vector<cl_mem> held_;
};

// What Kernel::launch was given.
struct DeferredLaunch : DeferredCommand {
  explicit DeferredLaunch(Kernel& k) : kernel(k) {}
  void add(size_t size, const void* value);
  bool ready() const override { return !kernel.building(); }
  void submit(Queue& queue) override;

  Kernel& kernel;
  const char* op = nullptr;
  cl_uint dims = 1;
  std::array<size_t, 3> global{1, 1, 1}, local{1, 1, 1};
  struct Arg {
    size_t size, at;  // at: in `bytes`, or kLocal
  };
  static constexpr size_t kLocal = ~size_t{0};
  std::vector<Arg> args;
  std::vector<unsigned char> bytes;
};

// Any other command.
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
  std::mutex mutex;  // of the list
  std::deque<std::unique_ptr<DeferredCommand>> list;
  std::mutex turn;  // of whoever enqueues what is in it
};

// Calls enqueue(queue), which uses its driver_handle(): now or, behind launches that wait for their kernels, after
// them.
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
