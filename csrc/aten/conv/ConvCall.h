// A convolution or one of its gradients, as csrc/aten/conv computes it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "runtime/Device.h"

namespace netcl {

constexpr int64_t kPlaneWork = 1 << 16;  // multiply-adds that pay for a work-item

using ConvDims = std::array<int64_t, 3>;  // depth, height, width; 1d and 2d have leading ones

inline int64_t volume(const ConvDims& d) { return d[0] * d[1] * d[2]; }

struct ConvGeometry {
  int64_t images = 0, groups = 0, c_in = 0, c_out = 0;  // channels per group
  ConvDims in{}, out{}, kernel{}, stride{}, padding{}, dilation{};

  int64_t taps() const { return c_in * volume(kernel); }
};

enum class ConvDirection { kForward, kInputGradient, kWeightGradient };

// y = convolution of x and w, plus a bias if there is one. `direction` says which tensor is written: y, or x or w,
// which are then the gradients computed from the other two. A transposed convolution is the gradient of a plain one
// with respect to its input, with a bias. All tensors are contiguous, or all are channels_last: then the channels of a
// pixel, and those of a position in the kernel, are adjacent.
struct ConvCall {
  const char* op;
  ConvDirection direction;
  ConvGeometry g;
  at::Tensor x, w, y, bias;
  bool channels_last = false;

  bool forward() const { return direction == ConvDirection::kForward; }
  const at::Tensor& result() const { return forward() ? y : direction == ConvDirection::kInputGradient ? x : w; }
  // The tensor that is convolved, the channels per group that are added up, and the output channels per group.
  const at::Tensor& source() const { return direction == ConvDirection::kInputGradient ? y : x; }
  int64_t summed_channels() const { return direction == ConvDirection::kInputGradient ? g.c_out : g.c_in; }
  int64_t result_channels() const { return direction == ConvDirection::kInputGradient ? g.c_in : g.c_out; }
};

// Few results per group: a tile of channels would be mostly empty, so vectors lie along a row of pixels.
bool has_few_results(const ConvCall& call);

// Whether a GPU's matrix units compute convolutions of this type rightly (ConvUnits.cpp): what units_pass() checks.
bool units_convolve(const Device& device, c10::ScalarType type);

}  // namespace netcl
