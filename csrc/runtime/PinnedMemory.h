// Pinned host memory: page-aligned memory that netcl keeps a list of, and which GPUs copy from and to by themselves.
// Copies may be asynchronous, since it is not freed before they are finished. A copy on one stream overlaps with
// kernels on another, as on CUDA.
#pragma once

#include <c10/core/Allocator.h>

#include "runtime/Queue.h"

namespace netcl {

c10::Allocator* pinned_allocator();
bool is_pinned(const void* host);
// Whether an asynchronous copy from or to the pinned block that holds `host` has not ended.
bool pinned_in_use(const void* host);
// Keeps the pinned block that holds `host`, if any, until `event` completes; takes ownership of the event.
void keep_pinned_until(const void* host, cl_event event);
// Keeps the block until everything enqueued on `queue` is finished. False if there is no such block.
bool keep_pinned(const void* host, Queue& queue);
// Frees the blocks whose copies are finished, and what was kept for later.
void free_finished_pinned();

struct PinnedBytes {
  int64_t allocations, bytes;
};
PinnedBytes pinned_bytes();

}  // namespace netcl
