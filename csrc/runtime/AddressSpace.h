// Device addresses: a range of virtual memory without access, cut into slabs. Each slab stands for one cl_mem.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>

#include "runtime/Device.h"

namespace netcl {

constexpr size_t kGranule = size_t{1} << 21;  // slabs are multiples of it, so one table look-up finds a slab

struct Slab {
  cl_mem mem;
  uintptr_t base;
  size_t size;
  c10::DeviceIndex device;
};

// Gives `mem`, which it takes over, addresses for `bytes`, a multiple of kGranule. Raises OutOfMemoryError if the
// address space is used up.
Slab* add_slab(cl_mem mem, size_t bytes, c10::DeviceIndex device);
// Gives a slab back to the driver, which keeps it until queued commands that use it are done.
void remove_slab(Slab* slab);
// The slab that holds `address`: one table look-up, no lock. Null if the address is not netcl's.
Slab* find_slab(const void* address) noexcept;
// Grows with each slab that is removed, so that cached kernel arguments are set anew.
uint64_t slab_epoch();

// Where a device address lives. `mem` is null for the null address.
struct Location {
  cl_mem mem = nullptr;
  size_t offset = 0;
  c10::DeviceIndex device = -1;
};
// As find_slab(), but raises on an address that is not netcl's.
Location locate(const void* address);

// A buffer that someone else made in the device's context, from byte `offset` on, as device memory: retained until the
// result is deleted. Raises if the buffer holds fewer than offset + bytes.
c10::DataPtr import_buffer(Device& device, cl_mem mem, size_t offset, size_t bytes);

// The address of a storage that was resized to 0 bytes. Drivers crash on a null pointer that is read. No host or device
// has memory from this address on, so locate() knows it, and whatever a kernel or a copy would have read of the tensor
// raises.
constexpr uintptr_t kEmptiedStorage = uintptr_t{1} << 62;

}  // namespace netcl
