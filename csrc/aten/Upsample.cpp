// Resampling over 1 to 3 spatial dimensions: nearest (both conventions), linear and cubic, and their derivatives.
// UpsampleAntialias.cpp has the anti-aliased forms.
#include <ATen/native/UpSample.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta.h>
#include <ATen/ops/upsample_bicubic2d_backward_meta.h>
#include <ATen/ops/upsample_bicubic2d_meta.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta.h>
#include <ATen/ops/upsample_bilinear2d_meta.h>
#include <ATen/ops/upsample_linear1d_backward_meta.h>
#include <ATen/ops/upsample_linear1d_meta.h>
#include <ATen/ops/upsample_nearest1d_backward_meta.h>
#include <ATen/ops/upsample_nearest1d_meta.h>
#include <ATen/ops/upsample_nearest2d_backward_meta.h>
#include <ATen/ops/upsample_nearest2d_meta.h>
#include <ATen/ops/upsample_nearest3d_backward_meta.h>
#include <ATen/ops/upsample_nearest3d_meta.h>
#include <ATen/ops/upsample_trilinear3d_backward_meta.h>
#include <ATen/ops/upsample_trilinear3d_meta.h>
#include <ATen/ops/zeros.h>

#include "args/upsample.h"
#include "aten/UpsampleBytes.h"
#include "aten/support/Rows.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::Tensor;
using ScaleOpt = std::optional<double>;

enum class Mode { kNearest, kExact, kLinear, kCubic };

// The arguments of an upsampling operator after its tensor and its sizes.
struct Extra {
  bool align_corners = false;
  c10::SmallVector<ScaleOpt, 3> scales;  // of the last dimensions
  void add(bool align) { align_corners = align; }
  void add(const ScaleOpt& scale) { scales.push_back(scale); }
  void add(at::IntArrayRef) {}  // the input's size, which only meta() uses
};

// The step in the input per step in the output, computed as in ATen: in float32, except for float64 data.
double step(Mode mode, const Extra& extra, int64_t in, int64_t out, const ScaleOpt& scale, bool wide) {
  if (mode == Mode::kNearest && in == out) return 1;
  if (mode == Mode::kNearest && out == 2 * in) return 0.5;
  if (mode == Mode::kNearest || mode == Mode::kExact) return at::native::compute_scales_value<float>(scale, in, out);
  return wide ? at::native::area_pixel_compute_scale<double>(in, out, extra.align_corners, scale)
              : at::native::area_pixel_compute_scale<float>(in, out, extra.align_corners, scale);
}

void run(const char* op, Mode mode, bool backward, const Tensor& from, const Tensor& to, const Extra& extra) {
  if (to.numel() == 0) return;
  Device& dev = netcl::device_of(from);
  check_dtype(dev, from.scalar_type(), op);
  const bool interpolates = mode == Mode::kLinear || mode == Mode::kCubic;
  if (interpolates && !backward && from.scalar_type() == at::kByte && from.dim() == 4) {
    const ImageGrids grids{extra.align_corners, extra.scales[0], extra.scales[1]};
    return resample_bytes(op, mode == Mode::kLinear ? 1 : 2, /*antialias=*/false, grids, from, to);
  }
  // uint8 values are exact in float32, so copying them through float32 is exact too.
  const bool byte = from.scalar_type() == at::kByte && !backward && !interpolates;
  TORCH_CHECK(byte || from.is_floating_point(), op, ": expected a floating-point tensor",
              interpolates ? "" : " or one of uint8", ", got ", from.scalar_type());
  const Tensor& small = backward ? to : from;
  const Tensor& large = backward ? from : to;
  const int64_t ndim = small.dim() - 2;
  UpsampleParams shape{0, {1, 1, 1}, {1, 1, 1}, extra.align_corners};
  UpsampleScales scales{{1, 1, 1}, {0, 0, 0}};
  shape.planes = small.size(0) * small.size(1);
  for (int64_t d = 0; d < ndim; d++) {
    const int64_t k = 3 - ndim + d, in = small.size(2 + d), out = large.size(2 + d);
    shape.in[k] = in;
    shape.out[k] = out;
    const double s = step(mode, extra, in, out, extra.scales[d], from.scalar_type() == at::kDouble);
    scales.high[k] = wide_high(s);
    scales.low[k] = wide_low(s);
  }
  constexpr std::array<const char*, 4> kModes{"MODE_NEAREST", "MODE_EXACT", "MODE_LINEAR", "MODE_CUBIC"};
  Defs d;
  d.set("IN", dtype_tag(from.scalar_type())).set("ACC", byte ? "f32" : compute_tag(from.scalar_type()));
  d.set(kModes[size_t(mode)], 1).set("NDIM", ndim);
  const Tensor x = from.contiguous();
  if (backward) {
    const bool direct = to.is_contiguous() && compute_type(to.scalar_type()) == to.scalar_type();
    const Tensor sum = direct ? to.zero_() : at::zeros(to.sizes(), to.options().dtype(compute_type(to.scalar_type())));
    kernel(dev, "upsample.cl", "resample_backward", d)
        .launch(op, queue_of(x), {size_t(shape.planes)}, {dev.is_cpu() ? size_t(1) : size_t(64)}, buf(sum), buf(x),
                shape, scales);
    if (!direct) to.copy_(sum);
    return;
  }
  const DenseOut y(to);
  const int64_t rows = shape.planes * shape.out[0] * shape.out[1], width = shape.out[2];
  const int64_t cols_per = dev.is_cpu() ? width : 1, rows_per = row_split(dev, rows, width).rows_per;
  kernel(dev, "upsample.cl", "resample", d)
      .launch(op, queue_of(x), {size_t(ceil_div(width, cols_per)), size_t(ceil_div(rows, rows_per))},
              {dev.is_cpu() ? size_t(1) : size_t(64), 1}, buf(y.get()), buf(x), shape, scales, cols_per, rows_per);
  y.finish();
}

// impl() of every operator: (tensor, output size, [input size,] [align_corners,] scales..., result).
template <class Meta, Mode mode, bool backward, class Fn = decltype(&Meta::meta)>
struct Resample;
template <class Meta, Mode mode, bool backward, class... Rest>
struct Resample<Meta, mode, backward, void (Meta::*)(const Tensor&, at::IntArrayRef, Rest...)> : Meta {
  void impl(const Tensor& from, at::IntArrayRef, Rest... rest, const Tensor& to) {
    Extra extra;
    (extra.add(rest), ...);
    run(backward ? "aten::upsample_backward" : "aten::upsample", mode, backward, from, to, extra);
  }
};

}  // namespace

#define NETCL_UPSAMPLE(name, mode)                                                                              \
  structured<Resample<at::meta::structured_##name, Mode::mode, false>>(m, #name, nullptr, #name ".out");        \
  structured<Resample<at::meta::structured_##name##_backward, Mode::mode, true>>(m, #name "_backward", nullptr, \
                                                                                 #name "_backward.grad_input");

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  NETCL_UPSAMPLE(upsample_nearest1d, kNearest)
  NETCL_UPSAMPLE(upsample_nearest2d, kNearest)
  NETCL_UPSAMPLE(upsample_nearest3d, kNearest)
  NETCL_UPSAMPLE(_upsample_nearest_exact1d, kExact)
  NETCL_UPSAMPLE(_upsample_nearest_exact2d, kExact)
  NETCL_UPSAMPLE(_upsample_nearest_exact3d, kExact)
  NETCL_UPSAMPLE(upsample_linear1d, kLinear)
  NETCL_UPSAMPLE(upsample_bilinear2d, kLinear)
  NETCL_UPSAMPLE(upsample_trilinear3d, kLinear)
  NETCL_UPSAMPLE(upsample_bicubic2d, kCubic)
}

}  // namespace netcl
