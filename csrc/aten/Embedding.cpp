// The gradient of an embedding table, and its renormalisation. The look-up itself is index_select.
#include <ATen/ops/zeros.h>

#include "args/embedding.h"
#include "aten/EmbeddingSums.h"
#include "aten/support/Library.h"
#include "aten/support/Rows.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

using at::Tensor;

void check_indices(const char* op, const Tensor& indices) {
  TORCH_CHECK(indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt, op,
              ": expected indices of dtype int32 or int64, got ", indices.scalar_type());
}

Defs embedding_defs(const Tensor& table, int64_t width, const Tensor& indices) {
  Defs d;
  d.set("IN", dtype_tag(table.scalar_type())).set("IDX", dtype_tag(indices.scalar_type()));
  d.set("ACC", compute_tag(table.scalar_type())).set("VEC", row_vec(netcl::device_of(table), width));
  return d;
}

// Counts how often each of `rows` indices occurs.
Tensor count(const char* op, const Defs& d, const Tensor& indices, int64_t rows) {
  Device& dev = netcl::device_of(indices);
  const Tensor counts = at::zeros({rows}, indices.options().dtype(at::kInt));
  const int64_t n = indices.numel(), per = units_per_item(dev, n, 1, 4096);
  kernel(dev, "embedding.cl", "embedding_count", d)
      .launch(op, queue_of(indices), {size_t(ceil_div(n, per))}, element_group(dev), buf(counts), buf(indices), n, rows,
              per);
  return counts;
}

Tensor embedding_dense_backward(const Tensor& grad_output, const Tensor& indices_, int64_t num_weights,
                                int64_t padding_idx, bool scale_grad_by_freq) {
  const char* op = "aten::embedding_dense_backward";
  check_indices(op, indices_);
  Device& dev = netcl::device_of(grad_output);
  check_floating(dev, grad_output.scalar_type(), op);
  const int64_t width = grad_output.size(-1), n = indices_.numel();
  TORCH_CHECK(grad_output.numel() == n * width, op, ": a gradient of shape ", grad_output.sizes(),
              " does not belong to indices of shape ", indices_.sizes());
  const Tensor indices = indices_.contiguous(), grad = grad_output.contiguous();
  // Narrow floats are summed in the compute type and rounded once.
  const Tensor total = at::zeros({num_weights, width}, grad.options().dtype(compute_type(grad.scalar_type())));
  if (n > 0 && width > 0 && num_weights > 0) {
    const Defs d = embedding_defs(grad, width, indices);
    const Tensor counts = scale_grad_by_freq ? count(op, d, indices, num_weights) : Tensor();
    if (sums_sorted(indices)) {
      sum_sorted({op, total, grad, indices, counts, padding_idx, /*reports=*/true, {}, {}, {}});
      return total.to(grad.scalar_type());
    }
    const int64_t columns = ceil_div(width, row_vec(dev, width));
    const int64_t shares = table_shares(dev, columns, num_weights);
    EmbeddingParams params{n, num_weights, width, padding_idx, shares};
    params.code = assert_code(dev, op);
    kernel(dev, "embedding.cl", "embedding_backward", d)
        .launch(op, queue_of(grad), {size_t(columns), size_t(shares)}, element_group(dev), buf(total), buf(grad),
                buf(indices), buf_or_null(counts), Buf{assert_buffer(dev)}, params);
  }
  return total.to(grad.scalar_type());
}

Tensor& embedding_renorm_(Tensor& self, const Tensor& indices_, double max_norm, double norm_type) {
  const char* op = "aten::embedding_renorm_";
  check_indices(op, indices_);
  TORCH_CHECK(self.dim() == 2, op, ": expected a table of 2 dimensions, got ", self.dim());
  Device& dev = netcl::device_of(self);
  check_floating(dev, self.scalar_type(), op);
  const Tensor indices = indices_.contiguous();
  if (indices.numel() == 0 || self.numel() == 0) return self;
  const Tensor table = self.contiguous();
  const Defs d = embedding_defs(table, table.size(1), indices);
  const int64_t rows = table.size(0), width = table.size(1);
  const Tensor counts = count(op, d, indices, rows);
  const int64_t per = units_per_item(dev, rows, width, 16384);
  kernel(dev, "embedding.cl", "embedding_renorm", d)
      .launch(op, queue_of(self), {size_t(ceil_div(rows, per))}, element_group(dev), buf(table), buf(counts), rows, per,
              width, wide_high(norm_type), wide_low(norm_type), wide_high(max_norm), wide_low(max_norm));
  if (!table.is_same(self)) self.copy_(table);
  return self;
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("embedding_dense_backward", &embedding_dense_backward);
  m.impl("embedding_renorm_", &embedding_renorm_);
}

}  // namespace netcl
