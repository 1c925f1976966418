// Streams are in-order OpenCL queues; events are cl_event markers.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/Device.h"

namespace netcl {

class ImmediateQueue;
class LaunchGate;
class DeferredCommand;
struct DeferredCommands;

class Queue {
 public:
  Queue(Device& device, c10::StreamId id);
  ~Queue();
  // For commands behind all launches so far: waits for the kernels of deferred ones.
  cl_command_queue handle() {
    settle();
    return handle_;
  }
  // For the launches themselves.
  cl_command_queue driver_handle() const { return handle_; }
  Device& device() const { return device_; }
  c10::StreamId id() const { return id_; }
  c10::Stream stream() const;

  // Waits for everything enqueued so far (a counted host wait), then raises what went wrong (Failures.h).
  void synchronize();
  // Waits for everything enqueued so far.
  void finish();
  // As synchronize(), if other streams of the device are in use, which may read what was written here and do not wait.
  // A stream that is used for the first time waits for the others.
  void finish_for_others();
  // Whether all that was enqueued so far has ended; query() then raises what went wrong.
  bool ended();
  bool query();
  // Submits everything enqueued so far.
  void flush();
  // Whether nothing was enqueued since the last flush().
  bool just_flushed() const { return since_flush_.load(std::memory_order_relaxed) == 0; }
  // The gate that may hold back launches of this queue.
  LaunchGate& gate() const { return *gate_; }
  // Call this before the host waits for a command of this queue without the functions of this class.
  void prepare_wait();
  // The host waits until `event`, of a command of this queue, has ended.
  void wait_on_host(cl_event event);
  // Call this after each enqueue: it flushes from time to time, and waits under NETCL_LAUNCH_BLOCKING=1. A `large`
  // command is submitted at once, even if launches may be held back.
  void after_enqueue(bool large = false);
  // Launches whose kernels are still being built, and commands behind them (Builds.h).
  bool has_deferred() const { return deferring_.load(std::memory_order_acquire); }
  // Not too many, nor if others use the queue, who would not wait for them, nor while someone records what runs.
  bool may_defer() const;
  void defer(std::unique_ptr<DeferredCommand> command);
  // Enqueues them: all, those at the front whose kernels are built, or those whose builds are over, be it by an error.
  // What cannot be enqueued is left out, and the next wait raises why (Failures.h).
  void settle() {
    if (__builtin_expect(has_deferred(), 0)) submit_deferred(Settle::kAll);
  }
  void settle_built() {
    if (has_deferred()) submit_deferred(Settle::kBuilt);
  }
  // Everything enqueued on this queue from now on waits for `event`.
  void wait(cl_event event);
  // Enqueues a marker after everything so far and submits it; the caller owns the event.
  cl_event enqueue_marker();
  // The same for what a launch itself enqueues: deferred launches are no concern of it.
  cl_event marker_behind_launches();
  // From now on others (pyopencl) may enqueue on this queue too, so netcl's counts no longer say whether it is idle.
  void share();
  // Whether all that was enqueued here is known to have ended. False if others may enqueue here too, and while someone
  // records or counts the driver's calls.
  bool idle() const;
  // Owns its mutex if the queue is idle: then the calling thread may do what comes next itself (ImmediateQueue.h), and
  // other threads that enqueue wait until it has.
  std::unique_lock<std::mutex> turn();
  // Call this after an enqueue that is not followed by after_enqueue().
  void count_command() { enqueued_++; }
  // The number of commands so far, and a note that so many have ended.
  uint64_t commands() const { return enqueued_.load(); }
  void note_ended(uint64_t commands) {
    for (uint64_t known = done_.load(); known < commands && !done_.compare_exchange_weak(known, commands);) {}
    note_wait();
  }
  // The launches that callers have run themselves since the host last asked for a result.
  uint32_t unasked() const { return unasked_.load(std::memory_order_relaxed); }
  void count_unasked() { unasked_.fetch_add(1, std::memory_order_relaxed); }
  void note_wait() { unasked_.store(0, std::memory_order_relaxed); }
  ImmediateQueue& immediate() const { return *immediate_; }

 private:
  friend class HostWait;
  friend class Enqueuing;
  enum class Settle { kAll, kBuilt, kOver };
  void submit_deferred(Settle which);

  Device& device_;
  c10::StreamId id_;
  cl_command_queue handle_ = nullptr;
  std::unique_ptr<LaunchGate> gate_;
  std::unique_ptr<ImmediateQueue> immediate_;
  std::unique_ptr<DeferredCommands> deferred_;
  std::atomic<bool> deferring_{false};
  std::atomic<uint32_t> since_flush_{0};
  // For query(): the number of commands enqueued, the number known to be finished, and a marker that was enqueued.
  std::atomic<uint64_t> enqueued_{0}, done_{0};
  std::mutex turn_mutex_;
  std::atomic<uint32_t> unasked_{0};
  std::atomic<uint32_t> enqueuing_{0};  // threads within a scope of Enqueuing
  std::atomic<bool> shared_{false};
  std::atomic<bool> marked_{false};  // whether a marker, which is no counted command, may not have ended
  std::mutex probe_mutex_;
  cl_event probe_ = nullptr;
  uint64_t probe_at_ = 0;
};

// The scope in which a thread gives a command of `queue` to the driver, and counts it or waits for it: no other thread
// has its turn() meanwhile.
class Enqueuing {
 public:
  explicit Enqueuing(Queue& queue) : queue_(queue) {
    const std::lock_guard<std::mutex> lock(queue_.turn_mutex_);
    queue_.enqueuing_++;
  }
  ~Enqueuing() { queue_.enqueuing_--; }
  Enqueuing(const Enqueuing&) = delete;
  Enqueuing& operator=(const Enqueuing&) = delete;

 private:
  Queue& queue_;
};

// While one lives, the host waits for a command of `queue`, and other threads that enqueue without end let it.
class HostWait {
 public:
  explicit HostWait(Queue& queue);
  ~HostWait();
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

 private:
  Queue& queue_;
};

// The current queue of this thread on device `index` (-1 = current device).
Queue& current_queue(c10::DeviceIndex index = -1);
Queue& queue_for(const c10::Stream& stream);
c10::Stream stream_from_pool(c10::DeviceIndex index, bool high_priority);
c10::Stream exchange_stream(const c10::Stream& stream);
// Waits for all streams of the device, then raises what went wrong on any.
void synchronize_device(c10::DeviceIndex index);
// NETCL_LAUNCH_BLOCKING=1: every launch waits for its end.
bool launch_blocking();
// Whether every stream has come to its end, be it by an error, and no kernel is being built. Until then the drivers'
// threads run, and may compile: PoCL makes a kernel for a work-group's size when its first command runs, by LLVM, whose
// statics exit() destroys.
bool all_streams_idle() noexcept;

}  // namespace netcl
