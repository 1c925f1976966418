// Commands that are kept for any number of replays, in place of being enqueued.
#pragma once

#include "runtime/Queue.h"

namespace netcl {

// Submits all commands, with the next random numbers of the generators.
void replay(const Capture& capture, Queue& queue);
// Sets the generators back to where they were: a capture itself has drawn nothing.
void restore_generators(const Capture& capture);

// Until end_capture(), the device's commands of all streams and threads are kept in `capture`. Their memory is that of
// the queue, which captures may share.
void begin_capture(Queue& queue, Capture& capture);
void end_capture(Queue& queue);

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
