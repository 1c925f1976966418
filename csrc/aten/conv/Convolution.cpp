// Convolution and its gradients, 1d to 3d, as indirect matrix products (kernels/conv/conv.cl): no im2col matrix is
// made.
//
// A forward pass is  out[p][co] = sum_r x[pixel(p) + tap(r)] * w[r][co]  over taps r = (channel, kernel
// position), where x has its padding written out. The gradient of the input is the same pass over
// grad_output, one for each residue of the output position modulo the stride (so a strided convolution wastes
// no multiplication on zeros). A transposed convolution is the gradient of a plain one with respect to its
// input.
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <array>
#include <limits>
#include <mutex>
#include <numeric>
#include <unordered_map>

#include "args/conv.h"
#include "aten/conv/DepthwiseConvolution.h"
#include "aten/gemm/Gemm.h"
#include "aten/gemm/MatrixEngine.h"
#include "aten/support/Launch.h"

namespace netcl {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Dims = std::array<int64_t, 3>;  // depth, height, width; 1d and 2d have leading ones

constexpr int64_t kScratchBytes = 32 << 20;
constexpr int64_t kSplitRows = 2048;        // of a panel, so that it stays in a core's second-level cache
constexpr int64_t kPanelBytes = 320 << 10;  // of the panels that a tile is multiplied with before the next, likewise

int64_t volume(const Dims& d) { return d[0] * d[1] * d[2]; }
// Digits (outer, d, h, w) with the strides of a grid whose rows have the given extents.
MixedRadix grid_radix(int64_t outer, int64_t outer_stride, const Dims& count, const Dims& extent, const Dims& step) {
  return {{outer, count[0], count[1], count[2]},
          {outer_stride, extent[1] * extent[2] * step[0], extent[2] * step[1], step[2]}};
}
MixedRadix linear_radix(int64_t count, int64_t stride) { return {{1, 1, 1, count}, {0, 0, 0, stride}}; }
int64_t grid_offset(const Dims& at, const Dims& extent) { return (at[0] * extent[1] + at[1]) * extent[2] + at[2]; }
int64_t radix_max(const MixedRadix& r) {
  int64_t top = 0;
  for (int d = 0; d < 4; d++) top += std::max<int64_t>(r.size[d] - 1, 0) * std::abs(r.stride[d]);
  return top;
}

// What is common to the launches of one call.
struct Context {
  const char* op;
  Device& device;
  Queue& queue;
  at::TensorOptions options;  // of scratch in the compute type
  c10::ScalarType acc;
  c10::ScalarType source;  // what the operand that is not packed beforehand is read as
  int64_t vec, rows;
  size_t local;
  std::optional<EngineTile> engine;

  // `columns`: channels of a group in the result, or what stands for them.
  Context(const char* op, const Tensor& t, int64_t columns)
      : op(op), device(netcl::device_of(t)), queue(queue_of(t)), acc(compute_type(t.scalar_type())) {
    options = t.options().dtype(acc).memory_format(std::nullopt).requires_grad(false);
    const bool cpu = device.is_cpu();
    const RegisterTile tile = register_tile(device, acc);
    vec = cpu ? tile.vec : 4;
    // Addresses of rows take registers as well.
    rows = cpu ? std::min<int64_t>(tile.rows, 8) : 8;
    local = cpu ? 1 : 32;
    // An engine's panels of columns are 32 wide: fewer would mostly be zeros.
    if (columns > EngineTile::kVec && t.scalar_type() != acc)
      engine = engine_tile(device, t.scalar_type(), t.scalar_type());
    if (engine) {
      vec = engine->kVec;
      rows = engine->rows;
    }
    source = engine ? t.scalar_type() : acc;
  }
  int64_t nv(int64_t ncols) const { return engine || ncols > vec ? 2 : 1; }
  // What a panel or a tile's rows take for `nred` levels of `lines` lines.
  int64_t panel(int64_t lines, int64_t nred) const {
    return engine ? lines * round_up(nred, engine->kLevels) * engine->parts : lines * nred;
  }
  Tensor panels(int64_t elements) const {
    return at::empty({std::max<int64_t>(elements, 1)}, engine ? options.dtype(at::kShort) : options);
  }
  // For the kernels that make or read panels.
  Defs panel_defs(const char* which, int64_t ncols, const char* offset) const {
    Defs d = defs(which, ncols, offset);
    if (engine) d.set(engine->define, 1).set("PARTS", engine->parts).set("X", dtype_tag(source));
    return d;
  }
  Defs defs(const char* which, int64_t ncols = 1, const char* offset = "int") const {
    Defs d;
    d.set(which, int64_t{1}).set("ACC", dtype_tag(acc)).set("VEC", vec);
    d.set("NV", nv(ncols)).set("ROWS", rows).set("OFFSET", offset);
    if (!engine && device.is_cpu() && acc == c10::kFloat && nv(ncols) * vec % 16 == 0) d.set("TRANSPOSE", 1);
    return d;
  }
  Tensor scratch(int64_t elements) const { return at::empty({std::max<int64_t>(elements, 1)}, options); }
};

// A table of offsets, 32-bit where that is enough.
struct Table {
  Tensor data;
  const char* type;
  int64_t run;  // consecutive offsets, from each multiple of it on
  bool is_wide() const { return data.scalar_type() == at::kLong; }
  Table widened() const { return {data.to(at::kLong), "long", run}; }
};
int64_t run_of(const MixedRadix& r) {
  if (r.stride[3] != 1) return 1;
  int64_t run = r.size[3];
  for (int d = 2; d >= 0 && (r.size[d] == 1 || r.stride[d] == run); d--) run *= r.size[d];
  return std::clamp<int64_t>(run, 1, std::numeric_limits<int32_t>::max());
}
Table write_table(const Context& c, const MixedRadix& radix, int64_t count) {
  const bool wide = radix_max(radix) > std::numeric_limits<int32_t>::max();
  Table t{at::empty({std::max<int64_t>(count, 1)}, c.options.dtype(wide ? at::kLong : at::kInt)), wide ? "long" : "int",
          run_of(radix)};
  if (count == 0) return t;
  const int64_t chunk = 2048;
  kernel(c.device, "conv/conv.cl", "conv_table", c.defs("CONV_TABLE", 1, t.type))
      .launch(c.op, c.queue, {size_t(ceil_div(count, chunk))}, {1}, buf(t.data), radix, count, chunk);
  return t;
}

// Tables follow from shapes alone, and shapes come again and again: the latest are kept. Each queue has its
// own, so that a table is written before it is read.
Table make_table(const Context& c, const MixedRadix& radix, int64_t count) {
  constexpr int64_t kLongest = 1 << 14;
  constexpr size_t kMost = 256;
  using Key = std::array<int64_t, 11>;
  struct Hash {
    size_t operator()(const Key& key) const {
      size_t h = 0;
      for (const int64_t k : key) h = (h ^ static_cast<size_t>(k)) * 0x9e3779b97f4a7c15ULL;
      return h ^ (h >> 32);
    }
  };
  static auto& mutex = *new std::mutex;  // never destroyed: the driver may be gone by then
  static auto& kept = *new std::unordered_map<Key, Table, Hash>;
  if (count > kLongest) return write_table(c, radix, count);
  Key key;
  std::copy_n(radix.size, 4, key.begin());
  std::copy_n(radix.stride, 4, key.begin() + 4);
  key[8] = count;
  key[9] = c.device.index();
  key[10] = c.queue.id();
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = kept.find(key); found != kept.end()) return found->second;
  if (kept.size() >= kMost) kept.clear();
  return kept.emplace(key, write_table(c, radix, count)).first->second;
}

// `images` of src from image n0 on, in the compute type, with zeros around; src itself where nothing is to
// do. With `slack`, always a copy with that many elements of room behind it.
Tensor pad_source(const Context& c, const Tensor& src, int64_t n0, int64_t images, const Dims& in, const Dims& lo,
                  const Dims& padded, int64_t slack) {
  const Tensor part = src.narrow(0, n0, images);
  if (slack == 0 && padded == in && src.scalar_type() == c.source) return part;
  const int64_t planes = images * src.size(1);
  Tensor out = at::empty({std::max<int64_t>(planes * volume(padded) + slack, 1)}, c.options.dtype(c.source));
  ConvPadParams p{
      planes * padded[0] * padded[1], 0, padded[0], padded[1], padded[2], in[0], in[1], in[2], lo[0], lo[1], lo[2]};
  p.rows_per_item = ceil_div<int64_t>(c.device.is_cpu() ? 8192 : 256, padded[2]);
  Defs defs = c.defs("CONV_PAD");
  defs.set("IN", dtype_tag(src.scalar_type())).set("X", dtype_tag(c.source));
  if (c.source != c.acc) defs.set("RAW", 1);
  kernel(c.device, "conv/conv.cl", "conv_pad", defs)
      .launch(c.op, c.queue, {size_t(ceil_div(p.rows, p.rows_per_item))}, {1}, buf(part), buf(out), p);
  return out;
}

Buf at_element(const Tensor& t, int64_t element) {
  return {static_cast<const char*>(t.const_data_ptr()) + element * int64_t(t.element_size())};
}

// Panels of columns: [group][panel][nred][nv * vec] of src[group * src_group + cols(j) + table[r]].
Tensor pack(const Context& c, const Tensor& src, int64_t first, const Table& table, const MixedRadix& cols,
            int64_t nred, int64_t ncols, int64_t groups, int64_t src_group) {
  const int64_t width = c.nv(ncols) * c.vec;
  ConvPackParams p{nred, ncols, ceil_div(ncols, width), 0, src_group, src.numel() - first, table.run};
  Tensor out = c.panels(groups * p.panels * c.panel(width, nred));
  if (nred == 0) return out;
  p.k_per_item = c.device.is_cpu() ? 128 : 16;
  kernel(c.device, "conv/conv.cl", "conv_pack",
         c.panel_defs("CONV_PACK", ncols, table.type).set("IN", dtype_tag(src.scalar_type())))
      .launch(c.op, c.queue, {size_t(ceil_div(nred, p.k_per_item)), size_t(p.panels), size_t(groups)}, {1, 1, 1},
              at_element(src, first), buf(table.data), buf(out), cols, p);
  return out;
}

void product(const Context& c, const Buf& x, const Table& table, const Tensor& packed, const Tensor& bias,
             const Buf& out, c10::ScalarType out_dtype, const MixedRadix& rows, const MixedRadix& out_rows,
             const MixedRadix& out_cols, ConvGemmParams g, int64_t splits = 1) {
  g.n_panels_per_item = 1;
  g.n_panels = ceil_div(g.n, c.nv(g.n) * c.vec);
  g.contiguous = table.run;
  if (g.k_slice == 0) g.k_slice = g.k;
  if (c.engine && splits > 1) g.k_slice = round_up(g.k_slice, c.engine->kLevels);
  const int64_t all_tiles = ceil_div(g.m, c.rows), parts = splits * g.groups;
  const int64_t want = int64_t(c.device.compute_units()) * (c.device.is_cpu() ? 16 : 1024);
  if (c.device.is_cpu()) {
    const int64_t bytes = g.k_slice * c.nv(g.n) * c.vec * int64_t(c10::elementSize(c.acc));
    // Two or three save less of the tile's reads than they cost in places of the cache.
    const int64_t room = kPanelBytes / std::max<int64_t>(bytes, 1);
    int64_t fit = all_tiles * g.n_panels * parts / want;
    if (!c.engine) fit = room < 4 ? 1 : std::min(room, fit);  // an engine has its rows packed once for all panels
    g.n_panels_per_item = ceil_div(g.n_panels, ceil_div(g.n_panels, std::clamp<int64_t>(fit, 1, g.n_panels)));
  }
  const int64_t columns = ceil_div(g.n_panels, g.n_panels_per_item);
  g.m_tiles = std::clamp<int64_t>(all_tiles * columns * parts / want, 1, all_tiles);
  if (c.engine) {  // each work-item has room for its rows
    const int64_t bytes = 2 * c.panel(c.rows, std::max<int64_t>(g.k_slice, 1));
    const int64_t most = std::max<int64_t>(kScratchBytes / bytes, 1);
    g.m_tiles = std::min(all_tiles, std::max(g.m_tiles, ceil_div(all_tiles * columns * parts, most)));
  }
  const Range global{size_t(ceil_div(all_tiles, g.m_tiles)), size_t(columns), size_t(parts)};
  Tensor lines;
  if (c.engine) lines = c.panels(c.panel(c.rows, g.k_slice) * int64_t(global.x * global.y * global.z));
  kernel(c.device, "conv/conv.cl", "conv_gemm",
         c.panel_defs("CONV_GEMM", g.n, table.type).set("OUT", dtype_tag(out_dtype)))
      .launch(c.op, c.queue, global, {c.local, 1, 1}, x, buf(table.data), buf(packed), buf_or_null(bias), out, rows,
              out_rows, out_cols, buf_or_null(lines), g);
}

struct Geometry {
  int64_t n = 0, groups = 0, c = 0, k = 0;  // channels of a group, in and out
  Dims in{}, out{}, ker{}, stride{}, pad{}, dil{};
  int64_t taps() const { return c * volume(ker); }
};

// One pass out[n][co][dst] = sum over taps, for the pixels of a grid.
struct Pass {
  int64_t c_in, c_out;   // of a group
  Dims src, lo, padded;  // the source, and its extent with the zeros written out (lo of them in front)
  Dims grid, src_step;   // pixels, and how far apart in the source
  Dims dst, dst_first, dst_step;
  Dims taps, tap_first, tap_step;  // positions in the padded source
  Dims ker, ker_first, ker_step;   // and in the kernel
  int64_t w_out, w_in, w_group;    // strides of the weight
};

// Few output channels a group (depthwise, or the last layer of an image model): vectors along x do better.
bool is_direct(int64_t c_out) { return c_out <= 4; }
// What a vector of a direct pass may read behind the source.
int64_t slack(const Context& c, int64_t c_out, int64_t step) { return is_direct(c_out) ? 2 * c.vec * step : 0; }

// A CPU's work-item takes as many planes as make it worth its start, as long as every core has some.
int64_t planes_per_item(const Context& c, int64_t planes, int64_t work) {
  if (!c.device.is_cpu()) return 1;
  const int64_t fair = ceil_div<int64_t>(planes, 4 * int64_t(c.device.compute_units()));
  return std::clamp<int64_t>(65536 / std::max<int64_t>(work, 1), 1, fair);
}

void run_pass(const Context& c, const Pass& p, const Tensor& source, int64_t n0, int64_t images, int64_t groups,
              const Tensor& weight, const Tensor& bias, const Tensor& out) {
  const int64_t plane = volume(p.padded), pixels = volume(p.grid);
  if (pixels == 0) return;
  const int64_t all = images * pixels, nred = p.c_in * volume(p.taps);
  const int64_t out_image = groups * p.c_out * volume(p.dst);
  const MixedRadix taps = grid_radix(p.c_in, plane, p.taps, p.padded, p.tap_step);
  const MixedRadix in_pixels = grid_radix(images, groups * p.c_in * plane, p.grid, p.padded, p.src_step);
  const MixedRadix out_pixels = grid_radix(images, out_image, p.grid, p.dst, p.dst_step);
  const MixedRadix kernel_taps = grid_radix(p.c_in, p.w_in, p.taps, p.ker, p.ker_step);
  const int64_t x_first = nred ? grid_offset(p.tap_first, p.padded) : 0;
  const int64_t w_first = nred ? grid_offset(p.ker_first, p.ker) : 0;
  const Buf to = at_element(out, n0 * out_image + grid_offset(p.dst_first, p.dst));
  const Table x_table = make_table(c, taps, nred), w_table = make_table(c, kernel_taps, nred);
  if (is_direct(p.c_out)) {
    const int64_t row = p.padded[2], slice = p.padded[1] * row, out_slice = p.dst[1] * p.dst[2];
    ConvDirectParams d{
        p.grid[0] * p.grid[1], 0, p.grid[2], p.grid[1], images * groups, 1, nred, images, groups, p.c_out};
    d.rows_per_item =
        std::clamp<int64_t>((c.device.is_cpu() ? 65536 : 64) / (d.width * std::max<int64_t>(nred, 1)), 1, d.rows);
    d.planes_per_item = planes_per_item(c, d.planes, d.rows_per_item * d.width * nred);
    d.x_image = groups * p.c_in * plane;
    d.x_group = p.c_in * plane;
    d.x_z = p.src_step[0] * slice;
    d.x_y = p.src_step[1] * row;
    d.x_x = p.src_step[2];
    d.out_image = out_image;
    d.out_group = p.c_out * volume(p.dst);
    d.out_channel = volume(p.dst);
    d.out_z = p.dst_step[0] * out_slice;
    d.out_y = p.dst_step[1] * p.dst[2];
    d.out_x = p.dst_step[2];
    d.w_group = p.w_group;
    d.w_out = p.w_out;
    const Tensor w = weight.to(c.acc);
    const bool wide = x_table.is_wide() || w_table.is_wide();
    const Table xt = wide ? x_table.widened() : x_table, wt = wide ? w_table.widened() : w_table;
    Defs defs;
    defs.set("DIRECT_PASS", int64_t{1}).set("ACC", dtype_tag(c.acc)).set("VEC", c.vec).set("NCO", p.c_out);
    defs.set("OUT", dtype_tag(out.scalar_type())).set("OFFSET", xt.type);
    kernel(c.device, "conv/conv_direct.cl", "conv_direct", defs)
        .launch(c.op, c.queue,
                {size_t(ceil_div(d.rows, d.rows_per_item)), size_t(ceil_div(d.planes, d.planes_per_item))}, {1, 1},
                at_element(source, x_first), buf(xt.data), at_element(w, w_first), buf(wt.data), buf_or_null(bias), to,
                d);
    return;
  }
  ConvGemmParams g{};
  g.k = nred;
  g.groups = groups;
  g.out_group = p.c_out * volume(p.dst);
  g.bias_group = p.c_out;
  // Either operand can be the one that is packed into panels. Few pixels are cheaper to pack than many
  // weights (measured: four times fewer, or eight where the weight is read across its rows).
  if (all * (p.w_out > p.w_in ? 4 : 8) <= p.c_out) {
    const Tensor w = weight.to(c.source);
    const Tensor columns = pack(c, source, x_first, x_table, in_pixels, nred, all, groups, p.c_in * plane);
    g.m = p.c_out;
    g.n = all;
    g.x_group = p.w_group;
    g.bias_row = 1;
    product(c, at_element(w, w_first), w_table, columns, bias, to, out.scalar_type(), linear_radix(p.c_out, p.w_out),
            linear_radix(p.c_out, volume(p.dst)), out_pixels, g);
  } else {
    const Tensor panels =
        pack(c, weight, w_first, w_table, linear_radix(p.c_out, p.w_out), nred, p.c_out, groups, p.w_group);
    g.m = all;
    g.n = p.c_out;
    g.x_group = p.c_in * plane;
    g.bias_col = 1;
    g.cols_linear = 1;
    product(c, at_element(source, x_first), x_table, panels, bias, to, out.scalar_type(), in_pixels, out_pixels,
            linear_radix(p.c_out, volume(p.dst)), g);
  }
}

// Images at once, so that their padded copy stays within bounds.
int64_t images_at_once(const Context& c, int64_t n, int64_t per_image) {
  const int64_t bytes = std::max<int64_t>(per_image * int64_t(c10::elementSize(c.acc)), 1);
  return std::clamp<int64_t>(kScratchBytes / bytes, 1, std::max<int64_t>(n, 1));
}

// Kernels of one element (most layers of ResNet-50 and MobileNet) make a matrix product of each image. An image of few
// pixels would leave the last panel of columns half empty: the pixels of all images together do better.
bool is_product(const Geometry& g, int64_t rows) {
  return volume(g.ker) == 1 && g.stride == Dims{1, 1, 1} && g.pad == Dims{} && volume(g.in) >= 128 && !is_direct(rows);
}
// out[n][group] (rows x pixels) = w[group] (rows x levels, with these strides) * source[n][group] (levels x pixels).
void run_product(const char* op, const Geometry& g, int64_t rows, int64_t levels, int64_t w_row, int64_t w_level,
                 const Tensor& source, const Tensor& w, const Tensor& bias, const Tensor& out) {
  const int64_t pixels = volume(g.in);
  GemmArgs a;
  a.m = rows;
  a.n = pixels;
  a.k = levels;
  a.batch = {g.n, g.groups};
  a.a = {w.const_data_ptr(), w.scalar_type(), w_row, w_level, {0, g.k * g.c}};
  a.b = {source.const_data_ptr(), source.scalar_type(), pixels, 1, {g.groups * levels * pixels, levels * pixels}};
  a.c = {out.const_data_ptr(), out.scalar_type(), pixels, 1, {g.groups * rows * pixels, rows * pixels}};
  if (bias.defined()) {
    a.d = {bias.const_data_ptr(), bias.scalar_type(), 1, 0, {0, rows}};
    a.beta = 1;
  }
  gemm(op, queue_of(out), a);
}

// A convolution of one plane to each of the output, without dilation; else nothing.
std::optional<Depthwise> depthwise(const Geometry& g) {
  if (g.c != 1 || g.groups == 1 || g.dil != Dims{1, 1, 1}) return {};
  if (g.in[0] != 1 || g.ker[0] != 1 || g.out[0] != 1 || g.pad[0] != 0) return {};
  return Depthwise{g.n,      g.groups, g.k,      g.in[1],  g.in[2],     g.out[1],    g.out[2],
                   g.ker[1], g.ker[2], g.pad[1], g.pad[2], g.stride[1], g.stride[2], false};
}
// The gradient of the input as such a convolution of dy.
std::optional<Depthwise> depthwise_transposed(const Geometry& g) {
  auto d = depthwise(g);
  if (!d || d->multiplier != 1 || d->step_h != 1 || d->step_w != 1) return {};
  std::swap(d->in_h, d->out_h);
  std::swap(d->in_w, d->out_w);
  d->lo_h = d->ker_h - 1 - d->lo_h;
  d->lo_w = d->ker_w - 1 - d->lo_w;
  d->reversed = true;
  return d;
}

void forward(const char* op, const Geometry& g, const Tensor& x, const Tensor& w, const Tensor& bias,
             const Tensor& out) {
  if (out.numel() == 0) return;
  if (is_product(g, g.k)) return run_product(op, g, g.k, g.c, g.c, 1, x, w, bias, out);
  const Context c(op, x, g.k);
  const Tensor b = bias.defined() ? bias.to(c.acc).contiguous() : bias;
  if (const auto d = depthwise(g); d && x.numel() > 0 && serves_depthwise(*d, x))
    return depthwise_pass(op, *d, x, w, b, out);
  Pass p{};
  p.c_in = g.c;
  p.c_out = g.k;
  p.src = g.in;
  p.lo = g.pad;
  for (int d = 0; d < 3; d++) p.padded[d] = g.in[d] + 2 * g.pad[d];
  p.grid = p.dst = g.out;
  p.src_step = g.stride;
  p.dst_step = {1, 1, 1};
  p.taps = p.ker = g.ker;
  p.tap_step = g.dil;
  p.ker_step = {1, 1, 1};
  p.w_out = g.taps();
  p.w_in = volume(g.ker);
  p.w_group = g.k * g.taps();
  const int64_t step = images_at_once(c, g.n, g.groups * g.c * volume(p.padded));
  for (int64_t n0 = 0; n0 < g.n; n0 += step) {
    const int64_t images = std::min(step, g.n - n0);
    run_pass(c, p, pad_source(c, x, n0, images, p.src, p.lo, p.padded, slack(c, g.k, g.stride[2])), n0, images,
             g.groups, w, b, out);
  }
}

// The taps that reach positions congruent to `residue` modulo the stride, along one dimension.
struct Phase {
  int64_t grid, taps, ker_first, ker_step, first, step;  // first, step: positions in grad_output
};
Phase phase(const Geometry& g, int d, int64_t residue) {
  const int64_t s = g.stride[d], dil = g.dil[d], ker_step = s / std::gcd(s, dil);
  Phase p{residue < g.in[d] ? ceil_div(g.in[d] - residue, s) : 0, 0, 0, ker_step, 0, -(ker_step * dil / s)};
  for (int64_t k = 0; k < std::min(ker_step, g.ker[d]); k++) {
    const int64_t at = residue + g.pad[d] - k * dil;
    if (at % s != 0) continue;
    p.ker_first = k;
    p.first = at / s;
    p.taps = ceil_div(g.ker[d] - k, ker_step);
    break;
  }
  return p;
}

// dx = transposed convolution of dy (plus a bias, when this is a transposed convolution's forward pass).
void data_gradient(const char* op, const Geometry& g, const Tensor& dy, const Tensor& w, const Tensor& bias,
                   const Tensor& dx) {
  if (dx.numel() == 0) return;
  if (is_product(g, g.c)) return run_product(op, g, g.c, g.k, 1, g.c, dy, w, bias, dx);
  const Context c(op, dy, g.c);
  const Tensor b = bias.defined() ? bias.to(c.acc).contiguous() : bias;
  if (const auto d = depthwise_transposed(g); d && dy.numel() > 0 && serves_depthwise(*d, dy))
    return depthwise_pass(op, *d, dy, w, b, dx);
  Pass p{};
  p.c_in = g.k;
  p.c_out = g.c;
  p.src = g.out;
  p.dst = g.in;
  p.src_step = {1, 1, 1};
  p.dst_step = g.stride;
  p.ker = g.ker;
  p.w_out = volume(g.ker);
  p.w_in = g.taps();
  p.w_group = g.k * g.taps();
  Dims residues;
  for (int d = 0; d < 3; d++) {
    residues[d] = std::min(g.stride[d], g.in[d]);
    int64_t lo = 0, hi = 0;
    for (int64_t r = 0; r < residues[d]; r++) {
      const Phase ph = phase(g, d, r);
      if (ph.taps == 0 || ph.grid == 0) continue;
      lo = std::max(lo, -(ph.first + (ph.taps - 1) * ph.step));
      hi = std::max(hi, ph.first + ph.grid - g.out[d]);
    }
    p.lo[d] = lo;
    p.padded[d] = g.out[d] + lo + hi;
  }
  const int64_t step = images_at_once(c, g.n, g.groups * g.k * volume(p.padded));
  for (int64_t n0 = 0; n0 < g.n; n0 += step) {
    const int64_t images = std::min(step, g.n - n0);
    const Tensor source = pad_source(c, dy, n0, images, p.src, p.lo, p.padded, slack(c, g.c, 1));
    for (int64_t r = 0; r < volume(residues); r++) {
      const Dims residue{r / (residues[1] * residues[2]), r / residues[2] % residues[1], r % residues[2]};
      for (int d = 0; d < 3; d++) {
        const Phase ph = phase(g, d, residue[d]);
        p.grid[d] = ph.grid;
        p.dst_first[d] = residue[d];
        p.taps[d] = ph.taps;
        p.tap_first[d] = ph.first + p.lo[d];
        p.tap_step[d] = ph.step;
        p.ker_first[d] = ph.ker_first;
        p.ker_step[d] = ph.ker_step;
      }
      run_pass(c, p, source, n0, images, g.groups, w, b, dx);
    }
  }
}

// The depthwise case, for the images of a chunk.
void weight_gradient_direct(const Context& c, const Geometry& g, const Dims& padded, int64_t images,
                            const Tensor& source, const MixedRadix& taps, const Buf& dy, c10::ScalarType dy_dtype,
                            const Tensor& to) {
  const int64_t row = padded[2], out_row = g.out[2], pixels = volume(g.out);
  // Of a work-item, which keeps a sum of each in a register.
  const int64_t taps_items = ceil_div<int64_t>(g.taps(), 9), taps_each = ceil_div(g.taps(), taps_items);
  ConvDirectParams d{g.out[0] * g.out[1], 0, out_row, g.out[1], g.groups * g.k, 1, g.taps(), images, g.groups, g.k};
  d.planes_per_item = planes_per_item(c, d.planes, images * pixels * taps_each);
  d.x_image = g.groups * g.c * volume(padded);
  d.x_group = g.c * volume(padded);
  d.x_z = g.stride[0] * padded[1] * row;
  d.x_y = g.stride[1] * row;
  d.x_x = g.stride[2];
  d.out_image = g.groups * g.k * pixels;
  d.out_channel = pixels;
  d.out_z = g.out[1] * out_row;
  d.out_y = out_row;
  const Table table = make_table(c, taps, g.taps());
  Defs defs;
  // A row shorter than a vector would be taken one by one.
  defs.set("DIRECT_WEIGHT", int64_t{1}).set("ACC", dtype_tag(c.acc)).set("VEC", out_row < c.vec ? 4 : c.vec);
  defs.set("IN", dtype_tag(dy_dtype)).set("OUT", dtype_tag(to.scalar_type())).set("OFFSET", table.type);
  defs.set("TAPS", taps_each);
  kernel(c.device, "conv/conv_direct.cl", "conv_direct_weight", defs)
      .launch(c.op, c.queue, {size_t(taps_items), size_t(ceil_div(d.planes, d.planes_per_item))}, {1, 1}, buf(source),
              buf(table.data), dy, buf(to), d);
}

void weight_gradient(const char* op, const Geometry& g, const Tensor& x, const Tensor& dy, const Tensor& dw) {
  if (dw.numel() == 0) return;
  if (dy.numel() == 0 || x.numel() == 0) {
    dw.zero_();
    return;
  }
  if (const auto d = depthwise(g); d && serves_depthwise(*d, x)) return depthwise_weight(op, *d, x, dy, dw);
  const Context c(op, x, g.k);
  Dims padded;
  for (int d = 0; d < 3; d++) padded[d] = g.in[d] + 2 * g.pad[d];
  const int64_t plane = volume(padded), pixels = volume(g.out), numel = dw.numel(), image = g.groups * g.k * pixels;
  const bool direct = g.c == 1 && g.k <= 4 && g.groups > 1;
  const int64_t panel = direct ? 0 : g.groups * round_up(g.k, c.nv(g.k) * c.vec) * pixels;
  const int64_t step = images_at_once(c, g.n, std::max(g.groups * g.c * plane, panel));
  const int64_t max_splits = std::max<int64_t>(1, kScratchBytes / (numel * int64_t(c10::elementSize(c.acc))));
  Tensor sum, parts;
  for (int64_t n0 = 0; n0 < g.n; n0 += step) {
    const int64_t images = std::min(step, g.n - n0), nred = images * pixels;
    const int64_t per_split = std::max(kSplitRows, ceil_div(nred, max_splits));
    const int64_t splits = direct ? 1 : ceil_div(nred, per_split);
    const bool at_once = splits == 1 && step >= g.n;
    if (!at_once && !parts.defined()) {
      parts = c.scratch(splits * numel);
      sum = step < g.n ? c.scratch(numel) : parts;
    }
    const Tensor& to = at_once ? dw : parts;
    const Tensor source = pad_source(c, x, n0, images, g.in, g.pad, padded, 0);
    const MixedRadix taps = grid_radix(g.c, plane, g.ker, padded, g.dil);
    if (direct) {
      weight_gradient_direct(c, g, padded, images, source, taps, at_element(dy, n0 * image), dy.scalar_type(), to);
    } else {
      const MixedRadix in_pixels = grid_radix(images, g.groups * g.c * plane, g.out, padded, g.stride);
      const MixedRadix dy_pixels{{1, 1, images, pixels}, {0, 0, image, 1}};
      const Table x_table = make_table(c, in_pixels, nred), dy_table = make_table(c, dy_pixels, nred);
      const Tensor panels =
          pack(c, dy, n0 * image, dy_table, linear_radix(g.k, pixels), nred, g.k, g.groups, g.k * pixels);
      ConvGemmParams m{};
      m.m = g.taps();
      m.n = g.k;
      m.k = nred;
      m.groups = g.groups;
      m.k_slice = ceil_div(nred, splits);
      m.out_slice = numel;
      m.x_group = g.c * plane;
      m.out_group = g.k * g.taps();
      m.cols_linear = 1;
      product(c, buf(source), x_table, panels, Tensor(), buf(to), to.scalar_type(), taps, linear_radix(g.taps(), 1),
              linear_radix(g.k, g.taps()), m, splits);
    }
    if (at_once) continue;
    const int64_t chunk = 4096;
    kernel(c.device, "conv/conv.cl", "conv_sum", c.defs("CONV_SUM").set("OUT", dtype_tag(dw.scalar_type())))
        .launch(c.op, c.queue, {size_t(ceil_div(numel, chunk))}, {1}, buf(parts), buf(sum), buf(dw), numel, splits,
                chunk, int32_t(n0 == 0), int32_t(n0 + images == g.n));
  }
}

Dims spatial(IntArrayRef values, int64_t dim, int64_t fill) {
  Dims d{fill, fill, fill};
  for (int64_t i = 0; i < dim; i++) d[3 - dim + i] = values.size() == 1 ? values[0] : values[i];
  return d;
}

// The plain convolution between x (the larger end) and y behind any call; a transposed one has its ends
// exchanged.
Geometry geometry(IntArrayRef x_sizes, IntArrayRef y_sizes, IntArrayRef w_sizes, IntArrayRef stride,
                  IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  const int64_t dim = x_sizes.size() - 2;
  Geometry g;
  g.n = x_sizes[0];
  g.groups = groups;
  g.c = x_sizes[1] / groups;
  g.k = y_sizes[1] / groups;
  g.in = spatial(x_sizes.slice(2), dim, 1);
  g.out = spatial(y_sizes.slice(2), dim, 1);
  g.ker = spatial(w_sizes.slice(2), dim, 1);
  g.stride = spatial(stride, dim, 1);
  g.pad = spatial(padding, dim, 0);
  g.dil = spatial(dilation, dim, 1);
  return g;
}

void check_inputs(const char* op, const Tensor& input, const Tensor& weight) {
  const auto dtype = input.scalar_type();
  TORCH_CHECK(input.dim() >= 3 && input.dim() <= 5, op, ": expected a 3, 4 or 5 dimensional input, got ", input.dim());
  TORCH_CHECK(at::isFloatingType(dtype), "\"", op, "\" not implemented for '", dtype, "'");
  TORCH_CHECK(dtype == weight.scalar_type(), "Input type (", dtype, ") and weight type (", weight.scalar_type(),
              ") should be the same");
  TORCH_CHECK(input.device() == weight.device(), op, ": expected input and weight on one device, got ", input.device(),
              " and ", weight.device());
  check_dtype(netcl::device_of(input), dtype, op);
}

// What the results are returned in: as on CUDA, channels_last if the input or the weight is.
at::MemoryFormat result_format(const Tensor& input, const Tensor& weight) {
  const auto format = input.suggest_memory_format();
  return format == at::MemoryFormat::Contiguous ? weight.suggest_memory_format() : format;
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                   int64_t groups) {
  const char* op = "aten::convolution";
  check_inputs(op, input, weight);
  const c10::DeviceGuard guard(input.device());
  const int64_t dim = input.dim() - 2;
  at::DimVector sizes{input.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (int64_t i = 0; i < dim; i++) {
    const auto at = [&](IntArrayRef v) { return v.size() == 1 ? v[0] : v[i]; };
    const int64_t span = at(dilation) * (weight.size(2 + i) - 1) + 1;
    sizes.push_back(transposed ? (input.size(2 + i) - 1) * at(stride) - 2 * at(padding) + span + at(output_padding)
                               : (input.size(2 + i) + 2 * at(padding) - span) / at(stride) + 1);
    TORCH_CHECK(sizes.back() >= 0, op, ": the output would have a negative size (input ", input.sizes(), ", weight ",
                weight.sizes(), ")");
  }
  Tensor out = at::empty(sizes, input.options().memory_format(std::nullopt));
  const Tensor x = input.contiguous(), w = weight.contiguous(), b = bias.value_or(Tensor());
  if (transposed) {
    data_gradient(op, geometry(sizes, x.sizes(), w.sizes(), stride, padding, dilation, groups), x, w, b, out);
  } else {
    forward(op, geometry(x.sizes(), sizes, w.sizes(), stride, padding, dilation, groups), x, w, b, out);
  }
  return out.contiguous(result_format(input, weight));
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad_output, const Tensor& input,
                                                        const Tensor& weight, IntArrayRef stride, IntArrayRef padding,
                                                        IntArrayRef dilation, bool transposed,
                                                        IntArrayRef output_padding, int64_t groups,
                                                        std::array<bool, 3> mask) {
  const char* op = "aten::convolution_backward";
  check_inputs(op, input, weight);
  check_inputs(op, grad_output, weight);
  const c10::DeviceGuard guard(input.device());
  const Tensor x = input.contiguous(), w = weight.contiguous(), dy = grad_output.contiguous();
  const Geometry g = transposed ? geometry(dy.sizes(), x.sizes(), w.sizes(), stride, padding, dilation, groups)
                                : geometry(x.sizes(), dy.sizes(), w.sizes(), stride, padding, dilation, groups);
  const auto format = result_format(input, weight);
  Tensor dx, dw, db;
  if (mask[0]) {
    dx = at::empty(x.sizes(), x.options());
    if (dy.numel() == 0) {
      dx.zero_();
    } else if (transposed) {
      forward(op, g, dy, w, Tensor(), dx);
    } else {
      data_gradient(op, g, dy, w, Tensor(), dx);
    }
    dx = dx.contiguous(format);
  }
  if (mask[1]) {
    dw = at::empty(w.sizes(), w.options());
    weight_gradient(op, g, transposed ? dy : x, transposed ? x : dy, dw);
    dw = dw.contiguous(format);
  }
  if (mask[2]) {
    at::DimVector others{0};
    for (int64_t d = 2; d < dy.dim(); d++) others.push_back(d);
    db = dy.sum(others);
  }
  return {dx, dw, db};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
}

}  // namespace netcl
