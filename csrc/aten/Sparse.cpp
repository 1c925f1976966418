// Sparse COO tensors, as far as sparse gradients need them: an embedding creates them, they are added, unscaled and
// measured, and an optimizer uses them. Functions that CPU and CUDA share are ATen's; the others consist of operators
// on indices and values; SparseCsr.cpp has the products. Any other operator on a sparse netcl tensor raises, since none
// is registered.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

namespace netcl {
namespace {

using at::Tensor;

// The indices of the sparse dimensions, as index and index_put take them.
c10::List<std::optional<Tensor>> index_list(const Tensor& sparse) {
  c10::List<std::optional<Tensor>> list;
  for (const Tensor& i : sparse._indices().unbind(0)) list.push_back(i);
  return list;
}

Tensor make(const Tensor& indices, const Tensor& values, at::IntArrayRef sizes, bool coalesced) {
  return at::_sparse_coo_tensor_unsafe(indices, values, sizes, values.options().layout(at::kSparse), coalesced);
}

// Sums the values of equal indices. The host waits for the number of different indices, as on CUDA.
Tensor coalesce(const Tensor& self) {
  if (self.is_coalesced()) return self;
  if (self._nnz() < 2) return self.clone()._coalesced_(true);
  const Tensor indices = self._indices(), values = self._values();
  if (self.sparse_dim() == 0) return make(indices.narrow(1, 0, 1), values.sum(0, true), self.sizes(), true);
  const auto sizes = self.sizes().slice(0, self.sparse_dim());
  Tensor position = indices[0];
  for (size_t d = 1; d < sizes.size(); d++) position = position.mul(sizes[d]).add_(indices[d]);
  auto [flat, place, counts] = at::_unique2(position, true, true);
  // Half precision is summed in float32 and rounded once.
  const bool half = values.scalar_type() == at::kHalf || values.scalar_type() == at::kBFloat16;
  const Tensor terms = half ? values.to(at::kFloat) : values;
  at::DimVector shape(values.sizes());
  shape[0] = flat.size(0);
  const Tensor sums = at::zeros(shape, terms.options()).index_add_(0, place, terms).to(values.scalar_type());
  std::vector<Tensor> rows(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    rows[d] = flat.remainder(sizes[d]);
    flat = flat.floor_divide(sizes[d]);
  }
  return make(at::stack(rows), sums, self.sizes(), true);
}

Tensor& add_out(const Tensor& self, const Tensor& other, const at::Scalar& alpha, Tensor& out) {
  if (!self.is_sparse()) {
    TORCH_CHECK(other.is_sparse() && !out.is_sparse(), "aten::add.out: a dense and a sparse tensor give a dense one");
    TORCH_CHECK(self.sizes() == other.sizes(), "add: expected 'self' and 'other' to have same size, but self has size ",
                self.sizes(), " while other has size ", other.sizes(),
                " (FYI: dense-sparse addition does not currently support broadcasting)");
    if (!out.is_same(self)) {
      at::native::resize_output(out, self.sizes());
      out.copy_(self);
    }
    const Tensor values = other._values().to(out.scalar_type());
    if (other.sparse_dim() == 0) return out.add_(values.sum(0), alpha);
    if (other._nnz() > 0) out.index_put_(index_list(other), alpha.equal(1) ? values : values.mul(alpha), true);
    return out;
  }
  TORCH_CHECK(other.is_sparse(), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(self.sizes() == other.sizes() && self.sparse_dim() == other.sparse_dim(),
              "add: expected 'self' and 'other' to have the same sizes and sparse dimensions, but got ", self.sizes(),
              " and ", other.sizes());
  const auto type = at::result_type(self, other);
  const Tensor values = other._values().to(type);
  const Tensor sum =
      make(at::cat({self._indices(), other._indices()}, 1),
           at::cat({self._values().to(type), alpha.equal(1) ? values : values.mul(alpha)}, 0), self.sizes(), false);
  return out.copy_(sum);
}

// Multiplies a sparse tensor by a number, as GradScaler and gradient clipping do.
Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  const Tensor& sparse = self.is_sparse() ? self : other;
  const Tensor& factor = self.is_sparse() ? other : self;
  TORCH_CHECK_NOT_IMPLEMENTED(!factor.is_sparse() && factor.dim() == 0,
                              "aten::mul: a sparse netcl tensor can only be multiplied by a number; call to_dense() or "
                              "move it to the CPU for other products");
  const auto type = at::result_type(self, other);
  const Tensor product =
      make(sparse._indices(), sparse._values().to(type).mul(factor), sparse.sizes(), sparse.is_coalesced());
  return out.copy_(product);
}

Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_sparse(),
                              "aten::sparse_mask of a sparse netcl tensor is not supported; call to_dense() first");
  TORCH_CHECK(self.sizes() == mask.sizes(), "sparse_mask(): operands have incompatible sizes; self has size ",
              self.sizes(), " but mask has size ", mask.sizes());
  return make(mask._indices(), self.index(index_list(mask)), mask.sizes(), mask.is_coalesced());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using Blocks = at::OptionalIntArrayRef;
  m.impl("_to_sparse.sparse_dim", static_cast<Tensor (*)(const Tensor&, int64_t)>(at::native::dense_to_sparse));
  m.impl("_to_sparse",
         static_cast<Tensor (*)(const Tensor&, std::optional<at::Layout>, Blocks, std::optional<int64_t>)>(
             at::native::dense_to_sparse));
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  using namespace at::native;
  // Creation and parts.
  m.impl("_sparse_coo_tensor_with_dims", &new_with_dims_sparse);
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", &new_with_dims_and_tensor_sparse_symint);
  m.impl("empty.memory_format", &empty_sparse);
  m.impl("empty_like", &empty_like_sparse_coo);
  m.impl("zeros.out", &zeros_sparse_out);
  m.impl("clone", &clone_sparse);
  m.impl("copy_", &copy_sparse_wrapper_);
  m.impl("copy_sparse_to_sparse_", &copy_sparse_);
  m.impl("zero_", &zero_sparse_);
  m.impl("sparse_resize_", &sparse_resize_);
  m.impl("sparse_resize_and_clear_", &sparse_resize_and_clear_);
  m.impl("resize_as_sparse_", &resize_as_sparse_);
  m.impl("_to_dense", &sparse_to_dense);
  m.impl("sparse_dim", &sparse_dim_sparse);
  m.impl("dense_dim", &dense_dim_sparse);
  m.impl("_dimI", &sparse_dim_sparse);
  m.impl("_dimV", &dense_dim_sparse);
  m.impl("_nnz", &_nnz_sparse);
  m.impl("is_coalesced", &is_coalesced_sparse);
  m.impl("_coalesced_", &_coalesced_sparse_);
  m.impl("_coalesce", &coalesce);
  m.impl("_indices", &_indices_sparse);
  m.impl("_values", &_values_sparse);
  m.impl("indices", &indices_sparse);
  m.impl("values", &values_sparse);
  m.impl("sparse_mask", &sparse_mask);
  // Arithmetic.
  m.impl("add.Tensor", &add_sparse);
  m.impl("add_.Tensor", &add_sparse_);
  m.impl("add.out", &add_out);
  m.impl("sub.Tensor", &sub_sparse);
  m.impl("sub_.Tensor", &sub_sparse_);
  m.impl("sub.out", &sub_out_sparse);
  m.impl("mul.Tensor", &mul_sparse);
  m.impl("mul_.Tensor", &mul_sparse_);
  m.impl("mul.out", &mul_out);
  m.impl("div.Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&)>(div_sparse));
  m.impl("div_.Tensor", static_cast<Tensor& (*)(Tensor&, const Tensor&)>(div_sparse_));
  m.impl("div.out", static_cast<Tensor& (*)(const Tensor&, const Tensor&, Tensor&)>(div_out_sparse_zerodim));
  m.impl("neg", &neg_sparse);
  m.impl("neg_", &neg_sparse_);
  m.impl("neg.out", &neg_out_sparse);
  m.impl("native_norm", static_cast<Tensor (*)(const Tensor&, const at::Scalar&)>(norm_sparse));
  m.impl("native_norm.ScalarOpt_dim_dtype",
         static_cast<Tensor (*)(const Tensor&, const std::optional<at::Scalar>&, at::IntArrayRef, bool,
                                std::optional<at::ScalarType>)>(norm_sparse));
  m.impl("norm.ScalarOpt_dim", &sparse_norm);
  m.impl("norm.ScalarOpt_dim_dtype", &sparse_dtype_norm);
}

}  // namespace
}  // namespace netcl
