// Layer, root-mean-square, group and weight normalisation and their derivatives. Means and inverse deviations are saved
// in the compute type, as on CUDA.
#include <ATen/TensorOperators.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_weight_norm_differentiable_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/norm_except_dim.h>

#include "aten/ChannelNorm.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Plan.h"
#include "aten/support/Walk.h"

namespace netcl {
namespace {

using at::Tensor;
using OptTensor = const std::optional<Tensor>&;
using Mask = std::array<bool, 3>;

Tensor contiguous_or_undefined(OptTensor t, c10::ScalarType type) {
  return t.has_value() && t->defined() ? t->to(type).contiguous() : Tensor();
}

// The dtype of weight and bias; the input's if there are none.
c10::ScalarType param_type(const Tensor& input, OptTensor weight, OptTensor bias) {
  if (weight.has_value() && weight->defined()) return weight->scalar_type();
  if (bias.has_value() && bias->defined()) return bias->scalar_type();
  return input.scalar_type();
}

Defs& norm_defs(Defs& d, const Tensor& input, c10::ScalarType params, bool rms) {
  if (rms) d.set("OP", "rms_norm");
  return d.set("IN", dtype_tag(input.scalar_type())).set("WT", dtype_tag(params));
}

// The walk of rows of n elements, whose vectors begin again after `run` elements, with the -D options of a norm.
Walk norm_rows(const Tensor& input, c10::ScalarType params, int64_t rows, int64_t n, int64_t run, bool rms = false) {
  Walk walk = walk_rows(netcl::device_of(input), compute_type(input.scalar_type()), rows, n, run);
  if (n > kLongRow) walk.defs.set("LONG_ROWS", 1);
  norm_defs(walk.defs, input, params, rms);
  return walk;
}

at::TensorOptions stat_options(const Tensor& input) { return input.options().dtype(compute_type(input.scalar_type())); }

// gw[c] and gb[c] are the sums over the rows of wpart and bpart.
void sum_parts(const char* op, const Tensor& input, c10::ScalarType params, const Tensor& gw, const Tensor& gb,
               const Tensor& wpart, const Tensor& bpart) {
  const Tensor& some = wpart.defined() ? wpart : bpart;
  if (!some.defined()) return;
  Device& dev = netcl::device_of(some);
  const int64_t parts = some.size(0), n = some.size(1);
  Defs d;
  norm_defs(row_defs(d, dev, some.scalar_type(), n), input, params, /*rms=*/false);
  kernel(dev, "norm.cl", "sum_parts", d)
      .launch(op, queue_of(some), {size_t(ceil_div(n, row_vec(dev, n)))}, element_group(dev), buf_or_null(gw),
              buf_or_null(gb), buf_or_null(wpart), buf_or_null(bpart), parts, n);
}

// The shape of the saved statistics: the input's with 1 in each normalised dimension.
std::vector<int64_t> stat_shape(const Tensor& input, at::IntArrayRef normalized_shape) {
  std::vector<int64_t> shape = input.sizes().vec();
  std::fill(shape.end() - normalized_shape.size(), shape.end(), 1);
  return shape;
}

// One call of a norm over the last dimensions; an RMS norm has no mean and no bias.
struct LayerNorm {
  const char* op;
  bool rms;
  at::IntArrayRef normalized_shape;
  OptTensor weight, bias;
};
struct Normalized {
  Tensor out, mean, rstd;
};

// The walk of a layer norm's rows; `tensors` are dense.
Walk layer_norm_walk(const LayerNorm& norm, const Tensor& input, c10::ScalarType params, int64_t rows, int64_t n,
                     std::initializer_list<Tensor> tensors) {
  auto held = walk_held(netcl::device_of(input), compute_type(input.scalar_type()), rows, n, tensors);
  if (!held) return norm_rows(input, params, rows, n, n, norm.rms);
  norm_defs(held->defs, input, params, norm.rms);
  return *held;
}

Normalized layer_norm_forward(const LayerNorm& norm, const Tensor& input, double eps) {
  const auto& [op, rms, normalized_shape, weight, bias] = norm;
  const c10::ScalarType params = param_type(input, weight, bias);
  const Tensor x = input.contiguous();
  const Tensor w = contiguous_or_undefined(weight, params), b = contiguous_or_undefined(bias, params);
  const auto [rows, n] = at::native::_check_layer_norm_inputs(x, normalized_shape, w, b);
  Device& dev = netcl::device_of(x);
  check_floating(dev, x.scalar_type(), op);
  Normalized r;
  r.out = at::empty_like(x, at::MemoryFormat::Contiguous);
  const auto shape = stat_shape(x, normalized_shape);
  if (!rms) r.mean = at::empty(shape, stat_options(x));
  r.rstd = at::empty(shape, stat_options(x));
  if (rows == 0 || n == 0) {
    // If rows have no elements, the mean is 0 and the deviation is undefined, as on CUDA.
    if (r.mean.defined()) r.mean.zero_();
    if (rows != 0) r.rstd.fill_(std::numeric_limits<double>::quiet_NaN());
    return r;
  }
  Walk walk = layer_norm_walk(norm, x, params, rows, n, {x, r.out, w, b});
  past_cache(walk.defs, dev, r.out, n, row_vec(dev, n), {});
  kernel(dev, "norm.cl", "layer_norm", walk.defs)
      .launch(op, queue_of(x), walk.global, walk.local, buf(r.out), buf_or_null(r.mean), buf(r.rstd), buf(x),
              buf_or_null(w), buf_or_null(b), NormParams{.walk = walk.params, .eps = wide(eps)});
  return r;
}

// The operands of a layer norm's backward pass, dense; those that are missing or not wanted are undefined.
struct LayerNormGrad {
  const char* op;
  const LayerNorm& norm;
  c10::ScalarType params;  // dtype of weight and bias
  Tensor x, g, w, mean, rstd, gin, gw, gb;
  int64_t rows, n;
};

void input_grad(const LayerNormGrad& t, const Walk& walk, const Tensor& wpart, const Tensor& bpart) {
  kernel(netcl::device_of(t.x), "norm.cl", "layer_norm_backward", walk.defs)
      .launch(t.op, queue_of(t.x), walk.global, walk.local, buf_or_null(t.gin), buf_or_null(wpart), buf_or_null(bpart),
              buf(t.g), buf(t.x), buf_or_null(t.mean), buf(t.rstd), buf_or_null(t.w), NormParams{.walk = walk.params});
}

// The gradients of weight and bias: work-groups sum columns of some rows, and sum_parts() adds their results.
void sum_columns(const LayerNormGrad& t) {
  constexpr int64_t kMostGroups = 1024, kMostParts = 128, kRowsEach = 8;
  Device& dev = netcl::device_of(t.x);
  const int64_t group = std::min<int64_t>(128, std::bit_floor(dev.info().max_work_group_size));
  const int64_t vec = whole_vec(t.n, {t.x, t.g}), down = group / COLUMN_ITEMS,
                blocks = ceil_div(t.n, COLUMN_ITEMS * vec);
  const int64_t useful = std::min(std::max<int64_t>(1, kMostGroups / blocks), kMostParts);
  const int64_t rows_per = std::max(ceil_div(t.rows, useful), std::min(t.rows, down * kRowsEach));
  const int64_t parts = ceil_div(t.rows, rows_per);
  Tensor wpart, bpart;
  if (t.gw.defined()) wpart = at::empty({parts, t.n}, stat_options(t.x));
  if (t.gb.defined()) bpart = at::empty({parts, t.n}, stat_options(t.x));
  Defs d;
  held_defs(norm_defs(d, t.x, t.params, t.norm.rms), compute_type(t.x.scalar_type()), vec, 1, 1, group);
  kernel(dev, "norm.cl", "layer_norm_columns", d)
      .launch(t.op, queue_of(t.x), {size_t(parts * blocks * group)}, {size_t(group)}, buf_or_null(wpart),
              buf_or_null(bpart), buf(t.g), buf(t.x), buf_or_null(t.mean), buf(t.rstd),
              NormParams{.walk = {t.rows, rows_per, t.n, 1}});
  sum_parts(t.op, t.x, t.params, t.gw, t.gb, wpart, bpart);
}

// The gradient of the input by rows, and those of weight and bias by columns.
std::optional<Walk> plan_separate(const LayerNormGrad& t) {
  return layer_norm_walk(t.norm, t.x, t.params, t.rows, t.n, {t.x, t.g, t.gin, t.w});
}
void run_separate(const LayerNormGrad& t, const Walk& walk) {
  if (t.gin.defined()) input_grad(t, walk, {}, {});
  if (t.gw.defined() || t.gb.defined()) sum_columns(t);
}

// All in one pass over the rows. A work-item sums its rows before it stores the result, so few of them give few partial
// results.
std::optional<Walk> plan_at_once(const LayerNormGrad& t) {
  const Device& dev = netcl::device_of(t.x);
  Walk walk = norm_rows(t.x, t.params, t.rows, t.n, t.n, t.norm.rms);
  walk.params.rows_per = std::max(even_part(dev, t.rows), std::min(walk.params.rows_per, t.rows));
  walk.global = {static_cast<size_t>(ceil_div(t.rows, walk.params.rows_per))};
  if (t.gin.defined()) past_cache(walk.defs, dev, t.gin, t.n, row_vec(dev, t.n), {});
  return walk;
}
void run_at_once(const LayerNormGrad& t, const Walk& walk) {
  const auto parts = static_cast<int64_t>(walk.global.x);
  Tensor wpart, bpart;
  if (t.gw.defined()) wpart = at::empty({parts, t.n}, stat_options(t.x));
  if (t.gb.defined()) bpart = at::empty({parts, t.n}, stat_options(t.x));
  input_grad(t, walk, wpart, bpart);
  sum_parts(t.op, t.x, t.params, t.gw, t.gb, wpart, bpart);
}

constexpr Way<LayerNormGrad> kLayerNormBackward[] = {
    {"separate", take<&plan_separate, &run_separate>, Serves::kGpu},
    {"at once", take<&plan_at_once, &run_at_once>},
};

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const LayerNorm& norm, const Tensor& grad_out,
                                                       const Tensor& input, const Tensor& mean, const Tensor& rstd,
                                                       Mask mask) {
  const auto& [op, rms, normalized_shape, weight, bias] = norm;
  const c10::ScalarType params = param_type(input, weight, bias);
  const Tensor x = input.contiguous(), g = grad_out.to(x.scalar_type()).contiguous();
  const Tensor w = contiguous_or_undefined(weight, params);
  const c10::ScalarType compute = compute_type(x.scalar_type());
  const Tensor m = rms ? Tensor() : mean.to(compute).contiguous(), rs = rstd.to(compute).contiguous();
  const auto [rows, n] = at::native::_check_layer_norm_inputs(x, normalized_shape, w, Tensor());
  check_sizes(op, "grad_out", grad_out, input.sizes());
  for (const Tensor& t : {m, rs})
    TORCH_CHECK(!t.defined() || t.numel() == rows, op, ": expected statistics of ", rows, " rows, got ", t.sizes());
  Device& dev = netcl::device_of(x);
  check_floating(dev, x.scalar_type(), op);
  Tensor gin, gw, gb;
  const at::TensorOptions param_options = x.options().dtype(params);
  if (mask[0]) gin = at::empty_like(x, at::MemoryFormat::Contiguous);
  if (mask[1]) gw = at::empty(normalized_shape, param_options);
  if (mask[2]) gb = at::empty(normalized_shape, param_options);
  if (rows == 0 || n == 0) {
    if (gw.defined()) gw.zero_();
    if (gb.defined()) gb.zero_();
    return {gin, gw, gb};
  }
  if (!mask[0] && !mask[1] && !mask[2]) return {};
  run_first(kLayerNormBackward, dev, LayerNormGrad{op, norm, params, x, g, w, m, rs, gin, gw, gb, rows, n});
  return {gin, gw, gb};
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm(const Tensor& input, at::IntArrayRef normalized_shape,
                                                     OptTensor weight, OptTensor bias, double eps) {
  const LayerNorm norm{"aten::native_layer_norm", /*rms=*/false, normalized_shape, weight, bias};
  Normalized r = layer_norm_forward(norm, input, eps);
  return {r.out, r.mean, r.rstd};
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(const Tensor& grad_out, const Tensor& input,
                                                              at::IntArrayRef normalized_shape, const Tensor& mean,
                                                              const Tensor& rstd, OptTensor weight, OptTensor bias,
                                                              Mask mask) {
  const LayerNorm norm{"aten::native_layer_norm_backward", /*rms=*/false, normalized_shape, weight, bias};
  return layer_norm_backward(norm, grad_out, input, mean, rstd, mask);
}

std::tuple<Tensor, Tensor> fused_rms_norm(const Tensor& input, at::IntArrayRef normalized_shape, OptTensor weight,
                                          std::optional<double> eps) {
  // The default is the epsilon of the type in which the mean of squares is computed, as on the CPU.
  const double step = compute_type(input.scalar_type()) == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                                       : std::numeric_limits<float>::epsilon();
  const std::optional<Tensor> no_bias;
  const LayerNorm norm{"aten::_fused_rms_norm", /*rms=*/true, normalized_shape, weight, no_bias};
  Normalized r = layer_norm_forward(norm, input, eps.value_or(step));
  return {r.out, r.rstd};
}

std::tuple<Tensor, Tensor> fused_rms_norm_backward(const Tensor& grad_out, const Tensor& input,
                                                   at::IntArrayRef normalized_shape, const Tensor& rstd,
                                                   OptTensor weight, std::array<bool, 2> mask) {
  const std::optional<Tensor> no_bias;
  const LayerNorm norm{"aten::_fused_rms_norm_backward", /*rms=*/true, normalized_shape, weight, no_bias};
  auto [gin, gw, gb] = layer_norm_backward(norm, grad_out, input, Tensor(), rstd, {mask[0], mask[1], false});
  return {gin, gw};
}

// v * (g / |v|), with a norm for each slice along `dim`; also returns the norms, which the derivative needs.
std::tuple<Tensor, Tensor> weight_norm(const Tensor& v, const Tensor& g, int64_t dim) {
  Tensor norms = at::norm_except_dim(v, 2, dim);
  return {v * (g / norms), norms};
}
std::tuple<Tensor, Tensor> weight_norm_backward(const Tensor& grad_w, const Tensor& v, const Tensor& g,
                                                const Tensor& norms, int64_t dim) {
  return at::_weight_norm_differentiable_backward(grad_w, v, g, norms, dim);
}

// group_norm() derives these numbers from the input's shape, but a caller of the inner operator may pass any.
void check_groups(const char* op, const Tensor& input, int64_t N, int64_t C, int64_t HxW, int64_t group) {
  TORCH_CHECK(group > 0 && C % group == 0, "Expected number of channels in input to be divisible by num_groups, ",
              "but got input of shape ", input.sizes(), " and num_groups=", group);
  const double elements = static_cast<double>(N) * static_cast<double>(C) * static_cast<double>(HxW);
  TORCH_CHECK(N >= 0 && C >= 0 && HxW >= 0 && elements == static_cast<double>(input.numel()), op,
              ": expected N, C and HxW of an input of shape ", input.sizes(), ", got ", N, ", ", C, " and ", HxW);
}

std::tuple<Tensor, Tensor, Tensor> native_group_norm(const Tensor& input, OptTensor weight, OptTensor bias, int64_t N,
                                                     int64_t C, int64_t HxW, int64_t group, double eps) {
  const char* op = "aten::native_group_norm";
  check_groups(op, input, N, C, HxW, group);
  Device& dev = netcl::device_of(input);
  const c10::ScalarType params = param_type(input, weight, bias);
  const at::MemoryFormat format = input.suggest_memory_format();
  const bool last = format != at::MemoryFormat::Contiguous && input.size(0) == N && input.size(1) == C;
  auto along = last ? channel_norm_params(dev, N, HxW, C, C / group) : std::nullopt;
  const Tensor x = input.contiguous(along ? format : at::MemoryFormat::Contiguous);
  const Tensor w = contiguous_or_undefined(weight, params), b = contiguous_or_undefined(bias, params);
  for (const Tensor& p : {w, b}) {
    TORCH_CHECK(!p.defined() || (p.dim() == 1 && p.numel() == C),
                "Expected weight and bias to be vectors of size equal to the number of channels in input, but got ",
                p.defined() ? p.sizes() : at::IntArrayRef(), " and input of shape ", input.sizes());
  }
  check_floating(dev, x.scalar_type(), op);
  Tensor out = at::empty_like(x, along ? format : at::MemoryFormat::Contiguous);
  Tensor mean = at::empty({N, group}, stat_options(x)), rstd = at::empty({N, group}, stat_options(x));
  const int64_t rows = N * group, channels = C / group;
  if (rows == 0) return {out, mean, rstd};
  if (channels * HxW == 0) {
    mean.zero_();
    rstd.fill_(std::numeric_limits<double>::quiet_NaN());
    return {out, mean, rstd};
  }
  if (along) {
    along->eps = wide(eps);
    channel_norm_train({op, *along, params, w, b, {}, {}}, x, out, mean, rstd);
    return {out, mean, rstd};
  }
  const Walk walk = norm_rows(x, params, rows, channels * HxW, HxW);
  kernel(dev, "norm.cl", "group_norm", walk.defs)
      .launch(op, queue_of(x), walk.global, walk.local, buf(out), buf(mean), buf(rstd), buf(x), buf_or_null(w),
              buf_or_null(b), NormParams{walk.params, channels, HxW, group, 0, wide(eps), {}});
  return {out.contiguous(format), mean, rstd};
}

// Autograd passes contiguous tensors only.
std::tuple<Tensor, Tensor, Tensor> native_group_norm_backward(const Tensor& grad_out, const Tensor& input,
                                                              const Tensor& mean, const Tensor& rstd, OptTensor weight,
                                                              int64_t N, int64_t C, int64_t HxW, int64_t group,
                                                              Mask mask) {
  const char* op = "aten::native_group_norm_backward";
  check_groups(op, input, N, C, HxW, group);
  TORCH_CHECK(grad_out.sizes() == input.sizes() && mean.numel() == N * group && rstd.numel() == N * group, op,
              ": expected a gradient of the input's shape and ", N * group, " means and reciprocal deviations");
  const c10::ScalarType params = param_type(input, weight, std::nullopt);
  const Tensor x = input.contiguous(), g = grad_out.to(x.scalar_type()).contiguous();
  const Tensor w = contiguous_or_undefined(weight, params);
  const c10::ScalarType compute = compute_type(x.scalar_type());
  const Tensor m = mean.to(compute).contiguous(), rs = rstd.to(compute).contiguous();
  TORCH_CHECK(!w.defined() || w.numel() == C, op, ": expected a weight of ", C, " elements, got ", w.sizes());
  Device& dev = netcl::device_of(x);
  check_floating(dev, x.scalar_type(), op);
  Tensor gin, gw, gb, wpart, bpart;
  if (mask[0]) gin = at::empty_like(x, at::MemoryFormat::Contiguous);
  if (mask[1]) gw = at::empty({C}, x.options().dtype(params));
  if (mask[2]) gb = at::empty({C}, x.options().dtype(params));
  const int64_t rows = N * group, channels = C / group;
  if (rows == 0 || channels * HxW == 0) {
    if (gw.defined()) gw.zero_();
    if (gb.defined()) gb.zero_();
    return {gin, gw, gb};
  }
  if (!mask[0] && !mask[1] && !mask[2]) return {};
  if (mask[1]) wpart = at::empty({N, C}, stat_options(x));
  if (mask[2]) bpart = at::empty({N, C}, stat_options(x));
  const Walk walk = norm_rows(x, params, rows, channels * HxW, HxW);
  kernel(dev, "norm.cl", "group_norm_backward", walk.defs)
      .launch(op, queue_of(x), walk.global, walk.local, buf_or_null(gin), buf_or_null(wpart), buf_or_null(bpart),
              buf(g), buf(x), buf(m), buf(rs), buf_or_null(w),
              NormParams{walk.params, channels, HxW, group, 0, {}, {}});
  sum_parts(op, x, params, gw, gb, wpart, bpart);
  return {gin, gw, gb};
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_layer_norm", &native_layer_norm);
  m.impl("native_layer_norm_backward", &native_layer_norm_backward);
  m.impl("_fused_rms_norm", &fused_rms_norm);
  m.impl("_fused_rms_norm_backward", &fused_rms_norm_backward);
  m.impl("_weight_norm_interface", &weight_norm);
  m.impl("_weight_norm_interface_backward", &weight_norm_backward);
  m.impl("native_group_norm", &native_group_norm);
  m.impl("native_group_norm_backward", &native_group_norm_backward);
}

}  // namespace netcl
