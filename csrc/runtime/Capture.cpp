#include "runtime/Capture.h"

#include <c10/util/Exception.h>

#include "runtime/Assertions.h"

namespace netcl {

void replay(const Capture& capture, Queue& queue) {
  std::vector<Draw> draws;
  for (const auto& source : capture.sources) {
    const std::lock_guard<std::mutex> lock(source.generator->mutex_);
    const uint64_t offset = source.generator->get_offset();
    draws.push_back({source.generator->current_seed(), offset - source.first});
    source.generator->set_offset(offset + source.count);
  }
  queue.deferred().settle();
  arm_assertions(queue);
  for (const auto& command : capture.commands) {
    command->draw(draws);
    command->submit(queue);
  }
}

void restore_generators(const Capture& capture) {
  for (const auto& source : capture.sources) {
    const std::lock_guard<std::mutex> lock(source.generator->mutex_);
    source.generator->set_offset(source.first);
  }
}

void begin_capture(Queue& queue, Capture& capture) {
  Queue* none = nullptr;
  TORCH_CHECK(capturing_queue(queue.device().index()).compare_exchange_strong(none, &queue),
              "netcl: a graph is being captured on this device; its capture must end before the next one begins");
  queue.deferred().set_capture(&capture);
}

void end_capture(Queue& queue) {
  Queue* expected = &queue;
  if (capturing_queue(queue.device().index()).compare_exchange_strong(expected, nullptr)) {
    queue.deferred().set_capture(nullptr);
  }
}

ThreadCapture::ThreadCapture(Queue& queue, Capture& capture)
    : queue_(queue), before_(current_stream(queue.device().index()).id()) {
  queue.deferred().set_capture(&capture);
  set_current_stream(queue.device().index(), queue.stream().id());
}

ThreadCapture::~ThreadCapture() {
  set_current_stream(queue_.device().index(), before_);
  queue_.deferred().set_capture(nullptr);
}

}  // namespace netcl
