// Device addresses: a reserved range of virtual memory, divided into slabs. Each slab stands for one cl_mem.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>

#include "runtime/Device.h"

namespace netcl {

constexpr size_t kGranule = size_t{1} << 21;  // slabs are multiples of this size, so one table look-up finds a slab

struct Slab {
  cl_mem mem;
  uintptr_t base;
  size_t size;
  c10::DeviceIndex device;
  char* host;  // see ImmediateQueue::host_address
};

// Maps `mem` to new addresses for `bytes`, a multiple of kGranule, and takes ownership of it. Raises OutOfMemoryError
// if the address space is used up.
Slab* add_slab(cl_mem mem, size_t bytes, c10::DeviceIndex device, char* host = nullptr);
// Removes the slab and releases its cl_mem. The driver keeps the memory until queued commands that use it are finished.
void remove_slab(Slab* slab);
// The slab that holds `address`, by one table look-up without a lock. Null if the address is not netcl's.
Slab* find_slab(const void* address) noexcept;
// Increases with each removed slab; kernels then set their cached arguments again.
uint64_t slab_epoch();

// Where a device address lies. `mem` is null for the null address.
struct Location {
  cl_mem mem = nullptr;
  size_t offset = 0;
  c10::DeviceIndex device = -1;
  // Where the host may read and write the same bytes while no command uses them; null if nowhere.
  char* host = nullptr;
};
// As find_slab(), but raises for an address that is not netcl's.
Location locate(const void* address);

// Device memory over a buffer that others created in the device's context, from byte `offset` on. The result retains
// the buffer until it is deleted. Raises if the buffer holds fewer than offset + bytes.
c10::DataPtr import_buffer(Device& device, cl_mem mem, size_t offset, size_t bytes);

// The address of a storage that was resized to 0 bytes. A null address would not do, since drivers crash when a kernel
// reads it. No memory, of host or device, lies at or above this address, so locate() recognises it and raises for any
// kernel or copy that would use the tensor.
constexpr uintptr_t kEmptiedStorage = uintptr_t{1} << 62;

}  // namespace netcl
