// Buffers of CPU devices in pages of 2 MiB, which the drivers do not request from the system.
#pragma once

#include <cstddef>

#include "runtime/Device.h"

namespace netcl {

// As clCreateBuffer(CL_MEM_READ_WRITE). On a CPU device, buffers of 2 MiB and more lie in huge pages if the system has
// them: a huge page needs one entry of the processor's TLB instead of 512, and one page fault at its first use. The
// memory is freed when the driver has destroyed the buffer, after the last command that uses it.
cl_mem create_buffer(const Device& device, size_t bytes, cl_int* error);

}  // namespace netcl
