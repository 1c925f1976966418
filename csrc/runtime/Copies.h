// Copies between host and devices, ordered on a queue.
#pragma once

#include <cstddef>

#include "runtime/Queue.h"

namespace netcl {

// A blocking copy counts as a host wait. A small write from pageable memory does not block, since it is staged; in
// either case `src` may be reused at once.
void copy_to_device(void* dst, const void* src, size_t bytes, Queue& queue, bool async_from_pinned = false);
void copy_to_host(void* dst, const void* src, size_t bytes, Queue& queue, bool non_blocking = false);
void copy_on_device(void* dst, const void* src, size_t bytes, Queue& queue);
// Between devices, through the host.
void copy_across(void* dst, Queue& dst_queue, const void* src, Queue& src_queue, size_t bytes);

// Call this before a wait that the program causes.
void report_wait();

// Bytes of staged copies from pageable memory: now, and the most so far.
struct StagedBytes {
  size_t now, most;
};
StagedBytes staged_bytes();

}  // namespace netcl
