// For tests: imitates drivers that allocate memory late, as NVIDIA's does.
#pragma once

namespace netcl {

// From now on clCreateBuffer always succeeds, but the first command that uses a buffer fails with
// CL_MEM_OBJECT_ALLOCATION_FAILURE if buffers in use would then take more than 512 MiB
// (NETCL_DISABLE=early_allocation).
void imitate_late_allocation();

}  // namespace netcl
