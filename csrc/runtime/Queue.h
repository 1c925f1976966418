// Streams are in-order OpenCL queues; events are cl_event markers.
#pragma once

#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/Device.h"

namespace netcl {

class LaunchGate;

class Queue {
 public:
  Queue(Device& device, c10::StreamId id);
  ~Queue();
  cl_command_queue handle() const { return handle_; }
  Device& device() const { return device_; }
  c10::StreamId id() const { return id_; }
  c10::Stream stream() const;

  // Waits for everything enqueued so far (a host wait: counted), then raises what device code reported.
  void synchronize();
  bool query();
  // Submits everything enqueued so far.
  void flush();
  // Whether nothing was enqueued since the last flush().
  bool just_flushed() const { return since_flush_.load(std::memory_order_relaxed) == 0; }
  // What may hold launches of this queue back.
  LaunchGate& gate() const { return *gate_; }
  // To be called before the host waits for a command of this queue by other means than those here.
  void prepare_wait();
  // To be called after each enqueue: submits from time to time, and waits under NETCL_LAUNCH_BLOCKING=1. What is
  // `large` is submitted at once where it could be held back.
  void after_enqueue(bool large = false);
  // Everything enqueued on this queue from now on waits for `event`.
  void wait(cl_event event);
  // A marker behind everything enqueued so far; the caller owns it. Submitted at once.
  cl_event enqueue_marker();
  // Others (pyopencl) may enqueue on it too from now on: what netcl counted no longer says whether it is idle.
  void share();

 private:
  Device& device_;
  c10::StreamId id_;
  cl_command_queue handle_ = nullptr;
  std::unique_ptr<LaunchGate> gate_;
  std::atomic<uint32_t> since_flush_{0};
  // What query() knows: how much was enqueued, how much of it is known to be done, and a marker on its way.
  std::atomic<uint64_t> enqueued_{0}, done_{0};
  std::atomic<bool> shared_{false};
  std::mutex probe_mutex_;
  cl_event probe_ = nullptr;
  uint64_t probe_at_ = 0;
};

// The current queue of the current thread on device `index` (-1 = current device).
Queue& current_queue(c10::DeviceIndex index = -1);
Queue& queue_for(const c10::Stream& stream);
c10::Stream stream_from_pool(c10::DeviceIndex index, bool high_priority);
c10::Stream exchange_stream(const c10::Stream& stream);
void synchronize_device(c10::DeviceIndex index);
// Whether every stream has come to its end, be it by an error. Until then the drivers' threads run, and may compile:
// PoCL makes a kernel for a work-group's size when its first command runs, by LLVM, whose statics exit() destroys.
bool all_streams_idle() noexcept;

}  // namespace netcl
