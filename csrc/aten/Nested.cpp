// Nested tensors. Jagged ones are implemented in Python over dense values and offsets; they need copies between values
// and a padded tensor. Strided ones are ATen's: a dense buffer, and sizes on the CPU. ATen's CPU functions for them
// call operators of the buffer's device, so they serve here too unless they access the memory themselves.
#include <ATen/NestedTensorImpl.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_nested_from_padded_native.h>
#include <ATen/ops/_nested_tensor_from_mask_left_aligned_native.h>
#include <ATen/ops/_nested_tensor_from_mask_native.h>
#include <ATen/ops/_nested_tensor_from_tensor_list.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/to_padded_tensor_native.h>
#include <ATen/ops/zeros.h>

#include "args/nested.h"
#include "aten/Nested.h"
#include "aten/support/IndexSpace.h"
#include "aten/support/Library.h"
#include "aten/support/Rows.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

using at::IntArrayRef;
using at::Tensor;
using at::native::get_nested_tensor_impl;

// --- jagged -----------------------------------------------------------------------------------------------

void check_offsets(const char* op, const Tensor& like, at::TensorList offsets) {
  TORCH_CHECK_NOT_IMPLEMENTED(offsets.size() == 1, op, ": netcl takes one jagged dimension, got ", offsets.size());
  TORCH_CHECK(offsets[0].dim() == 1 && offsets[0].numel() > 0, op, ": expected 1D offsets, got ", offsets[0].sizes());
  TORCH_CHECK(offsets[0].scalar_type() == at::kLong || offsets[0].scalar_type() == at::kInt, op,
              ": offsets must be int32 or int64, got ", offsets[0].scalar_type());
  TORCH_CHECK(offsets[0].device() == like.device(), op, ": offsets must be on ", like.device(), ", got ",
              offsets[0].device());
}

void copy_sequences(const char* op, const Tensor& to, const Tensor& from, const Tensor& offsets,
                    const NestedParams& p) {
  Device& dev = netcl::device_of(to);
  Defs defs;
  defs.set("BYTES", static_cast<int64_t>(to.itemsize())).set("IDX", dtype_tag(offsets.scalar_type()));
  kernel(dev, "nested.cl", "copy_sequences", defs)
      .launch(op, queue_of(to), {size_t(p.shares), size_t(p.batch)}, element_group(dev), buf(to), buf(from),
              buf(offsets), Buf{assert_buffer(dev)}, p);
}

Tensor to_padded(const Tensor& values_, const Tensor& offsets_, int64_t length, double padding) {
  constexpr const char* op = "aten::_jagged_to_padded_dense_forward";
  TORCH_CHECK(values_.dim() > 0 && length >= 0, op, ": expected values of at least 1 dimension and a length, got ",
              values_.sizes(), " and ", length);
  const Tensor values = values_.contiguous(), offsets = offsets_.contiguous();
  const int64_t batch = offsets.numel() - 1;
  c10::DimVector sizes{batch, length};
  sizes.append(values.sizes().begin() + 1, values.sizes().end());
  Tensor padded = at::empty(sizes, values.options());
  if (padded.numel() == 0) return padded;
  Device& dev = netcl::device_of(values);
  const int64_t run = padded.numel() / (batch * length), rows_per = row_split(dev, batch * length, run).rows_per;
  const int64_t per = std::min(rows_per, length);
  const auto shares = static_cast<int64_t>(row_elements(dev, length, per, run).x);
  copy_sequences(op, padded, values, offsets,
                 {batch, length, run, values.size(0), shares, 1, assert_code(dev, op),
                  scalar_bits(padding, values.scalar_type())});
  return padded;
}

Tensor from_padded(const Tensor& padded_, const Tensor& offsets_, int64_t total) {
  constexpr const char* op = "aten::_padded_dense_to_jagged_forward";
  TORCH_CHECK(padded_.dim() > 1, op, ": expected a padded tensor of at least 2 dimensions, got ", padded_.sizes());
  const Tensor padded = padded_.contiguous(), offsets = offsets_.contiguous();
  const int64_t batch = offsets.numel() - 1, length = padded.size(1);
  TORCH_CHECK(padded.size(0) == batch, op, ": expected as many sequences as offsets say (", batch, "), got ",
              padded.sizes());
  c10::DimVector sizes{total};
  sizes.append(padded.sizes().begin() + 2, padded.sizes().end());
  Tensor values = at::empty(sizes, padded.options());
  if (values.numel() == 0) return values;
  if (batch == 0) return values.zero_();
  Device& dev = netcl::device_of(padded);
  const int64_t run = values.numel() / total;
  // The host does not know the lengths, so each sequence is divided into as many shares as the average one fills.
  const int64_t wanted = ceil_div(enough_items(dev, kItemsPerUnit, 4096 * batch), batch);
  const auto filled = static_cast<int64_t>(row_elements(dev, total, 1, run).x);
  const int64_t shares = std::clamp<int64_t>(ceil_div(filled, batch), 1, wanted);
  copy_sequences(op, values, padded, offsets, {batch, length, run, total, shares, 0, assert_code(dev, op), {}});
  return values;
}

Tensor jagged_to_padded(const Tensor& values, at::TensorList offsets, IntArrayRef lengths, double padding) {
  constexpr const char* op = "_jagged_to_padded_dense_forward";
  check_offsets(op, values, offsets);
  TORCH_CHECK(lengths.size() == 1, op, ": expected one length for one jagged dimension, got ", lengths.size());
  return to_padded(values, offsets[0], lengths[0], padding);
}

Tensor padded_to_jagged(const Tensor& padded, at::TensorList offsets, std::optional<int64_t> total) {
  check_offsets("_padded_dense_to_jagged_forward", padded, offsets);
  return from_padded(padded, offsets[0], total ? *total : offsets[0].select(0, -1).item<int64_t>());
}

// --- strided ----------------------------------------------------------------------------------------------

// Runs the kernel that ATen registered for nested tensors on the CPU.
void as_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::NestedTensorCPU), stack);
}

// The row sizes of nested tensors; `sizes` is (sequences, dimensions) on the CPU, with the sequences' lengths in the
// first column. nullopt if rows differ.
std::optional<c10::DimVector> row_sizes(const Tensor& sizes) {
  if (sizes.dim() != 2 || sizes.numel() == 0) return std::nullopt;
  const auto s = sizes.accessor<int64_t, 2>();
  c10::DimVector row;
  for (int64_t d = 1; d < sizes.size(1); d++) row.push_back(s[0][d]);
  for (int64_t b = 1; b < sizes.size(0); b++)
    for (int64_t d = 1; d < sizes.size(1); d++)
      if (s[b][d] != row[d - 1]) return std::nullopt;
  return row;
}

// The start of each sequence, and the end of the last one.
Tensor offsets_of(const Tensor& sizes) {
  Tensor offsets = at::zeros({sizes.size(0) + 1}, at::kLong);
  auto* o = offsets.mutable_data_ptr<int64_t>();
  for (int64_t b = 0; b < sizes.size(0); b++) o[b + 1] = o[b] + sizes.const_data_ptr<int64_t>()[b * sizes.size(1)];
  return offsets;
}

Tensor nested_to_padded(const Tensor& nested, double padding, at::OptionalIntArrayRef output_size) {
  const auto* impl = get_nested_tensor_impl(nested);
  TORCH_CHECK(nested.is_contiguous(), "to_padded_tensor: a nested tensor must be contiguous");
  const Tensor& sizes = impl->get_nested_sizes();
  const auto row = row_sizes(sizes);
  const bool fits =
      row && (!output_size || (static_cast<int64_t>(output_size->size()) == sizes.size(1) + 1 &&
                               output_size->front() == sizes.size(0) && output_size->slice(2) == IntArrayRef(*row)));
  const int64_t longest = fits ? sizes.select(1, 0).max().item<int64_t>() : 0;
  const int64_t length = output_size && fits ? output_size->at(1) : longest;
  if (!fits || length < longest || c10::multiply_integers(*row) == 0) {
    return at::native::NestedTensor_to_padded_tensor_generic(nested, padding, output_size);
  }
  const Tensor offsets = offsets_of(sizes);
  c10::DimVector shape{offsets.const_data_ptr<int64_t>()[sizes.size(0)]};
  shape.append(row->begin(), row->end());
  return to_padded(impl->get_buffer().view(shape), offsets.to(nested.device(), /*non_blocking=*/true), length, padding);
}

// ATen reads these tensors' memory on the host, whatever their device and dtype.
void check_on_host(const char* op, const Tensor& t) {
  TORCH_CHECK(t.is_cpu() && t.scalar_type() == at::kLong && t.is_contiguous() && t.layout() == at::kStrided, op,
              ": sizes, strides and offsets must be contiguous int64 tensors on the CPU, got ", t.scalar_type(), " ",
              t.sizes(), " on ", t.device());
}

Tensor view_from_buffer(const Tensor& buffer, const Tensor& sizes, const Tensor& strides, const Tensor& offsets) {
  for (const Tensor* t : {&sizes, &strides, &offsets}) check_on_host("_nested_view_from_buffer", *t);
  TORCH_CHECK(
      sizes.dim() == 2 && strides.sizes() == sizes.sizes() && offsets.dim() == 1 && offsets.size(0) == sizes.size(0),
      "_nested_view_from_buffer: expected sizes and strides of one shape and an offset for each row, got ",
      sizes.sizes(), ", ", strides.sizes(), " and ", offsets.sizes());
  return at::native::_nested_view_from_buffer(buffer, sizes, strides, offsets);
}

Tensor nested_from_padded(const Tensor& padded_, const Tensor& sizes, bool transform_0213) {
  check_on_host("_nested_from_padded", sizes);
  TORCH_CHECK(sizes.dim() == 2 && sizes.numel() > 0 && sizes.ge(0).all().item<bool>(),
              "_nested_from_padded: expected sizes of at least one sequence, none negative, got ", sizes.sizes());
  TORCH_CHECK(!transform_0213 || padded_.dim() == 4, "_nested_from_padded: expected 4 dimensions to transform, got ",
              padded_.sizes());
  const Tensor padded = transform_0213 ? padded_.transpose(1, 2).flatten(2) : padded_;
  const auto row = row_sizes(sizes);
  if (!row || padded.dim() != sizes.size(1) + 1 || padded.size(0) != sizes.size(0) ||
      padded.sizes().slice(2) != IntArrayRef(*row)) {
    return at::native::nested_from_padded_generic(padded, sizes, false);
  }
  TORCH_CHECK(sizes.select(1, 0).max().item<int64_t>() <= padded.size(1), "_nested_from_padded: sizes of up to ",
              sizes.select(1, 0).max().item<int64_t>(), " do not fit into a padded tensor of ", padded.sizes());
  const Tensor offsets = offsets_of(sizes);
  const int64_t total = offsets.const_data_ptr<int64_t>()[sizes.size(0)];
  return wrap_nested(from_padded(padded, offsets.to(padded.device(), /*non_blocking=*/true), total), sizes);
}

// The elements of a contiguous nested tensor as rows of `shape`, which must be the sizes of its last dimensions.
Tensor rows_of(const char* op, const Tensor& nested, IntArrayRef shape) {
  const auto* impl = get_nested_tensor_impl(nested);
  const auto ndim = static_cast<int64_t>(shape.size());
  TORCH_CHECK(ndim >= 1 && ndim < impl->dim(), op, ": expected a shape of 1 to ", impl->dim() - 1, " dimensions, got ",
              shape);
  for (int64_t d = 0; d < ndim; d++) {
    const auto size = impl->opt_size(d - ndim);
    TORCH_CHECK(size, op, ": dimension ", d - ndim, " of the nested tensor is irregular");
    TORCH_CHECK(*size == shape[d], op, ": the nested tensor has size ", *size, " in dimension ", d - ndim,
                ", not one of ", shape);
  }
  c10::DimVector sizes{c10::multiply_integers(shape) == 0 ? 0 : -1};
  sizes.append(shape.begin(), shape.end());
  return impl->get_buffer().view(sizes);
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& input, IntArrayRef shape,
                                              const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
                                              double eps) {
  auto [out, mean, rstd] = at::native_layer_norm(rows_of("layer_norm", input, shape), shape, weight, bias, eps);
  return {wrap_nested(out, at::native::get_nested_sizes(input)), mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& input, IntArrayRef shape,
                                                       const Tensor& mean, const Tensor& rstd,
                                                       const std::optional<Tensor>& weight,
                                                       const std::optional<Tensor>& bias, std::array<bool, 3> mask) {
  const char* op = "layer_norm_backward";
  auto [gin, gw, gb] = at::native_layer_norm_backward(rows_of(op, grad.contiguous(), shape), rows_of(op, input, shape),
                                                      shape, mean, rstd, weight, bias, mask);
  if (gin.defined()) gin = wrap_nested(gin, at::native::get_nested_sizes(input));
  return {gin, gw, gb};
}

// As in ATen: sums only over the last dimension, which is kept.
Tensor sum(const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, std::optional<at::ScalarType> dtype) {
  TORCH_CHECK(dims && dims->size() == 1 && at::maybe_wrap_dim(dims->front(), self.dim()) == self.dim() - 1,
              "NestedTensor only allows reduction of the last dimension");
  TORCH_CHECK(keepdim, "NestedTensor always requires keepdim=True for now.");
  TORCH_CHECK(!dtype, "NestedTensor does not support dtype argument for now.");
  const auto* impl = get_nested_tensor_impl(self);
  if (impl->size(0) == 0) return self;
  Tensor sizes = impl->get_nested_sizes().clone();
  sizes.select(1, -1).fill_(1);
  const auto last = impl->opt_size(-1);
  if (last && *last > 0) return wrap_nested(rows_of("sum", self, *last).sum(-1), sizes);
  std::vector<Tensor> sums;
  for (const Tensor& t : self.unbind()) sums.push_back(t.sum(-1).flatten());
  return wrap_nested(at::cat(sums), sizes);
}

Tensor sum_backward(const Tensor& grad, const Tensor& self, at::OptionalIntArrayRef, bool) {
  const auto parts = grad.unbind(), like = self.unbind();
  std::vector<Tensor> grads;
  for (size_t i = 0; i < parts.size(); i++) grads.push_back(parts[i].expand(like[i].sizes()));
  return at::_nested_tensor_from_tensor_list(grads);
}

NETCL_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  for (const char* name : {"native_dropout",
                           "native_dropout_backward",
                           "abs",
                           "abs_",
                           "sgn",
                           "sgn_",
                           "add.Tensor",
                           "add_.Tensor",
                           "all.dim",
                           "logical_not",
                           "logical_not_",
                           "bmm",
                           "cat",
                           "chunk",
                           "copy_",
                           "cos",
                           "div.Tensor",
                           "div.Scalar",
                           "embedding",
                           "empty_like",
                           "fill_.Scalar",
                           "fill_.Tensor",
                           "isnan",
                           "is_same_size",
                           "linear",
                           "linear_backward",
                           "matmul",
                           "matmul_backward",
                           "matmul.out",
                           "value_selecting_reduction_backward",
                           "mul.Tensor",
                           "mul_.Tensor",
                           "mul.Scalar",
                           "mul_.Scalar",
                           "narrow",
                           "ones_like",
                           "neg",
                           "neg_",
                           "relu",
                           "relu_",
                           "gelu_",
                           "gelu",
                           "gelu_backward",
                           "select.int",
                           "_nested_select_backward",
                           "silu",
                           "silu_",
                           "silu_backward",
                           "sin",
                           "detach",
                           "_softmax",
                           "_softmax_backward_data",
                           "split_with_sizes",
                           "squeeze",
                           "squeeze.dim",
                           "squeeze.dims",
                           "sqrt",
                           "tanh",
                           "tanh_",
                           "threshold_backward",
                           "transpose.int",
                           "_nested_tensor_size",
                           "_nested_tensor_strides",
                           "_nested_tensor_storage_offsets",
                           "_nested_from_padded_and_nested_example",
                           "unsqueeze",
                           "where.self",
                           "where.self_out",
                           "clone",
                           "zero_",
                           "sub.Tensor",
                           "values",
                           "unbind.int",
                           "_to_copy",
                           "masked_fill.Scalar",
                           "view",
                           "eq.Scalar",
                           "eq.Tensor",
                           "ge.Scalar",
                           "gt.Scalar",
                           "normal_",
                           "alias",
                           "isinf",
                           "isposinf",
                           "isneginf",
                           "_nested_tensor_softmax_with_shape",
                           "_safe_softmax"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&as_on_cpu>());
  }
  m.impl("native_layer_norm", &layer_norm);
  m.impl("native_layer_norm_backward", &layer_norm_backward);
  m.impl("sum.dim_IntList", &sum);
  m.impl("_nested_sum_backward", &sum_backward);
  m.impl("to_padded_tensor", &nested_to_padded);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_jagged_to_padded_dense_forward", &jagged_to_padded);
  m.impl("_padded_dense_to_jagged_forward", &padded_to_jagged);
  m.impl("_nested_from_padded", &nested_from_padded);
  m.impl("_nested_tensor_from_mask", &at::native::NestedTensor_nested_tensor_from_mask);
  m.impl("_nested_tensor_from_mask_left_aligned", &at::native::NestedTensor_nested_tensor_from_mask_left_aligned);
  m.impl("_nested_view_from_buffer", &view_from_buffer);
}

}  // namespace

Tensor wrap_nested(const Tensor& rows, const Tensor& sizes) {
  return at::detail::make_tensor<at::native::NestedTensorImpl>(rows.contiguous().view(-1), sizes);
}

}  // namespace netcl
