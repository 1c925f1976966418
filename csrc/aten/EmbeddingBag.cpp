// Bags of embeddings: sums, means and maxima, with dense gradients.
#include <ATen/ops/_embedding_bag_dense_backward.h>
#include <ATen/ops/_embedding_bag_sparse_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include "args/embedding.h"
#include "aten/EmbeddingSums.h"
#include "aten/support/Library.h"
#include "aten/support/Rows.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

using at::Tensor;
using OptTensor = const std::optional<Tensor>&;

constexpr int64_t kSum = 0, kMean = 1, kMax = 2;
constexpr const char* kBadOffset =
    "embedding_bag: offsets have to begin with 0, must not decrease, and can not be greater than input's length";

Tensor dense_or_undefined(OptTensor t, c10::ScalarType type) {
  return t.has_value() && t->defined() ? t->to(type).contiguous() : Tensor();
}
Tensor as_long(const Tensor& t) { return t.to(at::kLong).contiguous(); }

Defs bag_defs(const Tensor& table, int64_t width, int64_t mode) {
  Defs d;
  d.set("IN", dtype_tag(table.scalar_type())).set("ACC", compute_tag(table.scalar_type()));
  d.set("VEC", row_vec(netcl::device_of(table), width));
  return d.set("OP", mode == kSum ? "SUM" : mode == kMean ? "MEAN" : "MAX");
}
void check_mode(int64_t mode) {
  TORCH_CHECK(mode == kSum || mode == kMean || mode == kMax, "embedding_bag: unknown mode ", mode);
}

// Checks what the CPU checks, except the values of indices and offsets, which the kernel checks.
void check_arguments(const Tensor& weight, const Tensor& indices, const Tensor& offsets, int64_t mode,
                     OptTensor per_sample_weights, bool include_last_offset) {
  TORCH_CHECK(weight.dim() == 2, "weight has to be a 2D Tensor, but got Tensor of dimension ", weight.dim());
  TORCH_CHECK(indices.dim() == 1, "input has to be a 1D Tensor, but got Tensor of dimension ", indices.dim());
  TORCH_CHECK(offsets.dim() == 1, "offsets has to be a 1D Tensor, but got Tensor of dimension ", offsets.dim());
  // If indices and offsets differ in dtype, the CPU takes the wider one.
  const auto type = c10::promoteTypes(indices.scalar_type(), offsets.scalar_type());
  TORCH_CHECK(
      type == at::kLong || type == at::kInt,
      "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got ", type,
      " instead (while checking arguments for embedding_bag)");
  check_mode(mode);
  TORCH_CHECK(!include_last_offset || offsets.numel() >= 1,
              "include_last_offset: number of offset should be at least 1");
  if (!per_sample_weights.has_value() || !per_sample_weights->defined()) return;
  const Tensor& sample = *per_sample_weights;
  TORCH_CHECK(mode == kSum, "embedding_bag: per_sample_weights only supported with mode='sum'");
  TORCH_CHECK(sample.dim() == 1 && sample.numel() == indices.numel(),
              "embedding_bag: expected per_sample_weights of the shape of the indices, ", indices.sizes(), ", got ",
              sample.sizes());
  TORCH_CHECK(sample.scalar_type() == weight.scalar_type(),
              "Expected tensor for argument #1 'weight' to have the same ",
              "type as tensor for argument #2 'per_sample_weights'; but type ", weight.scalar_type(),
              " does not equal ", sample.scalar_type(), " (while checking arguments for embedding_bag)");
}

std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag(const Tensor& weight, const Tensor& indices,
                                                         const Tensor& offsets, bool scale_grad_by_freq, int64_t mode,
                                                         bool sparse, OptTensor per_sample_weights,
                                                         bool include_last_offset, int64_t padding_idx) {
  const char* op = "aten::_embedding_bag";
  check_arguments(weight, indices, offsets, mode, per_sample_weights, include_last_offset);
  Device& dev = netcl::device_of(weight);
  check_floating(dev, weight.scalar_type(), op);
  const Tensor table = weight.contiguous(), index = as_long(indices), offset = as_long(offsets);
  const Tensor sample = dense_or_undefined(per_sample_weights, table.scalar_type());
  const int64_t n = index.numel(), rows = table.size(0), width = table.size(1);
  const int64_t bags = offset.numel() - (include_last_offset ? 1 : 0);
  Tensor out = at::empty({bags, width}, table.options());
  // Without bags, an index is in none.
  Tensor bag_of = bags > 0 ? at::empty({n}, index.options()) : at::full({n}, -1, index.options());
  Tensor bag_size = at::empty({bags}, index.options());
  Tensor where = at::empty({mode == kMax ? bags : 0, width}, index.options());
  if (bags > 0) {
    // A work-item's columns: embedding_bag.cl says how many vectors.
    const int64_t vec = row_vec(dev, width), at_once = vec * (vec == 1 || mode == kMax ? 1 : 4);
    const int64_t columns = std::max<int64_t>(1, ceil_div(width, at_once));
    const int64_t each = units_per_item(dev, bags, ceil_div(n, bags) * at_once, tuning(dev).most_chunk);
    kernel(dev, "embedding_bag.cl", "embedding_bag", bag_defs(table, width, mode))
        .launch(op, queue_of(table), {size_t(columns), size_t(ceil_div(bags, each))}, element_group(dev), buf(out),
                buf(table), buf(offset), buf(index), buf_or_null(sample), buf(bag_of), buf(bag_size), buf(where),
                Buf{assert_buffer(dev)},
                EmbeddingParams{n, rows, width, padding_idx, each, bags, offset.numel(), assert_code(dev, op),
                                assert_message_code(dev, kBadOffset)});
  }
  return {out, bag_of, bag_size, where};
}

void check_bags(const char* op, const Tensor& index, const Tensor& bag_of) {
  TORCH_CHECK(index.dim() == 1 && bag_of.sizes() == index.sizes(), op,
              ": expected offset2bag to have the indices' shape, ", index.sizes(), ", got ", bag_of.sizes());
}

Tensor dense_backward(const Tensor& grad_, const Tensor& indices, const Tensor& offset2bag, const Tensor& bag_size,
                      const Tensor& maximum_indices, int64_t num_weights, bool scale_grad_by_freq, int64_t mode,
                      OptTensor per_sample_weights, int64_t padding_idx) {
  const char* op = "aten::_embedding_bag_dense_backward";
  Device& dev = netcl::device_of(grad_);
  const Tensor grad = grad_.contiguous(), index = as_long(indices), bag_of = as_long(offset2bag);
  const Tensor sizes = as_long(bag_size), where = as_long(maximum_indices);
  check_mode(mode);
  if (mode != kMax) check_bags(op, index, bag_of);
  TORCH_CHECK(grad.dim() == 2, op, ": expected a gradient of 2 dimensions, got ", grad.dim());
  TORCH_CHECK(mode != kMean || sizes.numel() == grad.size(0), op, ": expected the size of each of ", grad.size(0),
              " bags, got ", sizes.numel());
  TORCH_CHECK(mode != kMax || where.sizes() == grad.sizes(), op, ": expected maximum_indices of the gradient's shape, ",
              grad.sizes(), ", got ", where.sizes());
  const Tensor sample = dense_or_undefined(per_sample_weights, grad.scalar_type());
  const int64_t n = index.numel(), bags = grad.size(0), width = grad.size(1);
  TORCH_CHECK(!sample.defined() || sample.numel() == n, op, ": expected ", n, " per_sample_weights, got ",
              sample.numel());
  const Tensor total = at::zeros({num_weights, width}, grad.options().dtype(compute_type(grad.scalar_type())));
  if (n > 0 && width > 0 && num_weights > 0 && bags > 0) {
    Tensor counts;
    if (scale_grad_by_freq && mode != kMax) {
      counts = at::zeros({num_weights}, index.options().dtype(at::kInt));
      counts.index_put_({index}, at::ones_like(index, at::TensorOptions().dtype(at::kInt)),
                        /*accumulate=*/true);
    }
    if (!dev.is_cpu() && mode == kMax) {
      // A bag without elements has no place of a maximum.
      total.scatter_add_(0, where.clamp_min(0), grad.to(total.scalar_type()).masked_fill(where.lt(0), 0));
      return total.to(grad.scalar_type());
    }
    if (mode != kMax && sums_sorted(index)) {
      sum_sorted({op, total, grad, index, counts, padding_idx, /*reports=*/false, bag_of,
                  mode == kMean ? sizes : Tensor(), sample});
      return total.to(grad.scalar_type());
    }
    const int64_t columns = ceil_div(width, row_vec(dev, width));
    const int64_t shares = table_shares(dev, columns, num_weights);
    kernel(dev, "embedding_bag.cl", "embedding_bag_backward", bag_defs(grad, width, mode))
        .launch(op, queue_of(grad), {size_t(columns), size_t(shares)}, element_group(dev), buf(total), buf(grad),
                buf(index), buf_or_null(sample), buf(bag_of), buf(sizes), buf(where), buf_or_null(counts),
                EmbeddingParams{n, num_weights, width, padding_idx, shares, bags});
  }
  return total.to(grad.scalar_type());
}

Tensor embedding_bag_backward(const Tensor& grad, const Tensor& indices, const Tensor& offsets,
                              const Tensor& offset2bag, const Tensor& bag_size, const Tensor& maximum_indices,
                              int64_t num_weights, bool scale_grad_by_freq, int64_t mode, bool sparse,
                              OptTensor per_sample_weights, int64_t padding_idx) {
  if (sparse) {
    return at::_embedding_bag_sparse_backward(grad, indices, offsets, offset2bag, bag_size, num_weights,
                                              scale_grad_by_freq, mode, per_sample_weights, padding_idx);
  }
  return at::_embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
                                           scale_grad_by_freq, mode, per_sample_weights, padding_idx);
}

Tensor sample_weights_backward(const Tensor& grad_, const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                               const Tensor& offset2bag, int64_t mode, int64_t padding_idx) {
  const char* op = "aten::_embedding_bag_per_sample_weights_backward";
  TORCH_CHECK(mode == kSum, "embedding_bag: per_sample_weights needs mode='sum'");
  Device& dev = netcl::device_of(grad_);
  const Tensor grad = grad_.contiguous(), table = weight.to(grad_.scalar_type()).contiguous();
  const Tensor index = as_long(indices), bag_of = as_long(offset2bag);
  check_bags(op, index, bag_of);
  TORCH_CHECK(grad.dim() == 2 && table.dim() == 2 && grad.size(1) == table.size(1), op,
              ": expected a gradient and a weight with rows of one length, got ", grad.sizes(), " and ", table.sizes());
  const int64_t n = index.numel(), width = table.size(1);
  Tensor out = at::empty({n}, grad.options());
  if (n == 0) return out;
  kernel(dev, "embedding_bag.cl", "embedding_bag_sample_grad", bag_defs(grad, width, mode))
      .launch(op, queue_of(grad), {size_t(n)}, element_group(dev), buf(out), buf(grad), buf(table), buf(index),
              buf(bag_of), EmbeddingParams{n, table.size(0), width, padding_idx, 1, grad.size(0)});
  return out;
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_embedding_bag", &embedding_bag);
  m.impl("_embedding_bag_forward_only", &embedding_bag);
  m.impl("_embedding_bag_backward", &embedding_bag_backward);
  m.impl("_embedding_bag_dense_backward", &dense_backward);
  m.impl("_embedding_bag_per_sample_weights_backward", &sample_weights_backward);
}

}  // namespace netcl
