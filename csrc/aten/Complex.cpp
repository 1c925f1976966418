// Builds complex numbers from two real ones.
#include <ATen/core/Tensor.h>  // first, since other headers of ATen rely on its includes

#include <ATen/native/TensorFactories.h>
#include <ATen/native/TensorIterator.h>
#include <ATen/ops/complex_native.h>
#include <ATen/ops/polar_native.h>

#include "aten/support/Library.h"
#include "aten/support/Pointwise.h"

namespace netcl {
namespace {

void complex_kernel(at::TensorIterator& iter) { pointwise(iter, "binary.cl", "complex", {}, iter.dtype(0)); }
void polar_kernel(at::TensorIterator& iter) { pointwise(iter, "binary.cl", "polar", {}, iter.dtype(0)); }

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("complex.out", &at::native::complex_out);
  m.impl("polar.out", &at::native::polar_out);
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(complex_stub, &netcl::complex_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(polar_stub, &netcl::polar_kernel)
}  // namespace at::native
