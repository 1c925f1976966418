// What the runtime counts, for tests and tools.
#pragma once

#include <atomic>
#include <cstdint>

namespace netcl {

struct Counters {
  std::atomic<uint64_t> host_syncs{0};  // waits of the host for a device
  std::atomic<uint64_t> launches{0};    // kernels enqueued
  std::atomic<uint64_t> throttles{0};   // launches that waited, since thousands of commands were ahead in their queue
  std::atomic<uint64_t> deferred{0};    // commands that waited for kernels to be built
};
inline Counters counters;
// Of torch.netcl.set_sync_debug_mode: 1 warns of each wait that a copy causes, 2 refuses the copy.
inline std::atomic<int64_t> sync_debug_mode{0};

inline void increment(std::atomic<uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

}  // namespace netcl
