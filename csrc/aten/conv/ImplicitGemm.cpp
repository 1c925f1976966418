// Convolution as a matrix product. One operand is gathered from the padded input, the other is packed beforehand
// (kernels/conv/conv_gemm.cl, on GPUs conv_gemm_gpu.cl or conv_units.cl), so no im2col matrix is written.
//
// A forward pass is  out[p][co] = sum over r of x[pixel(p) + tap(r)] * w[r][co]  over taps r = (channel, kernel
// position). For the gradient of the weight, pixels and taps change places.
#include "aten/conv/ConvPass.h"
#include "aten/conv/ConvWays.h"

namespace netcl {
namespace {

constexpr int64_t kWeightSliceDepth = 2048;  // depth of a slice, whose panel stays in a core's second-level cache
constexpr int64_t kShortSliceDepth = 256;    // the least on a GPU
constexpr int64_t kPanelBytes = 320 << 10;  // of the panels that multiply one tile before the next, for the same reason
constexpr int64_t kDepthPerItem = 128;      // depth of a panel that a work-item packs
constexpr int64_t kUnitVector = 8;          // conv_units: elements that a work-item moves to local memory at once

// Element (r, j) of group g is src[first + g * src_group + cols(j) + taps(r)].
struct PackedOperand {
  const at::Tensor& src;
  int64_t first;
  const OffsetTable& taps;
  MixedRadix cols;
  int64_t k, n, groups, src_group;
};

// A packed operand; for matrix units with the strides of columns and groups.
struct Packed {
  at::Tensor data;
  int64_t col = 0, group = 0;
};

void launch_panels(const ConvContext& c, const PackedOperand& o, const at::Tensor& out, int64_t width, int64_t kc,
                   Defs defs) {
  const ConvPackParams p{
      .k = o.k, .n = o.n, .panels = ceil_div(o.n, width), .src_group = o.src_group, .lines = c.unit.has_value()};
  defs.set("IDX", o.taps.type()).set("KC", kc).set("WIDTH", width);
  kernel(c.device, "conv/conv_panels.cl", "conv_panels", defs)
      .launch(c.op, c.queue, {size_t(o.groups * p.panels * width * round_up(o.k, kc))}, element_group(c.device),
              at_element(o.src, o.first), buf(o.taps.data), buf(out), o.cols, p, o.groups);
}

// For matrix units: columns of adjacent taps. A weight whose columns are aligned is such an operand.
Packed pack_lines(const ConvContext& c, const PackedOperand& o) {
  const int64_t depth = round_up(o.k, c.unit->groups.kc), column = o.cols.stride[3];
  const bool linear = o.cols.size[3] == o.n && o.taps.contiguous >= o.k && o.k % kUnitVector == 0;
  if (linear && o.first == 0 && column % kUnitVector == 0 && o.src_group % kUnitVector == 0 &&
      reinterpret_cast<uintptr_t>(o.src.const_data_ptr()) % 16 == 0)
    return {o.src, column, o.src_group};
  const Packed r{c.scratch(std::max<int64_t>(o.groups * o.n * depth, 1), o.src.scalar_type()), depth, o.n * depth};
  if (o.k == 0) return r;
  Defs defs;
  defs.set("ACC", "u16").set("IN", "u16");
  launch_panels(c, o, r.data, kUnitVector, c.unit->groups.kc, defs);
  return r;
}

// Packs o into panels of columns: [group][panel][k][columns].
Packed pack(const ConvContext& c, const PackedOperand& o) {
  if (c.unit) return pack_lines(c, o);
  const int64_t nr = c.nr(o.n);
  ConvPackParams p{};
  p.k = o.k;
  p.n = o.n;
  p.panels = ceil_div(o.n, nr);
  p.k_per_item = kDepthPerItem;
  p.src_group = o.src_group;
  p.src_end = o.src.numel() - o.first;
  p.contiguous = o.taps.contiguous;
  const at::Tensor out = c.panels(o.groups * p.panels * c.panel(nr, o.k));
  if (o.k == 0) return {out};
  if (c.group) {
    Defs defs;
    defs.set("ACC", dtype_tag(c.acc)).set("IN", dtype_tag(o.src.scalar_type()));
    launch_panels(c, o, out, nr, c.group->kc, defs);
    return {out};
  }
  Defs defs = c.tile_defs(o.n, o.taps.type());
  defs.set("IN", dtype_tag(o.src.scalar_type()));
  kernel(c.device, "conv/conv_pack.cl", "conv_pack", defs)
      .launch(c.op, c.queue, {size_t(ceil_div(o.k, p.k_per_item)), size_t(p.panels), size_t(o.groups)}, {1, 1, 1},
              at_element(o.src, o.first), buf(o.taps.data), buf(out), o.cols, p);
  return {out};
}

// out (m x n) = gathered (m x k) * packed (k x n) + bias, as drawn in kernels/conv/conv.h.
struct GatheredProduct {
  Buf x;
  const OffsetTable& taps;
  Packed packed;
  at::Tensor bias;
  Buf out;
  c10::ScalarType out_dtype;
  MixedRadix tap_order;
  int64_t slices = 1;       // slices of k, each with its own result
  bool taps_apart = false;  // the rows are neighbours, not the taps
  bool patches = false;     // the columns are elements of a patch
  ConvGemmParams params{};  // m, n, k, groups, strides, rows and columns; multiply() sets the others
};

// Divides the tiles of all slices and groups among work-items: enough to keep the device busy.
void set_work(const ConvContext& c, ConvGemmParams& g, int64_t slices) {
  const int64_t nr = c.nr(g.n), tiles = ceil_div(g.m, c.mr), parts = slices * g.groups;
  const int64_t want = enough_items(c.device, 16);
  g.n_panels = ceil_div(g.n, nr);
  const int64_t bytes = g.k_slice * nr * static_cast<int64_t>(c10::elementSize(c.acc));
  // For two or three panels, the saved reads of the tile cost more in the cache.
  const int64_t room = kPanelBytes / std::max<int64_t>(bytes, 1);
  int64_t fit = tiles * g.n_panels * parts / want;
  // An engine packs its rows once for all panels; of rows in place it reads as many panels as fit into the cache.
  if (!c.engine) fit = room < 4 ? 1 : std::min(room, fit);
  if (g.line) fit = 4 * room;
  g.n_panels_per_item = ceil_div(g.n_panels, ceil_div(g.n_panels, std::clamp<int64_t>(fit, 1, g.n_panels)));
  const int64_t items = ceil_div(g.n_panels, g.n_panels_per_item) * parts;
  g.m_tiles = std::clamp<int64_t>(tiles * items / want, 1, tiles);
  if (c.engine) {  // each work-item has room for its rows
    const int64_t bytes = 2 * c.panel(c.mr, std::max<int64_t>(g.k_slice, 1));
    const int64_t most = std::max<int64_t>(kConvScratchBytes / bytes, 1);
    g.m_tiles = std::min(tiles, std::max(g.m_tiles, ceil_div(tiles * items, most)));
  }
}

// Whether whole vectors of `elements` taps are adjacent, and begin at multiples of their size.
bool vectors_along(const MixedRadix& taps, int64_t elements) {
  bool whole = taps.stride[3] == 1 && taps.size[3] % elements == 0;
  for (int d = 0; d < 3; d++) whole = whole && (taps.size[d] == 1 || taps.stride[d] % elements == 0);
  return whole;
}
bool multiples(const MixedRadix& rows, int64_t elements) {
  bool all = true;
  for (int d = 0; d < 4; d++) all = all && (rows.size[d] == 1 || rows.stride[d] % elements == 0);
  return all;
}

// Whether a work-item may read `elements` adjacent taps of the gathered operand at once.
bool gathers_vectors(const GatheredProduct& p, int64_t elements, c10::ScalarType type) {
  return vectors_along(p.tap_order, elements) && multiples(p.params.rows, elements) &&
         p.params.x_group % elements == 0 &&
         reinterpret_cast<uintptr_t>(p.x.address) % (static_cast<size_t>(elements) * c10::elementSize(type)) == 0;
}

// Elements of 16 bytes, at most as many as a work-item reads of `lines` lines of a block.
int64_t group_vector(const ConvContext& c, int64_t lines) {
  const GroupTile& t = *c.group;
  const auto bytes = static_cast<int64_t>(c10::elementSize(c.acc));
  return std::min<int64_t>(16 / bytes, lines * t.kc / (t.x * t.y));
}

// The options of conv_gemm_gpu.cl.
void tile_defs(const ConvContext& c, const GatheredProduct& p, const ConvGemmParams& g, Defs& defs) {
  const GroupTile& t = *c.group;
  // Neighbouring work-items read along the taps if more of these are adjacent, else along the rows.
  const bool along = p.taps.contiguous >= t.kc;
  int64_t vec = along ? group_vector(c, t.height()) : 1;
  if (!gathers_vectors(p, vec, c.acc) || g.k_slice % vec != 0) vec = 1;
  const int64_t most = 16 / static_cast<int64_t>(c10::elementSize(c.acc));
  defs.set("LVA", std::min(most, t.rows)).set("LVB", std::min(most, t.cols));
  defs.set("VA", vec).set("VB", group_vector(c, t.width())).set("ALONG_K", int64_t{along});
}
// Those of conv_units.cl.
void unit_defs(const ConvContext& c, const GatheredProduct& p, const ConvGemmParams& g, Defs& defs) {
  const UnitTile& t = *c.unit;
  int64_t vec = kUnitVector;
  while (vec > 1 && !gathers_vectors(p, vec, c.source_type)) vec /= 2;
  defs.set("INA", dtype_tag(c.source_type)).set("VA", vec);
  defs.set("VB", std::min(kUnitVector, t.width() * t.groups.kc / t.items()));
  defs.set("ALONG_K", int64_t{vec == kUnitVector || p.taps.contiguous >= t.groups.kc});
  defs.set("RUN", p.taps.contiguous % kUnitVector == 0 && g.k % kUnitVector == 0 ? kUnitVector : 1);
  t.define_in(defs);
}

// On GPUs, a work-group computes a tile.
void multiply_in_groups(const ConvContext& c, const GatheredProduct& p) {
  const GroupTile& t = c.unit ? c.unit->groups : *c.group;
  ConvGemmParams g = p.params;
  g.k_slice = p.slices > 1 ? round_up(ceil_div(g.k, p.slices), t.kc) : g.k;
  g.m_tiles = ceil_div(g.m, c.unit ? c.unit->height() : t.height());
  g.n_panels = ceil_div(g.n, c.nr(g.n));
  g.packed_col = p.packed.col;
  g.packed_group = p.packed.group;
  Defs defs = c.offset_defs(p.taps.type());
  defs.set("OUT", dtype_tag(p.out_dtype)).set("SIDE_X", t.x).set("SIDE_Y", t.y).set("ROWS", t.rows).set("COLS", t.cols);
  defs.set("KC", t.kc).set("DOWN", int64_t{g.out_cols.stride[3] != 1});
  (c.unit ? unit_defs : tile_defs)(c, p, g, defs);
  const int64_t groups = g.m_tiles * g.n_panels * p.slices * g.groups;
  TORCH_CHECK(groups <= UINT32_MAX, "netcl: ", c.op, ": too many tiles for one launch: ", groups);
  const auto items = static_cast<size_t>(c.unit ? c.unit->items() : t.x * t.y);
  auto& k = c.unit ? kernel(c.device, "conv/conv_units.cl", "conv_units", defs)
                   : kernel(c.device, "conv/conv_gemm_gpu.cl", "conv_tiled", defs);
  k.launch(c.op, c.queue, {static_cast<size_t>(groups) * items}, {items}, p.x, buf(p.taps.data), buf(p.packed.data),
           buf_or_null(p.bias), p.out, g);
}

// For taps that lie apart (conv_gemm_blocks).
void multiply_blocks(const ConvContext& c, const GatheredProduct& p) {
  ConvGemmParams g = p.params;
  g.k_slice = p.slices > 1 ? ceil_div(g.k, p.slices) : g.k;
  g.n_panels = ceil_div(g.n, c.nr(g.n));
  const int64_t tiles = ceil_div(g.m, c.mr), across = ceil_div<int64_t>(g.n_panels, kBlockPanels) * p.slices * g.groups;
  const int64_t want = enough_items(c.device, 16);
  g.m_tiles = round_up<int64_t>(std::clamp<int64_t>(tiles * across / want, 1, tiles), kBlockTiles);
  Defs defs = c.tile_defs(g.n, p.taps.type());
  defs.set("IN", dtype_tag(c.source_type)).set("OUT", dtype_tag(p.out_dtype));
  kernel(c.device, "conv/conv_gemm.cl", "conv_gemm_blocks", defs)
      .launch(c.op, c.queue,
              {size_t(ceil_div(tiles, g.m_tiles)), size_t(ceil_div<int64_t>(g.n_panels, kBlockPanels)),
               size_t(p.slices * g.groups)},
              {1, 1, 1}, p.x, buf(p.taps.data), buf(p.packed.data), p.out, g);
}

void multiply(const ConvContext& c, GatheredProduct p) {
  if (c.unit || c.group) return multiply_in_groups(c, p);
  if (!c.engine && p.taps_apart && p.params.n > c.nr(p.params.n)) return multiply_blocks(c, p);
  ConvGemmParams& g = p.params;
  g.contiguous = p.taps.contiguous;
  g.k_slice = p.slices > 1 ? ceil_div(g.k, p.slices) : g.k;
  if (c.engine && p.slices > 1) g.k_slice = round_up(g.k_slice, c.engine->kUnroll);
  set_work(c, g, p.slices);
  const Range global{size_t(ceil_div(ceil_div(g.m, c.mr), g.m_tiles)),
                     size_t(ceil_div(g.n_panels, g.n_panels_per_item)), size_t(p.slices * g.groups)};
  at::Tensor rows;
  if (c.engine && !g.line)
    rows = c.panels(c.panel(c.mr, g.k_slice) * static_cast<int64_t>(global.x * global.y * global.z));
  Defs defs = c.tile_defs(g.n, p.taps.type());
  defs.set("IN", c.source_tag()).set("OUT", dtype_tag(p.out_dtype));
  if (p.patches) defs.set("PATCHES", 1);
  kernel(c.device, "conv/conv_gemm.cl", "conv_gemm", defs)
      .launch(c.op, c.queue, global, {1, 1, 1}, p.x, buf(p.taps.data), buf(p.packed.data), buf_or_null(p.bias), p.out,
              buf_or_null(rows), g);
}

void gemm_pass(const ConvContext& c, const ConvPass& p) {
  const int64_t pixels = p.pixels(), k = p.k();
  const OffsetTable x_taps = offset_table(c, p.source_taps(), k), w_taps = offset_table(c, p.weight_taps(), k);
  const MixedRadix out_channels = linear_radix(p.c_out, p.out_channel()), w_rows = linear_radix(p.c_out, p.w_out);
  ConvGemmParams g{};
  g.k = k;
  g.groups = p.groups;
  g.out_group = p.out_group();
  g.bias_group = p.c_out;
  const auto run = [&](Buf x, const OffsetTable& taps, const MixedRadix& tap_order, const PackedOperand& other) {
    multiply(c, {.x = x,
                 .taps = taps,
                 .packed = pack(c, other),
                 .bias = p.bias,
                 .out = p.result(),
                 .out_dtype = p.out.scalar_type(),
                 .tap_order = tap_order,
                 .params = g});
  };
  // Either operand can be packed. Few pixels are cheaper to pack than many weights: measured for four times fewer
  // pixels, or eight times if the weight is read across its rows.
  if (c.numbers() == 1 && pixels * (p.w_out > p.w_in ? 4 : 8) <= p.c_out) {
    const at::Tensor w = p.weight.to(c.source_type);
    g.m = p.c_out;
    g.n = pixels;
    g.x_group = p.w_group;
    g.bias_row = 1;
    g.rows = w_rows;
    g.out_rows = out_channels;
    g.out_cols = p.result_pixels();
    run(at_element(w, p.weight_first()), w_taps, p.weight_taps(),
        {p.source, p.source_first(), x_taps, p.source_pixels(), k, pixels, p.groups, p.source_group()});
  } else {
    g.m = pixels;
    g.n = p.c_out;
    g.x_group = p.source_group();
    g.bias_col = 1;
    g.cols_linear = 1;
    g.rows = p.source_pixels();
    g.out_rows = p.result_pixels();
    g.out_cols = out_channels;
    const int64_t points = round_up((p.grid[1] - 1) * p.padded[2] + p.grid[2], c.mr);
    const bool fits = x_taps.contiguous % EngineTile::kUnroll == 0 && p.images * points <= 2 * pixels;
    if (c.numbers() > 1 || (c.in_place && fits)) {
      g.line = p.padded[2];
      g.m = p.images * points;
      g.rows = {{1, 1, p.images, points}, {0, 0, p.source_image(), p.source_point()}};
    }
    run(at_element(p.source, p.source_first()), x_taps, p.source_taps(),
        {p.weight, p.weight_first(), w_taps, w_rows, k, p.c_out, p.groups, p.w_group});
  }
}

// Here the sum is over pixels, which take the place of the taps; the weight's taps are the rows.
void gemm_weight_pass(const ConvContext& c, const ConvWeightPass& p) {
  const ConvGeometry& w = p.g;
  const int64_t pixels = volume(w.out), taps = w.taps(), k = p.images * pixels;
  const MixedRadix grad_pixels{{1, 1, p.images, pixels}, {0, 0, p.result_image(), p.result_point()}};
  const OffsetTable x_pixels = offset_table(c, p.source_pixels(), k), y_pixels = offset_table(c, grad_pixels, k);
  ConvGemmParams g{};
  g.m = taps;
  g.n = w.c_out;
  g.k = k;
  g.groups = w.groups;
  g.out_slice = w.groups * w.c_out * taps;
  g.x_group = p.source_group();
  g.out_group = w.c_out * taps;
  g.cols_linear = 1;
  g.rows = p.source_taps();
  g.out_rows = linear_radix(taps, 1);
  g.out_cols = linear_radix(w.c_out, taps);
  multiply(c, {.x = buf(p.source),
               .taps = x_pixels,
               .packed = pack(c, {p.grad, p.first_image * p.result_image(), y_pixels,
                                  linear_radix(w.c_out, p.result_channel()), k, w.c_out, w.groups, p.result_group()}),
               .out = buf(p.out),
               .out_dtype = p.out.scalar_type(),
               .tap_order = p.source_pixels(),
               .slices = p.slices,
               .taps_apart = p.source_last && w.c_in % c.vec == 0,
               .params = g});
}

// The gradient of the input of a convolution whose windows are adjacent patches, in one product: a row has a pixel of
// the gradient of the result, the columns are the elements of its patch.
void gemm_patches(const ConvContext& c, const ConvCall& call) {
  const ConvGeometry& w = call.g;
  const bool last = call.channels_last;
  const int64_t pixels = volume(w.out), patch = volume(w.kernel), elements = w.taps();
  const int64_t source_image = w.groups * w.c_out * pixels, point = last ? w.groups * w.c_in : 1;
  const int64_t plane = volume(w.in), line = w.in[2] * point, slice = w.in[1] * line;
  const MixedRadix weight_taps = linear_radix(w.c_out, elements);
  const MixedRadix source_taps = linear_radix(w.c_out, last ? 1 : pixels);
  ConvGemmParams g{};
  g.n = elements;
  g.k = w.c_out;
  g.groups = w.groups;
  g.x_group = last ? w.c_out : w.c_out * pixels;
  g.out_group = last ? w.c_in : w.c_in * plane;
  g.bias_col = 1;
  g.bias_group = elements;
  g.out_cols = last ? MixedRadix{{w.kernel[0], w.kernel[1], w.kernel[2], w.c_in}, {slice, line, point, 1}}
                    : MixedRadix{{w.c_in, w.kernel[0], w.kernel[1], w.kernel[2]}, {plane, slice, line, 1}};
  at::Tensor bias;
  if (call.bias.defined()) {
    const at::Tensor of_channels = call.bias.to(c.acc).view({w.groups, last ? 1 : w.c_in, last ? w.c_in : 1});
    bias = of_channels.expand({w.groups, last ? patch : w.c_in, last ? w.c_in : patch}).contiguous();
  }
  const OffsetTable x_taps = offset_table(c, source_taps, g.k), w_taps = offset_table(c, weight_taps, g.k);
  const Packed packed =
      pack(c, {call.w, 0, w_taps, linear_radix(elements, 1), g.k, elements, w.groups, w.c_out * elements});
  const int64_t step = c.images_at_once(w.images, source_image);
  for (int64_t first = 0; first < w.images; first += step) {
    const int64_t images = std::min(step, w.images - first);
    const at::Tensor source = pad_images(c, {call.y, first, images, w.out, {}, w.out, last});
    const ConvGrid rows{images, source_image, w.out, w.out, {1, 1, 1}, last ? w.groups * w.c_out : 1};
    const ConvGrid out_rows{images, w.groups * w.c_in * plane, w.out, w.in, w.stride, point};
    g.m = images * pixels;
    g.rows = rows.points_first();
    g.out_rows = out_rows.points_first();
    multiply(c, {.x = buf(source),
                 .taps = x_taps,
                 .packed = packed,
                 .bias = bias,
                 .out = at_element(call.x, first * w.groups * w.c_in * plane),
                 .out_dtype = call.x.scalar_type(),
                 .tap_order = source_taps,
                 .patches = true,
                 .params = g});
  }
}

// The products of a call: `count` of m x n. On a CPU they have `columns`.
struct Products {
  int64_t columns, m, n, count;
};
Products products(const ConvCall& call) {
  const ConvGeometry& g = call.g;
  const int64_t n = call.result_channels();
  if (call.direction == ConvDirection::kWeightGradient)
    return {n, g.taps(), n, g.groups * ceil_div(g.images * volume(g.out), kWeightSliceDepth)};
  const int64_t pixels = g.images * volume(call.forward() ? g.out : g.in);
  return 4 * pixels <= n ? Products{n, n, pixels, g.groups} : Products{n, pixels, n, g.groups};
}

// Whether the lines of the padded source, which an engine reads in tiles of `rows` points, are mostly pixels.
bool mostly_pixels(const ConvCall& call, int64_t rows) {
  const ConvDims& grid = call.forward() ? call.g.out : call.g.in;
  ConvDims zeros;  // of a line or a plane
  for (int d = 0; d < 3; d++) {
    zeros[d] = call.g.dilation[d] * (call.g.kernel[d] - 1);
    if (call.g.stride[d] > 1 || call.g.padding[d] > zeros[d]) return false;
  }
  return round_up((grid[1] - 1) * (grid[2] + zeros[2]) + grid[2], rows) <= 2 * grid[1] * grid[2];
}

// An engine packs the channels of a pixel as blocks, or reads them in place, so copies in channels_last pay unless the
// weight is much larger than the images, or larger and packed. half in two parts needs them, and enough
// channels. 2026-11-29, milliseconds of a convolution of float, half and bfloat16: 64 channels of 56 x 56
// 28.9, 15.8, 8.6; 128 of 28 x 28 12.7, 5.4, 2.7; 512 of 7 x 7 13.0, 7.3, 3.3, and 12.9, 4.9 without copies.
void set_format(ConvContext& c, const ConvCall& call, int64_t columns) {
  constexpr int64_t kLeastSplit = 128;
  const ConvGeometry& g = call.g;
  if (!c.engine) return;
  const bool split = c.engine->parts > 1, gradient = call.direction == ConvDirection::kWeightGradient;
  const auto blocks = [](int64_t channels) { return channels % EngineTile::kUnroll == 0; };
  const bool formats = call.x.dim() >= 4 && volume(g.kernel) > 1, whole = blocks(g.c_in) && blocks(g.c_out);
  const bool rows = call.forward() && g.stride[2] > 1 && g.c_in * g.kernel[2] >= 16 && blocks(g.c_out);
  const auto has_images = [&](int64_t factor) {
    return factor * g.images * volume(g.out) >= g.c_out * volume(g.kernel);
  };
  // Rows of pixels that are a line of the padded image, with whole blocks of channels, need no panels.
  const bool planes = formats && whole && g.in[0] == 1 && g.kernel[0] == 1 && c.engine->rows > 8;
  const bool lines =
      planes && !gradient && (split ? mostly_pixels(call, c.engine->rows) : !call.forward() || volume(g.stride) == 1);
  const bool wide = columns >= kLeastSplit;
  const bool splits = split && planes && (lines || (gradient && (call.channels_last || wide)));
  const bool pays = has_images(2) && formats && (whole || rows);
  const bool last = call.channels_last || pays || (has_images(8) && (lines || splits));
  c.split = splits && last;
  if (split && !c.split && !(pays && whole && wide)) return c.engine.reset();
  c.by_channels = last && !call.channels_last;
  c.in_place = lines && last;
}

ConvContext product_context(const ConvCall& call, const Products& p) {
  ConvContext c(call);
  const auto dtype = call.result().scalar_type();
  // An engine's panels of columns are 32 wide; with fewer columns they would be mostly zeros.
  if (p.columns > EngineTile::kVec && dtype != c.acc) c.engine = engine_tile(c.device, dtype, dtype);
  set_format(c, call, p.columns);
  if (c.engine) {
    c.vec = c.engine->kVec;
    c.mr = c.engine->rows;
    c.source_type = dtype;
  }
  if (c.device.is_cpu()) return c;
  // float is never rounded: set_float32_matmul_precision does not apply to convolutions, and cudnn.allow_tf32 is on by
  // default, so it says nothing about what a user wants.
  if (dtype != c.acc) c.unit = unit_tile(c.device, dtype, p.m, p.n, p.count);
  if (c.unit && !units_pass(c.device, dtype, &units_convolve)) c.unit.reset();
  if (c.unit)
    c.source_type = dtype;
  else
    c.group = conv_tile(c.device, c.acc, p.m, p.n, p.count);
  return c;
}

// The depth of a weight gradient's slices. On a GPU, the slices of a pass are so many that each compute unit has two
// work-groups, if the images allow it.
int64_t slice_depth(const ConvContext& c, const ConvCall& call, int64_t scratch_per_image) {
  if (!c.in_groups()) return kWeightSliceDepth;
  const ConvGeometry& g = call.g;
  const int64_t height = c.unit ? c.unit->height() : c.group->height();
  const int64_t tiles = g.groups * ceil_div(g.taps(), height) * ceil_div(g.c_out, c.nr(g.c_out));
  const int64_t depth = weight_pass_images(c, call, scratch_per_image) * volume(g.out);
  return std::clamp(depth * tiles / enough_items(c.device, 2), kShortSliceDepth, kWeightSliceDepth);
}

}  // namespace

std::optional<ConvContext> plan_product(const ConvCall& call) { return product_context(call, products(call)); }
void run_product(const ConvCall& call, const ConvContext& c) {
  const ConvGeometry& g = call.g;
  // Tiles of rows in place end up to 31 points after the last pixel.
  const int64_t ahead = c.in_place ? 2 * call.source().size(1) : 0;
  if (call.direction != ConvDirection::kWeightGradient) return run_passes(c, call, ahead, &gemm_pass);
  const int64_t packed = g.groups * round_up(g.c_out, c.nr(g.c_out)) * volume(g.out);
  run_weight_passes(c, call, packed, slice_depth(c, call, packed), &gemm_weight_pass);
}

std::optional<ConvContext> plan_patches(const ConvCall& call) {
  constexpr int64_t kLeast = 8;  // of the product's k and n
  const ConvGeometry& g = call.g;
  if (call.direction != ConvDirection::kInputGradient || volume(g.kernel) == 1) return {};
  if (g.stride != g.kernel || g.padding != ConvDims{} || g.c_out < kLeast || g.taps() < kLeast) return {};
  for (int d = 0; d < 3; d++)
    if (g.in[d] != g.out[d] * g.kernel[d] || (g.dilation[d] != 1 && g.kernel[d] != 1)) return {};
  return product_context(call, {g.taps(), g.images * volume(g.out), g.taps(), g.groups});
}
void run_patches(const ConvCall& call, const ConvContext& c) { gemm_patches(c, call); }

}  // namespace netcl
