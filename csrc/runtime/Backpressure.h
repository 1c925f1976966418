// What keeps a host that runs ahead of a device from taking all memory: it waits when too much is under way.
#pragma once

#include <cstddef>
#include <cstdint>

namespace netcl {

// How often a launch had to wait, since thousands of commands were ahead of it in its queue.
uint64_t throttle_count();

// Bytes of copies from pageable memory that are staged: at present, and at most so far.
struct Staged {
  size_t bytes, most;
};
Staged staged();

}  // namespace netcl
