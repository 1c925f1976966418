// Convolutions of channels_last images on a CPU for which a matrix product would be narrow: depthwise ones and those
// with small groups (kernels/conv/conv_channels.cl), those with few outputs (conv_channels_few.cl), and those with few
// channels per group on both sides (conv_channels_flat.cl). Vectors lie along the channels, which are adjacent.
#include <ATen/Functions.h>

#include <bit>

#include "aten/conv/ConvPass.h"
#include "aten/conv/ConvWays.h"

namespace netcl {
namespace {

constexpr int64_t kPixels = 4;          // pixels at once, which share the weights and the loads of a row
constexpr int64_t kMostTapsOfRow = 16;  // taps, which are unrolled
constexpr int64_t kMostTable = 4096;    // weights of a work-item of conv_channels
constexpr int64_t kChannelBlock = 32, kManyPixels = 2048;
constexpr int64_t kMostReach = 128;     // largest distance from the first tap of a row to the last
constexpr int64_t kItemWork = 1 << 18;  // multiply-adds that pay for a work-item
constexpr int64_t kFewestPixels = 128;
constexpr int64_t kFlatWork = 4;  // the cost of a multiply-add of conv_flat
constexpr int64_t kMostFlatInputs = 8, kMostFlatOutputs = 4, kMostFlatTable = 4096, kMostRing = 8192;
constexpr int64_t kPixelsPerSum = 1 << 14;  // in a gradient of the weight: short sums lose less

// The widest vector that the channels fill.
int64_t vector_of(const ConvContext& c, int64_t channels) {
  const auto most = std::bit_floor(static_cast<uint64_t>(channels));
  return std::min(register_tile(c.device, c.acc).vec, static_cast<int64_t>(most));
}

Defs channel_defs(const ConvContext& c, c10::ScalarType dtype, int64_t vec, int64_t pixels) {
  Defs d;
  d.set("ACC", dtype_tag(c.acc)).set("IO", dtype_tag(dtype)).set("VEC", vec).set("MR", pixels);
  return d;
}

// `across`: the work-items that share a row of the grid.
int64_t fair_rows(const ConvContext& c, int64_t rows, int64_t across = 1) {
  return std::min(even_part(c.device, rows * across), rows);
}
// `work`: multiply-adds per row and work-item.
int64_t rows_per_item(const ConvContext& c, int64_t rows, int64_t work, int64_t across = 1) {
  return std::clamp<int64_t>(kItemWork / std::max<int64_t>(work, 1), 1, fair_rows(c, rows, across));
}

// Sets everything except the channels.
ConvChannelsParams params(const ConvContext& c, const ConvPass& p) {
  ConvChannelsParams a{};
  a.groups = p.groups;
  a.point = p.source_point();
  a.rows = p.images * p.grid[0] * p.grid[1];
  a.rows_per_item = rows_per_item(c, a.rows, p.grid[2] * p.groups * p.c_out * p.k());
  put(p.grid, a.depth, a.height, a.width);
  put(p.padded, a.in_d, a.in_h, a.in_w);
  put(p.src_step, a.step_z, a.step_y, a.step_x);
  put(p.tap_first, a.first_z, a.first_y, a.first_x);
  a.taps_z = p.k() ? p.taps[0] : 0;
  a.taps_y = p.k() ? p.taps[1] : 0;
  a.taps_x = p.taps[2];
  put(p.tap_step, a.apart_z, a.apart_y, a.apart_x);
  a.out_image = p.out_image();
  a.out_z = p.dst_step[0] * p.dst[1] * p.dst[2] * p.out_point();
  a.out_y = p.dst_step[1] * p.dst[2] * p.out_point();
  a.out_x = p.dst_step[2] * p.out_point();
  const int64_t row = p.ker[2] * p.w_point;
  a.w_group = p.w_group;
  a.w_out = p.w_out;
  a.w_in = p.w_in;
  a.w_z = p.ker_step[0] * p.ker[1] * row;
  a.w_y = p.ker_step[1] * row;
  a.w_x = p.ker_step[2] * p.w_point;
  return a;
}

// The weights of a pass as [group][output channel][taps, in three dimensions][channel].
at::Tensor weights(const ConvPass& p) {
  const int64_t row = p.ker[2] * p.w_point;
  return p.weight.as_strided(
      {p.groups, p.c_out, p.taps[0], p.taps[1], p.taps[2], p.c_in},
      {p.w_group, p.w_out, p.ker_step[0] * p.ker[1] * row, p.ker_step[1] * row, p.ker_step[2] * p.w_point, p.w_in},
      p.weight.storage_offset() + p.weight_first());
}
at::Tensor packed(const ConvContext& c, const at::Tensor& w) {
  if (w.is_contiguous() && w.scalar_type() == c.acc) return w;
  const at::Tensor to = c.scratch(w.numel());
  if (w.numel() > 0) to.view(w.sizes()).copy_(w);
  return to;
}

size_t items(const ConvChannelsParams& a) { return static_cast<size_t>(ceil_div(a.rows, a.rows_per_item)); }

// The channels of a work-item of conv_channels.cl; those of the last one fill a vector too.
// With many pixels there are enough work-items without a division of the channels, and it would use parts of lines.
int64_t channel_block(int64_t channels, int64_t pixels, int64_t taps, int64_t vec) {
  const int64_t most = pixels < kManyPixels ? kChannelBlock : 4 * kChannelBlock;
  const int64_t parts = ceil_div(channels, std::clamp(kMostTable / taps / vec * vec, vec, most));
  int64_t block = round_up(ceil_div(channels, parts), vec);
  while (block < channels && channels % block != 0 && channels % block < vec) block += vec;
  return std::min(block, round_up(channels, vec));
}

// Options of conv_channels.cl, along a row of the source and for the channels of a group. Sets the channels.
Defs group_defs(const ConvContext& c, c10::ScalarType dtype, ConvChannelsParams& a, int64_t c_in, int64_t c_out,
                int64_t pixels) {
  const int64_t vec = register_tile(c.device, c.acc).vec, taps = std::max<int64_t>(a.taps_x, 1);
  const int64_t weights = std::max<int64_t>(a.taps_z * a.taps_y, 1) * taps * c_in;
  a.channels = a.groups * c_out;
  a.block = channel_block(a.channels, a.rows * a.width, weights, vec);
  Defs d = channel_defs(c, dtype, vec, pixels);
  d.set("KW", taps).set("STEP", a.step_x).set("APART", a.apart_x).set("CI", c_in).set("NCO", c_out);
  d.set("SOURCE_VEC", c_out < vec ? std::min(vec, vec / c_out * c_in) : 1);
  d.set("BLOCK", a.block).set("SPACE", weights * a.block);
  return d;
}

size_t blocks(const ConvChannelsParams& a) { return static_cast<size_t>(ceil_div(a.channels, a.block)); }

void groups_pass(const ConvContext& c, const ConvPass& p) {
  ConvChannelsParams a = params(c, p);
  if (p.tap_step[2] < 0) a.first_x += (p.taps[2] - 1) * p.tap_step[2];
  const bool wide = p.c_out >= register_tile(c.device, c.acc).vec;
  const Defs defs = group_defs(c, p.out.scalar_type(), a, p.c_in, p.c_out, wide ? 2 * kPixels : kPixels);
  const auto across = static_cast<int64_t>(blocks(a));
  a.rows_per_item = rows_per_item(c, a.rows, p.grid[2] * a.block * p.k(), across);
  kernel(c.device, "conv/conv_channels.cl", "conv_channels", defs)
      .launch(c.op, c.queue, {items(a), blocks(a)}, {1, 1}, buf(p.source), at_element(p.weight, p.weight_first()),
              buf_or_null(p.bias), p.result(), a);
}

void few_outputs_pass(const ConvContext& c, const ConvPass& p) {
  ConvChannelsParams a = params(c, p);
  a.channels = p.c_in;
  const at::Tensor w = packed(c, weights(p));
  const int64_t vec = vector_of(c, a.channels);
  // This number of sums leaves registers for the factors.
  const int64_t sums = register_tile(c.device, c10::kFloat).vec == 16 ? 16 : 9;
  const auto pixels = std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(sums / p.c_out, 1)));
  Defs defs = channel_defs(c, p.out.scalar_type(), vec, std::min<int64_t>(static_cast<int64_t>(pixels), 8));
  defs.set("NCO", p.c_out);
  kernel(c.device, "conv/conv_channels_few.cl", "conv_channels_few", defs)
      .launch(c.op, c.queue, {items(a)}, {1}, buf(p.source), buf(w), buf_or_null(p.bias), p.result(), a);
}

// For a gradient of the weight; sets everything except the work per item.
ConvChannelsParams weight_params(const ConvGeometry& g) {
  ConvChannelsParams a{};
  a.channels = a.point = g.groups * g.c_in;
  a.groups = g.groups;
  a.rows = g.images * g.out[0] * g.out[1];
  put(g.out, a.depth, a.height, a.width);
  put(g.in, a.in_d, a.in_h, a.in_w);
  put(g.stride, a.step_z, a.step_y, a.step_x);
  a.first_z = -g.padding[0];
  a.first_y = -g.padding[1];
  a.first_x = -g.padding[2];
  put(g.kernel, a.taps_z, a.taps_y, a.taps_x);
  put(g.dilation, a.apart_z, a.apart_y, a.apart_x);
  a.out_x = g.groups * g.c_out;
  a.out_y = a.out_x * g.out[2];
  a.out_z = a.out_y * g.out[1];
  a.out_image = a.out_z * g.out[0];
  return a;
}

// A work-item keeps `sums` sums, so it takes enough rows that adding them up costs little. If there is little work, one
// takes all rows, and no second launch has to add up. `work` and `across`: as above.
int64_t weight_rows_per_item(const ConvContext& c, const ConvChannelsParams& a, int64_t sums, int64_t work,
                             int64_t across) {
  const int64_t most_items = std::max<int64_t>(1, kConvScratchBytes / (8 * sums));
  const int64_t most_rows = std::max<int64_t>(kPixelsPerSum / a.width, 1);
  if (a.rows <= most_rows && a.rows * work <= 2 * kItemWork) return a.rows;
  const int64_t rows = std::max(fair_rows(c, a.rows, across), ceil_div<int64_t>(kFewestPixels, a.width));
  return std::max(std::min(rows, most_rows), ceil_div(a.rows, most_items));
}

void run_groups_weight(const ConvContext& c, const ConvCall& call) {
  const ConvGeometry& g = call.g;
  const auto dtype = call.w.scalar_type();
  const int64_t taps = g.taps(), numel = call.w.numel();
  ConvChannelsParams a = weight_params(g);
  Defs defs = group_defs(c, dtype, a, g.c_in, g.c_out, g.c_in == 1 ? 4 : 2);
  a.rows_per_item = weight_rows_per_item(c, a, numel, a.width * a.block * taps, static_cast<int64_t>(blocks(a)));
  const auto parts = static_cast<int64_t>(items(a));
  const at::Tensor sums = parts > 1 ? c.scratch(parts * numel) : at::Tensor();
  kernel(c.device, "conv/conv_channels.cl", "conv_channels_weight", defs)
      .launch(c.op, c.queue, {items(a), blocks(a)}, {1, 1}, buf(call.x), buf(call.y), buf_or_null(sums), buf(call.w),
              a);
  if (parts == 1) return;
  const int64_t vec = register_tile(c.device, c.acc).vec;
  const int64_t per_item = round_up(ceil_div<int64_t>(8192, taps * parts), vec);
  Defs sum_defs;
  sum_defs.set("ACC", dtype_tag(c.acc)).set("VEC", vec).set("OUT", dtype_tag(dtype));
  kernel(c.device, "conv/conv_sum.cl", "conv_sum_taps", sum_defs)
      .launch(c.op, c.queue, {size_t(ceil_div(a.channels, per_item))}, {1}, buf(sums), buf(call.w),
              ConvSumParams{a.channels, taps, parts, per_item, 1, 1});
}

int64_t power_of_two(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); }

// The options of conv_channels_flat.cl, for `c_in` and `c_out` channels per group; sets how a.source is copied.
Defs flat_defs(const ConvContext& c, c10::ScalarType dtype, ConvChannelsParams& a, int64_t c_in, int64_t c_out) {
  const int64_t widest = register_tile(c.device, c.acc).vec;
  int64_t vec = widest, pixels = 1;
  if (a.point < widest && a.step_x == 1) pixels = widest / a.point;
  if (a.point < widest && a.step_x != 1) vec = std::max<int64_t>(power_of_two(a.point), 4);
  // This number of sums leaves registers for the factors.
  const int64_t most = std::max<int64_t>((widest == 16 ? 16 : 8) / c_out, 1), vectors = ceil_div(a.width, pixels);
  const int64_t together = ceil_div(vectors, ceil_div(vectors, std::min(most, kPixels)));
  // A row's copy reaches from its first tap to the last vector's end.
  const int64_t span = (std::max<int64_t>(a.taps_x, 1) - 1) * a.apart_x, block = together * pixels;
  a.front = std::max<int64_t>(-(a.first_x + std::min<int64_t>(span, 0)), 0) * a.point;
  const int64_t last = (round_up(a.width, block) - 1) * a.step_x + a.first_x + std::max<int64_t>(span, 0);
  a.pitch = a.front + (std::max<int64_t>(last, 0) + 1) * a.point + vec;
  a.slots = (std::max<int64_t>(a.taps_y, 1) - 1) * std::abs(a.apart_y) + 1;
  const int64_t planes = std::max<int64_t>(a.taps_z, 1), ring = power_of_two(planes * a.slots * a.pitch);
  const bool copied = a.point < widest && planes * a.slots <= CONV_MOST_TAP_ROWS && ring <= kMostRing;
  Defs d = channel_defs(c, dtype, vec, together);
  d.set("KW", std::max<int64_t>(a.taps_x, 1))
      .set("STEP", a.step_x)
      .set("APART", a.apart_x)
      .set("CI", c_in)
      .set("NCO", c_out)
      .set("GROUPS", std::min(a.groups, vec / c_in))
      .set("PIXELS", pixels);
  d.set("SPACE", power_of_two(std::max<int64_t>(planes * a.taps_y * a.taps_x, 1) * c_out * vec));
  d.set("RING", copied ? ring : 0);
  return d;
}

void flat_pass(const ConvContext& c, const ConvPass& p) {
  ConvChannelsParams a = params(c, p);
  a.rows_per_item = rows_per_item(c, a.rows, kFlatWork * p.grid[2] * p.groups * p.c_out * p.k());
  const Defs defs = flat_defs(c, p.out.scalar_type(), a, p.c_in, p.c_out);
  kernel(c.device, "conv/conv_channels_flat.cl", "conv_flat", defs)
      .launch(c.op, c.queue, {items(a)}, {1}, buf(p.source), at_element(p.weight, p.weight_first()),
              buf_or_null(p.bias), p.result(), a);
}

void run_flat_weight(const ConvContext& c, const ConvCall& call) {
  const ConvGeometry& g = call.g;
  const auto dtype = call.w.scalar_type();
  ConvChannelsParams a = weight_params(g);
  const int64_t numel = call.w.numel(), per_item = 4096;
  a.rows_per_item = weight_rows_per_item(c, a, numel, kFlatWork * a.width * g.groups * g.c_out * g.taps(), 1);
  const auto parts = static_cast<int64_t>(items(a));
  const at::Tensor sums = parts > 1 ? c.scratch(parts * numel) : at::Tensor();
  const Defs defs = flat_defs(c, dtype, a, g.c_in, g.c_out);
  kernel(c.device, "conv/conv_channels_flat.cl", "conv_flat_weight", defs)
      .launch(c.op, c.queue, {items(a)}, {1}, buf(call.x), buf(call.y), buf_or_null(sums), buf(call.w), a);
  if (parts == 1) return;
  kernel(c.device, "conv/conv_sum.cl", "conv_sum", c.defs().set("OUT", dtype_tag(dtype)))
      .launch(c.op, c.queue, {size_t(ceil_div(numel, per_item))}, {1}, buf(sums), buf(sums), buf(call.w),
              ConvSumParams{numel, 0, parts, per_item, 1, 1});
}

bool is_power_of_two(int64_t n) { return std::has_single_bit(static_cast<uint64_t>(n)); }

bool has_short_rows(const ConvGeometry& g) {
  return g.kernel[2] <= kMostTapsOfRow && (g.kernel[2] - 1) * g.dilation[2] <= kMostReach;
}

int64_t widest_vector(const ConvCall& call) {
  return register_tile(netcl::device_of(call.x), compute_type(call.x.scalar_type())).vec;
}

bool along_channels(const ConvCall& call) {
  if (!call.channels_last || call.source().numel() == 0) return false;
  return call.g.kernel[0] * call.g.kernel[1] <= CONV_MOST_TAP_ROWS;
}

}  // namespace

// Vectors along the result's channels. They hold some whole groups, or lie in one.
std::optional<ConvContext> plan_channels(const ConvCall& call) {
  const ConvGeometry& g = call.g;
  if (!along_channels(call) || !has_short_rows(g)) return {};
  const int64_t summed = call.summed_channels(), widest = widest_vector(call), results = call.result_channels();
  if (g.groups * results < widest || volume(g.kernel) * summed * widest > kMostTable) return {};
  if (results < widest) {
    if (!is_power_of_two(results) || !is_power_of_two(summed) || summed > std::min<int64_t>(4 * results, 8)) return {};
  } else {
    if (results % widest != 0 && g.groups > 1) return {};
    // Measured with AVX-512: for 16 of 16 channels, a matrix product takes 580 us and this 900.
    const bool dense = widest == 16 && g.groups == 1 && call.direction != ConvDirection::kWeightGradient;
    if (summed != 1 && (results != widest || summed > 32 || dense)) return {};
  }
  return ConvContext(call);
}
void run_channels(const ConvCall& call, const ConvContext& c) {
  if (call.direction == ConvDirection::kWeightGradient) return run_groups_weight(c, call);
  run_unpadded_passes(c, call, &groups_pass);
}

// A tile of a matrix product would be at most half full.
std::optional<ConvContext> plan_few_outputs(const ConvCall& call) {
  if (!along_channels(call) || call.direction == ConvDirection::kWeightGradient) return {};
  const int64_t summed = call.summed_channels();
  const int64_t most = call.g.groups == 1 && summed >= 16 ? std::max<int64_t>(widest_vector(call) / 2, 4) : 4;
  if (summed < 8 || call.result_channels() > most) return {};
  return ConvContext(call);
}
void run_few_outputs(const ConvCall& call, const ConvContext& c) { run_unpadded_passes(c, call, &few_outputs_pass); }

std::optional<ConvContext> plan_flat(const ConvCall& call) {
  if (!along_channels(call)) return {};
  const int64_t summed = call.summed_channels(), widest = widest_vector(call), results = call.result_channels();
  if (summed > std::min(kMostFlatInputs, widest) || results > kMostFlatOutputs) return {};
  if (volume(call.g.kernel) * results * widest > kMostFlatTable) return {};
  return ConvContext(call);
}
void run_flat(const ConvCall& call, const ConvContext& c) {
  if (call.direction == ConvDirection::kWeightGradient) return run_flat_weight(c, call);
  run_unpadded_passes(c, call, &flat_pass);
}

}  // namespace netcl
