// The one n-ary launcher of element-wise operators.
#pragma once

#include <ATen/native/TensorIterator.h>
#include <c10/core/Scalar.h>

namespace netcl {

// Runs OP_<op> of kernels/<file> over all elements of `iter`: any number of inputs (0 to 6), one or two outputs,
// any dtypes, strides and broadcasts, CPU scalars among the inputs. Inputs are converted to the common dtype
// (iter.common_dtype() where promotion computed one, else the dtype of the first input), computed in its opmath
// type, and converted to the outputs' dtypes. `scalars` appear in the .cl as s0, s1, … of the compute type.
void pointwise(at::TensorIteratorBase& iter, const char* file, const char* op, c10::ArrayRef<c10::Scalar> scalars = {},
               std::optional<c10::ScalarType> compute = std::nullopt);

}  // namespace netcl
