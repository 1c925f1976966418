// Few output channels per group (depthwise, or the last layer of an image model): a tile of channels would be mostly
// empty, so vectors lie along a row of pixels (kernels/conv/conv_direct.cl).
#include "aten/conv/ConvPass.h"
#include "aten/conv/ConvWays.h"

namespace netcl {
namespace {

constexpr int64_t kMostChannels = 4;
constexpr int64_t kReadAhead = 2;  // vectors that the last vector of a row may read beyond the source
constexpr int64_t kTapsPerItem = 9;

// A CPU's work-items take rows of planes; a GPU's take a vector of some rows, as in conv_direct.cl.
Range direct_items(const ConvContext& c, const ConvDirectParams& d) {
  if (c.device.is_cpu())
    return {size_t(ceil_div(d.rows, d.rows_per_item)), size_t(ceil_div(d.planes, d.planes_per_item))};
  const int64_t rows_at_once = d.c_out == 1 ? 4 : d.c_out == 2 ? 2 : 1;
  return {size_t(ceil_div(d.width, c.vec) * ceil_div(d.rows, rows_at_once) * d.planes)};
}

void direct_pass(const ConvContext& c, const ConvPass& p) {
  const int64_t row = p.padded[2], slice = p.padded[1] * row, out_slice = p.dst[1] * p.dst[2];
  ConvDirectParams d{};
  d.rows = p.grid[0] * p.grid[1];
  d.width = p.grid[2];
  d.height = p.grid[1];
  d.planes = p.images * p.groups;
  d.taps = p.k();
  d.images = p.images;
  d.groups = p.groups;
  d.c_out = p.c_out;
  d.rows_per_item = std::clamp<int64_t>(65536 / (d.width * std::max<int64_t>(d.taps, 1)), 1, d.rows);
  d.planes_per_item = units_per_item(c.device, d.planes, d.rows_per_item * d.width * d.taps, kPlaneWork);
  d.x_image = p.source_image();
  d.x_group = p.source_group();
  d.x_z = p.src_step[0] * slice;
  d.x_y = p.src_step[1] * row;
  d.x_x = p.src_step[2];
  d.out_image = p.out_image();
  d.out_group = p.out_group();
  d.out_channel = volume(p.dst);
  d.out_z = p.dst_step[0] * out_slice;
  d.out_y = p.dst_step[1] * p.dst[2];
  d.out_x = p.dst_step[2];
  d.w_group = p.w_group;
  d.w_out = p.w_out;
  const at::Tensor w = p.weight.to(c.acc);
  OffsetTable x_taps = offset_table(c, p.source_taps(), d.taps), w_taps = offset_table(c, p.weight_taps(), d.taps);
  if (x_taps.is_wide() || w_taps.is_wide()) {
    x_taps = x_taps.widened();
    w_taps = w_taps.widened();
  }
  Defs defs = c.defs();
  defs.set("NCO", p.c_out).set("OUT", dtype_tag(p.out.scalar_type())).set("IDX", x_taps.type());
  kernel(c.device, "conv/conv_direct.cl", "conv_direct", defs)
      .launch(c.op, c.queue, direct_items(c, d), element_group(c.device), at_element(p.source, p.source_first()),
              buf(x_taps.data), at_element(w, p.weight_first()), buf(w_taps.data), buf_or_null(p.bias), p.result(), d);
}

// The gradient of a depthwise convolution's weight.
void direct_weight_pass(const ConvContext& c, const ConvWeightPass& p) {
  const ConvGeometry& g = p.g;
  const int64_t row = p.padded[2], out_row = g.out[2], pixels = volume(g.out);
  // A work-item keeps one sum per tap in registers.
  const int64_t items = ceil_div(g.taps(), kTapsPerItem), taps_per_item = ceil_div(g.taps(), items);
  ConvDirectParams d{};
  d.rows = g.out[0] * g.out[1];
  d.width = out_row;
  d.height = g.out[1];
  d.planes = g.groups * g.c_out;
  d.taps = g.taps();
  d.images = p.images;
  d.groups = g.groups;
  d.c_out = g.c_out;
  d.planes_per_item = units_per_item(c.device, d.planes, p.images * pixels * taps_per_item, kPlaneWork);
  d.x_image = p.source_image();
  d.x_group = p.source_group();
  d.x_z = g.stride[0] * p.padded[1] * row;
  d.x_y = g.stride[1] * row;
  d.x_x = g.stride[2];
  d.out_image = p.result_image();
  d.out_channel = pixels;
  d.out_z = g.out[1] * out_row;
  d.out_y = out_row;
  const OffsetTable taps = offset_table(c, p.source_taps(), d.taps);
  Defs defs;
  // The elements of a row shorter than a vector would be read one by one.
  const int64_t vec = std::min(out_row < c.vec ? 4 : c.vec, tuning(c.device).lanes);
  defs.set("ACC", dtype_tag(c.acc)).set("VEC", vec).set("TAPS", taps_per_item);
  defs.set("IN", dtype_tag(p.grad.scalar_type())).set("OUT", dtype_tag(p.out.scalar_type())).set("IDX", taps.type());
  // On a GPU, a work-group divides the pixels of a plane.
  const size_t planes = size_t(ceil_div(d.planes, d.planes_per_item));
  const Range local = element_group(c.device);
  const bool groups = local.x > 1;
  const Range range = groups ? Range{size_t(items) * planes * local.x} : Range{size_t(items), planes};
  if (groups) defs.set("GROUP", int64_t(local.x));
  kernel(c.device, "conv/conv_direct_weight.cl", "conv_direct_weight", defs)
      .launch(c.op, c.queue, range, local, buf(p.source), buf(taps.data),
              at_element(p.grad, p.first_image * p.result_image()), buf(p.out), d);
}

}  // namespace

bool has_few_results(const ConvCall& call) {
  if (call.direction != ConvDirection::kWeightGradient) return call.result_channels() <= kMostChannels;
  return call.g.c_in == 1 && call.g.c_out <= kMostChannels && call.g.groups > 1;
}

std::optional<ConvContext> plan_direct(const ConvCall& call) {
  if (!has_few_results(call)) return {};
  return ConvContext(call);
}

void run_direct(const ConvCall& call, const ConvContext& c) {
  if (call.direction == ConvDirection::kWeightGradient)
    run_weight_passes(c, call, 0, 0, &direct_weight_pass);
  else
    run_passes(c, call, kReadAhead, &direct_pass);
}

}  // namespace netcl
