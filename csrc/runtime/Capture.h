// Commands that are kept for any number of replays, in place of being enqueued.
#pragma once

#include <c10/core/GeneratorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <vector>

#include "runtime/Deferred.h"
#include "runtime/Queue.h"

namespace netcl {

struct Capture {
  // A generator from which commands draw, its offset when the capture first drew, and how far the capture moved it.
  struct Source {
    c10::intrusive_ptr<c10::GeneratorImpl> generator;
    uint64_t first = 0, count = 0;
  };
  // Memory that was allocated behind so many commands.
  struct Allocation {
    const void* address;
    size_t commands;
  };
  std::vector<std::unique_ptr<DeferredCommand>> commands;
  std::vector<Source> sources;
  std::vector<Allocation> allocations;

  // Submits all commands, with the next random numbers of the generators.
  void replay(Queue& queue);
  // Sets the generators back to where they were: the capture itself has drawn nothing.
  void restore_generators();
};

// Until end_capture(), the device's commands of all streams and threads are kept in `capture`. Their memory is that of
// the queue, which captures may share.
void begin_capture(Queue& queue, Capture& capture);
void end_capture(Queue& queue);
// The capture to which commands of this thread on the device belong, or null.
Capture* current_capture(c10::DeviceIndex index);

// The same for the commands of this thread on the device's current stream; other threads go on.
class ThreadCapture {
 public:
  ThreadCapture(Queue& queue, Capture& capture);
  ~ThreadCapture();
  ThreadCapture(const ThreadCapture&) = delete;
  ThreadCapture& operator=(const ThreadCapture&) = delete;

 private:
  Queue& queue_;
  c10::StreamId before_;
};

}  // namespace netcl
