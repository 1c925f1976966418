// The way of a command into a queue.
#pragma once

#include <array>
#include <memory>
#include <type_traits>
#include <utility>

#include "runtime/Activities.h"
#include "runtime/AddressSpace.h"
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
// launches must have been enqueued, unless the command ends in the call, which comes behind them.
template <Queue::Ends ends = Queue::kLater, class Call>
void submit(Queue& queue, const Command& command, Call&& call) {
  const auto enqueue = [&] {
    Recorded recorded(command.kind, command.name, command.op, queue.stream(), command.bytes);
    return queue.submit<ends>([&](cl_command_queue handle) { return call(handle, recorded); });
  };
  if (const cl_int err = enqueue(); __builtin_expect(err != CL_SUCCESS, 0)) {
    const OpName scope(command.op);
    retry_with_free_memory(queue, err, command.call, enqueue);
  }
  if (ends == Queue::kLater && __builtin_expect(launch_blocking(), 0)) synchronize(queue);
}

// A command that waits, other than a launch.
template <class Submits, size_t N>
struct DeferredCall : DeferredCommand {
  DeferredCall(Submits&& s, const std::array<const void*, N>& used) : submits(std::move(s)) {
    addresses_.assign(used.begin(), used.end());
    for (size_t i = 0; i < N; i++) hold((at[i] = locate(used[i])).mem);
  }
  void submit(Queue& queue) override {
    const OpName scope(op_.empty() ? nullptr : op_.c_str());
    submits(queue, at);
  }
  void set_address(size_t i, const void* address) override {
    at[i] = locate(address);
    addresses_[i] = address;
  }
  Submits submits;
  std::array<Location, N> at;
};

// Calls submits(queue, locations), which submits a command that uses memory at these addresses. If launches of the
// queue wait for their kernels, that happens after those launches.
template <class Submits, size_t N>
void submit_in_order(Queue& queue, const std::array<const void*, N>& used, Submits&& submits) {
  if (__builtin_expect(queue.deferred().any(), 0)) {
    if (queue.may_defer()) {
      using Call = DeferredCall<std::decay_t<Submits>, N>;
      return queue.deferred().add(std::make_unique<Call>(std::forward<Submits>(submits), used));
    }
    queue.deferred().settle();
  }
  std::array<Location, N> at;
  for (size_t i = 0; i < N; i++) at[i] = locate(used[i]);
  submits(queue, at);
}

}  // namespace netcl
