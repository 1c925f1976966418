// The ways to compute a convolution, which Convolution.cpp lists in order: plan_x() returns what run_x() needs, or
// nothing if that way does not serve the call.
#pragma once

#include <optional>

#include "aten/conv/ConvContext.h"
#include "aten/gemm/Gemm.h"

namespace netcl {

// Kernels of one element: a matrix product per image, or one for all if channels_last (PointwiseConvolution.cpp). Sums
// of few channels, and few results, come after the ways along the channels.
std::optional<GemmArgs> plan_pointwise(const ConvCall& call);
std::optional<GemmArgs> plan_few_pointwise(const ConvCall& call);
void run_pointwise(const ConvCall& call, const GemmArgs& product);

// channels_last on a CPU, with vectors along the channels (ChannelsLastConvolution.cpp).
std::optional<ConvContext> plan_channels(const ConvCall& call);
std::optional<ConvContext> plan_few_outputs(const ConvCall& call);
std::optional<ConvContext> plan_flat(const ConvCall& call);
void run_channels(const ConvCall& call, const ConvContext& c);
void run_few_outputs(const ConvCall& call, const ConvContext& c);
void run_flat(const ConvCall& call, const ConvContext& c);

// One input plane per output plane, on a CPU (DepthwiseConvolution.cpp). Each of `channels` input planes gives
// `multiplier` output planes. `lo` zeros precede a column and a row; `reversed` reads the kernel backwards, as a
// gradient of the input does.
struct Depthwise {
  int64_t images, channels, multiplier;
  int64_t in_h, in_w, out_h, out_w, ker_h, ker_w;
  int64_t lo_h, lo_w, step_h, step_w;
  bool reversed;

  // The columns of the padded input that a row of the output needs.
  int64_t columns() const { return (out_w - 1) * step_w + ker_w; }
  // The elements of a row of the copy: a power of two, so that the widths of a network share a few kernels.
  int64_t pitch() const;
  // The rows of the output whose input fits into the copy; 0 if not even one row's input fits.
  int64_t strip_rows() const;
};
std::optional<Depthwise> plan_depthwise(const ConvCall& call);
void run_depthwise(const ConvCall& call, const Depthwise& d);

// has_few_results() (DirectConvolution.cpp).
std::optional<ConvContext> plan_direct(const ConvCall& call);
void run_direct(const ConvCall& call, const ConvContext& c);

// A matrix product, one operand of which is gathered from the padded input (ImplicitGemm.cpp): all calls.
std::optional<ConvContext> plan_product(const ConvCall& call);
void run_product(const ConvCall& call, const ConvContext& c);
// The same for the gradient of the input if the windows are adjacent patches, as in patch embeddings and transposed
// convolutions that enlarge an image.
std::optional<ConvContext> plan_patches(const ConvCall& call);
void run_patches(const ConvCall& call, const ConvContext& c);

}  // namespace netcl
