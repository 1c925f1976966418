// Operators on COO tensors of which CPU and CUDA have each their own kernels: products, softmax, selection. They
// consist of operators on indices and values; equal indices are found by sorting and searching (pair_keys, find_keys).
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include "aten/support/Library.h"

#include "aten/Sparse.h"
#include "aten/support/Dtypes.h"

namespace netcl {
namespace {

using at::Tensor;

// --- products -------------------------------------------------------------------------------------------------

// Each element of `self` meets the elements of a row of `other`. Products at one place are added in the compute type.
Tensor sparse_sparse_matmul(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.is_sparse() && other.is_sparse(), "sparse_sparse_matmul: expected two COO tensors, got ",
              self.layout(), " and ", other.layout());
  TORCH_CHECK(self.dim() == 2 && other.dim() == 2 && self.dense_dim() == 0 && other.dense_dim() == 0,
              "sparse_sparse_matmul: expected matrices of two sparse dimensions");
  TORCH_CHECK(self.size(1) == other.size(0), "mat1 and mat2 shapes cannot be multiplied (", self.size(0), "x",
              self.size(1), " and ", other.size(0), "x", other.size(1), ")");
  const auto type = self.scalar_type(), wide = compute_type(type);
  TORCH_CHECK(other.scalar_type() == type, "mat1 dtype ", type, " does not match mat2 dtype ", other.scalar_type());
  const Tensor a = self.coalesce(), b = other.coalesce();
  const auto [left, right] = pair_keys(b._indices()[0], a._indices()[1]);
  const Tensor indices = at::stack({a._indices()[0].index_select(0, left), b._indices()[1].index_select(0, right)});
  const Tensor values = a._values().to(wide).index_select(0, left).mul_(b._values().to(wide).index_select(0, right));
  const Tensor product = make_coo(indices, values, {self.size(0), other.size(1)}, false).coalesce();
  return make_coo(product._indices(), product._values().to(type), product.sizes(), true);
}

// A batch of sparse matrices is one matrix with a block for each, and the dense matrices lie below one another.
Tensor bmm(const Tensor& self, const Tensor& mat2) {
  TORCH_CHECK(self.is_sparse() && mat2.layout() == at::kStrided,
              "bmm_sparse: expected a COO tensor and a dense one, got ", self.layout(), " and ", mat2.layout());
  TORCH_CHECK(self.dim() == 3 && self.dense_dim() == 0,
              "bmm_sparse: Tensor 'self' must have three sparse dimensions, got ", self.sizes(), " with ",
              self.dense_dim(), " dense dimensions");
  TORCH_CHECK(mat2.dim() == 3, "bmm_sparse: Tensor 'mat2' must be 3D, got ", mat2.dim(), "D");
  TORCH_CHECK(self.size(0) == mat2.size(0), "bmm_sparse: 'self.size(0)' and 'mat2.size(0)' must match");
  TORCH_CHECK(self.size(2) == mat2.size(1), "bmm_sparse: 'self.size(2)' and 'mat2.size(1)' must match");
  const int64_t batches = self.size(0), rows = self.size(1), inner = self.size(2), columns = mat2.size(2);
  const Tensor i = self._indices();
  const Tensor blocks = at::stack({i[0].mul(rows).add_(i[1]), i[0].mul(inner).add_(i[2])});
  const Tensor matrix = make_coo(blocks, self._values(), {batches * rows, batches * inner}, self.is_coalesced());
  return at::mm(matrix, mat2.reshape({batches * inner, columns})).view({batches, rows, columns});
}
Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  const Tensor product = netcl::bmm(self, mat2);
  at::native::resize_output(out, product.sizes());
  return out.copy_(product);
}

// The rows of a sparse matrix that have elements, times a dense one.
Tensor hspmm(const Tensor& mat1, const Tensor& mat2) {
  TORCH_CHECK(mat1.is_sparse() && mat1.sparse_dim() == 2 && mat1.dense_dim() == 0,
              "hspmm: Argument #1: matrix expected in COO, got ", mat1.sizes(), " in ", mat1.layout());
  TORCH_CHECK(mat2.layout() == at::kStrided && mat2.dim() == 2, "hspmm: Argument #2: dense matrix expected, got ",
              mat2.dim(), "D");
  const Tensor a = mat1.coalesce();
  const auto [rows, place, counts] = at::_unique2(a._indices()[0], true, true);
  const Tensor kept = make_coo(at::stack({place, a._indices()[1]}), a._values(), {rows.numel(), a.size(1)}, true);
  return make_coo(rows.unsqueeze(0), at::mm(kept, mat2), {a.size(0), mat2.size(1)}, true);
}
Tensor& hspmm_out(const Tensor& mat1, const Tensor& mat2, Tensor& out) { return out.copy_(netcl::hspmm(mat1, mat2)); }

// --- softmax --------------------------------------------------------------------------------------------------

// Which elements differ only in the index along a sparse dimension: the number of each element's group.
struct Groups {
  Tensor of;
  int64_t count;
};
Groups groups_along(const Tensor& t, int64_t dim) {
  const Tensor indices = t._indices();
  if (t.sparse_dim() == 1) return {at::zeros_like(indices[0]), 1};
  std::vector<Tensor> rows = indices.unbind(0);
  at::DimVector sizes(t.sizes().slice(0, t.sparse_dim()));
  rows.erase(rows.begin() + dim);
  sizes.erase(sizes.begin() + dim);
  const auto [keys, of, counts] = at::_unique2(flat_indices(at::stack(rows), sizes), true, true);
  return {of, keys.numel()};
}
// The sum of each element's group.
Tensor sums_of(const Groups& groups, const Tensor& values) {
  at::DimVector shape(values.sizes());
  shape[0] = groups.count;
  return at::zeros(shape, values.options()).index_add_(0, groups.of, values).index_select(0, groups.of);
}

// Elements that are not there count as minus infinity.
Tensor softmax_along(const Tensor& self, int64_t dim_, bool log, bool half_to_float) {
  const char* name = log ? "log_softmax" : "softmax";
  TORCH_CHECK(!half_to_float, name, ": conversion from Half to Float is not supported for sparse tensors");
  const int64_t dim = at::maybe_wrap_dim(dim_, self.dim());
  const Tensor t = self.coalesce(), values = t._values();
  if (dim >= t.sparse_dim()) {
    const int64_t d = dim - t.sparse_dim() + 1;
    return make_coo(t._indices(), log ? at::log_softmax(values, d) : at::softmax(values, d), t.sizes(), true);
  }
  if (values.numel() == 0) return t.clone();
  const Groups groups = groups_along(t, dim);
  const Tensor x = values.to(compute_type(values.scalar_type()));
  at::DimVector shape(x.sizes());
  shape[0] = groups.count;
  const Tensor largest = at::full(shape, -std::numeric_limits<double>::infinity(), x.options())
                             .index_reduce_(0, groups.of, x, "amax")
                             .index_select(0, groups.of);
  const Tensor shifted = x.sub(largest), powers = shifted.exp(), sums = sums_of(groups, powers);
  const Tensor result = log ? shifted.sub(sums.log()) : powers.div(sums);
  return make_coo(t._indices(), result.to(values.scalar_type()), t.sizes(), true);
}
Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return softmax_along(self, dim, false, half_to_float);
}
Tensor log_softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return softmax_along(self, dim, true, half_to_float);
}

Tensor softmax_gradient(const Tensor& grad, const Tensor& output_, int64_t dim_, const Tensor& self, bool log) {
  const int64_t dim = at::maybe_wrap_dim(dim_, self.dim());
  const Tensor output = output_.coalesce(), y = output._values();
  const Tensor g = grad.sparse_mask(output)._values();
  if (dim >= output.sparse_dim()) {
    const int64_t d = dim - output.sparse_dim() + 1;
    const Tensor values = log ? at::_log_softmax_backward_data(g, y, d, y.scalar_type())
                              : at::_softmax_backward_data(g, y, d, y.scalar_type());
    return make_coo(output._indices(), values, output.sizes(), true);
  }
  if (y.numel() == 0) return output.clone();
  const Groups groups = groups_along(output, dim);
  const auto wide = compute_type(y.scalar_type());
  const Tensor gw = g.to(wide), yw = y.to(wide);
  const Tensor values = log ? gw.sub(yw.exp().mul_(sums_of(groups, gw))) : yw.mul(gw.sub(sums_of(groups, yw.mul(gw))));
  return make_coo(output._indices(), values.to(y.scalar_type()), output.sizes(), true);
}
Tensor softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& self) {
  return softmax_gradient(grad, output, dim, self, false);
}
Tensor log_softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& self) {
  return softmax_gradient(grad, output, dim, self, true);
}

// --- sums and selection ---------------------------------------------------------------------------------------

// The gradient of a sum: each element of `self` gets that of the sum to which it was added.
Tensor sum_backward(const Tensor& grad, const Tensor& self, at::IntArrayRef dims) {
  const Tensor input = self.coalesce();
  const int64_t sparse = input.sparse_dim();
  std::vector<bool> summed(input.dim(), dims.empty());
  for (const int64_t d : dims) summed[at::maybe_wrap_dim(d, input.dim())] = true;
  std::vector<Tensor> rows;
  at::DimVector sizes;  // of the sparse dimensions that are kept
  for (int64_t d = 0; d < sparse; d++) {
    if (summed[d]) continue;
    rows.push_back(input._indices()[d]);
    sizes.push_back(input.size(d));
  }
  Tensor values = rows.empty() ? grad.unsqueeze(0) : grad;
  if (!rows.empty()) {
    // Only the indices of the mask matter; its dense dimensions are those of the gradient.
    at::DimVector shape(grad.sizes().slice(sizes.size()));
    shape.insert(shape.begin(), input._nnz());
    const Tensor none = at::zeros({}, input._values().options()).expand(shape);
    values = grad.sparse_mask(make_coo(at::stack(rows), none, grad.sizes(), false))._values();
  }
  for (int64_t d = sparse; d < input.dim(); d++) {
    if (summed[d]) values = values.unsqueeze(d - sparse + 1);
  }
  return make_coo(input._indices(), values.expand_as(input._values()).contiguous(), input.sizes(), true);
}

Tensor index_select(const Tensor& self, int64_t dim_, const Tensor& index) {
  TORCH_CHECK_INDEX(self.dim() > 0, "index_select() cannot be applied to a 0-dim tensor.");
  const int64_t dim = at::maybe_wrap_dim(dim_, self.dim()), size = self.size(dim), sparse = self.sparse_dim();
  TORCH_CHECK_INDEX(index.dim() == 1 && index.layout() == at::kStrided,
                    "index_select() argument index must be 1-D dense tensor");
  TORCH_CHECK_INDEX(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
                    "index_select() argument index must be of int64 or int32, got ", index.scalar_type());
  const Tensor wanted = index.to(at::kLong), place = wanted.add(wanted.lt(0).to(at::kLong), size);
  TORCH_CHECK_INDEX(index.numel() == 0 || place.ge(0).logical_and(place.lt(size)).all().item<bool>(),
                    "index_select(): index contains a number that is out of range for tensor of size ", self.sizes(),
                    " at dimension ", dim);
  at::DimVector sizes(self.sizes());
  sizes[dim] = index.numel();
  if (dim >= sparse) {
    return make_coo(self._indices(), self._values().index_select(dim - sparse + 1, place), sizes, self.is_coalesced());
  }
  const auto [sorted, order] = self._indices()[dim].sort(/*stable=*/true, 0, /*descending=*/false);
  const auto [key, found] = pair_keys(sorted, place);
  const Tensor source = order.index_select(0, found);
  const Tensor indices = self._indices().index_select(1, source);
  indices[dim].copy_(key);
  return make_coo(indices, self._values().index_select(0, source), sizes, false);
}

NETCL_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_sparse_matmul", &sparse_sparse_matmul);
  m.impl("bmm", &netcl::bmm);
  m.impl("bmm.out", &netcl::bmm_out);
  m.impl("hspmm", &netcl::hspmm);
  m.impl("hspmm.out", &netcl::hspmm_out);
  m.impl("_sparse_softmax", &netcl::softmax);
  m.impl("_sparse_log_softmax", &netcl::log_softmax);
  m.impl("_sparse_softmax_backward_data", &softmax_backward);
  m.impl("_sparse_log_softmax_backward_data", &log_softmax_backward);
  m.impl("_sparse_sum_backward", &sum_backward);
  m.impl("index_select", &netcl::index_select);
}

}  // namespace
}  // namespace netcl
