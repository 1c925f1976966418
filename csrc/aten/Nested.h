// Strided nested tensors: a dense buffer, and the sizes of its sequences on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace netcl {

// The rows of all sequences, one after another, as a nested tensor of `sizes` (int64 [sequences, dimensions], CPU).
at::Tensor wrap_nested(const at::Tensor& rows, const at::Tensor& sizes);

}  // namespace netcl
