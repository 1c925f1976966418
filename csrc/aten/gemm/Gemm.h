// Matrix multiplication for operators that are built on it (linear algebra, convolution, attention).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <cstdint>
#include <utility>

#include "aten/support/Launch.h"

namespace netcl {

// A matrix at a device address. Strides count elements and may have any value, 0 (broadcast) included; `bs` are the
// strides of the two batch dimensions (inner = bs[1]).
struct GemmMatrix {
  const void* data = nullptr;
  c10::ScalarType dtype = c10::kFloat;
  int64_t rs = 0, cs = 0;
  std::array<int64_t, 2> bs{0, 0};
};

// C[i] = alpha * A[i] * B[i] + beta * D[i] for every i of batch[0] x batch[1], where A[i] is m x k and B[i] is k x n. D
// is optional (no address: none), may be C itself, and with strides of 0 is a bias over rows or columns. With beta ==
// 0, D is not read; with alpha == 0, neither A nor B; k == 0 gives beta * D. Sums are kept in the compute type of C's
// dtype (fp32 for half and bfloat16) and rounded once; A, B and D may have other dtypes than C. Nothing is read on the
// host.
struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;
  std::array<int64_t, 2> batch{1, 1};
  GemmMatrix a, b, c, d;
  c10::Scalar alpha = 1, beta = 0;
  // Lets a matrix engine round a float operand to the other operand's narrower dtype, as fused attention does
  // elsewhere.
  bool may_narrow = false;
  // Whether set_float32_matmul_precision applies: PyTorch says that it does not change convolutions.
  bool may_round_float = true;
};

void gemm(const char* op, Queue& queue, const GemmArgs& args);

// An operand of products that another kernel computes tile by tile, packed matrix after matrix: A in panels of `lines`
// rows, or B in panels of `lines` columns (kernels/gemm/gemm_panels.h).
struct GemmPanels {
  at::Tensor data;
  int64_t lines;
};
// Of the other operand and of C only the sizes and dtypes matter.
GemmPanels pack_left(const char* op, Queue& queue, const GemmArgs& args);
GemmPanels pack_right(const char* op, Queue& queue, const GemmArgs& args);
// Sets what a kernel needs to know of such panels. Only the dtypes matter.
void define_panels(Queue& queue, const GemmArgs& args, Defs& defs);

inline GemmMatrix transposed(GemmMatrix x) {
  std::swap(x.rs, x.cs);
  return x;
}
// The last two dimensions of `t` as a matrix; up to two dimensions before them as the batch.
GemmMatrix gemm_matrix(const at::Tensor& t);

}  // namespace netcl
