// The way of a command into a queue.
#pragma once

#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>

#include "runtime/Activities.h"
#include "runtime/CachingAllocator.h"
#include "runtime/Environment.h"
#include "runtime/OpName.h"
#include "runtime/Queue.h"
#include "runtime/Waits.h"

namespace netcl {

// What is to be known of a command: for profiles, its kind, name ("Memcpy HtoD"), operator and size; for errors, the
// function of OpenCL.
struct Command {
  Activity::Kind kind;
  const char* name;
  const char* op;
  const char* call;
  size_t bytes = 0;
};

// Calls `call(handle, recorded)`, which enqueues the command with `recorded.event()` as its event and returns the
// driver's error. If that may mean a lack of memory, it is called again when cached memory is returned. Deferred
// launches must have been enqueued.
template <class Call>
void submit(Queue& queue, const Command& command, Call&& call) {
  const auto enqueue = [&] {
    Recorded recorded(command.kind, command.name, command.op, queue.stream(), command.bytes);
    return queue.enqueue([&](cl_command_queue handle) { return call(handle, recorded); });
  };
  if (const cl_int err = enqueue(); __builtin_expect(err != CL_SUCCESS, 0)) {
    const OpName scope(command.op);
    retry_with_free_memory(queue, err, command.call, enqueue);
  }
  if (__builtin_expect(launch_blocking(), 0)) synchronize(queue);
}

// As submit(), for a call that blocks; behind deferred launches.
template <class Call>
void submit_and_wait(Queue& queue, const Command& command, Call&& call) {
  const auto enqueue = [&] {
    Recorded recorded(command.kind, command.name, command.op, queue.stream(), command.bytes);
    return queue.enqueue_and_wait([&](cl_command_queue handle) { return call(handle, recorded); });
  };
  const cl_int err = enqueue();
  if (__builtin_expect(err != CL_SUCCESS, 0)) retry_with_free_memory(queue, err, command.call, enqueue);
}

// A command that waits, other than a launch.
template <class Submits>
struct DeferredCall : DeferredCommand {
  explicit DeferredCall(Submits&& s) : submits(std::move(s)) {}
  void submit(Queue& queue) override {
    const OpName scope(op_.empty() ? nullptr : op_.c_str());
    submits(queue);
  }
  Submits submits;
};

// Calls submits(queue), which submits a command that uses these buffers. If launches of the queue wait for their
// kernels, that happens after those launches.
template <class Submits>
void submit_in_order(Queue& queue, std::initializer_list<cl_mem> buffers, Submits&& submits) {
  if (__builtin_expect(!queue.deferred().any(), 1)) return submits(queue);
  if (!queue.may_defer()) {
    queue.deferred().settle();
    return submits(queue);
  }
  auto command = std::make_unique<DeferredCall<std::decay_t<Submits>>>(std::forward<Submits>(submits));
  for (cl_mem mem : buffers) command->hold(mem);
  queue.deferred().add(std::move(command));
}

}  // namespace netcl
