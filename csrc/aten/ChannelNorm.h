// Batch and group normalisation of channels_last tensors on a CPU (kernels/norm_channels.cl), for BatchNorm.cpp and
// Normalization.cpp, which check the operands.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "args/norm.h"
#include "runtime/Device.h"

namespace netcl {

// How a dense tensor of (segments, pixels, channels) is divided; a segment has statistics of `group` channels each.
// nullopt if the kernels for rows serve it better. The caller sets `train`, `eps` and `momentum`.
std::optional<ChannelNormParams> channel_norm_params(const Device& device, int64_t segments, int64_t pixels,
                                                     int64_t channels, int64_t group);

// One call. Missing operands are undefined; `running_mean` and `running_var` are contiguous, and serve batch norms.
struct ChannelNormCall {
  const char* op;
  const ChannelNormParams& params;
  c10::ScalarType weight_type;  // of weight, bias and their gradients
  at::Tensor weight, bias, running_mean, running_var;
};

// Normalises x by its own statistics, which are saved in `mean` and `rstd` and update the running ones.
void channel_norm_train(const ChannelNormCall& call, const at::Tensor& x, const at::Tensor& out, const at::Tensor& mean,
                        const at::Tensor& rstd);
// Normalises x by the running statistics of a batch norm.
void batch_norm_channels_eval(const ChannelNormCall& call, const at::Tensor& x, const at::Tensor& out);

// The gradients of a batch norm; undefined ones are not wanted. If the call trains, `mean` and `stat` are the saved
// mean and reciprocal deviation, else the running mean and variance.
struct ChannelNormGrads {
  at::Tensor gin, gw, gb;
};
void batch_norm_channels_backward(const ChannelNormCall& call, const at::Tensor& grad, const at::Tensor& x,
                                  const at::Tensor& mean, const at::Tensor& stat, const ChannelNormGrads& grads);

}  // namespace netcl
