// Products of 16-bit floats whose result is float32. Their factors are exact in float32, in which products are added
// anyway, so a product of float32 is the same without the last rounding.
#include <ATen/core/Tensor.h>  // first, since other headers of ATen rely on its includes

#include <ATen/native/Resize.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include "aten/support/Library.h"

namespace netcl {
namespace {

using at::Scalar;
using at::ScalarType;
using at::Tensor;

void check_out_dtype(const char* op, const Tensor& a, const Tensor& b, ScalarType out) {
  const ScalarType type = a.scalar_type();
  TORCH_CHECK(b.scalar_type() == type, op, ": expected both factors to have the same dtype, got ", type, " and ",
              b.scalar_type());
  TORCH_CHECK(out == type || (out == at::kFloat && (type == at::kHalf || type == at::kBFloat16)), op,
              ": out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
}
void check_addend(const char* op, const Tensor& self, const Tensor& a, ScalarType out) {
  TORCH_CHECK(self.scalar_type() == out || self.scalar_type() == a.scalar_type(), op,
              ": self dtype must match either out_dtype or the factors' dtype, got ", self.scalar_type());
}

Tensor mm_dtype(const Tensor& self, const Tensor& mat2, ScalarType out) {
  check_out_dtype("mm", self, mat2, out);
  return at::mm(self.to(out), mat2.to(out));
}
Tensor bmm_dtype(const Tensor& self, const Tensor& mat2, ScalarType out) {
  check_out_dtype("bmm", self, mat2, out);
  return at::bmm(self.to(out), mat2.to(out));
}
Tensor addmm_dtype(const Tensor& self, const Tensor& mat1, const Tensor& mat2, ScalarType out, const Scalar& beta,
                   const Scalar& alpha) {
  check_out_dtype("addmm", mat1, mat2, out);
  check_addend("addmm", self, mat1, out);
  return at::addmm(self.to(out), mat1.to(out), mat2.to(out), beta, alpha);
}
Tensor baddbmm_dtype(const Tensor& self, const Tensor& batch1, const Tensor& batch2, ScalarType out, const Scalar& beta,
                     const Scalar& alpha) {
  check_out_dtype("baddbmm", batch1, batch2, out);
  check_addend("baddbmm", self, batch1, out);
  return at::baddbmm(self.to(out), batch1.to(out), batch2.to(out), beta, alpha);
}

// The form that writes into a given tensor.
template <auto F>
struct Into;
template <class... A, Tensor (*F)(A...)>
struct Into<F> {
  static Tensor& call(A... args, Tensor& out) {
    const Tensor result = F(args...);
    TORCH_CHECK(out.scalar_type() == result.scalar_type(),
                "out_dtype must be the same as the dtype of the provided out tensor");
    at::native::resize_output(out, result.sizes());
    return out.copy_(result);
  }
};

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mm.dtype", &mm_dtype);
  m.impl("mm.dtype_out", &Into<&mm_dtype>::call);
  m.impl("bmm.dtype", &bmm_dtype);
  m.impl("bmm.dtype_out", &Into<&bmm_dtype>::call);
  m.impl("addmm.dtype", &addmm_dtype);
  m.impl("addmm.dtype_out", &Into<&addmm_dtype>::call);
  m.impl("baddbmm.dtype", &baddbmm_dtype);
  m.impl("baddbmm.dtype_out", &Into<&baddbmm_dtype>::call);
}

}  // namespace
}  // namespace netcl
