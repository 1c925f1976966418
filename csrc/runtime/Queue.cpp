#include "runtime/Queue.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <utility>

#include "runtime/Activities.h"
#include "runtime/Builds.h"
#include "runtime/Counters.h"
#include "runtime/Failures.h"
#include "runtime/FaultInjection.h"
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

thread_local std::array<c10::StreamId, 64> current_streams{};

// The queues of captures, by their numbers. No command is enqueued there, except the first use of new memory.
constexpr c10::StreamId kFirstCapture = 1024;
struct CaptureQueues {
  std::mutex mutex;
  std::vector<std::unique_ptr<Queue>> list;
  std::atomic<Queue*> current{nullptr};
};
CaptureQueues& captures_of(c10::DeviceIndex index) {
  static auto* all = new std::array<CaptureQueues, 64>();
  return all->at(index);
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

cl_command_queue created(const Device& device) {
  check_not_forked();
  cl_int err = CL_SUCCESS;
  // Profiling makes Event.elapsed_time possible and costs well under a microsecond per launch.
  cl_command_queue handle = cl().clCreateCommandQueue(device.context(), device.id(), CL_QUEUE_PROFILING_ENABLE, &err);
  if (err != CL_SUCCESS) raise_cl_error(err, "clCreateCommandQueue");
  return handle;
}

// Called when another context's command ends: sets the user event that stands for it in our context.
void CL_CALLBACK pass_on(cl_event /*theirs*/, cl_int status, void* ours) {
  auto* event = static_cast<cl_event>(ours);
  cl().clSetUserEventStatus(event, status < CL_COMPLETE ? status : CL_COMPLETE);
  cl().clReleaseEvent(event);
}

}  // namespace

Queue::Queue(Device& device, c10::StreamId id)
    : device_(device),
      stream_(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, device.index()), id),
      handle_(created(device)),
      immediate_(device),
      deferred_(*this, device.index()) {}

bool Queue::may_defer() const { return !shared_.load(std::memory_order_relaxed) && !recording() && !deferred_.full(); }

cl_command_queue Queue::share() {
  shared_.store(true);
  deferred_.settle();
  return handle_;
}

bool Queue::alone() const { return !shared_.load(std::memory_order_relaxed) && !recording() && !injecting(); }

bool Queue::idle() const {
  return enqueuing_.load() == 0 && done_.load() >= enqueued_.load() && alone() && !deferred_.any();
}

std::unique_lock<std::mutex> Queue::turn(bool wait) {
  if (wait && alone() && !idle()) finish();
  if (!idle()) return {};
  std::unique_lock<std::mutex> lock(turn_mutex_);
  if (!idle()) lock.unlock();
  return lock;
}

cl_int Queue::finish_submitted() {
  since_flush_.store(0, std::memory_order_relaxed);
  const uint64_t now = enqueued_.load();
  if (!idle() || marked_.exchange(false)) {
    const HostWait wait(*this);
    if (const cl_int err = cl().clFinish(handle_); err != CL_SUCCESS) return err;
  }
  note_ended(now);
  return CL_SUCCESS;
}

void Queue::finish() {
  deferred_.settle();
  if (const cl_int err = finish_submitted(); err != CL_SUCCESS) raise_cl_error(err, "clFinish");
}

void Mark::wait() const {
  {
    const Queue::HostWait wait(*queue);
    NETCL_CL(clWaitForEvents(1, &event));
  }
  note_ended();
}

void Mark::note_ended() const { queue->note_ended(commands); }

// clFinish and a wait for a marker's event keep all threads of both CPU runtimes busy. Within a blocking copy or map,
// Intel's runtime runs the commands before it in the waiting thread alone (a GPT's training step on 2 cores: 222 ms,
// with clFinish first 165), and PoCL wakes a thread for a copy that the host makes itself once the queue is finished.
// On a GPU a wait of its own would be a second round trip to the device.
void Queue::finish_before_copy() {
  if ((device_.info().type & CL_DEVICE_TYPE_CPU) != 0 && !idle()) finish();
}

void Queue::note_ended(uint64_t commands) {
  for (uint64_t known = done_.load(); known < commands && !done_.compare_exchange_weak(known, commands);) {}
  immediate_.note_wait();
}

bool Queue::ended() {
  check_not_forked();
  deferred_.settle_over();
  if (deferred_.any()) return false;
  const uint64_t now = enqueued_.load();
  if (!shared_.load(std::memory_order_relaxed) && done_.load() >= now) return true;
  // A marker takes time even on an idle queue, so it is kept until it completes or more work is enqueued.
  const std::lock_guard<std::mutex> lock(probe_mutex_);
  if (probe_.event && probe_.commands != now) cl().clReleaseEvent(std::exchange(probe_.event, nullptr));
  if (!probe_.event) probe_ = {this, enqueue_marker(), now};
  cl_int status = CL_COMPLETE;
  NETCL_CL(clGetEventInfo(probe_.event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, nullptr));
  if (status > CL_COMPLETE) return false;
  cl().clReleaseEvent(std::exchange(probe_.event, nullptr));
  // A command that failed has ended too, and the caller must learn of it.
  if (status < CL_COMPLETE) raise_cl_error(status, "a command of this stream");
  done_.store(now);
  return true;
}

Queue::HostWait::HostWait(Queue& queue) : queue_(queue) {
  queue.since_flush_.store(0, std::memory_order_relaxed);
  HostWaits& waits = host_waits_of(queue);
  const std::lock_guard<std::mutex> lock(waits.mutex);
  waits.now++;
}

Queue::HostWait::~HostWait() {
  HostWaits& waits = host_waits_of(queue_);
  {
    const std::lock_guard<std::mutex> lock(waits.mutex);
    waits.now--;
    waits.ended++;
  }
  waits.one_ended.notify_all();
}

void Queue::flush() {
  since_flush_.store(0, std::memory_order_relaxed);
  NETCL_CL(clFlush(handle_));
}

void Queue::throttle() {
  if (shutting_down()) return;
  let_a_wait_end(*this);
  cl_event oldest = nullptr;
  {
    const std::lock_guard<std::mutex> lock(marks_mutex_);
    marks_.push_back(enqueue_marker());
    if (marks_.size() <= kMarks) return;
    oldest = marks_.front();
    marks_.pop_front();
  }
  if (!is_over(oldest)) {
    increment(counters.throttles);
    cl().clWaitForEvents(1, &oldest);  // the next wait reports its error
  }
  cl().clReleaseEvent(oldest);
}

void Queue::after_enqueue() {
  const uint64_t commands = enqueued_.fetch_add(1) + 1;
  if (__builtin_expect(commands % kMarkEvery == 0, 0)) throttle();
  if (since_flush_.fetch_add(1, std::memory_order_relaxed) + 1 >= kFlushEvery) flush();
}

void Queue::wait(cl_event event) {
  check_not_forked();
  deferred_.settle();
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
  const cl_int err = submit(
      [event](cl_command_queue handle) { return cl().clEnqueueBarrierWithWaitList(handle, 1, &event, nullptr); });
  if (err != CL_SUCCESS) raise_cl_error(err, "clEnqueueBarrierWithWaitList");
}

Mark Queue::mark() {
  if (deferred_.capture()) return {this};
  deferred_.settle();
  const uint64_t before = enqueued_.load();
  return {this, enqueue_marker(), before};
}

cl_event Queue::enqueue_marker() {
  check_not_forked();
  cl_event event = nullptr;
  marked_.store(true);
  NETCL_CL(clEnqueueMarkerWithWaitList(handle_, 0, nullptr, &event));
  auto release = c10::make_scope_exit([event] { cl().clReleaseEvent(event); });
  flush();
  release.release();
  return event;
}

Queue& queue_at(c10::DeviceIndex index, c10::StreamId id) {
  if (id >= kFirstCapture) {
    CaptureQueues& captures = captures_of(index);
    const std::lock_guard<std::mutex> lock(captures.mutex);
    const auto number = static_cast<size_t>(id - kFirstCapture);
    TORCH_CHECK(number < captures.list.size(), "netcl: stream ", id, " does not exist");
    return *captures.list[number];
  }
  auto& q = all_queues().at(index);
  TORCH_CHECK(id >= 0 && id <= kPoolStreams, "netcl: stream ", id, " does not exist");
  std::call_once(q.once[id], [&] {
    auto queue = std::make_unique<Queue>(device(index), id);
    if (q.used.fetch_add(1) > 0) finish_device(index, true);  // copies so far were made for one stream
    q.queues[id] = std::move(queue);
  });
  return *q.queues[id];
}

Queue& capture_queue(c10::DeviceIndex index, int number) {
  CaptureQueues& captures = captures_of(index);
  const std::lock_guard<std::mutex> lock(captures.mutex);
  while (captures.list.size() <= static_cast<size_t>(number)) {
    const auto next = kFirstCapture + static_cast<c10::StreamId>(captures.list.size());
    captures.list.push_back(std::make_unique<Queue>(device(index), next));
  }
  return *captures.list[number];
}

std::atomic<Queue*>& capturing_queue(c10::DeviceIndex index) { return captures_of(index).current; }

Queue& current_queue(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  if (Queue* capturing = captures_of(index).current.load(std::memory_order_acquire)) return *capturing;
  return queue_at(device(index).index(), current_streams[index]);
}

Capture* current_capture(c10::DeviceIndex index) { return current_queue(index).deferred().capture(); }

Queue& queue_for(const c10::Stream& stream) {
  if (Queue* capturing = captures_of(stream.device_index()).current.load(std::memory_order_acquire)) return *capturing;
  return queue_at(stream.device_index(), stream.id());
}

c10::Stream current_stream(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, index), current_streams.at(index));
}

c10::Stream stream_from_pool(c10::DeviceIndex index, bool /*high_priority*/) {
  if (index < 0) index = current_device();
  const auto id = 1 + all_queues().at(device(index).index()).next.fetch_add(1) % kPoolStreams;
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, index), id);
}

c10::Stream exchange_stream(const c10::Stream& stream) {
  auto& current = current_streams.at(stream.device_index());
  const c10::Stream previous(c10::Stream::UNSAFE, stream.device(), current);
  TORCH_CHECK(current < kFirstCapture, "netcl: not recorded: the call enters a stream");
  TORCH_CHECK(stream.id() >= 0 && stream.id() <= kPoolStreams, "netcl: stream ", stream.id(), " does not exist");
  current = stream.id();
  return previous;
}

void set_current_stream(c10::DeviceIndex index, c10::StreamId id) { current_streams.at(index) = id; }

std::vector<Queue*> queues_of(c10::DeviceIndex index) {
  std::vector<Queue*> found;
  for (auto& queue : all_queues().at(index).queues) {
    if (queue) found.push_back(queue.get());
  }
  return found;
}

bool has_several_queues(c10::DeviceIndex index) { return all_queues().at(index).used.load() > 1; }

void finish_device(c10::DeviceIndex index, bool busy_ones) {
  for (Queue* queue : queues_of(index)) {
    if (busy_ones && queue->idle()) continue;
    increment(counters.host_syncs);
    try {
      queue->finish();
    } catch (...) {  // an error of one stream must not leave the others without a wait
      note_failure(index, std::current_exception());
    }
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
