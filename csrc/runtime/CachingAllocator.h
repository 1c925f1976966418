// The caching allocator of device memory: blocks, cut from slabs of the address space.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/Device.h"

namespace netcl {

c10::DeviceAllocator* allocator();
// For the runtime's own buffers; never given back.
void* allocate_on(Device& device, c10::StreamId stream, size_t bytes);
// How many bytes were asked for by the allocation that begins at this address; 0 for any other address.
size_t allocated_bytes(const void* address);

// At most this part of CL_DEVICE_GLOBAL_MEM_SIZE is reserved.
void set_memory_fraction(c10::DeviceIndex device, double fraction);
// What remains of a device's memory after our own reservations, and all of it (CL_DEVICE_GLOBAL_MEM_SIZE).
std::pair<size_t, size_t> memory_info(c10::DeviceIndex device);

// One piece of a slab, for torch.netcl.memory_snapshot: pieces of a slab follow each other in memory.
struct BlockInfo {
  uintptr_t slab, address;
  size_t slab_bytes, bytes, requested;  // requested: 0 if nothing is allocated
  c10::StreamId stream;
  enum State { kActive, kAwaitingFree, kInactive } state;
};
std::vector<BlockInfo> memory_snapshot(c10::DeviceIndex device);

}  // namespace netcl
