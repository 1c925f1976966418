// Element-wise operators that map zero to zero, on the values of COO and CSR tensors. CPU and CUDA share these
// functions of ATen, which call the dense operator on the values.
#include <ATen/NativeFunctions.h>
#include "aten/support/Library.h"

namespace netcl {
namespace {

using at::Tensor;

// Operators of one tensor with the forms f, f_ and f.out (neg is apart: its names differ).
#define FOR_UNARY(_) \
  _(abs)             \
  _(asin)            \
  _(asinh)           \
  _(atan)            \
  _(atanh)           \
  _(ceil)            \
  _(deg2rad)         \
  _(erf)             \
  _(erfinv)          \
  _(expm1)           \
  _(floor)           \
  _(frac)            \
  _(log1p)           \
  _(rad2deg)         \
  _(round)           \
  _(sgn)             \
  _(sign)            \
  _(sin)             \
  _(sinh)            \
  _(sqrt)            \
  _(tan)             \
  _(tanh)            \
  _(trunc)

// Those without a form in place.
#define FOR_TESTS(_) \
  _(isneginf)        \
  _(isposinf)        \
  _(signbit)

NETCL_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  using namespace at::native;
#define COO_TEST(name)           \
  m.impl(#name, &name##_sparse); \
  m.impl(#name ".out", &name##_sparse_out);
#define COO(name) \
  COO_TEST(name)  \
  m.impl(#name "_", &name##_sparse_);
  FOR_UNARY(COO)
  FOR_TESTS(COO_TEST)
  m.impl("neg", &neg_sparse);
  m.impl("neg_", &neg_sparse_);
  m.impl("neg.out", &neg_out_sparse);
  m.impl("nan_to_num", &nan_to_num_sparse);
  m.impl("nan_to_num_", &nan_to_num_sparse_);
  m.impl("nan_to_num.out", &nan_to_num_sparse_out);
  m.impl("conj_physical.out", &conj_physical_out_sparse);
  m.impl("isnan", &isnan_sparse);
  m.impl("isinf", &isinf_sparse);
  m.impl("relu", &relu_sparse);
  m.impl("relu_", &relu_sparse_);
  m.impl("threshold_backward", &threshold_backward_sparse);
  m.impl("threshold_backward.grad_input", &threshold_backward_sparse_out);
  m.impl("view_as_real", &view_as_real_sparse);
  m.impl("view_as_complex", &view_as_complex_sparse);
  m.impl("pow.Tensor_Scalar", &pow_sparse_scalar);
  m.impl("pow.Tensor_Scalar_out", &pow_out_sparse_scalar);
  m.impl("floor_divide", &floor_divide_sparse);
  m.impl("floor_divide_.Tensor", &floor_divide_sparse_);
  m.impl("floor_divide.out", &floor_divide_out_sparse_zerodim);
  using Mode = std::optional<c10::string_view>;
  m.impl("div.Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(div_sparse));
  m.impl("div_.Tensor", static_cast<Tensor& (*)(Tensor&, const Tensor&)>(div_sparse_));
  m.impl("div.out", static_cast<Tensor& (*)(const Tensor&, const Tensor&, Tensor&)>(div_out_sparse_zerodim));
  m.impl("div.Tensor_mode", static_cast<Tensor (*)(const Tensor&, const Tensor&, Mode)>(div_sparse));
  m.impl("div_.Tensor_mode", static_cast<Tensor& (*)(Tensor&, const Tensor&, Mode)>(div_sparse_));
  m.impl("div.out_mode", static_cast<Tensor& (*)(const Tensor&, const Tensor&, Mode, Tensor&)>(div_out_sparse_zerodim));
}

NETCL_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  using namespace at::native;
#define CSR_TEST(name)               \
  m.impl(#name, &name##_sparse_csr); \
  m.impl(#name ".out", &name##_sparse_csr_out);
#define CSR(name) \
  CSR_TEST(name)  \
  m.impl(#name "_", &name##_sparse_csr_);
  FOR_UNARY(CSR)
  CSR(neg)
  FOR_TESTS(CSR_TEST)
  CSR_TEST(angle)
  m.impl("_conj_physical", &conj_physical_sparse_csr);
  m.impl("conj_physical_", &conj_physical_sparse_csr_);
  m.impl("conj_physical.out", &conj_physical_sparse_csr_out);
  m.impl("isnan", &isnan_sparse_csr);
  m.impl("isinf", &isinf_sparse_csr);
  m.impl("relu", &relu_sparse_csr);
  m.impl("relu_", &relu_sparse_csr_);
  m.impl("threshold_backward", &threshold_backward_sparse_compressed);
  m.impl("threshold_backward.grad_input", &threshold_backward_sparse_compressed_out);
  m.impl("normal_", &normal_sparse_csr_);
}

}  // namespace
}  // namespace netcl
