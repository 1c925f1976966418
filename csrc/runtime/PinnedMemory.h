// Pinned host memory: ordinary page-aligned memory that netcl knows. Copies from and to it may be asynchronous, since
// it is not given back before they are done.
#pragma once

#include <c10/core/Allocator.h>

#include "runtime/Queue.h"

namespace netcl {

c10::Allocator* pinned_allocator();
bool is_pinned(const void* host);
// Keeps the pinned block that holds `host`, if any, until `event`; takes over the event.
void keep_pinned_until(const void* host, cl_event event);
// Keeps it until what is enqueued on `queue` is done. False if there is no such block.
bool keep_pinned(const void* host, Queue& queue);
// Frees what waited for copies that are done.
void free_finished_pinned();

struct PinnedBytes {
  int64_t allocations, bytes;
};
PinnedBytes pinned_bytes();

}  // namespace netcl
