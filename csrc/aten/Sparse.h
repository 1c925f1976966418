// What the files of sparse operators share.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/DispatchStub.h>

// What CPU and CUDA share in headers that torch does not install.
namespace at::native {
TORCH_API Tensor& _mul_dense_sparse_out(const Tensor& dense, const Tensor& sparse, Tensor& out);
TORCH_API Tensor& _mul_sparse_sparse_zero_dim_out(const Tensor& zero_dim, const Tensor& other, Tensor& out);
using flatten_indices_fn = Tensor (*)(const Tensor& indices, IntArrayRef sizes);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)
}  // namespace at::native

namespace netcl {

// A COO tensor of indices and values that are known to be valid.
at::Tensor make_coo(const at::Tensor& indices, const at::Tensor& values, at::IntArrayRef sizes, bool coalesced);
// One number for the indices [dims, n] of each element: its place in a dense tensor of these sizes, in which coalesced
// tensors have their elements in ascending order.
at::Tensor flat_indices(const at::Tensor& indices, at::IntArrayRef sizes);

// For each key, its place in `sorted`, which has no key twice, and whether it is there.
struct Found {
  at::Tensor place, there;
};
Found find_keys(const at::Tensor& sorted, const at::Tensor& keys);
// All pairs of equal keys, in the order of `keys`. The host waits for their number.
struct Pairing {
  at::Tensor key, place;  // positions in `keys` and in `sorted`
};
Pairing pair_keys(const at::Tensor& sorted, const at::Tensor& keys);

// A matrix in CSR.
struct Csr {
  at::Tensor crow, col, values;
  int64_t rows, columns;
};
// A sparse matrix of the layouts COO, CSR and CSC; `hybrid` if its elements may be dense tensors.
Csr csr_of(const at::Tensor& t, const char* op, bool hybrid = false);
// The row of each element, by the ends of rows.
at::Tensor expanded_rows(const at::Tensor& crow, int64_t nnz);
// The ends of rows, by the sorted rows of elements.
at::Tensor compressed_rows(const at::Tensor& sorted, int64_t size, bool out_int32);
// The transpose.
Csr transposed(const Csr& a);

// What a product is scaled by and added to. `add` is undefined, or contiguous of the result's size, or the result.
struct SpmmTerms {
  at::Tensor add;
  at::Scalar alpha = 1, beta = 0;
  bool mean = false;  // divide each row by the number of its elements
};
// out = alpha * a * dense + beta * add; `out` is contiguous.
void spmm(const char* op, const Csr& a, const at::Tensor& dense, const at::Tensor& out, const SpmmTerms& terms);
// The greatest ("amax") or least ("amin") of the products of each row, and the number of the element that it comes
// from; in an empty row 0, and the number of all elements.
void spmm_extreme(const char* op, const Csr& a, const at::Tensor& dense, const char* which, const at::Tensor& out,
                  const at::Tensor& arg);
// alpha * (a[row] . b[col]) + beta * add, for the rows of two matrices at some places of their product.
struct SampledPlaces {
  at::Tensor row, col;
};
at::Tensor sampled_products(const char* op, const SampledPlaces& places, const at::Tensor& a, const at::Tensor& b,
                            const SpmmTerms& terms);

}  // namespace netcl
