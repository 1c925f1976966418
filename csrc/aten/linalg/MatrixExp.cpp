// matrix_exp: a Taylor polynomial of A / 2^s, squared s times. One kernel does all of a small matrix.
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "aten/linalg/Matrices.h"
#include "aten/support/Library.h"

namespace netcl {
namespace {

using at::Tensor;

constexpr int64_t kOneKernel = 32;  // columns

// Sums over the first dimension of `input`, whose factors are the rows of `coefficients`.
Tensor compute_linear_combination(const Tensor& input, const Tensor& coefficients) {
  c10::DimVector sizes(input.sizes());
  sizes[0] = coefficients.size(0);
  const Tensor factors = coefficients.to(input.options());
  return at::matmul(factors, input.reshape({input.size(0), input.numel() / std::max<int64_t>(input.size(0), 1)}))
      .view(sizes);
}
Tensor& compute_linear_combination_out(const Tensor& input, const Tensor& coefficients, Tensor& out) {
  return out.add_(compute_linear_combination(input, coefficients));
}

Tensor exp_small(const Tensor& a) {
  const int64_t batches = a.size(0), n = a.size(1);
  const Tensor out = at::empty({batches, n, n}, a.options()), work = at::empty({batches, 2, n, n}, a.options());
  column_kernel(a, "linalg/matrix_exp.cl", "matrix_exp")
      .launch("aten::linalg_matrix_exp", queue_of(a), {count(batches) * group_items(a)}, {group_items(a)}, buf(a),
              a.strides(), buf(out), buf(work), n);
  return out.mT();
}

// The blocks of four terms of the series: block b has the coefficients 1 / k! of A^k for k = 4 b up to 4 b + 3.
Tensor series(int64_t blocks, const at::TensorOptions& options) {
  const Tensor c = at::empty({blocks, 4}, options.device(at::kCPU));
  double factor = 1;
  for (int64_t k = 0; k < 4 * blocks; k++) {
    c.select(0, k / 4).select(0, k % 4).fill_(factor);
    factor /= double(k + 1);
  }
  return c.to(options);
}

Tensor exp_large(const Tensor& a) {
  // For norms up to `most_norm`, the terms that are left out are less than the last digit. Each halving costs a bit.
  const double most_norm = c10::elementSize(c10::toRealValueType(a.scalar_type())) == 8 ? 1 : 3;
  const int64_t blocks = 5;
  const Tensor norm = at::linalg_vector_norm(a, 1, {1}).amax(1);
  const Tensor finite = norm < INFINITY;
  const Tensor halvings = at::where(finite, at::log2(norm.clamp_min(most_norm) / most_norm).ceil(), 0).view({-1, 1, 1});
  const Tensor x = a * at::exp2(-halvings), x2 = at::bmm(x, x), x3 = at::bmm(x2, x), x4 = at::bmm(x2, x2);
  const Tensor unit = at::eye(a.size(1), a.options()).expand(a.sizes());
  const Tensor terms = compute_linear_combination(at::stack({unit, x, x2, x3}), series(blocks, a.options()));
  Tensor sum = terms[blocks - 1];
  for (int64_t b = blocks - 2; b >= 0; b--) sum = terms[b].add(at::bmm(sum, x4));
  const auto most = static_cast<int64_t>(halvings.max().item().toDouble());
  for (int64_t i = 0; i < most; i++) sum = at::where(halvings > i, at::bmm(sum, sum), sum);
  return at::where(finite.view({-1, 1, 1}), sum, NAN);
}

Tensor matrix_exp_of(const Tensor& self) {
  at::native::squareCheckInputs(self, "linalg.matrix_exp");
  at::native::checkFloatingOrComplex(self, "linalg.matrix_exp");
  if (self.numel() == 0) return at::empty_like(self, at::MemoryFormat::Contiguous);
  const auto type = compute_type(self.scalar_type());
  check_dtype(netcl::device_of(self), type, "linalg.matrix_exp");
  const Tensor whole = self.resolve_conj().resolve_neg().to(type);
  const Batch a(whole);
  const Tensor result = self.size(-1) <= kOneKernel ? exp_small(a.get()) : exp_large(a.get());
  return result.reshape(self.sizes()).to(self.scalar_type()).contiguous();
}
Tensor& matrix_exp_out(const Tensor& self, Tensor& out) {
  return copy_result("linalg.matrix_exp", out, matrix_exp_of(self));
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_compute_linear_combination", &compute_linear_combination);
  m.impl("_compute_linear_combination.out", &compute_linear_combination_out);
  m.impl("linalg_matrix_exp", &matrix_exp_of);
  m.impl("linalg_matrix_exp.out", &matrix_exp_out);
}

}  // namespace
}  // namespace netcl
