// Attention on GPUs, which writes no scores to memory (kernels/attention_flash.cl).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>

#include "args/attention.h"

namespace netcl {

inline constexpr const char* kAttentionOp = "scaled_dot_product_attention";

// The operands of one call. k and v may have fewer heads than q; the bias, if there is one, has the scores' shape.
struct FlashOperands {
  at::Tensor q, k, v, bias;
  bool causal;
  double scale;
  const struct ScoreFunctions* functions = nullptr;  // of flex_attention
};

// The sizes, the scale and the bias' strides; kernels add the strides that they use.
FlashParams flash_params(const FlashOperands& o);

// Nothing if the device has no such kernels, or if they do not take these operands or would not pay.
std::optional<FlashOperands> flash_operands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                            const std::optional<at::Tensor>& bias, bool causal,
                                            std::optional<double> scale);

// Writes the output, and the logarithm of the sum of each query's exponentials, a dense (batch, heads, queries).
void flash_attention(const FlashOperands& operands, const at::Tensor& out, const at::Tensor& lse);

// The gradients of q, k and v, those that `mask` wants.
std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(const FlashOperands& operands,
                                                                        const at::Tensor& grad_out,
                                                                        const at::Tensor& out, const at::Tensor& lse,
                                                                        std::array<bool, 4> mask);

}  // namespace netcl
