// torch.sparse.mm(csr, dense, reduce), which graph networks aggregate with, and its gradient.
#include <ATen/ATen.h>
#include "aten/support/Library.h"

#include "aten/Sparse.h"
#include "aten/support/Dtypes.h"

namespace netcl {
namespace {

using at::Tensor;

struct Reduction {
  bool mean = false;
  const char* extreme = nullptr;
};
Reduction reduction_of(c10::string_view reduce) {
  if (reduce == "sum") return {};
  if (reduce == "mean") return {true, nullptr};
  // The short names are not documented, but the CPU takes them, and torch_geometric gives them.
  if (reduce == "amax" || reduce == "max") return {false, "amax"};
  TORCH_CHECK(reduce == "amin" || reduce == "min", "sparse_mm_reduce: expected sum, mean, amax or amin, got ", reduce);
  return {false, "amin"};
}

std::tuple<Tensor, Tensor> mm_reduce(const Tensor& self, const Tensor& other, c10::string_view reduce) {
  const char* op = "aten::_sparse_mm_reduce_impl";
  TORCH_CHECK(self.layout() == at::kSparseCsr && other.layout() == at::kStrided,
              "sparse_mm_reduce: expected a matrix in CSR and a dense one, got ", self.layout(), " and ",
              other.layout());
  TORCH_CHECK(other.dim() == 2 && self.dim() == 2 && self.size(1) == other.size(0),
              "sparse_mm_reduce: shapes cannot be multiplied: ", self.sizes(), " and ", other.sizes());
  const Reduction r = reduction_of(reduce);
  const Csr a = csr_of(self, op);
  const Tensor out = at::empty({self.size(0), other.size(1)}, other.options());
  const Tensor arg = at::empty({0}, a.col.options().dtype(at::kLong));
  if (r.extreme) {
    arg.resize_(out.sizes());
    spmm_extreme(op, a, other, r.extreme, out, arg);
  } else {
    spmm(op, a, other, out, {Tensor(), 1, 0, r.mean});
  }
  return {out, arg};
}

// Of a sum or a mean. Everything is in the compute type.
std::pair<Tensor, Tensor> sum_gradients(const char* op, const Csr& a, const Tensor& grad_, const Tensor& weight,
                                        bool mean, std::array<bool, 2> mask) {
  const Tensor counts = a.crow.slice(0, 1).sub(a.crow.slice(0, 0, a.rows)).clamp_min_(1).unsqueeze(1);
  const Tensor grad = mean ? grad_.div(counts) : grad_;
  std::pair<Tensor, Tensor> grads;
  if (mask[0]) {
    const Tensor row = expanded_rows(a.crow, a.values.numel());
    grads.first = sampled_products(op, {row, a.col}, grad, weight, {});
  }
  if (mask[1]) {
    grads.second = at::empty(weight.sizes(), weight.options());
    spmm(op, transposed(a), grad, grads.second, {});
  }
  return grads;
}

// Only the element that a result came from has a gradient.
std::pair<Tensor, Tensor> extreme_gradients(const Csr& a, const Tensor& grad, const Tensor& weight, const Tensor& arg,
                                            std::array<bool, 2> mask) {
  const int64_t nnz = a.values.numel();
  std::pair<Tensor, Tensor> grads;
  if (mask[0]) grads.first = at::zeros_like(a.values);
  if (mask[1]) grads.second = at::zeros(weight.sizes(), weight.options());
  if (nnz == 0 || grad.numel() == 0) return grads;
  const Tensor element = arg.clamp_max(nnz - 1), flat = element.view({-1});
  const Tensor column = a.col.to(at::kLong).index_select(0, flat).view(element.sizes());
  const Tensor g = grad.masked_fill(arg.eq(nnz), 0);  // an empty row
  if (mask[0]) grads.first.index_add_(0, flat, weight.gather(0, column).mul_(g).view({-1}));
  if (mask[1]) grads.second.scatter_add_(0, column, a.values.index_select(0, flat).view(element.sizes()).mul(g));
  return grads;
}

std::tuple<Tensor, Tensor> mm_reduce_backward(const Tensor& self, const Tensor& grad_out, const Tensor& weight,
                                              c10::string_view reduce, const Tensor& arg_out,
                                              std::array<bool, 2> mask) {
  const char* op = "aten::_sparse_mm_reduce_impl_backward";
  const Reduction r = reduction_of(reduce);
  const auto type = weight.scalar_type(), wide = compute_type(type);
  Csr a = csr_of(self, op);
  a.values = a.values.to(wide);
  const Tensor grad = grad_out.to(wide).contiguous(), dense = weight.to(wide);
  const auto [values, other] =
      r.extreme ? extreme_gradients(a, grad, dense, arg_out, mask) : sum_gradients(op, a, grad, dense, r.mean, mask);
  Tensor grad_self;
  if (values.defined()) {
    grad_self = at::_sparse_compressed_tensor_unsafe(a.crow, a.col, values.to(type), self.sizes(),
                                                     weight.options().layout(at::kSparseCsr));
  }
  return {grad_self, other.defined() ? other.to(type) : Tensor()};
}

NETCL_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("_sparse_mm_reduce_impl", &mm_reduce);
  m.impl("_sparse_mm_reduce_impl_backward", &mm_reduce_backward);
}

}  // namespace
}  // namespace netcl
