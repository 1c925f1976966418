// Launches every element-wise operator.
#pragma once

#include <ATen/native/TensorIterator.h>
#include <c10/core/Scalar.h>

namespace netcl {

// Runs OP_<op> of kernels/<file> over all elements of `iter`. It takes 0 to 6 inputs, one or two outputs, any dtypes,
// strides and broadcasts, and CPU scalars among the inputs. Inputs are converted to the common dtype
// (iter.common_dtype() if promotion computed one, else the dtype of the first input), computed in its opmath type, and
// converted to the outputs' dtypes. The .cl file names the `scalars` s0, s1, …; they have the compute type. If CPU and
// CUDA convert them to the operands' dtype, the caller does (in_dtype of Scalars.h).
void pointwise(at::TensorIteratorBase& iter, const char* file, const char* op, c10::ArrayRef<c10::Scalar> scalars = {},
               std::optional<c10::ScalarType> compute = std::nullopt);

}  // namespace netcl
