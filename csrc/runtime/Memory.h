// Device memory: address ranges without access that stand for cl_mem slabs, and a caching allocator over them.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <vector>

#include "runtime/Queue.h"

namespace netcl {

// Where a device address lives. `mem` is null for the null address.
struct Location {
  cl_mem mem = nullptr;
  size_t offset = 0;
  c10::DeviceIndex device = -1;
};

// address -> (cl_mem, byte offset): one table look-up, no lock. Raises on an address that is not netcl's.
Location locate(const void* address);
bool is_device_address(const void* address) noexcept;

c10::DeviceAllocator* allocator();
// For the runtime's own buffers; never given back.
void* allocate_on(Device& device, c10::StreamId stream, size_t bytes);
// A buffer that someone else made in the device's context, from byte `offset` on, as device memory: retained until the
// result is deleted. Raises where the buffer holds fewer than offset + bytes.
c10::DataPtr import_buffer(Device& device, cl_mem mem, size_t offset, size_t bytes);
// At most this part of CL_DEVICE_GLOBAL_MEM_SIZE is reserved.
void set_memory_fraction(c10::DeviceIndex device, double fraction);

// One piece of a slab, for torch.netcl.memory_snapshot: pieces of a slab follow each other in memory.
struct BlockInfo {
  uintptr_t slab, address;
  size_t slab_bytes, bytes, requested;  // requested: 0 where nothing is allocated
  c10::StreamId stream;
  enum State { kActive, kAwaitingFree, kInactive } state;
};
std::vector<BlockInfo> memory_snapshot(c10::DeviceIndex device);

// Plain host <-> device and device <-> device copies, ordered on `queue`. A blocking copy is a host wait.
// A non-blocking write from pageable memory is staged when small and blocking otherwise, so `src` may be
// reused at once in either case.
void copy_to_device(void* dst, const void* src, size_t bytes, Queue& queue, bool async_from_pinned = false);
void copy_to_host(void* dst, const void* src, size_t bytes, Queue& queue, bool non_blocking = false);
void copy_on_device(void* dst, const void* src, size_t bytes, Queue& queue);
// Between devices, through the host.
void copy_across(void* dst, Queue& dst_queue, const void* src, Queue& src_queue, size_t bytes);
void fill_bytes(void* dst, const void* pattern, size_t pattern_bytes, size_t bytes, Queue& queue);

// Total memory of a device (CL_DEVICE_GLOBAL_MEM_SIZE) and what remains of it after our own reservations.
std::pair<size_t, size_t> memory_info(c10::DeviceIndex device);

c10::Allocator* pinned_allocator();
bool is_pinned(const void* host_pointer);

// Bumped whenever a slab is given back, so that cached kernel arguments are set anew.
uint64_t slab_epoch();

}  // namespace netcl
