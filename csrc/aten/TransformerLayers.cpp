// The operators that torch.nn's MultiheadAttention and TransformerEncoderLayer call in inference: each is a whole
// layer, made of operators for dense and nested tensors.
#include <ATen/NestedTensorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_masked_softmax.h>
#include <ATen/ops/_native_multi_head_attention.h>
#include <ATen/ops/_nested_from_padded.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "aten/Nested.h"
#include "aten/support/Library.h"

namespace netcl {
namespace {

using at::Tensor;
using at::native::get_nested_tensor_impl;

// What attention begins with, and the projection that it goes through.
struct Inputs {
  const Tensor &query, &key, &value;
  const Tensor &weight, &bias;  // of queries, keys and values side by side
};

void check_attention(const Inputs& in, int64_t width, int64_t heads, const std::optional<Tensor>& mask) {
  const auto& [query, key, value, weight, bias] = in;
  const bool nested = query.is_nested() || key.is_nested() || value.is_nested();
  TORCH_CHECK(!mask || !nested, "NestedTensor with mask is not supported yet");
  for (const Tensor* t : {&query, &key, &value})
    TORCH_CHECK(t->dim() == 3, "expected 3-D `query`, `key` and `value`, got a ", t->dim(), "-D tensor");
  TORCH_CHECK(nested || query.size(2) == width, "passed-in embed_dim ", width, " didn't match last dim of query ",
              nested ? -1 : query.size(2));
  TORCH_CHECK(nested || (query.sizes() == key.sizes() && key.sizes() == value.sizes()),
              "expected `query`/`key`/`value` shapes to match");
  TORCH_CHECK(weight.dim() == 2 && weight.size(0) == 3 * width && weight.size(1) == width,
              "expected `qkv_weight` to be 3x embed_dim by embed_dim, got ", weight.sizes());
  TORCH_CHECK(bias.dim() == 1 && bias.size(0) == 3 * width, "expected `qkv_bias` to have 3x embed_dim, got ",
              bias.sizes());
  TORCH_CHECK(heads > 0 && width % heads == 0, "`embed_dim` must divide evenly by `num_heads`");
}

// [batch, length, 3 * width]: queries, keys and values side by side; padded if the inputs are nested.
Tensor project(const Inputs& in) {
  const auto& [query, key, value, weight, bias] = in;
  const auto linear = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    const Tensor y = at::linear(x, w, b);
    return y.is_nested() ? y.to_padded_tensor(0) : y;
  };
  if (query.is_same(key) && key.is_same(value)) return linear(query, weight, bias);
  const auto w = weight.chunk(3), b = bias.chunk(3);
  const Tensor q = linear(query, w[0], b[0]), k = linear(key, w[1], b[1]), v = linear(value, w[2], b[2]);
  TORCH_CHECK(q.sizes() == k.sizes() && k.sizes() == v.sizes(),
              "expected `query`/`key`/`value` of equal lengths, got padded ", q.sizes(), ", ", k.sizes(), " and ",
              v.sizes());
  return at::cat({q, k, v}, 2);
}

// Queries, keys and values as [batch, heads, length, width of a head].
std::vector<Tensor> heads_of(const Tensor& qkv, int64_t heads) {
  return qkv.unflatten(2, {3, heads, qkv.size(2) / 3 / heads}).permute({2, 0, 3, 1, 4}).unbind();
}

// [batch, 1, 1, longest]: true if a sequence has that key; nothing if all sequences have the same length.
std::optional<Tensor> keys_there(const Tensor& nested) {
  const Tensor lengths = get_nested_tensor_impl(nested)->get_nested_sizes().select(1, 0);
  const int64_t longest = lengths.max().item<int64_t>();
  if (lengths.min().item<int64_t>() == longest) return std::nullopt;
  const Tensor there = at::arange(longest, lengths.options()).lt(lengths.unsqueeze(1));
  return there.view({-1, 1, 1, longest}).to(nested.device(), /*non_blocking=*/true);
}

// A mask of floats is added, as by the layer that is not fused: autocast must not change what a mask means. (ATen's
// fused layer takes each number but 0 for "masked", and runs without autocast only.)
Tensor masked_softmax(const Tensor& scores, const Tensor& mask, std::optional<int64_t> mask_type) {
  if (!mask.is_floating_point()) return at::_masked_softmax(scores, mask.to(at::kBool), -1, mask_type);
  const bool keys = mask_type == 1;  // [batch, length]; otherwise [length, length] or a mask of the scores' shape
  return at::softmax(scores + (keys ? mask.unsqueeze(1).unsqueeze(1) : mask), -1);
}

std::tuple<Tensor, Tensor> multi_head_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                                int64_t width, int64_t heads, const Tensor& qkv_weight,
                                                const Tensor& qkv_bias, const Tensor& proj_weight,
                                                const Tensor& proj_bias, const std::optional<Tensor>& mask_,
                                                bool need_weights, bool average_weights,
                                                std::optional<int64_t> mask_type) {
  const auto mask = mask_ && mask_->defined() ? mask_ : std::nullopt;
  const Inputs in{query, key, value, qkv_weight, qkv_bias};
  check_attention(in, width, heads, mask);
  const Tensor qkv = project(in);
  if (qkv.numel() == 0) return {query.is_nested() ? Tensor() : at::empty_like(query), Tensor()};
  const auto parts = heads_of(qkv, heads);
  const Tensor &q = parts[0], &k = parts[1], &v = parts[2];
  Tensor out, weights;
  if (need_weights || mask) {
    const Tensor scores = at::matmul(q * (1 / std::sqrt(static_cast<double>(width / heads))), k.transpose(2, 3));
    // For a query that sees no key, ATen's masked softmax gives NaN, but the fused attention below would give zeros.
    if (mask) {
      weights = masked_softmax(scores, *mask, mask_type);
    } else if (const auto there = query.is_nested() ? keys_there(query) : std::nullopt) {
      weights = at::softmax(scores.masked_fill(there->logical_not(), -INFINITY), -1);
    } else {
      weights = at::softmax(scores, -1);
    }
    out = at::matmul(weights, v);
  } else {
    out = at::scaled_dot_product_attention(q, k, v, query.is_nested() ? keys_there(query) : std::nullopt);
  }
  out = out.transpose(1, 2).flatten(2);
  if (query.is_nested()) out = at::_nested_from_padded(out, get_nested_tensor_impl(query)->get_nested_sizes());
  out = at::linear(out, proj_weight, proj_bias);
  if (!need_weights) return {out, Tensor()};
  return {out, average_weights ? weights.mean(1) : weights};
}

Tensor encoder_layer(const Tensor& src, int64_t width, int64_t heads, const Tensor& qkv_weight, const Tensor& qkv_bias,
                     const Tensor& proj_weight, const Tensor& proj_bias, bool use_gelu, bool norm_first, double eps,
                     const Tensor& norm_weight_1, const Tensor& norm_bias_1, const Tensor& norm_weight_2,
                     const Tensor& norm_bias_2, const Tensor& ffn_weight_1, const Tensor& ffn_bias_1,
                     const Tensor& ffn_weight_2, const Tensor& ffn_bias_2, const std::optional<Tensor>& mask,
                     std::optional<int64_t> mask_type) {
  if (src.numel() == 0) return src.clone();
  const auto norm = [&](const Tensor& x, const Tensor& w, const Tensor& b) {
    return at::layer_norm(x, {width}, w, b, eps);
  };
  const auto attention = [&](const Tensor& x) {
    return std::get<0>(at::_native_multi_head_attention(x, x, x, width, heads, qkv_weight, qkv_bias, proj_weight,
                                                        proj_bias, mask, false, true, mask_type));
  };
  // Under autocast the layers' results have 16 bits, but residuals keep the wider dtype.
  const auto add = [](const Tensor& x, const Tensor& y) {
    return x.scalar_type() == y.scalar_type() ? x.add_(y) : x + y;
  };
  const auto feed_forward = [&](const Tensor& x) {
    const Tensor hidden = at::linear(x, ffn_weight_1, ffn_bias_1);
    return at::linear(use_gelu ? at::gelu(hidden) : at::relu(hidden), ffn_weight_2, ffn_bias_2);
  };
  if (norm_first) {
    const Tensor x = add(attention(norm(src, norm_weight_1, norm_bias_1)), src);
    return add(feed_forward(norm(x, norm_weight_2, norm_bias_2)), x);
  }
  const Tensor x = norm(add(attention(src), src), norm_weight_1, norm_bias_1);
  return norm(add(feed_forward(x), x), norm_weight_2, norm_bias_2);
}

// Splits a projection without its bias into queries, scaled by 1 / sqrt(width of a head), keys and values.
std::tuple<Tensor, Tensor, Tensor> transform_bias_rescale_qkv(const Tensor& qkv_, const Tensor& bias, int64_t heads) {
  const Tensor qkv = qkv_.is_nested() ? qkv_.to_padded_tensor(0) : qkv_;
  TORCH_CHECK(qkv.dim() == 3 && heads > 0 && qkv.size(2) % (3 * heads) == 0,
              "_transform_bias_rescale_qkv: expected [batch, length, 3 * heads * width], got ", qkv.sizes());
  const auto parts = heads_of(qkv + bias, heads);
  const double scale = 1 / std::sqrt(static_cast<double>(qkv.size(2) / 3 / heads));
  return {parts[0].mul(scale).contiguous(), parts[1].contiguous(), parts[2].contiguous()};
}

void implement(AtenLibrary& m) {
  m.impl("_native_multi_head_attention", &multi_head_attention);
  m.impl("_transformer_encoder_layer_fwd", &encoder_layer);
  m.impl("_transform_bias_rescale_qkv", &transform_bias_rescale_qkv);
}
NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) { implement(m); }
NETCL_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) { implement(m); }

}  // namespace
}  // namespace netcl
