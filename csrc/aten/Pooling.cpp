// Pooling over two or three dimensions: max (with indices), average, their adaptive forms, fractional, and
// max-unpooling; 1d pooling is a composite operator. ATen's meta functions check shapes if they exist.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Pool.h>
#include <ATen/ops/adaptive_max_pool2d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool2d_meta.h>
#include <ATen/ops/adaptive_max_pool3d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool3d_meta.h>
#include <ATen/ops/avg_pool2d_backward_meta.h>
#include <ATen/ops/avg_pool2d_meta.h>
#include <ATen/ops/avg_pool3d_backward_meta.h>
#include <ATen/ops/avg_pool3d_meta.h>
#include <ATen/ops/fractional_max_pool2d_backward_meta.h>
#include <ATen/ops/fractional_max_pool2d_meta.h>
#include <ATen/ops/fractional_max_pool3d_meta.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta.h>
#include <ATen/ops/max_pool2d_with_indices_meta.h>
#include <ATen/ops/max_pool3d_with_indices.h>

#include <bit>
#include <limits>
#include <optional>
#include <tuple>

#include "args/pool.h"
#include "aten/support/IndexSpace.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Plan.h"
#include "aten/support/Structured.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

using at::IntArrayRef;
using at::Tensor;
using structured_detail::Form;

// A window over the last `dims` dimensions, from the arguments of an operator.
struct Window {
  int64_t dims;
  IntArrayRef ker = {}, stride = {}, pad = {}, dil = {};
  bool include_pad = false;
  std::optional<int64_t> divisor = std::nullopt;
};

// The outputs whose windows have the same number of elements.
void find_even(PoolParams& p) {
  p.even = p.divisor ? p.divisor : 1;
  for (int64_t d = 0; d < 3; d++) {
    p.even_end[d] = p.out[d];
    if (p.divisor || p.out[d] == 0 || p.stride[d] == 0) continue;
    const int64_t length = p.adaptive ? p.in[d] / p.out[d] : p.ker[d];
    p.even *= length;
    if (p.adaptive) {
      if (length * p.out[d] != p.in[d]) p.even_end[d] = 0;
      continue;
    }
    const int64_t before = p.include_pad ? 0 : p.pad[d], room = p.in[d] + 2 * p.pad[d] - before - length;
    p.even_begin[d] = ceil_div(before, p.stride[d]);
    p.even_end[d] = room < 0 ? 0 : std::min(room / p.stride[d] + 1, p.out[d]);
  }
}

int64_t at_dim(IntArrayRef v, int64_t i, int64_t otherwise) {
  return v.empty() ? otherwise : v.size() == 1 ? v[0] : v[i];
}

PoolParams describe(const Window& w, IntArrayRef in, IntArrayRef out) {
  PoolParams p{};
  p.adaptive = w.ker.empty();
  p.include_pad = w.include_pad;
  p.divisor = w.divisor.value_or(0);
  for (int64_t d = 0; d < 3; d++) {
    const int64_t i = d - (3 - w.dims);
    p.in[d] = i < 0 ? 1 : in[in.size() - w.dims + i];
    p.out[d] = i < 0 ? 1 : out[out.size() - w.dims + i];
    p.ker[d] = i < 0 ? 1 : at_dim(w.ker, i, 1);
    p.stride[d] = i < 0 ? 1 : at_dim(w.stride, i, p.ker[d]);
    p.pad[d] = i < 0 ? 0 : at_dim(w.pad, i, 0);
    p.dil[d] = i < 0 ? 1 : at_dim(w.dil, i, 1);
  }
  // Adaptive windows of one size need no divisions.
  const auto divides = [&](int64_t d) { return p.out[d] > 0 && p.in[d] > 0 && p.in[d] % p.out[d] == 0; };
  if (p.adaptive && divides(0) && divides(1) && divides(2)) {
    p.adaptive = 0;
    for (int64_t d = 0; d < 3; d++) p.ker[d] = p.stride[d] = p.in[d] / p.out[d];
  }
  find_even(p);
  return p;
}

int64_t spatial(const Tensor& t, int64_t dims) { return c10::multiply_integers(t.sizes().slice(t.dim() - dims)); }

int64_t plane_size(const PoolParams& p) { return p.in[0] * p.in[1] * p.in[2]; }

// Whether positions need 64 bits. `most`: the largest that the kernel computes, beside those that it meets when it
// finds windows.
bool wide_index(const PoolParams& p, int64_t most) {
  for (int d = 0; d < 3; d++) {
    const int64_t product = p.adaptive ? (p.in[d] + 1) * (p.out[d] + 1) : p.in[d] + p.pad[d];
    most = std::max({most, product, p.stride[d], p.ker[d] * p.dil[d]});
  }
  return most > std::numeric_limits<int32_t>::max();
}

// The memory format in which pooling computes.
at::MemoryFormat compute_format(const Tensor& t, int64_t dims) {
  const auto last = dims == 2 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
  const bool channels_last =
      t.dim() == dims + 2 && t.size(1) > 1 && !t.is_contiguous() && t.suggest_memory_format() == last;
  return channels_last ? last : at::MemoryFormat::Contiguous;
}

// About how many elements of `in` lie in the window of an element of `out`.
int64_t taps(const PoolParams& p, const Tensor& in, const Tensor& out) {
  return p.adaptive ? in.numel() / out.numel() + 1 : p.ker[0] * p.ker[1] * p.ker[2];
}

Defs pool_defs(const Tensor& t, const PoolParams& p, int64_t most) {
  Defs d;
  d.set("ACC", compute_tag(t.scalar_type())).set("IN", dtype_tag(t.scalar_type()));
  d.set("IDX", wide_index(p, most) ? "i64" : "i32");
  return d;
}

// The elements of vectors along x: 1 if they do not pay.
int64_t lanes_along_x(const Tensor& t, const PoolParams& p) {
  const int64_t out = p.adaptive ? 0 : p.out[2], within = p.in[2] / p.out[2];
  const bool few = out >= 2 && out < 4 && within < 4, many = out >= 4 ? out >= 12 : within >= 8;
  const bool fits = !wide_index(p, plane_size(p)) && compute_type(t.scalar_type()) == c10::kFloat;
  return fits ? std::min<int64_t>(few ? 2 : many ? 8 : 4, tuning(netcl::device_of(t)).lanes) : 1;
}

// The variant of a kernel of pool.cl, and its work-items.
struct Variant {
  Defs defs;
  Range items;
};

// For a kernel that reads `t`. `groups` groups of rows are divided among the work-items, and if these are few, or on
// a GPU, so are the channels of each.
Variant variant_of(const Tensor& t, at::MemoryFormat format, PoolParams& p, int64_t groups, int64_t vec) {
  const bool last = format != at::MemoryFormat::Contiguous;
  Variant v{pool_defs(t, p, plane_size(p) * p.channels), {size_t(groups)}};
  v.defs.set("VEC", vec).set("LAST", int64_t{last});
  if (last) {
    const int64_t wanted = ceil_div(enough_items(netcl::device_of(t), kItemsPerUnit, groups * p.channels), groups);
    p.channels_per_item = std::clamp(round_up(ceil_div(p.channels, wanted), vec), vec, p.channels);
    v.items.x *= p.channels / p.channels_per_item;
  }
  return v;
}

// Sets the channels, and returns the elements of vectors along them, or along `extent` elements of one channel.
int64_t set_channels(const Tensor& t, at::MemoryFormat format, PoolParams& p, int64_t extent = 1) {
  const Device& device = netcl::device_of(t);
  p.channels = format == at::MemoryFormat::Contiguous ? 1 : t.size(1);
  const int64_t most = std::min(register_tile(device, compute_type(t.scalar_type())).vec, tuning(device).lanes);
  return std::min<int64_t>(most, std::bit_floor(uint64_t(p.channels > 1 ? p.channels : extent)));
}

// For a kernel that reads `t` and writes all of `to`, in rows of `width` elements of about `taps` loads each.
Variant rows_variant(const Tensor& t, at::MemoryFormat format, PoolParams& p, const Tensor& to, int64_t taps,
                     bool along_x) {
  const Device& device = netcl::device_of(t);
  const int64_t width = to.size(-1), along = set_channels(t, format, p);
  const int64_t vec = format == at::MemoryFormat::Contiguous && along_x ? lanes_along_x(t, p) : along;
  p.rows = to.numel() / width / p.channels;
  // Some thousand loads per work-item.
  const int64_t per_item = ceil_div<int64_t>(8192, std::max<int64_t>(width * taps * ceil_div(p.channels, along), 1));
  p.rows_per_item = std::clamp<int64_t>(per_item, 1, std::max<int64_t>(1, p.rows / enough_items(device, 8)));
  return variant_of(t, format, p, row_elements(device, p.rows, p.rows_per_item, width).x, vec);
}

void check_real(const Device& device, c10::ScalarType type, const char* op) {
  check_dtype(device, type, op);
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isComplexType(type) && type != at::kBool, op, " is not implemented for ", type);
}

// `samples` has numbers of [0, 1) for each plane of fractional pooling.
void max_forward(const char* op, const Tensor& self, const Window& w, const Tensor& out, const Tensor& indices,
                 const Tensor& samples = {}) {
  if (out.numel() == 0) return;
  const c10::DeviceGuard guard(self.device());
  const bool sampled = samples.defined();
  const auto format = sampled ? at::MemoryFormat::Contiguous : compute_format(self, w.dims);
  const Tensor x = apart_from(self, {out, indices}).contiguous(format);
  const DenseOut to(out, format), to_indices(indices, format);
  Device& device = netcl::device_of(x);
  check_real(device, x.scalar_type(), op);
  PoolParams p = describe(w, x.sizes(), out.sizes());
  p.sampled = sampled ? w.dims : 0;
  const Variant v = rows_variant(x, format, p, out, taps(p, x, out), !sampled);
  kernel(device, "pool.cl", "pool_max", v.defs)
      .launch(op, queue_of(x), v.items, element_group(device), buf(x), buf(sampled ? samples : x), buf(to.get()),
              buf(to_indices.get()), p);
  to.finish();
  to_indices.finish();
}

// ATen's meta functions do not check all of this, and a kernel would read beyond the smaller tensor.
void check_planes(const char* op, const Tensor& src, const Tensor& dst, int64_t dims) {
  TORCH_CHECK(src.dim() == dst.dim() && dst.dim() > dims &&
                  src.sizes().slice(0, dst.dim() - dims) == dst.sizes().slice(0, dst.dim() - dims),
              op, ": expected tensors of at least ", dims + 1, " dimensions that differ only in the last ", dims,
              ", got shapes ", src.sizes(), " and ", dst.sizes());
}

// The same for the indices; returns false if that leaves nothing to compute.
bool check_indices(const char* op, const Tensor& src, const Tensor& indices, const Tensor& dst, int64_t dims) {
  check_planes(op, src, dst, dims);
  TORCH_CHECK(indices.sizes() == src.sizes() && indices.scalar_type() == at::kLong, op,
              ": expected int64 indices of shape ", src.sizes(), ", got ", indices.scalar_type(), " of shape ",
              indices.sizes());
  if (src.numel() == 0) dst.zero_();
  return src.numel() > 0 && dst.numel() > 0;
}

// dst[plane][indices] += src (or = src); all other elements are 0.
void scatter(const char* op, const Tensor& src, const Tensor& indices, const Tensor& dst, int64_t dims, bool assign) {
  if (!check_indices(op, src, indices, dst, dims)) return;
  const c10::DeviceGuard guard(src.device());
  Device& device = netcl::device_of(src);
  check_real(device, src.scalar_type(), op);
  const int64_t src_size = spatial(src, dims), dst_size = spatial(dst, dims);
  // Sums are kept in the compute type and rounded once.
  const auto type = assign ? dst.scalar_type() : compute_type(src.scalar_type());
  const Tensor from = apart_from(src, {dst}), chosen = apart_from(indices, {dst});
  const DenseOut target(dst, at::MemoryFormat::Contiguous, type);
  const Tensor to = target.get().zero_().view({-1, dst_size});
  const Tensor index = chosen.contiguous().view({-1, src_size});
  const Tensor values = from.contiguous().view({-1, src_size}).to(type);
  IndexSpace space(op);  // scatter_add_ would name itself in errors
  space.shape(index.sizes());
  space.destination(to.data_ptr(), strides_without(to, 1), to.itemsize());
  space.source(values.const_data_ptr(), values.strides(), values.itemsize());
  space.index(index.const_data_ptr(), index.strides(), at::kLong, dst_size, to.stride(1) * to.itemsize());
  space.conflicts_along(1);
  if (assign) {
    space.scatter(device, to.itemsize());
  } else {
    space.reduce(device, type, "sum", 1);
  }
  target.finish();
}

// A gradient of pooling. All tensors have the same format.
struct PoolBackward {
  const char* op;
  PoolParams p;
  at::MemoryFormat format;
  Tensor dy, index;  // index: of max pooling
  const Tensor& grad_input;
};

PoolBackward backward_call(const char* op, const Tensor& grad_output, const Window& w, const Tensor& indices,
                           const Tensor& grad_input) {
  check_real(netcl::device_of(grad_output), grad_output.scalar_type(), op);
  const auto format = compute_format(grad_input, w.dims);
  const auto dense = [&](const Tensor& t) { return t.defined() ? apart_from(t, {grad_input}).contiguous(format) : t; };
  return {op,        describe(w, grad_input.sizes(), grad_output.sizes()), format, dense(grad_output), dense(indices),
          grad_input};
}

struct PoolPlan {
  const char* file;
  const char* kernel;
  c10::ScalarType to;  // the dtype of sums
  PoolParams p;
  Variant variant;
};

// A work-item takes a band of an image, and some channels, or whole planes. Sums are rounded once.
std::optional<PoolPlan> plan_scatter(const PoolBackward& b) {
  const Device& device = netcl::device_of(b.dy);
  PoolParams p = b.p;
  const int64_t vec = set_channels(b.dy, b.format, p, plane_size(p)), along = p.in[0] > 1 ? 0 : 1;
  p.rows = b.grad_input.numel() / plane_size(p) / p.channels;
  p.rows_per_item = units_per_item(device, p.rows, plane_size(p), 8192);
  if (b.format != at::MemoryFormat::Contiguous) {
    // Bands only if there are few images; and higher than windows, since neighbours read the outputs between them
    // twice.
    const int64_t wanted = std::max<int64_t>(enough_items(device) / p.rows, 1);
    const int64_t lowest = p.adaptive ? 4 : 4 * ((p.ker[along] - 1) * p.dil[along] + 1);
    p.rows_per_item = std::min(std::max(ceil_div(p.in[along], wanted), lowest), p.in[along]);
    p.rows *= p.in[along];
  }
  const Variant v = variant_of(b.dy, b.format, p, ceil_div(p.rows, p.rows_per_item), vec);
  return PoolPlan{"pool.cl", "pool_scatter", compute_type(b.dy.scalar_type()), p, v};
}

// A work-item computes one element, from the windows that hold it.
std::optional<PoolPlan> plan_gather(const PoolBackward& b) {
  PoolParams p = b.p;
  set_channels(b.dy, b.format, p);
  p.rows = b.grad_input.numel() / p.in[2] / p.channels;
  Variant v{pool_defs(b.dy, p, std::max(b.dy.numel(), b.grad_input.numel())), {size_t(b.grad_input.numel())}};
  v.defs.set("VEC", int64_t{1}).set("LAST", int64_t{b.format != at::MemoryFormat::Contiguous});
  return PoolPlan{"pool.cl", "pool_max_backward", b.dy.scalar_type(), p, v};
}

void run_max_backward(const PoolBackward& b, const PoolPlan& plan) {
  Device& device = netcl::device_of(b.dy);
  const DenseOut to(b.grad_input, b.format, plan.to);
  kernel(device, plan.file, plan.kernel, plan.variant.defs)
      .launch(b.op, queue_of(b.dy), plan.variant.items, element_group(device), buf(b.dy), buf(b.index), buf(to.get()),
              Buf{assert_buffer(device)}, plan.p, int32_t(assert_code(device, b.op)));
  to.finish();
}

constexpr Way<PoolBackward> kMaxBackward[] = {
    {"scatter", take<&plan_scatter, &run_max_backward>, Serves::kCpu},
    {"gather", take<&plan_gather, &run_max_backward>},
};

void max_backward(const char* op, const Tensor& grad_output, const Window& w, const Tensor& indices,
                  const Tensor& grad_input) {
  if (!check_indices(op, grad_output, indices, grad_input, w.dims)) return;
  const c10::DeviceGuard guard(grad_output.device());
  run_first(kMaxBackward, netcl::device_of(grad_output), backward_call(op, grad_output, w, indices, grad_input));
}

void avg_forward(const char* op, const Tensor& self, const Window& w, const Tensor& out) {
  if (out.numel() == 0) return;
  const c10::DeviceGuard guard(self.device());
  const auto format = compute_format(self, w.dims);
  const Tensor x = apart_from(self, {out}).contiguous(format);
  const DenseOut to(out, format);
  Device& device = netcl::device_of(x);
  check_real(device, x.scalar_type(), op);
  PoolParams p = describe(w, x.sizes(), out.sizes());
  const Variant v = rows_variant(x, format, p, out, taps(p, x, out), true);
  kernel(device, "pool.cl", "pool_avg", v.defs)
      .launch(op, queue_of(x), v.items, element_group(device), buf(x), buf(to.get()), p);
  to.finish();
}

// Floats, with vectors along x.
std::optional<PoolPlan> plan_rows(const PoolBackward& b) {
  const auto type = b.dy.scalar_type();
  if (b.format != at::MemoryFormat::Contiguous || !c10::isFloatingType(type)) return {};
  PoolPlan plan{"pool_rows.cl", "pool_avg_backward", type, b.p, {}};
  plan.variant = rows_variant(b.dy, b.format, plan.p, b.grad_input, 8, false);
  plan.variant.defs = pool_defs(b.dy, plan.p, plane_size(plan.p));
  plan.variant.defs.set("VEC", int64_t{compute_type(type) == c10::kDouble || plan.p.out[2] < 8 ? 4 : 8});
  return plan;
}

std::optional<PoolPlan> plan_windows(const PoolBackward& b) {
  PoolPlan plan{"pool.cl", "pool_avg_backward", b.dy.scalar_type(), b.p, {}};
  plan.variant = rows_variant(b.dy, b.format, plan.p, b.grad_input, 8, false);
  return plan;
}

void run_avg_backward(const PoolBackward& b, const PoolPlan& plan) {
  Device& device = netcl::device_of(b.dy);
  const DenseOut to(b.grad_input, b.format, plan.to);
  kernel(device, plan.file, plan.kernel, plan.variant.defs)
      .launch(b.op, queue_of(b.dy), plan.variant.items, element_group(device), buf(b.dy), buf(to.get()), plan.p);
  to.finish();
}

constexpr Way<PoolBackward> kAvgBackward[] = {
    {"rows", take<&plan_rows, &run_avg_backward>, Serves::kCpu},
    {"windows", take<&plan_windows, &run_avg_backward>},
};

void avg_backward(const char* op, const Tensor& grad_output, const Window& w, const Tensor& grad_input) {
  check_planes(op, grad_output, grad_input, w.dims);
  if (grad_input.numel() == 0) return;
  if (grad_output.numel() == 0) {
    grad_input.zero_();
    return;
  }
  const c10::DeviceGuard guard(grad_output.device());
  run_first(kAvgBackward, netcl::device_of(grad_output), backward_call(op, grad_output, w, {}, grad_input));
}

// --- max pooling ----------------------------------------------------------------------------------------

struct MaxPool2d : at::meta::structured_max_pool2d_with_indices {
  void impl(const Tensor& self, IntArrayRef ker, IntArrayRef stride, IntArrayRef pad, IntArrayRef dil, bool,
            const Tensor& out, const Tensor& indices) {
    max_forward("aten::max_pool2d_with_indices", self, {2, ker, stride, pad, dil}, out, indices);
  }
};
struct MaxPool2dBackward : at::meta::structured_max_pool2d_with_indices_backward {
  void impl(const Tensor& grad_output, const Tensor&, IntArrayRef ker, IntArrayRef stride, IntArrayRef pad,
            IntArrayRef dil, bool, const Tensor& indices, const Tensor& grad_input) {
    max_backward("aten::max_pool2d_with_indices_backward", grad_output, {2, ker, stride, pad, dil}, indices,
                 grad_input);
  }
};
struct AdaptiveMaxPool2d : at::meta::structured_adaptive_max_pool2d {
  void impl(const Tensor& self, IntArrayRef, const Tensor& out, const Tensor& indices) {
    max_forward("aten::adaptive_max_pool2d", self, {2}, out, indices);
  }
};
struct AdaptiveMaxPool2dBackward : at::meta::structured_adaptive_max_pool2d_backward {
  void impl(const Tensor& grad_output, const Tensor&, const Tensor& indices, const Tensor& grad_input) {
    max_backward("aten::adaptive_max_pool2d_backward", grad_output, {2}, indices, grad_input);
  }
};
struct AdaptiveMaxPool3d : at::meta::structured_adaptive_max_pool3d {
  void impl(const Tensor& self, IntArrayRef, const Tensor& out, const Tensor& indices) {
    max_forward("aten::adaptive_max_pool3d", self, {3}, out, indices);
  }
};
struct AdaptiveMaxPool3dBackward : at::meta::structured_adaptive_max_pool3d_backward {
  void impl(const Tensor& grad_output, const Tensor&, const Tensor& indices, const Tensor& grad_input) {
    max_backward("aten::adaptive_max_pool3d_backward", grad_output, {3}, indices, grad_input);
  }
};

at::DimVector max_pool3d_sizes(const Tensor& self, IntArrayRef ker, IntArrayRef stride, IntArrayRef pad,
                               IntArrayRef dil, bool ceil_mode) {
  TORCH_CHECK(ker.size() == 1 || ker.size() == 3,
              "max_pool3d: kernel_size must either be a single int, or a tuple of three ints");
  TORCH_CHECK(stride.empty() || stride.size() == 1 || stride.size() == 3,
              "max_pool3d: stride must either be omitted, a single int, or a tuple of three ints");
  TORCH_CHECK(pad.size() == 1 || pad.size() == 3,
              "max_pool3d: padding must either be a single int, or a tuple of three ints");
  TORCH_CHECK(dil.size() == 1 || dil.size() == 3,
              "max_pool3d: dilation must be either a single int, or a tuple of three ints");
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5, "non-empty 4D or 5D (batch mode) tensor expected for input");
  at::DimVector sizes(self.sizes());
  int64_t k[3], s[3], p[3], d[3], out[3];
  const int64_t first = self.dim() - 3;
  for (int64_t i = 0; i < 3; i++) {
    k[i] = at_dim(ker, i, 1);
    s[i] = at_dim(stride, i, k[i]);
    p[i] = at_dim(pad, i, 0);
    d[i] = at_dim(dil, i, 1);
    out[i] = at::native::pooling_output_shape<int64_t>(self.size(first + i), k[i], p[i], s[i], d[i], ceil_mode);
    sizes[first + i] = out[i];
  }
  at::native::pool3d_shape_check(self, self.size(-4), k[0], k[1], k[2], s[0], s[1], s[2], p[0], p[1], p[2], d[0], d[1],
                                 d[2], self.size(-3), self.size(-2), self.size(-1), out[0], out[1], out[2],
                                 "max_pool3d_with_indices()");
  return sizes;
}

std::tuple<Tensor&, Tensor&> max_pool3d_out(const Tensor& self, IntArrayRef ker, IntArrayRef stride, IntArrayRef pad,
                                            IntArrayRef dil, bool ceil_mode, Tensor& out, Tensor& indices) {
  const auto sizes = max_pool3d_sizes(self, ker, stride, pad, dil, ceil_mode);
  check_out("max_pool3d_with_indices", out, self.options());
  check_out("max_pool3d_with_indices", indices, self.options().dtype(at::kLong));
  at::native::resize_output(out, sizes);
  at::native::resize_output(indices, sizes);
  max_forward("aten::max_pool3d_with_indices", self, {3, ker, stride, pad, dil}, out, indices);
  return {out, indices};
}
std::tuple<Tensor, Tensor> max_pool3d(const Tensor& self, IntArrayRef ker, IntArrayRef stride, IntArrayRef pad,
                                      IntArrayRef dil, bool ceil_mode) {
  const auto sizes = max_pool3d_sizes(self, ker, stride, pad, dil, ceil_mode);
  if (self.dim() == 4) {  // in channels_last_3d without a batch the results have that format too
    const Tensor batch = self.unsqueeze(0);
    if (!self.is_contiguous() && batch.is_contiguous(at::MemoryFormat::ChannelsLast3d)) {
      at::DimVector strides(batch.strides());
      strides[0] = self.numel();  // from that of unsqueeze(), suggest_memory_format() cannot tell the format
      auto [out, indices] =
          at::max_pool3d_with_indices(batch.as_strided(batch.sizes(), strides), ker, stride, pad, dil, ceil_mode);
      return {out.squeeze(0), indices.squeeze(0)};
    }
  }
  const auto format = self.suggest_memory_format();
  Tensor out = at::empty(sizes, self.options().memory_format(format));
  Tensor indices = at::empty(sizes, self.options().dtype(at::kLong).memory_format(format));
  max_forward("aten::max_pool3d_with_indices", self, {3, ker, stride, pad, dil}, out, indices);
  return {out, indices};
}
Tensor& max_pool3d_backward_out(const Tensor& grad_output, const Tensor& self, IntArrayRef ker, IntArrayRef stride,
                                IntArrayRef pad, IntArrayRef dil, bool ceil_mode, const Tensor& indices,
                                Tensor& grad_input) {
  const auto sizes = max_pool3d_sizes(self, ker, stride, pad, dil, ceil_mode);
  TORCH_CHECK(grad_output.sizes() == IntArrayRef(sizes) && indices.sizes() == IntArrayRef(sizes),
              "max_pool3d_with_indices_backward: expected grad_output and indices of size ", IntArrayRef(sizes),
              ", got ", grad_output.sizes(), " and ", indices.sizes());
  check_out("max_pool3d_with_indices_backward", grad_input, self.options());
  at::native::resize_output(grad_input, self.sizes());
  max_backward("aten::max_pool3d_with_indices_backward", grad_output, {3, ker, stride, pad, dil}, indices, grad_input);
  return grad_input;
}
Tensor max_pool3d_backward(const Tensor& grad_output, const Tensor& self, IntArrayRef ker, IntArrayRef stride,
                           IntArrayRef pad, IntArrayRef dil, bool ceil_mode, const Tensor& indices) {
  Tensor grad_input = at::empty(self.sizes(), self.options().memory_format(self.suggest_memory_format()));
  return max_pool3d_backward_out(grad_output, self, ker, stride, pad, dil, ceil_mode, indices, grad_input);
}

Tensor& max_unpool_out(const char* op, int64_t dims, const Tensor& self, const Tensor& indices, IntArrayRef size,
                       Tensor& out) {
  // If an index occurs twice, any one of the values is stored, as on CPU and CUDA.
  at::globalContext().alertNotDeterministic(dims == 2 ? "max_unpooling2d_forward_out" : "max_unpooling3d_forward_out");
  TORCH_CHECK(indices.scalar_type() == at::kLong,
              "elements in indices should be type int64 but got: ", indices.scalar_type());
  TORCH_CHECK(int64_t(size.size()) == dims, "There should be exactly ",
              dims == 2 ? "two elements (height, width)" : "three elements (depth, height, width)",
              " in output_size, but got ", size.size(), " elements.");
  TORCH_CHECK(self.dim() == dims + 1 || self.dim() == dims + 2, "Input to max_unpooling", dims, "d should be a ",
              dims + 1, "d or ", dims + 2, "d Tensor, but got a tensor with ", self.dim(), " dimensions.");
  TORCH_CHECK(self.sizes() == indices.sizes(), "Expected shape of indices to be same as that of the input tensor (",
              self.sizes(), ") but got indices tensor with shape: ", indices.sizes());
  for (int64_t d = 1; d < self.dim(); d++) {
    TORCH_CHECK(self.size(d) > 0, op, ": Expected input to have non-zero size for non-batch dimensions, but got ",
                self.sizes(), " with dimension ", d, " being empty.");
  }
  at::DimVector sizes(self.sizes().slice(0, self.dim() - dims));
  sizes.append(size.begin(), size.end());
  check_out(op, out, self.options());
  at::native::resize_output(out, sizes);
  scatter(op, self, indices, out, dims, true);
  return out;
}
Tensor& max_unpool2d_out(const Tensor& self, const Tensor& indices, IntArrayRef size, Tensor& out) {
  return max_unpool_out("aten::max_unpool2d", 2, self, indices, size, out);
}
Tensor max_unpool2d(const Tensor& self, const Tensor& indices, IntArrayRef size) {
  Tensor out = at::empty({0}, self.options());
  max_unpool2d_out(self, indices, size, out);
  return out.contiguous(self.suggest_memory_format());
}
Tensor& max_unpool3d_out(const Tensor& self, const Tensor& indices, IntArrayRef size, IntArrayRef stride,
                         IntArrayRef pad, Tensor& out) {
  // The sizes say all, but ATen checks these as well.
  const auto check_three = [](const char* name, IntArrayRef values) {
    TORCH_CHECK(values.size() == 3, "There should be exactly three elements (depth, height, width) in ", name,
                ", but got: ", values.size(), " elements.");
  };
  check_three("stride", stride);
  check_three("padding", pad);
  for (const int64_t s : stride) {
    TORCH_CHECK(s > 0, "strides should be greater than zero, but got stride: ", stride);
  }
  return max_unpool_out("aten::max_unpool3d", 3, self, indices, size, out);
}
Tensor max_unpool3d(const Tensor& self, const Tensor& indices, IntArrayRef size, IntArrayRef stride, IntArrayRef pad) {
  Tensor out = at::empty({0}, self.options());
  return max_unpool3d_out(self, indices, size, stride, pad, out);
}

// --- fractional pooling ---------------------------------------------------------------------------------

void fractional_forward(const char* op, const Tensor& self, IntArrayRef ker, const Tensor& samples, const Tensor& out,
                        const Tensor& indices) {
  const int64_t dims = ker.size();
  TORCH_CHECK(samples.scalar_type() == self.scalar_type(), op, ": expected random samples of the input's dtype, ",
              self.scalar_type(), ", got ", samples.scalar_type());
  TORCH_CHECK(samples.numel() >= out.numel() / std::max<int64_t>(spatial(out, dims), 1) * dims, op, ": expected ", dims,
              " random samples for each channel, got shape ", samples.sizes());
  // For two dimensions, the samples are in the order (width, height).
  max_forward(op, self, {dims, ker}, out, indices, (dims == 2 ? samples.flip(-1) : samples).contiguous());
}

struct FractionalMaxPool2d : at::meta::structured_fractional_max_pool2d {
  void impl(const Tensor& self, IntArrayRef ker, IntArrayRef, const Tensor& samples, const Tensor& out,
            const Tensor& indices) {
    fractional_forward("aten::fractional_max_pool2d", self, ker, samples, out, indices);
  }
};
struct FractionalMaxPool2dBackward : at::meta::structured_fractional_max_pool2d_backward {
  void impl(const Tensor& grad_output, const Tensor&, IntArrayRef, IntArrayRef, const Tensor& indices,
            const Tensor& grad_input) {
    scatter("aten::fractional_max_pool2d_backward", grad_output, indices, grad_input, 2, false);
  }
};
// Its meta() returns precomputed values, which structured<>() does not handle.
std::tuple<Tensor&, Tensor&> fractional_max_pool3d_out(const Tensor& self, IntArrayRef ker, IntArrayRef size,
                                                       const Tensor& samples, Tensor& out, Tensor& indices) {
  structured_detail::Op<at::meta::structured_fractional_max_pool3d, 2> op(Form::kOut);
  op.outputs = {out, indices};
  op.meta(self, ker, size, samples);
  fractional_forward("aten::fractional_max_pool3d", self, ker, samples, out, indices);
  return {out, indices};
}
std::tuple<Tensor, Tensor> fractional_max_pool3d(const Tensor& self, IntArrayRef ker, IntArrayRef size,
                                                 const Tensor& samples) {
  structured_detail::Op<at::meta::structured_fractional_max_pool3d, 2> op(Form::kFunctional);
  op.meta(self, ker, size, samples);
  fractional_forward("aten::fractional_max_pool3d", self, ker, samples, op.outputs[0], op.outputs[1]);
  return {op.outputs[0], op.outputs[1]};
}
Tensor& fractional_max_pool3d_backward_out(const Tensor& grad_output, const Tensor& self, IntArrayRef, IntArrayRef size,
                                           const Tensor& indices, Tensor& grad_input) {
  const char* op = "aten::fractional_max_pool3d_backward";
  TORCH_CHECK(grad_output.dim() == self.dim() && grad_output.sizes().slice(self.dim() - 3) == size, op,
              ": expected a gradient of spatial size ", size, ", got shape ", grad_output.sizes());
  check_out(op, grad_input, self.options());
  at::native::resize_output(grad_input, self.sizes());
  scatter(op, grad_output, indices, grad_input, 3, false);
  return grad_input;
}
Tensor fractional_max_pool3d_backward(const Tensor& grad_output, const Tensor& self, IntArrayRef ker, IntArrayRef size,
                                      const Tensor& indices) {
  Tensor grad_input = at::empty(self.sizes(), self.options());
  return fractional_max_pool3d_backward_out(grad_output, self, ker, size, indices, grad_input);
}

// --- average pooling ------------------------------------------------------------------------------------

// avg_pool2d's meta() returns precomputed values, which structured<>() does not handle.
Tensor avg_pool2d(const Tensor& self, IntArrayRef ker, IntArrayRef stride, IntArrayRef pad, bool ceil_mode,
                  bool include_pad, std::optional<int64_t> divisor) {
  structured_detail::Op<at::meta::structured_avg_pool2d, 1> op(Form::kFunctional);
  op.meta(self, ker, stride, pad, ceil_mode, include_pad, divisor);
  avg_forward("aten::avg_pool2d", self, {2, ker, stride, pad, {}, include_pad, divisor}, op.outputs[0]);
  return op.outputs[0];
}
Tensor& avg_pool2d_out(const Tensor& self, IntArrayRef ker, IntArrayRef stride, IntArrayRef pad, bool ceil_mode,
                       bool include_pad, std::optional<int64_t> divisor, Tensor& out) {
  structured_detail::Op<at::meta::structured_avg_pool2d, 1> op(Form::kOut);
  op.outputs[0] = out;
  op.meta(self, ker, stride, pad, ceil_mode, include_pad, divisor);
  avg_forward("aten::avg_pool2d", self, {2, ker, stride, pad, {}, include_pad, divisor}, op.outputs[0]);
  return out;
}
struct AvgPool2dBackward : at::meta::structured_avg_pool2d_backward {
  void impl(const Tensor& grad_output, const Tensor&, IntArrayRef ker, IntArrayRef stride, IntArrayRef pad, bool,
            bool include_pad, std::optional<int64_t> divisor, const Tensor& grad_input) {
    avg_backward("aten::avg_pool2d_backward", grad_output, {2, ker, stride, pad, {}, include_pad, divisor}, grad_input);
  }
};
struct AvgPool3d : at::meta::structured_avg_pool3d {
  void impl(const Tensor& self, IntArrayRef ker, IntArrayRef stride, IntArrayRef pad, bool, bool include_pad,
            std::optional<int64_t> divisor, const Tensor& out) {
    avg_forward("aten::avg_pool3d", self, {3, ker, stride, pad, {}, include_pad, divisor}, out);
  }
};
struct AvgPool3dBackward : at::meta::structured_avg_pool3d_backward {
  void impl(const Tensor& grad_output, const Tensor&, IntArrayRef ker, IntArrayRef stride, IntArrayRef pad, bool,
            bool include_pad, std::optional<int64_t> divisor, const Tensor& grad_input) {
    avg_backward("aten::avg_pool3d_backward", grad_output, {3, ker, stride, pad, {}, include_pad, divisor}, grad_input);
  }
};

at::DimVector adaptive_sizes(const char* op, int64_t dims, const Tensor& self, IntArrayRef size) {
  TORCH_CHECK_NOT_IMPLEMENTED(self.is_floating_point(), '"', op, "\" not implemented for '", self.scalar_type(), "'");
  TORCH_CHECK(int64_t(size.size()) == dims, op, ": output_size must be ", dims);
  TORCH_CHECK(self.dim() == dims + 1 || self.dim() == dims + 2, op, "(): Expected ", dims + 1, "D or ", dims + 2,
              "D tensor, but got ", self.sizes());
  for (int64_t d = self.dim() - dims; d < self.dim(); d++) {
    TORCH_CHECK(self.size(d) > 0, op,
                "(): Expected input to have non-zero size for non-batch dimensions, but input has ", "sizes ",
                self.sizes(), " with dimension ", d, " being empty");
  }
  at::DimVector sizes(self.sizes().slice(0, self.dim() - dims));
  sizes.append(size.begin(), size.end());
  return sizes;
}

// Over three dimensions, CPU and CUDA return contiguous tensors.
template <int64_t Dims>
at::MemoryFormat adaptive_format(const Tensor& self) {
  return Dims == 2 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
}
template <int64_t Dims>
Tensor& adaptive_avg_out(const Tensor& self, IntArrayRef size, Tensor& out) {
  const char* op = Dims == 2 ? "adaptive_avg_pool2d" : "adaptive_avg_pool3d";
  TORCH_CHECK(self.scalar_type() == out.scalar_type(), op, ": expected dtype ", self.scalar_type(),
              " for `output` but got dtype ", out.scalar_type());
  at::native::resize_output(out, adaptive_sizes(op, Dims, self, size));
  avg_forward(op, self, {Dims}, out);
  return out;
}
template <int64_t Dims>
Tensor adaptive_avg(const Tensor& self, IntArrayRef size) {
  const char* op = Dims == 2 ? "adaptive_avg_pool2d" : "adaptive_avg_pool3d";
  const auto sizes = adaptive_sizes(op, Dims, self, size);
  Tensor out = at::empty(sizes, self.options().memory_format(adaptive_format<Dims>(self)));
  avg_forward(op, self, {Dims}, out);
  return out;
}
template <int64_t Dims>
Tensor& adaptive_avg_backward_out(const Tensor& grad_output, const Tensor& self, Tensor& grad_input) {
  const char* op = Dims == 2 ? "adaptive_avg_pool2d_backward" : "adaptive_avg_pool3d_backward";
  TORCH_CHECK(grad_output.dim() == self.dim() && grad_output.scalar_type() == self.scalar_type(), op,
              ": expected grad_output of ", self.dim(), " dimensions and dtype ", self.scalar_type(), ", got ",
              grad_output.dim(), " and ", grad_output.scalar_type());
  for (int64_t d = 1; d < grad_output.dim(); d++) {
    TORCH_CHECK(grad_output.size(d) > 0, op,
                "(): Expected grad_output to have non-zero size for non-batch dimensions, ",
                "but grad_output has sizes ", grad_output.sizes(), " with dimension ", d, " being empty");
  }
  at::native::resize_output(grad_input, self.sizes());
  avg_backward(op, grad_output, {Dims}, grad_input);
  return grad_input;
}
template <int64_t Dims>
Tensor adaptive_avg_backward(const Tensor& grad_output, const Tensor& self) {
  Tensor grad_input = at::empty(self.sizes(), self.options().memory_format(adaptive_format<Dims>(self)));
  return adaptive_avg_backward_out<Dims>(grad_output, self, grad_input);
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<MaxPool2d>(m, "max_pool2d_with_indices", nullptr, "max_pool2d_with_indices.out");
  structured<MaxPool2dBackward>(m, "max_pool2d_with_indices_backward", nullptr,
                                "max_pool2d_with_indices_backward.grad_input");
  structured<AdaptiveMaxPool2d>(m, "adaptive_max_pool2d", nullptr, "adaptive_max_pool2d.out");
  structured<AdaptiveMaxPool2dBackward>(m, "adaptive_max_pool2d_backward", nullptr,
                                        "adaptive_max_pool2d_backward.grad_input");
  structured<AdaptiveMaxPool3d>(m, "adaptive_max_pool3d", nullptr, "adaptive_max_pool3d.out");
  structured<AdaptiveMaxPool3dBackward>(m, "adaptive_max_pool3d_backward", nullptr,
                                        "adaptive_max_pool3d_backward.grad_input");
  m.impl("max_pool3d_with_indices", &max_pool3d);
  m.impl("max_pool3d_with_indices.out", &max_pool3d_out);
  m.impl("max_pool3d_with_indices_backward", &max_pool3d_backward);
  m.impl("max_pool3d_with_indices_backward.grad_input", &max_pool3d_backward_out);
  m.impl("max_unpool2d", &max_unpool2d);
  m.impl("max_unpool2d.out", &max_unpool2d_out);
  m.impl("max_unpool3d", &max_unpool3d);
  m.impl("max_unpool3d.out", &max_unpool3d_out);
  structured<FractionalMaxPool2d>(m, "fractional_max_pool2d", nullptr, "fractional_max_pool2d.output");
  structured<FractionalMaxPool2dBackward>(m, "fractional_max_pool2d_backward", nullptr,
                                          "fractional_max_pool2d_backward.grad_input");
  m.impl("fractional_max_pool3d", &fractional_max_pool3d);
  m.impl("fractional_max_pool3d.output", &fractional_max_pool3d_out);
  m.impl("fractional_max_pool3d_backward", &fractional_max_pool3d_backward);
  m.impl("fractional_max_pool3d_backward.grad_input", &fractional_max_pool3d_backward_out);

  m.impl("avg_pool2d", &avg_pool2d);
  m.impl("avg_pool2d.out", &avg_pool2d_out);
  structured<AvgPool2dBackward>(m, "avg_pool2d_backward", nullptr, "avg_pool2d_backward.grad_input");
  structured<AvgPool3d>(m, "avg_pool3d", nullptr, "avg_pool3d.out");
  structured<AvgPool3dBackward>(m, "avg_pool3d_backward", nullptr, "avg_pool3d_backward.grad_input");
  m.impl("_adaptive_avg_pool2d", &adaptive_avg<2>);
  m.impl("adaptive_avg_pool2d.out", &adaptive_avg_out<2>);
  m.impl("_adaptive_avg_pool2d_backward", &adaptive_avg_backward<2>);
  m.impl("_adaptive_avg_pool3d", &adaptive_avg<3>);
  m.impl("adaptive_avg_pool3d.out", &adaptive_avg_out<3>);
  m.impl("_adaptive_avg_pool3d_backward", &adaptive_avg_backward<3>);
  m.impl("adaptive_avg_pool3d_backward.grad_input", &adaptive_avg_backward_out<3>);
}

}  // namespace netcl
