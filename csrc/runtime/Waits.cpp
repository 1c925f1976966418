#include "runtime/Waits.h"

#include "runtime/Assertions.h"
#include "runtime/Counters.h"
#include "runtime/Failures.h"
#include "runtime/Shutdown.h"

namespace netcl {

void raise_earlier_errors(Queue& queue, bool whole) {
  raise_failures(queue.device().index(), [&] { raise_device_assertions(queue, whole); });
}

void synchronize(Queue& queue) {
  check_not_forked();
  if (shutting_down()) return stay_if_exiting();
  increment(counters.host_syncs);
  queue.finish();
  stay_if_exiting();
  raise_earlier_errors(queue);
}

void synchronize_for_others(Queue& queue) {
  if (has_several_queues(queue.device().index()) && !queue.idle()) synchronize(queue);
}

void synchronize_device(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  index = device(index).index();
  check_not_forked();
  if (shutting_down()) return stay_if_exiting();
  if (current_capture(index)) current_queue(index).finish();  // raises: a capture waits for nothing
  finish_device(index, false);
  stay_if_exiting();
  for (Queue* queue : queues_of(index)) raise_earlier_errors(*queue);
}

bool query(Queue& queue) {
  if (!queue.ended()) return false;
  raise_earlier_errors(queue);
  return true;
}

}  // namespace netcl
