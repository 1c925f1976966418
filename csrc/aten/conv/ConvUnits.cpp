// The check of convolutions on matrix units (kernels/conv/conv_units.cl), before the first one of a type.
#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "aten/conv/ConvWays.h"

namespace netcl {
namespace {

constexpr int64_t kTrialWidth = 41, kTrialRows = 3;  // of small images, whose pixels fill no tile
constexpr int64_t kTrialPixels = 128;                // of the large tiles

at::Tensor integers(at::IntArrayRef sizes, int64_t factor, int64_t modulus) {
  const int64_t count = c10::multiply_integers(sizes);
  return at::arange(count, at::kDouble).mul(factor).remainder(modulus).sub(modulus / 2).view(sizes);
}

// Convolutions of 3 x 3, whose sums of integers are exact.
struct Trial {
  const Device& device;
  c10::ScalarType type;
  at::MemoryFormat format;
  at::Tensor x, w, y;

  Trial(const Device& device, c10::ScalarType type, at::MemoryFormat format, int64_t rows)
      : device(device),
        type(type),
        format(format),
        x(integers({1, 16, rows, kTrialWidth}, 3, 7)),
        w(integers({24, 16, 3, 3}, 5, 7)),
        y(integers({1, 24, rows, kTrialWidth}, 2, 5)) {}

  at::Tensor on_device(const at::Tensor& t) const {
    const auto options = at::TensorOptions(type).device(c10::DeviceType::PrivateUse1, device.index());
    return t.to(options).contiguous(format);
  }
  // Whether one of the three tensors, computed from the others, is as expected.
  bool computes(ConvDirection direction, const at::Tensor& expected) const {
    ConvGeometry g;
    g.images = g.groups = 1;
    g.c_in = w.size(1);
    g.c_out = w.size(0);
    g.in = g.out = {1, x.size(2), kTrialWidth};
    g.kernel = {1, 3, 3};
    g.stride = g.dilation = {1, 1, 1};
    g.padding = {0, 1, 1};
    const ConvCall call{"matrix_engine", direction,    g,  on_device(x),
                        on_device(w),    on_device(y), {}, format != at::MemoryFormat::Contiguous};
    run_product(call, *plan_product(call));
    return call.result().cpu().equal(expected.to(type));
  }
  bool forward() const { return computes(ConvDirection::kForward, at::conv2d(x, w, {}, 1, 1)); }
  bool weight_gradient() const {
    const auto gradients =
        at::convolution_backward(y, x, w, std::nullopt, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1, {false, true, false});
    return computes(ConvDirection::kWeightGradient, std::get<1>(gradients));
  }
};

}  // namespace

// Both tiles, and the three ways to gather: rows side by side, whole vectors of taps, and single taps side by side.
bool units_convolve(const Device& device, c10::ScalarType type) {
  // A user's autocast for the CPU would round what is expected.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const int64_t rows = ceil_div(enough_items(device, kTrialPixels), kTrialWidth);
  return Trial(device, type, at::MemoryFormat::Contiguous, kTrialRows).forward() &&
         Trial(device, type, at::MemoryFormat::ChannelsLast, rows).forward() &&
         Trial(device, type, at::MemoryFormat::Contiguous, kTrialRows).weight_gradient();
}

}  // namespace netcl
