// What a tensor's address is when its storage was resized to 0 bytes.
#pragma once

#include <cstdint>

namespace netcl {

// Drivers crash on a null pointer that is read. No host or device has memory from this address on, so locate() knows
// it, and whatever a kernel or a copy would have read of the tensor raises.
constexpr uintptr_t kNowhere = uintptr_t{1} << 62;

}  // namespace netcl
