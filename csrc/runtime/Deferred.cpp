#include "runtime/Deferred.h"

#include <c10/util/Exception.h>

#include <utility>

#include "runtime/Counters.h"
#include "runtime/Failures.h"
#include "runtime/OpName.h"

namespace netcl {

DeferredCommand::DeferredCommand() {
  if (const char* op = current_op()) op_ = op;
}

DeferredCommand::~DeferredCommand() { release_held(); }

void DeferredCommand::release_held() {
  for (cl_mem mem : held_) cl().clReleaseMemObject(mem);
  held_.clear();
}

void DeferredCommand::hold(cl_mem mem) {
  if (mem && cl().clRetainMemObject(mem) == CL_SUCCESS) held_.push_back(mem);
}

bool DeferredCommands::full() const {
  constexpr size_t kMost = 4096;
  const std::lock_guard<std::mutex> lock(mutex_);
  return list_.size() >= kMost && !capture();
}

void DeferredCommands::set_capture(Capture* capture) {
  const std::lock_guard<std::mutex> lock(mutex_);
  capture_.store(capture, std::memory_order_release);
  any_.store(capture != nullptr, std::memory_order_release);
}

void DeferredCommands::add(std::unique_ptr<DeferredCommand> command) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Capture* into = capture()) return into->commands.push_back(std::move(command));
  list_.push_back(std::move(command));
  increment(counters.deferred);
  any_.store(true, std::memory_order_release);
}

void DeferredCommands::submit(Which which) {
  if (capture()) {
    const char* op = current_op();
    TORCH_CHECK(
        which != Which::kAll, "netcl: ", op ? op : "this call", " cannot be captured in a graph, since it waits ",
        "for the device. Do it before the capture or after replay(): .item(), .cpu(), copies from pinned memory, ",
        "events and kernels of compile_kernel; and run the work once before it is captured.");
    return;
  }
  std::unique_lock<std::mutex> turn(turn_, std::defer_lock);
  if (which == Which::kAll) {
    turn.lock();
  } else if (!turn.try_lock()) {
    return;
  }
  for (;;) {
    std::unique_ptr<DeferredCommand> next;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (list_.empty()) {
        error_ = nullptr;
        return any_.store(false, std::memory_order_release);
      }
      if (which == Which::kBuilt && !list_.front()->ready()) return;
      if (which == Which::kOver && !list_.front()->over()) return;
      next = std::move(list_.front());
      list_.pop_front();
    }
    // What comes next of the same operator would read what was not written, perhaps as places in memory.
    if (error_ && !op_.empty() && op_ == next->op()) {
      note_failure(device_, error_, op_);
      continue;
    }
    error_ = nullptr;
    try {
      next->submit(queue_);
    } catch (...) {
      op_ = next->op();
      error_ = std::current_exception();
      note_failure(device_, error_, op_);
    }
  }
}

}  // namespace netcl
