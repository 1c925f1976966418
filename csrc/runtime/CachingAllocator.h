// The caching allocator of device memory: it cuts blocks from slabs of the address space.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/Queue.h"

namespace netcl {

c10::DeviceAllocator* allocator();
// Memory for the runtime's own buffers; it is never freed.
void* allocate_on(Device& device, c10::StreamId stream, size_t bytes);
// The bytes requested by the allocation that begins at this address; 0 for any other address.
size_t allocated_bytes(const void* address);

// For a command of `queue` that failed with `err`. If that may mean that memory is used up, as drivers that allocate
// late report it, returns cached memory to the driver and calls `enqueue` again. If it fails again, raises what `call`
// met.
void retry_with_free_memory(Queue& queue, cl_int err, const char* call, const std::function<cl_int()>& enqueue);
// For a command of `queue` that writes this memory in place: it waits for the other streams that were recorded to use
// it (Tensor.record_stream). Autograd adds a gradient to another in place if nobody else has it, but a command of
// another stream may still read it.
void wait_for_recorded_streams(Queue& queue, const c10::DataPtr& memory);
// Returns the cached memory of one stream to the driver.
void release_stream(c10::DeviceIndex device, c10::StreamId stream);
// Limits the reserved memory to this fraction of CL_DEVICE_GLOBAL_MEM_SIZE.
void set_memory_fraction(c10::DeviceIndex device, double fraction);
// The device's memory less what this process reserved, and all of it (CL_DEVICE_GLOBAL_MEM_SIZE).
std::pair<size_t, size_t> memory_info(c10::DeviceIndex device);

// One block of a slab, for torch.netcl.memory_snapshot. The blocks of a slab follow each other in memory.
struct BlockInfo {
  uintptr_t slab, address;
  size_t slab_bytes, bytes, requested;  // requested: 0 if nothing is allocated
  c10::StreamId stream;
  enum State { kActive, kAwaitingFree, kInactive } state;
};
std::vector<BlockInfo> memory_snapshot(c10::DeviceIndex device);

}  // namespace netcl
