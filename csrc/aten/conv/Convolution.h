// A convolution, its gradients, and the algorithms for them. Which one runs is decided in Convolution.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace netcl {

using ConvDims = std::array<int64_t, 3>;  // depth, height, width; 1d and 2d have leading ones

inline int64_t volume(const ConvDims& d) { return d[0] * d[1] * d[2]; }

struct ConvGeometry {
  int64_t images = 0, groups = 0, c_in = 0, c_out = 0;  // channels per group
  ConvDims in{}, out{}, kernel{}, stride{}, padding{}, dilation{};

  int64_t taps() const { return c_in * volume(kernel); }
};

enum class ConvDirection { kForward, kInputGradient, kWeightGradient };

// y = convolution of x and w, plus a bias if there is one. `direction` says which tensor is written: y, or x or w,
// which then are the gradients of the others'. A transposed convolution is the gradient of a plain one with respect to
// its input, bias included. All tensors are contiguous, or all are channels_last: then the channels of a pixel, and
// those of a position in the kernel, lie side by side.
struct ConvCall {
  const char* op;
  ConvDirection direction;
  ConvGeometry g;
  at::Tensor x, w, y, bias;
  bool channels_last = false;

  bool forward() const { return direction == ConvDirection::kForward; }
  const at::Tensor& result() const { return forward() ? y : direction == ConvDirection::kInputGradient ? x : w; }
  // What is convolved, and the channels of a group that come out.
  const at::Tensor& source() const { return direction == ConvDirection::kInputGradient ? y : x; }
  int64_t result_channels() const { return direction == ConvDirection::kInputGradient ? g.c_in : g.c_out; }
};

// Kernels of one element: a product of matrices for each image, or for all if channels_last (PointwiseConvolution.cpp).
bool serves_pointwise(const ConvCall& call);
void run_pointwise(const ConvCall& call);

// Groups of one, two or four channels, or few output channels, if channels_last, on a CPU: vectors along the channels
// (ChannelsLastConvolution.cpp).
bool serves_along_channels(const ConvCall& call);
void run_along_channels(const ConvCall& call);

// One plane of the input to each plane of the output, on a CPU (DepthwiseConvolution.cpp). Not for channels_last.
bool serves_depthwise(const ConvCall& call);
void run_depthwise(const ConvCall& call);

// Few output channels per group: vectors along a row of pixels (DirectConvolution.cpp). Not for channels_last.
bool serves_direct(const ConvCall& call);
void run_direct(const ConvCall& call);

// All others: a product of matrices, one of which is gathered from the padded input (ImplicitGemm.cpp).
void run_implicit_gemm(const ConvCall& call);

}  // namespace netcl
