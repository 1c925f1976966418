// Buffers of CPU devices in pages of 2 MiB, which the drivers do not ask the system for.
#pragma once

#include <cstddef>

#include "runtime/Device.h"

namespace netcl {

// As clCreateBuffer(CL_MEM_READ_WRITE). On a CPU device `bytes` of 2 MiB and more lie in huge pages if the system
// has them: a page then takes one entry of the processor's TLB in place of 512, and one fault at its first use. The
// memory is given back when the driver has destroyed the buffer, after the last command that uses it.
cl_mem create_buffer(const Device& device, size_t bytes, cl_int* error);

}  // namespace netcl
