// float64 on devices without it: the few operations that torch.amp.GradScaler needs, in integer arithmetic.
#pragma once

#include <ATen/TensorIterator.h>

#include <string_view>

namespace netcl {

// Runs `op` (a name of unary.cl) if it is a copy between float32 and float64, or the reciprocal of float64, over
// contiguous tensors. False for any other operator, which such a device cannot run.
bool soft_double(at::TensorIteratorBase& iter, std::string_view op);

}  // namespace netcl
