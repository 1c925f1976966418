// Sparse COO tensors: creation, parts, conversions, sums and products by element. Functions that CPU and CUDA share are
// ATen's; the others consist of operators on indices and values. SparseCsr.cpp has the products of matrices,
// SparseElements.cpp the functions of single elements, SparseCoo.cpp other operators. An operator on a sparse netcl
// tensor that is not registered raises with its name.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>

#include "aten/Sparse.h"
#include "aten/support/Dtypes.h"
#include "aten/support/Library.h"

namespace netcl {

using at::Tensor;

Tensor make_coo(const Tensor& indices, const Tensor& values, at::IntArrayRef sizes, bool coalesced) {
  return at::_sparse_coo_tensor_unsafe(indices, values, sizes, values.options().layout(at::kSparse), coalesced);
}

Tensor flat_indices(const Tensor& indices, at::IntArrayRef sizes) {
  if (sizes.empty()) return at::zeros({indices.size(1)}, indices.options().dtype(at::kLong));
  Tensor flat = indices[0].to(at::kLong);
  for (size_t d = 1; d < sizes.size(); d++) flat = flat.mul(sizes[d]).add_(indices[static_cast<int64_t>(d)]);
  return flat;
}

Found find_keys(const Tensor& sorted, const Tensor& keys) {
  if (sorted.numel() == 0) return {at::zeros_like(keys), at::zeros_like(keys, keys.options().dtype(at::kBool))};
  const Tensor place = at::searchsorted(sorted.contiguous(), keys.contiguous()).clamp_max_(sorted.numel() - 1);
  return {place, sorted.index_select(0, place).eq(keys)};
}

Pairing pair_keys(const Tensor& sorted_, const Tensor& keys_) {
  const Tensor sorted = sorted_.contiguous(), keys = keys_.contiguous();
  const Tensor first = at::searchsorted(sorted, keys), last = at::searchsorted(sorted, keys, false, /*right=*/true);
  const Tensor counts = last.sub(first), ends = counts.cumsum(0);
  const int64_t total = keys.numel() ? ends[-1].item<int64_t>() : 0;
  const Tensor key = at::repeat_interleave(counts, std::optional<int64_t>(total));
  // The pairs of a key are numbered from the end of the key before.
  const Tensor shift = first.sub(ends).add_(counts).index_select(0, key);
  return {key, shift.add_(at::arange(total, shift.options()))};
}

namespace {

// The indices of the sparse dimensions, as index and index_put take them.
c10::List<std::optional<Tensor>> index_list(const Tensor& sparse) {
  c10::List<std::optional<Tensor>> list;
  for (const Tensor& i : sparse._indices().unbind(0)) list.push_back(i);
  return list;
}

// Sums the values of equal indices. The host waits for the number of different indices, as on CUDA.
Tensor coalesce(const Tensor& self) {
  if (self.is_coalesced()) return self;
  if (self._nnz() < 2) return self.clone()._coalesced_(true);
  const Tensor indices = self._indices(), values = self._values();
  if (self.sparse_dim() == 0) return make_coo(indices.narrow(1, 0, 1), values.sum(0, true), self.sizes(), true);
  const auto sizes = self.sizes().slice(0, self.sparse_dim());
  auto [flat, place, counts] = at::_unique2(flat_indices(indices, sizes), true, true);
  at::DimVector shape(values.sizes());
  shape[0] = flat.size(0);
  const Tensor sums = at::zeros(shape, values.options()).index_add_(0, place, values);
  std::vector<Tensor> rows(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    rows[d] = flat.remainder(sizes[d]);
    flat = flat.floor_divide(sizes[d]);
  }
  return make_coo(at::stack(rows), sums, self.sizes(), true);
}

void check_result(const Tensor& self, const Tensor& other, const Tensor& out) {
  const auto type = at::result_type(self, other);
  TORCH_CHECK(at::canCast(type, out.scalar_type()), "Can't convert result type ", type, " to output ",
              out.scalar_type());
}

Tensor& add_out(const Tensor& self, const Tensor& other, const at::Scalar& alpha, Tensor& out) {
  if (!self.is_sparse()) {
    TORCH_CHECK(other.is_sparse() && !out.is_sparse(), "aten::add.out: a dense and a sparse tensor give a dense one");
    TORCH_CHECK(self.sizes() == other.sizes(), "add: expected 'self' and 'other' to have same size, but self has size ",
                self.sizes(), " while other has size ", other.sizes(),
                " (FYI: dense-sparse addition does not currently support broadcasting)");
    check_result(self, other, out);
    const auto type = at::result_type(self, other);
    at::native::resize_output(out, self.sizes());
    // Sums are rounded to out's dtype once.
    const bool direct = out.scalar_type() == type;
    if (direct && !out.is_same(self)) out.copy_(self);
    const Tensor sum = direct ? out : self.to(type);
    const Tensor values = other._values().to(type);
    if (other.sparse_dim() == 0) {
      sum.add_(values.sum(0), alpha);
    } else if (other._nnz() > 0) {
      sum.index_put_(index_list(other), alpha.equal(1) ? values : values.mul(alpha), true);
    }
    return direct ? out : out.copy_(sum);
  }
  TORCH_CHECK(other.is_sparse(), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(self.sizes() == other.sizes() && self.sparse_dim() == other.sparse_dim(),
              "add: expected 'self' and 'other' to have the same sizes and sparse dimensions, but got ", self.sizes(),
              " and ", other.sizes());
  check_result(self, other, out);
  const auto type = at::result_type(self, other);
  const Tensor values = other._values().to(type);
  const Tensor sum =
      make_coo(at::cat({self._indices(), other._indices()}, 1),
               at::cat({self._values().to(type), alpha.equal(1) ? values : values.mul(alpha)}, 0), self.sizes(), false);
  return out.copy_(sum);
}

// res = x * y at the indices that both have.
void multiply_common(Tensor& res, const Tensor& x_, const Tensor& y_) {
  const auto type = at::result_type(x_, y_);
  TORCH_CHECK(x_.sparse_dim() == y_.sparse_dim(),
              "mul: expected both sparse tensors to have the same number of sparse dimensions, got ", x_.sparse_dim(),
              " and ", y_.sparse_dim());
  const Tensor x = x_.coalesce(), y = y_.coalesce();
  const auto sizes = x.sizes().slice(0, x.sparse_dim());
  const auto [place, there] = find_keys(flat_indices(y._indices(), sizes), flat_indices(x._indices(), sizes));
  const Tensor chosen = there.nonzero().squeeze(1);
  const Tensor values = x._values().index_select(0, chosen).to(type).mul(
      y._values().index_select(0, place.index_select(0, chosen)).to(type));
  res.copy_(make_coo(x._indices().index_select(1, chosen), values, x.sizes(), true));
}

Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  check_result(self, other, out);
  if (self.is_sparse() && other.is_sparse()) {
    if (self.dim() == 0) return at::native::_mul_sparse_sparse_zero_dim_out(self, other, out);
    if (other.dim() == 0) return at::native::_mul_sparse_sparse_zero_dim_out(other, self, out);
    TORCH_CHECK(self.sizes() == other.sizes(), "mul: expected 'self' and 'other' to have same sizes when both are ",
                "sparse, but ", self.sizes(), " != ", other.sizes());
    multiply_common(out, self, other);
    return out;
  }
  const Tensor& sparse = self.is_sparse() ? self : other;
  const Tensor& factor = self.is_sparse() ? other : self;
  if (factor.dim() > 0) return at::native::_mul_dense_sparse_out(factor, sparse, out);
  // GradScaler and gradient clipping multiply by a number.
  const auto type = at::result_type(self, other);
  const Tensor product =
      make_coo(sparse._indices(), sparse._values().to(type).mul(factor), sparse.sizes(), sparse.is_coalesced());
  return out.copy_(product);
}

// The elements of `self` at the indices of `mask`; zeros where a sparse `self` has none.
Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(self.sizes() == mask.sizes(), "sparse_mask(): operands have incompatible sizes; self has size ",
              self.sizes(), " but mask has size ", mask.sizes());
  if (!self.is_sparse()) {
    TORCH_CHECK(self.layout() == at::kStrided && mask.is_sparse(),
                "sparse_mask(): expected a dense or COO tensor and a mask in COO, got ", self.layout(), " and ",
                mask.layout());
    const Tensor values = mask.sparse_dim() ? self.index(index_list(mask)) : self.unsqueeze(0);
    return make_coo(mask._indices(), values.expand_as(mask._values()).contiguous(), mask.sizes(), mask.is_coalesced());
  }
  TORCH_CHECK(self.sparse_dim() == mask.sparse_dim(),
              "sparse_mask(): expected both tensors to have the same number of sparse dimensions, got ",
              self.sparse_dim(), " and ", mask.sparse_dim());
  const Tensor source = self.coalesce(), values = source._values();
  const auto sizes = self.sizes().slice(0, self.sparse_dim());
  const auto [place, there] = find_keys(flat_indices(source._indices(), sizes), flat_indices(mask._indices(), sizes));
  at::DimVector shape(values.sizes());
  shape[0] = mask._nnz();
  Tensor chosen = at::zeros(shape, values.options());
  if (source._nnz() > 0) {
    at::DimVector one(values.dim(), 1);
    one[0] = mask._nnz();
    chosen = at::where(there.view(one), values.index_select(0, place), chosen);
  }
  return make_coo(mask._indices(), chosen, mask.sizes(), mask.is_coalesced());
}
Tensor sparse_mask_projection(const Tensor& self, const Tensor& mask, bool /*accumulate_matches*/) {
  return netcl::sparse_mask(self, mask);
}

// A factory of ATen with the device of its options or of its tensor as the current one, on which it makes tensors.
template <auto F>
struct OnDevice;
template <class R, class... A, R (*F)(A...)>
struct OnDevice<F> {
  static R call(A... args) {
    c10::OptionalDeviceGuard guard;
    const auto choose = [&](const auto& arg) {
      if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, std::optional<c10::Device>>) {
        if (arg.has_value() && arg->has_index()) guard.reset_device(*arg);
      } else if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, Tensor>) {
        guard.reset_device(arg.device());
      }
    };
    (choose(args), ...);
    return F(std::forward<A>(args)...);
  }
};

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using Blocks = at::OptionalIntArrayRef;
  m.impl("_to_sparse.sparse_dim", static_cast<Tensor (*)(const Tensor&, int64_t)>(at::native::dense_to_sparse));
  m.impl("_to_sparse",
         static_cast<Tensor (*)(const Tensor&, std::optional<at::Layout>, Blocks, std::optional<int64_t>)>(
             at::native::dense_to_sparse));
}

NETCL_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  using namespace at::native;
  using Blocks = at::OptionalIntArrayRef;
  // Creation and parts.
  m.impl("_sparse_coo_tensor_with_dims", &OnDevice<&new_with_dims_sparse>::call);
  m.impl("_sparse_coo_tensor_with_dims_and_tensors", &OnDevice<&new_with_dims_and_tensor_sparse_symint>::call);
  m.impl("empty.memory_format", &OnDevice<&empty_sparse>::call);
  m.impl("empty_like", &empty_like_sparse_coo);
  m.impl("zeros.out", &zeros_sparse_out);
  m.impl("clone", &OnDevice<&clone_sparse>::call);
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
  m.impl("sparse_mask", &netcl::sparse_mask);
  m.impl("_sparse_mask_projection", &netcl::sparse_mask_projection);
  m.impl("_sparse_broadcast_to", &sparse_broadcast_to);
  m.impl("cat", &cat_sparse);
  m.impl("narrow_copy", &narrow_copy_sparse);
  m.impl("permute", &permute_sparse_coo);
  m.impl("unsqueeze", &unsqueeze_sparse);
  m.impl("_to_sparse.sparse_dim", static_cast<Tensor (*)(const Tensor&, int64_t)>(sparse_coo_to_sparse));
  m.impl("_to_sparse",
         static_cast<Tensor (*)(const Tensor&, std::optional<at::Layout>, Blocks, std::optional<int64_t>)>(
             sparse_coo_to_sparse));
  // Arithmetic.
  m.impl("any", &any_sparse);
  m.impl("sum", &sum_coo);
  m.impl("sum.dim_IntList", &sum_sparse_coo);
  m.impl("add.Tensor", &add_sparse);
  m.impl("add_.Tensor", &add_sparse_);
  m.impl("add.out", &add_out);
  m.impl("sub.Tensor", &sub_sparse);
  m.impl("sub_.Tensor", &sub_sparse_);
  m.impl("sub.out", &sub_out_sparse);
  m.impl("mul.Tensor", &mul_sparse);
  m.impl("mul_.Tensor", &mul_sparse_);
  m.impl("mul.out", &mul_out);
  m.impl("native_norm", static_cast<Tensor (*)(const Tensor&, const at::Scalar&)>(norm_sparse));
  m.impl("native_norm.ScalarOpt_dim_dtype",
         static_cast<Tensor (*)(const Tensor&, const std::optional<at::Scalar>&, at::IntArrayRef, bool,
                                std::optional<at::ScalarType>)>(norm_sparse));
  m.impl("norm.ScalarOpt_dim", &sparse_norm);
  m.impl("norm.ScalarOpt_dim_dtype", &sparse_dtype_norm);
}

Tensor flatten_kernel(const Tensor& indices, at::IntArrayRef sizes) { return flat_indices(indices, sizes); }

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &netcl::flatten_kernel)
}  // namespace at::native
