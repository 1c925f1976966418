// Resampling over 1 to 3 spatial dimensions: nearest (both conventions), linear and cubic, and their derivatives.
// UpsampleAntialias.cpp has the anti-aliased forms.
#include <ATen/native/UpSample.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta.h>
#include <ATen/ops/empty_like.h>
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

#include <bit>
#include <optional>

#include "args/upsample.h"
#include "aten/UpsampleBytes.h"
#include "aten/support/Library.h"
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

struct Call {
  const char* op;
  Mode mode;
  bool backward;
  UpsampleParams shape;
  UpsampleScales scales;
  std::array<double, 3> steps;
  bool interpolates() const { return mode == Mode::kLinear || mode == Mode::kCubic; }
  int64_t taps() const { return mode == Mode::kCubic ? 4 : mode == Mode::kLinear ? 2 : 1; }
  // uint8 values are exact in float32, so copying them through float32 is exact too.
  const char* acc(c10::ScalarType t) const { return t == at::kByte ? "f32" : compute_tag(t); }
};

Call describe(const char* op, Mode mode, bool backward, const Tensor& small, const Tensor& large, const Extra& extra) {
  Call c{op, mode, backward, {0, {1, 1, 1}, {1, 1, 1}, extra.align_corners}, {{1, 1, 1}, {0, 0, 0}}, {1, 1, 1}};
  const int64_t ndim = small.dim() - 2;
  c.shape.planes = small.size(0) * small.size(1);
  for (int64_t d = 0; d < ndim; d++) {
    const int64_t k = 3 - ndim + d, in = small.size(2 + d), out = large.size(2 + d);
    c.shape.in[k] = in;
    c.shape.out[k] = out;
    c.steps[k] = step(mode, extra, in, out, extra.scales[d], small.scalar_type() == at::kDouble);
    c.scales.high[k] = wide_high(c.steps[k]);
    c.scales.low[k] = wide_low(c.steps[k]);
  }
  return c;
}

Defs defs(const Call& c, int64_t ndim) {
  constexpr std::array<const char*, 4> kModes{"MODE_NEAREST", "MODE_EXACT", "MODE_LINEAR", "MODE_CUBIC"};
  Defs d;
  d.set(kModes[size_t(c.mode)], 1).set("NDIM", ndim);
  return d;
}

// --- kernels/upsample.cl: any device and any sizes, contiguous tensors
void run_elements(const Call& c, const Tensor& from, const Tensor& to) {
  Device& dev = netcl::device_of(from);
  Defs d = defs(c, from.dim() - 2);
  d.set("IN", dtype_tag(from.scalar_type())).set("ACC", c.acc(from.scalar_type()));
  const Tensor x = from.contiguous();
  const size_t local = dev.is_cpu() ? 1 : 64;
  if (c.backward) {
    const auto compute = compute_type(to.scalar_type());
    const bool direct = to.is_contiguous() && compute == to.scalar_type();
    const Tensor sum = direct ? to.zero_() : at::zeros(to.sizes(), to.options().dtype(compute));
    kernel(dev, "upsample.cl", "resample_backward", d)
        .launch(c.op, queue_of(x), {size_t(c.shape.planes)}, {local}, buf(sum), buf(x), c.shape, c.scales);
    if (!direct) to.copy_(sum);
    return;
  }
  const DenseOut y(to);
  const int64_t rows = c.shape.planes * c.shape.out[0] * c.shape.out[1], width = c.shape.out[2];
  const int64_t cols_per = dev.is_cpu() ? width : 1, rows_per = row_split(dev, rows, width).rows_per;
  kernel(dev, "upsample.cl", "resample", d)
      .launch(c.op, queue_of(x), {size_t(ceil_div(width, cols_per)), size_t(ceil_div(rows, rows_per))}, {local, 1},
              buf(y.get()), buf(x), c.shape, c.scales, cols_per, rows_per);
  y.finish();
}

// --- kernels/upsample_lines.cl, upsample_pixels.cl: CPUs, contiguous and channels_last tensors
// The most columns, rows or (d = 0) layers of a block whose tables hold what it needs; 0 if not even one fits.
int64_t largest_block(const Call& c, int d) {
  if (!c.backward) return d == 0 ? c.shape.out[0] : kUpsampleBlock;
  const int64_t out = c.shape.out[d], taps = c.taps();
  const double step = c.steps[d];
  // The outputs that use one of n inputs, unless many lie behind the last input, or all use one.
  const bool spread = step > 0 && step * double(out - 1) <= double(c.shape.in[d]);
  const auto outputs = [&](int64_t n) {
    return spread ? std::min(out, int64_t(double(n + taps + 2) / step) + 4) : out;
  };
  int64_t block = d == 0 ? 1 : kUpsampleBlock;
  while (block > 0 && outputs(block) * taps > kUpsampleHits) block /= 2;
  return block;
}

// The block of a work-item, or none if the kernels do not take these sizes. `channels` lie side by side.
std::optional<UpsampleBlock> block_of(const Call& c, const Device& dev, int64_t channels) {
  const int64_t (&size)[3] = c.backward ? c.shape.in : c.shape.out;
  // Beyond 2^23, positions in float32 may be off by whole elements, and an input may have more outputs than expected.
  constexpr int64_t kMostSize = 1 << 23, kExact = 1 << 22, kItemElements = 16384;
  for (int d = 0; d < 3; d++) {
    if (largest_block(c, d) == 0 || c.shape.in[d] > kMostSize || c.shape.out[d] > kMostSize) return {};
  }
  const auto even = [](int64_t n, int64_t most) { return ceil_div(n, ceil_div(n, most)); };
  UpsampleBlock b{};
  b.channels = channels;
  b.twice = c.steps[2] == 0.5 && c.shape.out[2] == 2 * c.shape.in[2] && c.shape.out[2] < kExact &&
            !(c.interpolates() && c.shape.align_corners);
  b.columns = even(size[2], largest_block(c, 2));
  const bool sums = c.taps() > 2 || (c.taps() == 2 && c.shape.out[0] > 1);
  if (channels > 1 && c.backward && sums) {  // a few inputs' gradients, so that the columns' sums stay in the cache
    const double columns = (kUpsampleColumns - 4) * c.steps[2] - double(c.taps() + 2);
    b.columns = even(size[2], std::clamp<int64_t>(int64_t(columns), 1, b.columns));
  }
  if (!c.backward) b.columns = std::min(size[2], round_up(b.columns, int64_t{2}));  // whole pairs, for `twice`
  // Each core gets some work-items, each with enough elements to pay for its tables; planes are divided first.
  const int64_t planes = c.shape.planes / channels, items = enough_items(dev);
  const int64_t plane = c.shape.out[0] * c.shape.out[1] * c.shape.out[2] * channels;
  b.planes = std::min(planes, std::max(ceil_div(planes, items), ceil_div(kItemElements, plane)));
  const int64_t parts = std::min(ceil_div(items, ceil_div(planes, b.planes)), ceil_div(plane, kItemElements));
  b.rows = even(size[1], std::min(largest_block(c, 1), ceil_div(size[1], parts)));
  return b;
}

bool channels_last(const Tensor& t) {
  return !t.is_contiguous() && (t.dim() == 4   ? t.is_contiguous(at::MemoryFormat::ChannelsLast)
                                : t.dim() == 5 ? t.is_contiguous(at::MemoryFormat::ChannelsLast3d)
                                               : false);
}

// The vectors of `n` elements side by side, no wider than that.
int64_t vector_of(int64_t n, c10::ScalarType type) {
  return std::min<int64_t>(std::bit_floor(uint64_t(n)), type == at::kDouble ? 8 : 16);
}

// False if the kernels do not take these sizes.
bool run_blocks(const Call& c, const Tensor& from, const Tensor& to) {
  Device& dev = netcl::device_of(from);
  const bool pixels = channels_last(to) && (channels_last(from) || !from.is_contiguous());
  const auto block = block_of(c, dev, pixels ? to.size(1) : 1);
  if (!block) return false;
  const auto format = !pixels           ? at::MemoryFormat::Contiguous
                      : from.dim() == 4 ? at::MemoryFormat::ChannelsLast
                                        : at::MemoryFormat::ChannelsLast3d;
  const Tensor x = from.contiguous(format);
  const Tensor y = to.is_contiguous(format) ? to : at::empty_like(to, at::MemoryFormat::Contiguous);
  const auto type = from.scalar_type();
  const int64_t vec = pixels ? vector_of(block->channels, type) : c.shape.out[2] >= 32 && type != at::kDouble ? 16 : 8;
  Defs d = defs(c, from.dim() - 2);
  d.set("VEC", vec);
  if (!pixels) d.set("HALF", vec / 2);
  if (c.interpolates() || c.backward) {
    d.set("IN", dtype_tag(type)).set("ACC", c.acc(type));
  } else {  // elements are copied as integers
    constexpr std::array<const char*, 9> kBits{"", "u8", "u16", "", "u32", "", "", "", "u64"};
    d.set("IN", kBits[from.element_size()]).set("ACC", kBits[from.element_size()]);
  }
  UpsampleParams shape = c.shape;
  shape.planes /= block->channels;
  const int64_t (&size)[3] = c.backward ? shape.in : shape.out;
  const Range items{size_t(ceil_div(size[2], block->columns)), size_t(ceil_div(size[1], block->rows)),
                    size_t(ceil_div(shape.planes, block->planes))};
  const char* name = pixels ? (c.backward ? "resample_pixels_backward" : "resample_pixels")
                            : (c.backward ? "resample_lines_backward" : "resample_lines");
  kernel(dev, pixels ? "upsample_pixels.cl" : "upsample_lines.cl", name, d)
      .launch(c.op, queue_of(x), items, {1, 1, 1}, buf(y), buf(x), shape, c.scales, *block);
  if (!y.is_same(to)) to.copy_(y);
  return true;
}

void run(const char* op, Mode mode, bool backward, const Tensor& from, const Tensor& to, const Extra& extra) {
  if (to.numel() == 0) return;
  Device& dev = netcl::device_of(from);
  check_dtype(dev, from.scalar_type(), op);
  const Call c = describe(op, mode, backward, backward ? to : from, backward ? from : to, extra);
  if (c.interpolates() && !backward && from.scalar_type() == at::kByte && from.dim() == 4) {
    const ImageGrids grids{extra.align_corners, extra.scales[0], extra.scales[1]};
    return resample_bytes(op, mode == Mode::kLinear ? 1 : 2, /*antialias=*/false, grids, from, to);
  }
  const bool byte = from.scalar_type() == at::kByte && !backward && !c.interpolates();
  TORCH_CHECK(byte || from.is_floating_point(), op, ": expected a floating-point tensor",
              c.interpolates() ? "" : " or one of uint8", ", got ", from.scalar_type());
  if (!dev.is_cpu() || !run_blocks(c, from, to)) run_elements(c, from, to);
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

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
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
