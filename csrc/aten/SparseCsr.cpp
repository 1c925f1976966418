// Sparse matrices in CSR: conversions, sums, and products of a sparse and a dense matrix, of COO, CSR or CSC. A product
// brings its sparse operand into CSR first, which costs a sort of the rows for CSC and for COO that is not coalesced.
#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/Resize.h>

#include <limits>
#include <string>

#include "args/sparse.h"
#include "aten/Sparse.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Rows.h"
#include "aten/support/Scalars.h"
#include "aten/support/Structured.h"
#include "runtime/Assertions.h"

namespace netcl {

using at::Scalar;
using at::Tensor;

Tensor compressed_rows(const Tensor& sorted, int64_t size, bool out_int32) {
  // Place i: how many are below i.
  return at::searchsorted(sorted.contiguous(), at::arange(size + 1, sorted.options()), out_int32);
}
Tensor expanded_rows(const Tensor& crow, int64_t nnz) {
  const int64_t rows = crow.numel() - 1;
  const Tensor counts = crow.slice(0, 1).sub(crow.slice(0, 0, rows)).to(at::kLong);
  return at::repeat_interleave(counts, std::optional<int64_t>(nnz)).to(crow.scalar_type());
}

namespace {

struct CooToCsr : at::meta::structured__convert_indices_from_coo_to_csr {
  void impl(const Tensor& input, int64_t size, bool out_int32, const Tensor& result) {
    result.copy_(compressed_rows(input, size, out_int32));
  }
};
struct CsrToCoo : at::meta::structured__convert_indices_from_csr_to_coo {
  void impl(const Tensor& crow, const Tensor& col, bool, bool transpose, const Tensor& result) {
    const int64_t batches = crow.dim() - 1, rows = crow.size(-1) - 1, nnz = col.size(-1);
    if (rows == 0 || col.numel() == 0) {
      result.zero_();
      return;
    }
    result.select(0, transpose ? batches : batches + 1).copy_(col.reshape({-1}));
    const Tensor first = result.select(0, transpose ? batches + 1 : batches).view({-1, nnz});
    const Tensor matrices = crow.reshape({-1, rows + 1});
    for (int64_t b = 0; b < matrices.size(0); b++) first[b].copy_(expanded_rows(matrices[b], nnz));
    if (batches == 0) return;
    Tensor position = at::arange(matrices.size(0), crow.options()).repeat_interleave(nnz);
    for (int64_t d = batches; d-- > 0; position = position.floor_divide(crow.size(d)))
      result.select(0, d).copy_(position.remainder(crow.size(d)));
  }
};

// Checks what ATen's function for the CPU checks, with its messages; the host waits twice for each matrix.
void validate(bool is_crow, const Tensor& compressed_indices, const Tensor& plain_indices, int64_t cdim, int64_t dim,
              int64_t nnz) {
  const std::string c = is_crow ? "crow_indices" : "ccol_indices", p = is_crow ? "col_indices" : "row_indices";
  const std::string counts = is_crow ? "ncols" : "nrows", rows = is_crow ? "nrows" : "ncols";
  const Tensor ends = compressed_indices.reshape({-1, cdim + 1}), plain = plain_indices.reshape({ends.size(0), nnz});
  for (int64_t b = 0; b < ends.size(0); b++) {
    const Tensor end = ends[b], place = plain[b], size = end.slice(0, 1).sub(end.slice(0, 0, cdim));
    const Tensor found = at::stack({end[0].eq(0), end[cdim].eq(nnz), size.ge(0).logical_and(size.le(dim)).all(),
                                    place.ge(0).logical_and(place.lt(dim)).all()})
                             .cpu();
    const auto holds = [&](int64_t i) { return found[i].item<bool>(); };
    TORCH_CHECK(holds(0), "`", c, "[..., 0] == 0` is not satisfied.");
    TORCH_CHECK(holds(1), "`", c, "[..., -1] == nnz` is not satisfied.");
    TORCH_CHECK(holds(2), "`0 <= ", c, "[..., 1:] - ", c, "[..., :-1] <= ", counts, "` is not satisfied.");
    TORCH_CHECK(holds(3), "`0 <= ", p, " < ", counts, "` is not satisfied.");
    if (nnz < 2) continue;
    const Tensor row = expanded_rows(end, nnz);
    const Tensor falls = place.slice(0, 1).le(place.slice(0, 0, nnz - 1));
    TORCH_CHECK(!row.slice(0, 1).eq(row.slice(0, 0, nnz - 1)).logical_and(falls).any().item<bool>(), "`", p, "[..., ",
                c, "[..., i - 1]:", c, "[..., i]] for all i = 1, ..., ", rows,
                " are sorted and distinct along the last dimension values` is not satisfied.");
  }
}

// Elements that are listed by row and column, in any order.
Csr sorted_csr(const Tensor& row, const Tensor& col, const Tensor& values, int64_t rows, int64_t columns) {
  // Numbers of 32 bits are sorted in a third of the time.
  const bool narrow = rows <= std::numeric_limits<int32_t>::max();
  const Tensor key = narrow ? row.to(at::kInt) : row;
  const auto [sorted, order] = key.sort(/*stable=*/true, 0, /*descending=*/false);
  return {compressed_rows(sorted, rows, col.scalar_type() == at::kInt), col.index_select(0, order),
          values.index_select(0, order), rows, columns};
}

}  // namespace

Csr csr_of(const Tensor& t, const char* op, bool hybrid) {
  const auto layout = t.layout();
  TORCH_CHECK_NOT_IMPLEMENTED(layout == at::kSparse || layout == at::kSparseCsr || layout == at::kSparseCsc, op,
                              ": netcl has sparse matrices of the layouts COO, CSR and CSC, got ", layout);
  const int64_t dense = t.dense_dim();
  TORCH_CHECK_NOT_IMPLEMENTED(t.dim() - dense == 2 && (hybrid || dense == 0), op,
                              ": netcl has sparse matrices of two sparse dimensions, without batches",
                              hybrid ? "" : " and dense dimensions", ", got ", t.sizes(), " with ", dense,
                              " dense dimensions");
  const int64_t rows = t.size(0), columns = t.size(1);
  if (layout == at::kSparseCsr) {
    return {t.crow_indices().contiguous(), t.col_indices().contiguous(), t.values().contiguous(), rows, columns};
  }
  if (layout == at::kSparseCsc) {
    const Tensor column = expanded_rows(t.ccol_indices(), t._nnz());
    return sorted_csr(t.row_indices(), column, t.values(), rows, columns);
  }
  const Tensor row = t._indices()[0], col = t._indices()[1], values = t._values();
  if (!t.is_coalesced()) return sorted_csr(row, col, values, rows, columns);
  return {compressed_rows(row, rows, false), col.contiguous(), values.contiguous(), rows, columns};
}

Csr transposed(const Csr& a) {
  const Tensor row = expanded_rows(a.crow, a.values.size(0));
  return sorted_csr(a.col, row, a.values, a.columns, a.rows);
}

namespace {

Tensor to_csr(const Tensor& self, std::optional<int64_t> /*dense_dim*/) {
  if (self.layout() == at::kSparseCsr) return self;
  const Csr c = csr_of(self, "aten::to_sparse_csr", /*hybrid=*/true);
  return at::_sparse_compressed_tensor_unsafe(c.crow, c.col, c.values, self.sizes(),
                                              c.values.options().layout(at::kSparseCsr));
}
// A matrix in CSC has the indices of its transpose in CSR.
Tensor to_csc(const Tensor& self, std::optional<int64_t> /*dense_dim*/) {
  if (self.layout() == at::kSparseCsc) return self;
  const Csr c = transposed(csr_of(self, "aten::to_sparse_csc", /*hybrid=*/true));
  return at::_sparse_compressed_tensor_unsafe(c.crow, c.col, c.values, self.sizes(),
                                              c.values.options().layout(at::kSparseCsc));
}
using Blocks = at::OptionalIntArrayRef;
Tensor to_sparse(const Tensor& self, std::optional<at::Layout> layout, Blocks blocks,
                 std::optional<int64_t> dense_dim) {
  if (layout == at::kSparseCsr) return self.to_sparse_csr(dense_dim);
  if (layout == at::kSparseCsc) return self.to_sparse_csc(dense_dim);
  return at::native::sparse_compressed_to_sparse(self, layout, blocks, dense_dim);
}

void check_numbers(const Tensor& dense, const Tensor& values, const char* op) {
  const auto type = dense.scalar_type();
  TORCH_CHECK(values.scalar_type() == type, op, ": expected both matrices to have the same dtype, got ",
              values.scalar_type(), " and ", type);
  if (!c10::isComplexType(type) || type == at::kComplexHalf) check_floating(netcl::device_of(dense), type, op);
  check_dtype(netcl::device_of(dense), type, op);
}

Defs sparse_defs(const Device& dev, c10::ScalarType type, const Tensor& index, int64_t width) {
  const auto acc = compute_type(type);
  Defs defs;
  defs.set("IO", dtype_tag(type)).set("IDX", dtype_tag(index.scalar_type())).set("ACC", dtype_tag(acc));
  defs.set("VEC", c10::isComplexType(acc) ? 1 : row_vec(dev, width));
  return defs;
}

template <class Params>
void set_factors(Params& p, const SpmmTerms& terms, c10::ScalarType type) {
  p.alpha = pack_scalar(terms.alpha, compute_type(type)).bits();
  p.beta = pack_scalar(terms.beta, compute_type(type)).bits();
}

SpmmParams spmm_params(const char* op, Device& dev, const Csr& a, const Tensor& dense) {
  const int64_t n = dense.size(1), nnz = a.values.numel();
  // As many rows as make a few thousand products, unless cores would be left without.
  const int64_t share = ceil_div<int64_t>(8192 * a.rows, std::max<int64_t>((nnz + a.rows) * n, 1));
  const int64_t per = units_per_item(dev, a.rows, 1, share);
  return {a.rows, n, dense.stride(0), per, dense.size(0), nnz, assert_code(dev, op)};
}

}  // namespace

void spmm(const char* op, const Csr& a, const Tensor& dense_, const Tensor& out, const SpmmTerms& terms) {
  check_numbers(dense_, a.values, op);
  const Tensor dense = dense_.stride(1) == 1 || dense_.size(1) == 1 ? dense_ : dense_.contiguous();
  const auto type = dense.scalar_type();
  if (out.numel() == 0) return;
  Device& dev = netcl::device_of(dense);
  SpmmParams params = spmm_params(op, dev, a, dense);
  set_factors(params, terms, type);
  Defs defs = sparse_defs(dev, type, a.col, params.n);
  defs.set("OP", terms.mean ? "mean" : "sum");
  kernel(dev, "sparse.cl", "spmm", defs)
      .launch(op, queue_of(dense), row_elements(dev, params.rows, params.per, params.n), element_group(dev), buf(out),
              buf_or_null(terms.add), buf(a.crow), buf(a.col), buf(a.values), buf(dense), Buf{assert_buffer(dev)},
              params);
}

void spmm_extreme(const char* op, const Csr& a, const Tensor& dense_, const char* which, const Tensor& out,
                  const Tensor& arg) {
  check_numbers(dense_, a.values, op);
  if (out.numel() == 0) return;
  const Tensor dense = dense_.contiguous();
  Device& dev = netcl::device_of(dense);
  const SpmmParams params = spmm_params(op, dev, a, dense);
  Defs defs = sparse_defs(dev, dense.scalar_type(), a.col, params.n);
  defs.set("OP", which);
  kernel(dev, "sparse.cl", "spmm_extreme", defs)
      .launch(op, queue_of(dense), row_elements(dev, params.rows, params.per, params.n), element_group(dev), buf(out),
              buf(arg), buf(a.crow), buf(a.col), buf(a.values), buf(dense), Buf{assert_buffer(dev)}, params);
}

Tensor sampled_products(const char* op, const SampledPlaces& places, const Tensor& a_, const Tensor& b_,
                        const SpmmTerms& terms) {
  const Tensor a = a_.contiguous(), b = b_.contiguous();
  const int64_t nnz = places.col.numel(), k = a.size(1);
  const Tensor out = at::empty({nnz}, a.options());
  if (nnz == 0) return out;
  const Tensor row = places.row.to(places.col.scalar_type()).contiguous(), col = places.col.contiguous();
  Device& dev = netcl::device_of(a);
  SampledParams params{nnz, k, units_per_item(dev, nnz, k, 8192), a.size(0), b.size(0), assert_code(dev, op)};
  set_factors(params, terms, a.scalar_type());
  kernel(dev, "sparse.cl", "sampled", sparse_defs(dev, a.scalar_type(), col, k))
      .launch(op, queue_of(a), {size_t(ceil_div(nnz, params.per))}, element_group(dev), buf(out), buf(row), buf(col),
              buf_or_null(terms.add), buf(a), buf(b), Buf{assert_buffer(dev)}, params);
  return out;
}

namespace {

bool is_sparse(const Tensor& t) { return t.layout() != at::kStrided; }

void check_product(const Tensor& mat1, const Tensor& mat2, const char* op) {
  TORCH_CHECK(mat1.dim() == 2 && mat2.dim() == 2, op, ": expected matrices, got ", mat1.dim(), " and ", mat2.dim(),
              " dimensions");
  TORCH_CHECK(mat1.size(1) == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (", mat1.size(0), "x",
              mat1.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
}

Tensor product_of_sparse(const Tensor& mat1, const Tensor& mat2) {
  const Tensor product = at::_sparse_sparse_matmul(mat1.to_sparse(), mat2.to_sparse());
  return mat1.is_sparse() && mat2.is_sparse() ? product : product.to_sparse_csr();
}

Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha,
                  Tensor& out) {
  const char* op = "aten::addmm";
  const bool adds = !beta.equal(0);
  check_product(mat1, mat2, op);
  TORCH_CHECK_NOT_IMPLEMENTED(is_sparse(mat1) != is_sparse(mat2) && !is_sparse(out) && !(adds && is_sparse(self)), op,
                              ": netcl adds only products of a sparse and a dense matrix, and to a dense one");
  const int64_t m = mat1.size(0), n = mat2.size(1);
  at::native::resize_output(out, {m, n});
  const Tensor expanded_self = adds ? self.expand({m, n}) : Tensor();
  TORCH_CHECK(!adds || self.scalar_type() == out.scalar_type(), op, ": expected an addend of dtype ", out.scalar_type(),
              ", got ", self.scalar_type());
  if (is_sparse(mat1)) {
    const DenseOut dense(out);
    spmm(op, csr_of(mat1, op), mat2, dense.get(), {adds ? expanded_self.contiguous() : Tensor(), alpha, beta, false});
    dense.finish();
  } else {
    // The transpose of a matrix in CSR is one in CSC, and the reverse.
    const Tensor result = at::empty({n, m}, out.options());
    spmm(op, csr_of(mat2.t(), op), mat1.t(), result,
         {adds ? expanded_self.t().contiguous() : Tensor(), alpha, beta, false});
    out.copy_(result.t());
  }
  return out;
}
Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  check_product(mat1, mat2, "aten::addmm");
  if (is_sparse(mat1) && is_sparse(mat2)) {
    const Tensor product = product_of_sparse(mat1, mat2), scaled = alpha.equal(1) ? product : product.mul(alpha);
    return beta.equal(0) ? scaled : at::add(beta.equal(1) ? self : self.mul(beta), scaled);
  }
  Tensor out = at::empty({mat1.size(0), mat2.size(1)}, (is_sparse(mat1) ? mat2 : mat1).options());
  return netcl::addmm_out(self, mat1, mat2, beta, alpha, out);
}
Tensor& addmm_(Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  return netcl::addmm_out(self, mat1, mat2, beta, alpha, self);
}
Tensor& mm_out(const Tensor& mat1, const Tensor& mat2, Tensor& out) {
  return netcl::addmm_out(out, mat1, mat2, 0, 1, out);
}
Tensor mm(const Tensor& mat1, const Tensor& mat2) {
  check_product(mat1, mat2, "aten::mm");
  if (is_sparse(mat1) && is_sparse(mat2)) return product_of_sparse(mat1, mat2);
  return netcl::addmm(mat1, mat1, mat2, 0, 1);
}
Tensor& addmv_out(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta, const Scalar& alpha,
                  Tensor& out) {
  TORCH_CHECK(vec.dim() == 1, "aten::addmv: expected a vector, got ", vec.dim(), " dimensions");
  const Tensor self_column = self.dim() == 0 ? self : self.unsqueeze(1);
  const Tensor result = at::addmm(self_column, mat, vec.unsqueeze(1), beta, alpha);
  at::native::resize_output(out, {mat.size(0)});
  return out.copy_(result.squeeze(1));
}

Tensor sampled_values(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                      const Scalar& alpha) {
  const char* op = "aten::sampled_addmm";
  TORCH_CHECK(self.layout() == at::kSparseCsr, "sampled_addmm: Expected self to have sparse csr layout, but got ",
              self.layout());
  TORCH_CHECK(mat1.layout() == at::kStrided && mat2.layout() == at::kStrided,
              "sampled_addmm: Expected mat1 and mat2 to have strided layout, but got ", mat1.layout(), " and ",
              mat2.layout());
  TORCH_CHECK_NOT_IMPLEMENTED(self.dim() == 2 && mat1.dim() == 2 && mat2.dim() == 2, op,
                              ": netcl has no batches of sparse matrices");
  TORCH_CHECK(mat1.size(1) == mat2.size(0), "sampled_addmm: mat1 and mat2 shapes cannot be multiplied (", mat1.size(0),
              "x", mat1.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  TORCH_CHECK(self.size(0) == mat1.size(0), "sampled_addmm: self.shape[-2] must match mat1.shape[-2]");
  TORCH_CHECK(self.size(1) == mat2.size(1), "sampled_addmm: self.shape[-1] must match mat2.shape[-1]");
  TORCH_CHECK(mat1.scalar_type() == mat2.scalar_type(),
              "sampled_addmm: Expected mat1 and mat2 to have the same dtype, "
              "but got ",
              mat1.scalar_type(), " and ", mat2.scalar_type());
  const Tensor values = self.values().contiguous();
  check_numbers(mat1, values, op);
  const Tensor row = expanded_rows(self.crow_indices(), values.numel());
  return sampled_products(op, {row, self.col_indices()}, mat1, mat2.t(),
                          {beta.equal(0) ? Tensor() : values, alpha, beta, false});
}
Tensor sampled_addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha) {
  const Tensor values = sampled_values(self, mat1, mat2, beta, alpha);
  return at::_sparse_compressed_tensor_unsafe(self.crow_indices().clone(), self.col_indices().clone(), values,
                                              self.sizes(), values.options().layout(at::kSparseCsr));
}
Tensor& sampled_addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                          const Scalar& alpha, Tensor& out) {
  TORCH_CHECK(out.layout() == at::kSparseCsr, "sampled_addmm: Expected result to have sparse csr layout, but got ",
              out.layout());
  const Tensor values = sampled_values(self, mat1, mat2, beta, alpha);
  if (!out.is_same(self)) at::native::resize_as_sparse_compressed_(out, self);
  out.values().copy_(values);
  if (out.is_same(self)) return out;
  out.crow_indices().copy_(self.crow_indices());
  out.col_indices().copy_(self.col_indices());
  return out;
}

// --- sums ---------------------------------------------------------------------------------------------------

Tensor csr_tensor(const Tensor& crow, const Tensor& col, const Tensor& values, at::IntArrayRef sizes) {
  return at::_sparse_compressed_tensor_unsafe(crow, col, values, sizes, values.options().layout(at::kSparseCsr));
}

Tensor& add_out_compressed(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  const char* op = "aten::add";
  TORCH_CHECK(is_sparse(other), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  TORCH_CHECK(self.sizes() == other.sizes(), "add: expected 'self' and 'other' to have the same sizes, got ",
              self.sizes(), " and ", other.sizes());
  if (!is_sparse(self)) return at::add_out(out, self, other.to_sparse(), alpha);
  TORCH_CHECK_NOT_IMPLEMENTED(out.layout() == at::kSparseCsr || out.layout() == at::kSparseCsc, op,
                              ": netcl has no sums of the layout ", out.layout());
  const Tensor sum = at::add(self.to_sparse(), other.to_sparse(), alpha).coalesce();
  const Tensor result = out.layout() == at::kSparseCsr ? sum.to_sparse_csr() : sum.to_sparse_csc();
  TORCH_CHECK(at::canCast(result.scalar_type(), out.scalar_type()), "Can't convert result type ", result.scalar_type(),
              " to output ", out.scalar_type());
  const auto [rows, columns] = at::sparse_csr::getCompressedPlainIndices(result);
  at::sparse_csr::get_sparse_csr_impl(out)->set_member_tensors(rows, columns, result.values().to(out.scalar_type()),
                                                               result.sizes());
  return out;
}

// Sums or products of the elements of rows, of columns or of the whole matrix.
Tensor reduce_csr(const Tensor& self, at::IntArrayRef dims, bool keepdim, std::optional<at::ScalarType> dtype,
                  bool product) {
  const char* op = product ? "aten::_sparse_csr_prod" : "aten::_sparse_csr_sum";
  TORCH_CHECK(keepdim, "reduction operations on CSR tensors with keepdim=False is unsupported");
  const Csr a = csr_of(self, op);
  const auto type = self.scalar_type();
  const auto result_type = dtype.value_or(at::isIntegralType(type, /*includeBool=*/true) ? at::kLong : type);
  const Tensor values = a.values.to(result_type);
  if (dims.empty()) return csr_tensor(a.crow, a.col, values.clone(), self.sizes());
  const auto mask = at::dim_list_to_bitset(dims, 2);
  const int64_t rows = mask[0] ? 1 : a.rows, columns = mask[1] ? 1 : a.columns;
  const Tensor key = mask[0] && mask[1] ? at::zeros_like(a.col)
                     : mask[0]          ? a.col
                                        : expanded_rows(a.crow, values.numel()).to(a.col.scalar_type());
  const auto [kept, place, counts] = at::_unique2(key, true, true);
  Tensor total = product ? at::ones({kept.numel()}, values.options()) : at::zeros({kept.numel()}, values.options());
  if (product) {
    total.index_reduce_(0, place, values, "prod");
  } else {
    total.index_add_(0, place, values);
  }
  const Tensor row = mask[0] ? at::zeros_like(kept) : kept;
  return csr_tensor(compressed_rows(row, rows, a.crow.scalar_type() == at::kInt), mask[1] ? at::zeros_like(kept) : kept,
                    total, {rows, columns});
}
Tensor sum_csr_dims(const Tensor& self, at::IntArrayRef dims, bool keepdim, std::optional<at::ScalarType> dtype) {
  return reduce_csr(self, dims, keepdim, dtype, false);
}
Tensor prod_csr_dims(const Tensor& self, at::IntArrayRef dims, bool keepdim, std::optional<at::ScalarType> dtype) {
  return reduce_csr(self, dims, keepdim, dtype, true);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<CooToCsr>(m, "_convert_indices_from_coo_to_csr", nullptr, "_convert_indices_from_coo_to_csr.out");
  structured<CsrToCoo>(m, "_convert_indices_from_csr_to_coo", nullptr, "_convert_indices_from_csr_to_coo.out");
  m.impl("_validate_compressed_sparse_indices", &validate);
  m.impl("_to_sparse_csr", &at::native::dense_to_sparse_csr);
  m.impl("_to_sparse_csc", &at::native::dense_to_sparse_csc);
}

void impl_products(AtenLibrary& m) {
  m.impl("mm", &mm);
  m.impl("mm.out", &mm_out);
  m.impl("addmm", &addmm);
  m.impl("addmm_", &addmm_);
  m.impl("addmm.out", &addmm_out);
}

NETCL_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  impl_products(m);
  m.impl("mv", &at::native::mv_sparse);
  m.impl("_to_sparse_csr", &to_csr);
  m.impl("_to_sparse_csc", &to_csc);
  m.impl("_to_sparse_bsr", &at::native::coo_to_sparse_bsr);
  m.impl("_to_sparse_bsc", &at::native::coo_to_sparse_bsc);
}

// ATen's leaves the compressed indices as they are in memory, which torch.sparse.check_sparse_tensor_invariants
// refuses.
Tensor empty_compressed(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                        std::optional<at::Device> device, std::optional<bool> pin_memory,
                        std::optional<at::MemoryFormat> format) {
  const at::sparse_csr::CheckSparseTensorInvariants unchecked(false);
  const Tensor result = at::native::empty_sparse_compressed(size, dtype, layout, device, pin_memory, format);
  std::get<0>(at::sparse_csr::getCompressedPlainIndices(result)).zero_();
  return result;
}

NETCL_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  using namespace at::native;
  impl_products(m);
  m.impl("addmv.out", &netcl::addmv_out);
  m.impl("sparse_sampled_addmm", &sampled_addmm);
  m.impl("sparse_sampled_addmm.out", &sampled_addmm_out);
  // Creation, parts and conversions.
  m.impl("empty.memory_format", &empty_compressed);
  m.impl("empty_like", &empty_like_sparse_csr);
  m.impl("resize_", &resize_sparse_csr_);
  m.impl("resize_as_sparse_", &resize_as_sparse_compressed_);
  m.impl("clone", &clone_sparse_compressed);
  m.impl("copy_", &copy_sparse_compressed_);
  m.impl("zero_", &zero_sparse_csr_);
  m.impl("fill_.Scalar", &fill_sparse_csr_);
  m.impl("sparse_dim", &sparse_dim_sparse_csr);
  m.impl("dense_dim", &dense_dim_sparse_csr);
  m.impl("_nnz", &_nnz_sparse_csr);
  m.impl("values", &values_sparse_csr);
  m.impl("crow_indices", &crow_indices_sparse_csr);
  m.impl("col_indices", &col_indices_sparse_csr);
  m.impl("ccol_indices", &ccol_indices_sparse_csr);
  m.impl("row_indices", &row_indices_sparse_csr);
  m.impl("select.int", &select_sparse_csr);
  m.impl("select_copy.int", &select_copy_sparse_csr);
  m.impl("sparse_mask", &sparse_mask_sparse_compressed);
  m.impl("_to_dense", &sparse_compressed_to_dense);
  m.impl("_to_sparse.sparse_dim", static_cast<Tensor (*)(const Tensor&, int64_t)>(sparse_compressed_to_sparse));
  m.impl("_to_sparse", &netcl::to_sparse);
  m.impl("_to_sparse_csr", &to_csr);
  m.impl("_to_sparse_csc", &to_csc);
  m.impl("_to_sparse_bsr", &sparse_compressed_to_sparse_bsr);
  m.impl("_to_sparse_bsc", &sparse_compressed_to_sparse_bsc);
  // Arithmetic on the values.
  m.impl("mul.Scalar", &mul_scalar_sparse_csr);
  m.impl("mul_.Scalar", &mul__scalar_sparse_csr);
  m.impl("mul.Tensor", &mul_sparse_csr);
  m.impl("mul_.Tensor", &mul_sparse_csr_);
  m.impl("mul.out", &mul_out_sparse_csr);
  m.impl("add.Tensor", &add_sparse_csr);
  m.impl("add_.Tensor", &add_sparse_csr_);
  m.impl("add.out", &add_out_compressed);
  m.impl("sum", &sum_csr);
  m.impl("sum.dim_IntList", &sum_sparse_compressed);
  m.impl("_sparse_csr_sum.dim_dtype", &sum_csr_dims);
  m.impl("_sparse_csr_prod.dim_dtype", &prod_csr_dims);
}

}  // namespace
}  // namespace netcl
