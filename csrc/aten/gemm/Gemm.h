// Matrix multiplication for operators that are built on it (linear algebra, convolution, attention).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <cstdint>
#include <utility>

#include "aten/support/Launch.h"

namespace netcl {

// A matrix at a device address. Strides count elements and may be anything, 0 (broadcast) included; `bs` are
// the strides of the two batch dimensions (inner = bs[1]).
struct GemmMatrix {
  const void* data = nullptr;
  c10::ScalarType dtype = c10::kFloat;
  int64_t rs = 0, cs = 0;
  std::array<int64_t, 2> bs{0, 0};
};

// c[i][j] = alpha * a[i] (m x k) * b[i] (k x n) + beta * d[i], for every i of batch[0] x batch[1].
// `d` is optional (no address: none), may be c itself, and with strides of 0 is a bias over rows or columns.
// beta == 0 does not read d, alpha == 0 neither a nor b, k == 0 gives beta * d. Sums are kept in the compute
// type of c's dtype (fp32 for half and bfloat16) and rounded once; a, b and d may have other dtypes than c.
// Nothing is read on the host.
struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;
  std::array<int64_t, 2> batch{1, 1};
  GemmMatrix a, b, c, d;
  c10::Scalar alpha = 1, beta = 0;
  // A matrix engine may take a float operand in the other one's narrower dtype, as fused attention does elsewhere.
  bool may_narrow = false;
};

void gemm(const char* op, Queue& queue, const GemmArgs& args);

inline GemmMatrix transposed(GemmMatrix x) {
  std::swap(x.rs, x.cs);
  return x;
}
// The last two dimensions of `t` as a matrix; up to two dimensions before them as the batch.
GemmMatrix gemm_matrix(const at::Tensor& t);

}  // namespace netcl
