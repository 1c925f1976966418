#include "runtime/Queue.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>

#include "runtime/Builds.h"
#include "runtime/Counters.h"
#include "runtime/Environment.h"
#include "runtime/Event.h"
#include "runtime/Failures.h"
#include "runtime/FaultInjection.h"
#include "runtime/ImmediateQueue.h"
#include "runtime/LaunchGate.h"
#include "runtime/Profiler.h"
#include "runtime/Shutdown.h"

namespace netcl {

namespace {

constexpr int kPoolStreams = 32;
constexpr uint32_t kFlushEvery = 32;
constexpr uint64_t kMarkEvery = 512;  // commands per marker; the host waits for the oldest of five
constexpr size_t kMarks = 4;

struct DeviceQueues {
  std::array<std::once_flag, kPoolStreams + 1> once;
  std::array<std::unique_ptr<Queue>, kPoolStreams + 1> queues;
  std::atomic<uint32_t> next{0};
  std::atomic<int> used{0};  // streams that have a queue
};

std::array<DeviceQueues, 64>& all_queues() {
  static auto* all = new std::array<DeviceQueues, 64>();
  return *all;
}
DeviceQueues& queues_of(c10::DeviceIndex index) { return all_queues().at(index); }

}  // namespace

// Waits for all streams of the device, or those with work; the next wait raises what went wrong.
void finish_device(c10::DeviceIndex index, bool busy_ones) {
  for (auto& queue : queues_of(index).queues) {
    if (!queue || (busy_ones && queue->idle())) continue;
    increment(counters.host_syncs);
    try {
      queue->finish();
    } catch (...) {  // an error of one stream must not leave the others without a wait
      note_failure(*queue, std::current_exception());
    }
  }
}

namespace {

Queue& queue_at(c10::DeviceIndex index, c10::StreamId id) {
  auto& q = queues_of(index);
  TORCH_CHECK(id >= 0 && id <= kPoolStreams, "netcl: stream ", id, " does not exist");
  std::call_once(q.once[id], [&] {
    auto queue = std::make_unique<Queue>(device(index), id);
    if (q.used.fetch_add(1) > 0) finish_device(index, true);  // copies so far were made for one stream
    q.queues[id] = std::move(queue);
  });
  return *q.queues[id];
}

thread_local std::array<c10::StreamId, 64> current_streams{};

// Markers in a queue. With them a host that runs ahead of the device waits before the driver's list of commands fills
// the memory.
struct Marks {
  std::mutex mutex;
  std::deque<cl_event> events;
};
Marks& marks_of(const Queue& queue) {
  static auto* all = new std::array<std::array<Marks, kPoolStreams + 1>, 64>();
  return all->at(queue.device().index()).at(queue.id());
}

// The host threads that wait for a device.
struct HostWaits {
  std::mutex mutex;
  std::condition_variable one_ended;
  int now = 0;
  uint64_t ended = 0;
};
HostWaits& host_waits_of(const Queue& queue) {
  static auto* all = new std::array<HostWaits, 64>();
  return all->at(queue.device().index());
}

// PoCL's clFinish and blocking calls wait until the queue is empty, and Intel's CPU runtime lets a thread that waits
// run commands for as long as there are any. So a thread that enqueues without end stops here until a wait has ended.
// Ten seconds at most, since a command may depend on this thread (by a user event of pyopencl).
void let_a_wait_end(const Queue& queue) {
  HostWaits& waits = host_waits_of(queue);
  std::unique_lock<std::mutex> lock(waits.mutex);
  // By the system's clock: for the steady one, libstdc++ calls pthread_cond_clockwait, which glibc 2.28 lacks.
  waits.one_ended.wait_until(lock, std::chrono::system_clock::now() + std::chrono::seconds(10),
                             [&waits, before = waits.ended] { return waits.now == 0 || waits.ended != before; });
}

void throttle(Queue& queue) {
  if (shutting_down()) return;
  let_a_wait_end(queue);
  Marks& marks = marks_of(queue);
  cl_event oldest = nullptr;
  {
    const std::lock_guard<std::mutex> lock(marks.mutex);
    marks.events.push_back(queue.marker_behind_launches());
    if (marks.events.size() <= kMarks) return;
    oldest = marks.events.front();
    marks.events.pop_front();
  }
  if (!is_over(oldest)) {
    increment(counters.throttles);
    cl().clWaitForEvents(1, &oldest);  // synchronize() reports its error
  }
  cl().clReleaseEvent(oldest);
}

// Called when another context's command ends: sets the user event that stands for it in our context.
void CL_CALLBACK pass_on(cl_event /*theirs*/, cl_int status, void* ours) {
  auto* event = static_cast<cl_event>(ours);
  cl().clSetUserEventStatus(event, status < CL_COMPLETE ? status : CL_COMPLETE);
  cl().clReleaseEvent(event);
}

}  // namespace

bool launch_blocking() {
  static const bool on = flag("NETCL_LAUNCH_BLOCKING");
  return on;
}

Queue::Queue(Device& device, c10::StreamId id)
    : device_(device),
      id_(id),
      gate_(std::make_unique<LaunchGate>(device)),
      deferred_(std::make_unique<DeferredCommands>()) {
  check_not_forked();
  cl_int err = CL_SUCCESS;
  // Profiling makes Event.elapsed_time possible and costs well under a microsecond per launch.
  handle_ = cl().clCreateCommandQueue(device.context(), device.id(), CL_QUEUE_PROFILING_ENABLE, &err);
  if (err != CL_SUCCESS) raise_cl_error(err, "clCreateCommandQueue");
  immediate_ = std::make_unique<ImmediateQueue>(device);
}

Queue::~Queue() = default;

void Queue::prepare_wait() {
  settle();
  gate_->open();
}

bool Queue::may_defer() const {
  constexpr size_t kMost = 4096;
  if (shared_.load(std::memory_order_relaxed) || recording()) return false;
  const std::lock_guard<std::mutex> lock(deferred_->mutex);
  return deferred_->list.size() < kMost;
}

void Queue::defer(std::unique_ptr<DeferredCommand> command) {
  const std::lock_guard<std::mutex> lock(deferred_->mutex);
  deferred_->list.push_back(std::move(command));
  increment(counters.deferred);
  deferring_.store(true, std::memory_order_release);
}

void Queue::submit_deferred(Settle which) {
  DeferredCommands& d = *deferred_;
  std::unique_lock<std::mutex> turn(d.turn, std::defer_lock);
  if (which == Settle::kAll) {
    turn.lock();
  } else if (!turn.try_lock()) {
    return;
  }
  for (;;) {
    std::unique_ptr<DeferredCommand> next;
    {
      const std::lock_guard<std::mutex> lock(d.mutex);
      if (d.list.empty()) {
        d.error = nullptr;
        return deferring_.store(false, std::memory_order_release);
      }
      if (which == Settle::kBuilt && !d.list.front()->ready()) return;
      if (which == Settle::kOver && !d.list.front()->over()) return;
      next = std::move(d.list.front());
      d.list.pop_front();
    }
    // What comes next of the same operator would read what was not written, perhaps as places in memory.
    if (d.error && !d.op.empty() && d.op == next->op()) {
      note_failure(*this, d.error, d.op);
      continue;
    }
    d.error = nullptr;
    try {
      next->submit(*this);
    } catch (...) {
      d.op = next->op();
      d.error = std::current_exception();
      note_failure(*this, d.error, d.op);
    }
  }
}

void Queue::share() {
  shared_.store(true);
  settle();
  gate_->disable();
}

bool Queue::idle() const {
  return enqueuing_.load() == 0 && done_.load() >= enqueued_.load() && !shared_.load(std::memory_order_relaxed) &&
         !recording() && !has_deferred() && !injecting();
}

std::unique_lock<std::mutex> Queue::turn() {
  if (!idle()) return {};
  std::unique_lock<std::mutex> lock(turn_mutex_);
  if (!idle()) lock.unlock();
  return lock;
}

c10::Stream Queue::stream() const {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, device_.index()), id_);
}

void Queue::synchronize() {
  check_not_forked();
  if (shutting_down()) return stay_if_exiting();
  increment(counters.host_syncs);
  finish();
  stay_if_exiting();
  raise_earlier_errors(*this);
}

void Queue::finish() {
  settle();
  since_flush_.store(0, std::memory_order_relaxed);
  const uint64_t now = enqueued_.load();
  if (!idle() || marked_.exchange(false)) {
    const HostWait wait(*this);
    NETCL_CL(clFinish(handle_));
  }
  note_ended(now);
}

void Queue::finish_for_others() {
  if (queues_of(device_.index()).used.load() > 1 && !idle()) synchronize();
}

bool Queue::query() {
  if (!ended()) return false;
  raise_earlier_errors(*this);
  return true;
}

bool Queue::ended() {
  check_not_forked();
  if (has_deferred()) submit_deferred(Settle::kOver);
  if (has_deferred()) return false;
  const uint64_t now = enqueued_.load();
  if (!shared_.load(std::memory_order_relaxed) && done_.load() >= now) return true;
  // A marker takes time even on an idle queue, so it is kept until it completes or more work is enqueued.
  const std::lock_guard<std::mutex> lock(probe_mutex_);
  if (probe_ && probe_at_ != now) {
    cl().clReleaseEvent(probe_);
    probe_ = nullptr;
  }
  if (!probe_) {
    probe_ = enqueue_marker();
    probe_at_ = now;
  }
  cl_int status = CL_COMPLETE;
  NETCL_CL(clGetEventInfo(probe_, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr));
  if (status > CL_COMPLETE) return false;
  cl().clReleaseEvent(probe_);
  probe_ = nullptr;
  // A command that failed has ended too, and the caller must learn of it.
  if (status < CL_COMPLETE) raise_cl_error(status, "a command of this stream");
  done_.store(now);
  return true;
}

HostWait::HostWait(Queue& queue) : queue_(queue) {
  queue.since_flush_.store(0, std::memory_order_relaxed);
  queue.gate_->open();
  HostWaits& waits = host_waits_of(queue);
  const std::lock_guard<std::mutex> lock(waits.mutex);
  waits.now++;
}

HostWait::~HostWait() {
  HostWaits& waits = host_waits_of(queue_);
  {
    const std::lock_guard<std::mutex> lock(waits.mutex);
    waits.now--;
    waits.ended++;
  }
  waits.one_ended.notify_all();
}

void Queue::wait_on_host(cl_event event) {
  const HostWait wait(*this);
  NETCL_CL(clWaitForEvents(1, &event));
}

void Queue::flush() {
  since_flush_.store(0, std::memory_order_relaxed);
  gate_->open();
  NETCL_CL(clFlush(handle_));
}

void Queue::after_enqueue(bool large) {
  const uint64_t commands = enqueued_.fetch_add(1) + 1;
  if (__builtin_expect(launch_blocking(), 0)) {
    synchronize();
    return;
  }
  if (__builtin_expect(commands % kMarkEvery == 0, 0)) throttle(*this);
  const uint32_t held = gate_->capacity(), count = since_flush_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (held ? large || count > held : count >= kFlushEvery) {
    flush();
  }
}

void Queue::wait(cl_event event) {
  check_not_forked();
  settle();
  const Enqueuing scope(*this);
  cl_context theirs = nullptr;
  NETCL_CL(clGetEventInfo(event, CL_EVENT_CONTEXT, sizeof(theirs), &theirs, nullptr));
  if (theirs != device_.context()) {
    // A queue can wait only for events of its own context.
    cl_int err = CL_SUCCESS;
    cl_event ours = cl().clCreateUserEvent(device_.context(), &err);
    if (err == CL_SUCCESS && cl().clRetainEvent(ours) == CL_SUCCESS) {
      const auto release = c10::make_scope_exit([ours] { cl().clReleaseEvent(ours); });
      if (cl().clSetEventCallback(event, CL_COMPLETE, &pass_on, ours) == CL_SUCCESS) return wait(ours);
      cl().clReleaseEvent(ours);
    }
    increment(counters.host_syncs);
    NETCL_CL(clWaitForEvents(1, &event));
    return;
  }
  NETCL_CL(clEnqueueBarrierWithWaitList(handle_, 1, &event, nullptr));
  after_enqueue();
}

cl_event Queue::enqueue_marker() {
  settle();
  return marker_behind_launches();
}

cl_event Queue::marker_behind_launches() {
  check_not_forked();
  cl_event event = nullptr;
  marked_.store(true);
  NETCL_CL(clEnqueueMarkerWithWaitList(handle_, 0, nullptr, &event));
  auto release = c10::make_scope_exit([event] { cl().clReleaseEvent(event); });
  flush();
  release.release();
  return event;
}

Queue& current_queue(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  return queue_at(device(index).index(), current_streams[index]);
}

Queue& queue_for(const c10::Stream& stream) { return queue_at(stream.device_index(), stream.id()); }

c10::Stream stream_from_pool(c10::DeviceIndex index, bool /*high_priority*/) {
  if (index < 0) index = current_device();
  const auto id = 1 + queues_of(device(index).index()).next.fetch_add(1) % kPoolStreams;
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, index), id);
}

c10::Stream exchange_stream(const c10::Stream& stream) {
  auto& current = current_streams.at(stream.device_index());
  const c10::Stream previous(c10::Stream::UNSAFE, stream.device(), current);
  TORCH_CHECK(stream.id() >= 0 && stream.id() <= kPoolStreams, "netcl: stream ", stream.id(), " does not exist");
  current = stream.id();
  return previous;
}

void synchronize_device(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  auto& q = queues_of(device(index).index());
  check_not_forked();
  if (shutting_down()) return stay_if_exiting();
  finish_device(index, false);
  stay_if_exiting();
  for (auto& queue : q.queues) {
    if (queue) raise_earlier_errors(*queue);
  }
}

bool all_streams_idle() noexcept {
  if (builds_under_way()) return false;
  for (auto& of_device : all_queues()) {
    for (auto& queue : of_device.queues) {
      try {
        if (queue && !queue->ended()) return false;
      } catch (const std::exception&) {  // a command failed, or this is a forked child: nothing to wait for
      }
    }
  }
  warn_of_failures();
  return true;
}

}  // namespace netcl
