// What PyTorch asks of an allocator of pinned memory beyond allocating (see Memory.h).
#pragma once

#include "runtime/Queue.h"

namespace netcl {

// Frees what waited for copies that are done.
void free_finished_pinned();
// Keeps the pinned block that holds `host` until what is enqueued on `queue` is done. False where there is none.
bool keep_pinned(const void* host, Queue& queue);

struct PinnedBytes {
  int64_t allocations, bytes;
};
PinnedBytes pinned_bytes();

}  // namespace netcl
