// Strided nested tensors: a dense buffer, and the sizes of its sequences on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace netcl {

// A nested tensor with `sizes` (int64 [sequences, dimensions], CPU) over `rows`, the rows of all sequences in order.
at::Tensor wrap_nested(const at::Tensor& rows, const at::Tensor& sizes);

}  // namespace netcl
