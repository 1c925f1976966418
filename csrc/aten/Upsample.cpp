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

#include <bit>
#include <optional>

#include "args/upsample.h"
#include "aten/UpsampleBytes.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Plan.h"
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
  const Tensor &from, &to;
  const Extra& extra;
  UpsampleParams shape;
  UpsampleScales scales;
  std::array<double, 3> steps;
  bool interpolates() const { return mode == Mode::kLinear || mode == Mode::kCubic; }
  int64_t taps() const { return mode == Mode::kCubic ? 4 : mode == Mode::kLinear ? 2 : 1; }
  // uint8 values are exact in float32, so copying them through float32 is exact too.
  const char* acc(c10::ScalarType t) const { return t == at::kByte ? "f32" : compute_tag(t); }
};

void describe(Call& c) {
  const Tensor &small = c.backward ? c.to : c.from, &large = c.backward ? c.from : c.to;
  c.shape = {0, {1, 1, 1}, {1, 1, 1}, c.extra.align_corners};
  c.scales = {{1, 1, 1}, {0, 0, 0}};
  c.steps = {1, 1, 1};
  const int64_t ndim = small.dim() - 2;
  c.shape.planes = small.size(0) * small.size(1);
  for (int64_t d = 0; d < ndim; d++) {
    const int64_t k = 3 - ndim + d, in = small.size(2 + d), out = large.size(2 + d);
    c.shape.in[k] = in;
    c.shape.out[k] = out;
    c.steps[k] = step(c.mode, c.extra, in, out, c.extra.scales[d], small.scalar_type() == at::kDouble);
    c.scales.high[k] = wide_high(c.steps[k]);
    c.scales.low[k] = wide_low(c.steps[k]);
  }
}

Defs defs(const Call& c, int64_t ndim) {
  constexpr std::array<const char*, 4> kModes{"NEAREST", "EXACT", "LINEAR", "CUBIC"};
  Defs d;
  d.set("OP", kModes[size_t(c.mode)]).set("NDIM", ndim);
  return d;
}

// --- UpsampleBytes.cpp: images of uint8
std::optional<ImageGrids> plan_bytes(const Call& c) {
  if (!c.interpolates() || c.backward || c.from.scalar_type() != at::kByte || c.from.dim() != 4) return {};
  return ImageGrids{c.extra.align_corners, c.extra.scales[0], c.extra.scales[1]};
}
void run_bytes(const Call& c, const ImageGrids& grids) {
  resample_bytes(c.op, c.mode == Mode::kLinear ? 1 : 2, /*antialias=*/false, grids, c.from, c.to);
}

// --- kernels/upsample.cl: any device and any sizes, contiguous tensors
std::optional<RowSplit> plan_elements(const Call& c) {
  return row_split(netcl::device_of(c.from), c.to.numel() / c.to.size(-1), c.to.size(-1));
}
void run_elements(const Call& c, const RowSplit& split) {
  Device& dev = netcl::device_of(c.from);
  Defs d = defs(c, c.from.dim() - 2);
  d.set("IN", dtype_tag(c.from.scalar_type())).set("ACC", c.acc(c.from.scalar_type()));
  const Tensor x = c.from.contiguous();
  const DenseOut y(c.to);
  const int64_t width = c.to.size(-1);
  kernel(dev, "upsample.cl", c.backward ? "resample_backward" : "resample", d)
      .launch(c.op, queue_of(x), row_elements(dev, c.to.numel() / width, split.rows_per, width), element_group(dev),
              buf(y.get()), buf(x), c.shape, c.scales, split.rows_per);
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

at::MemoryFormat last_format(const Tensor& t) {
  return t.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
}
bool channels_last(const Tensor& t) { return t.dim() > 3 && !t.is_contiguous() && t.is_contiguous(last_format(t)); }

// The vectors of `n` elements side by side, no wider than that.
int64_t vector_of(int64_t n, c10::ScalarType type) {
  return std::min<int64_t>(std::bit_floor(uint64_t(n)), type == at::kDouble ? 8 : 16);
}

bool along_channels(const Call& c) { return channels_last(c.to) && (channels_last(c.from) || !c.from.is_contiguous()); }
std::optional<UpsampleBlock> plan_pixels(const Call& c) {
  return along_channels(c) ? block_of(c, netcl::device_of(c.from), c.to.size(1)) : std::nullopt;
}
std::optional<UpsampleBlock> plan_lines(const Call& c) {
  return along_channels(c) ? std::nullopt : block_of(c, netcl::device_of(c.from), 1);
}

void run_blocks(const Call& c, const UpsampleBlock& block) {
  Device& dev = netcl::device_of(c.from);
  const bool pixels = along_channels(c);
  const auto format = pixels ? last_format(c.from) : at::MemoryFormat::Contiguous;
  const Tensor x = c.from.contiguous(format);
  const DenseOut y(c.to, format);
  const auto type = c.from.scalar_type();
  const int64_t vec = pixels ? vector_of(block.channels, type) : c.shape.out[2] >= 32 && type != at::kDouble ? 16 : 8;
  Defs d = defs(c, c.from.dim() - 2);
  d.set("VEC", vec);
  if (c.interpolates() || c.backward) {
    d.set("IN", dtype_tag(type)).set("ACC", c.acc(type));
  } else {  // elements are copied as integers
    constexpr std::array<const char*, 9> kBits{"", "u8", "u16", "", "u32", "", "", "", "u64"};
    d.set("IN", kBits[c.from.element_size()]).set("ACC", kBits[c.from.element_size()]);
  }
  UpsampleParams shape = c.shape;
  shape.planes /= block.channels;
  const int64_t (&size)[3] = c.backward ? shape.in : shape.out;
  const Range items{size_t(ceil_div(size[2], block.columns)), size_t(ceil_div(size[1], block.rows)),
                    size_t(ceil_div(shape.planes, block.planes))};
  const char* name = pixels ? (c.backward ? "resample_pixels_backward" : "resample_pixels")
                            : (c.backward ? "resample_lines_backward" : "resample_lines");
  kernel(dev, pixels ? "upsample_pixels.cl" : "upsample_lines.cl", name, d)
      .launch(c.op, queue_of(x), items, {1, 1, 1}, buf(y.get()), buf(x), shape, c.scales, block);
  y.finish();
}

constexpr Way<Call> kWays[] = {
    {"bytes", take<&plan_bytes, &run_bytes>},
    {"pixels", take<&plan_pixels, &run_blocks>, Serves::kCpu},
    {"lines", take<&plan_lines, &run_blocks>, Serves::kCpu},
    {"elements", take<&plan_elements, &run_elements>},
};

void run(const char* op, Mode mode, bool backward, const Tensor& from, const Tensor& to, const Extra& extra) {
  if (to.numel() == 0) return;
  const Device& dev = netcl::device_of(from);
  check_dtype(dev, from.scalar_type(), op);
  Call c{op, mode, backward, from, to, extra};
  const bool byte = from.scalar_type() == at::kByte && !backward && (!c.interpolates() || from.dim() == 4);
  TORCH_CHECK(byte || from.is_floating_point(), op, ": expected a floating-point tensor",
              c.interpolates() ? "" : " or one of uint8", ", got ", from.scalar_type());
  describe(c);
  run_first(kWays, dev, c);
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
