// Householder reflectors of batches of matrices of three dimensions, whose columns are contiguous.
#pragma once

#include <ATen/core/Tensor.h>

namespace netcl {

// A = Q R in place: R, and the reflectors below its diagonal.
void qr_factor(const at::Tensor& a, const at::Tensor& tau);
// The columns of Q in place of the reflectors, for which `a` may have more columns.
void form_q(const at::Tensor& a, const at::Tensor& tau);
// C = Q C or Q^H C in place of `c`.
void apply_q(const at::Tensor& reflectors, const at::Tensor& tau, const at::Tensor& c, bool adjoint);

}  // namespace netcl
