// Streams are in-order OpenCL queues; events are cl_event markers. A queue does not raise what kernels reported or what
// could not be enqueued later: Waits.h does.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/Deferred.h"
#include "runtime/Device.h"
#include "runtime/ImmediateQueue.h"

namespace netcl {

class Queue;

// A marker in a queue; who has it owns the event. There is no event during a capture.
struct Mark {
  Queue* queue = nullptr;
  cl_event event = nullptr;
  uint64_t commands = 0;  // so many commands of the queue came before

  void wait() const;
  // Call this when the event is known to be complete.
  void note_ended() const;
};

class Queue {
 public:
  // When a command has ended: some time after the call that enqueues it, or within it, since the call blocks.
  enum Ends { kLater, kInCall };

  Queue(Device& device, c10::StreamId id);
  Device& device() const { return device_; }
  c10::Stream stream() const { return stream_; }
  // The queue for others (pyopencl), who may enqueue too from now on, so netcl's counts no longer say whether it is
  // idle. Waits for the kernels of deferred launches.
  cl_command_queue share();

  // The only way of a command to the driver: `call(handle)` enqueues it and returns the driver's error, which this
  // returns too. One that ends in the call comes behind all commands so far; for others behind deferred launches, use
  // submit_in_order() of Command.h.
  template <Ends ends = kLater, class Call>
  cl_int submit(Call&& call) {
    if (ends == kInCall) {
      deferred_.settle();
      finish_before_copy();
    }
    const Enqueuing scope(*this);
    const uint64_t before = enqueued_.load();
    std::optional<HostWait> wait;
    if (ends == kInCall) wait.emplace(*this);
    const cl_int err = call(handle_);
    if (__builtin_expect(err == CL_SUCCESS, 1)) ends == kInCall ? note_ended(before) : after_enqueue();
    return err;
  }
  // Launches whose kernels are still being built, and commands behind them.
  DeferredCommands& deferred() { return deferred_; }
  // False if others use the queue, who would not wait for deferred commands, or someone records what runs.
  bool may_defer() const;
  ImmediateQueue& immediate() { return immediate_; }
  // Owns its mutex if the queue is idle: then the calling thread may do what comes next itself, and other threads that
  // enqueue wait. With `wait`, it first waits until the queue is idle, if it can be.
  std::unique_lock<std::mutex> turn(bool wait = false);
  // Whether all that was enqueued here is known to have ended. False if others may enqueue here too, and while someone
  // records or counts the driver's calls.
  bool idle() const;

  // Waits for everything enqueued so far.
  void finish();
  // The same without deferred commands; returns the driver's error.
  cl_int finish_submitted();
  // Whether all that was enqueued so far has ended.
  bool ended();
  // Everything enqueued on this queue from now on waits for `event`.
  void wait(cl_event event);
  // Enqueues a marker after everything so far and submits it.
  Mark mark();

 private:
  friend struct Mark;
  // The scope in which a thread gives a command to the driver, and counts it or waits for it: no other thread has its
  // turn() meanwhile.
  class Enqueuing {
   public:
    explicit Enqueuing(Queue& queue) : queue_(queue) {
      const std::lock_guard<std::mutex> lock(queue_.turn_mutex_);
      queue_.enqueuing_++;
    }
    ~Enqueuing() { queue_.enqueuing_--; }

   private:
    Queue& queue_;
  };
  // While one lives, the host waits for a command, and other threads that enqueue without end let it.
  class HostWait {
   public:
    explicit HostWait(Queue& queue);
    ~HostWait();

   private:
    Queue& queue_;
  };
  bool alone() const;
  void after_enqueue();
  void finish_before_copy();
  void flush();
  void throttle();
  cl_event enqueue_marker();
  void note_ended(uint64_t commands);

  Device& device_;
  c10::Stream stream_;
  cl_command_queue handle_;
  ImmediateQueue immediate_;
  DeferredCommands deferred_;
  std::atomic<uint32_t> since_flush_{0};
  // The number of commands enqueued, the number known to be finished, and a marker that ended() has enqueued.
  std::atomic<uint64_t> enqueued_{0}, done_{0};
  std::mutex turn_mutex_;
  std::atomic<uint32_t> enqueuing_{0};  // threads within a scope of Enqueuing
  std::atomic<bool> shared_{false};
  std::atomic<bool> marked_{false};  // whether a marker, which is no counted command, may not have ended
  std::mutex probe_mutex_;
  Mark probe_;
  // Markers between many commands: a host that runs ahead of the device waits for the oldest before the driver's list
  // of commands fills the memory.
  std::mutex marks_mutex_;
  std::deque<cl_event> marks_;
};

// The queue of a stream, even during a capture.
Queue& queue_at(c10::DeviceIndex index, c10::StreamId id);
// The queue of the captures of this number (Capture.h), behind those of users' streams.
Queue& capture_queue(c10::DeviceIndex index, int number);
// The queue that stands for all streams of the device during a capture; null otherwise.
std::atomic<Queue*>& capturing_queue(c10::DeviceIndex index);

// The current queue of this thread on device `index` (-1 = current device).
Queue& current_queue(c10::DeviceIndex index = -1);
// The capture to which commands of this thread on the device belong, or null.
Capture* current_capture(c10::DeviceIndex index);
Queue& queue_for(const c10::Stream& stream);
// The current stream of this thread, even during a capture.
c10::Stream current_stream(c10::DeviceIndex index);
c10::Stream stream_from_pool(c10::DeviceIndex index, bool high_priority);
c10::Stream exchange_stream(const c10::Stream& stream);
void set_current_stream(c10::DeviceIndex index, c10::StreamId id);
// The queues of the device's streams that were used so far.
std::vector<Queue*> queues_of(c10::DeviceIndex index);
bool has_several_queues(c10::DeviceIndex index);
// Waits for all streams of the device, or those with work; the next wait raises what went wrong.
void finish_device(c10::DeviceIndex index, bool busy_ones);
// Whether every stream has come to its end, be it by an error, and no kernel is being built. Until then the drivers'
// threads run, and may compile: PoCL makes a kernel for a work-group's size when its first command runs, by LLVM, whose
// statics exit() destroys.
bool all_streams_idle() noexcept;

}  // namespace netcl
