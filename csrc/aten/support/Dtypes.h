// The dtype tags of kernels/common/dtypes.h, and the compute type of each dtype.
#pragma once

#include <c10/core/ScalarType.h>

#include "runtime/Kernel.h"

namespace netcl {

// "f32", "bf16", … Raises for a dtype that has no OpenCL type.
const char* dtype_tag(c10::ScalarType type);
// ATen's opmath type: float for half and bfloat16, otherwise the type itself.
c10::ScalarType compute_type(c10::ScalarType type);
inline const char* compute_tag(c10::ScalarType type) { return dtype_tag(compute_type(type)); }
// Raises for float64/complex128 on a device without cl_khr_fp64, naming the op.
void check_dtype(const Device& device, c10::ScalarType type, const char* op);

}  // namespace netcl
