// What storages that were resized need.
#pragma once

#include <cstddef>
#include <cstdint>

namespace netcl {

// The address of a storage that was resized to 0 bytes. Drivers crash on a null pointer that is read. No host or device
// has memory from this address on, so locate() knows it, and whatever a kernel or a copy would have read of the tensor
// raises.
constexpr uintptr_t kNowhere = uintptr_t{1} << 62;

// How many bytes were asked for by the allocation that begins at this address; 0 for any other address.
size_t allocated_bytes(const void* address);

}  // namespace netcl
