// Batch normalisation and its derivative. Weights and running statistics have the dtype of the float input or a wider
// one; channels come first or last. Saved statistics have the compute type.
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/var_mean.h>

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

Tensor get(OptTensor t) { return t.has_value() && t->defined() ? *t : Tensor(); }
Tensor contiguous(const Tensor& t) { return t.defined() ? t.contiguous() : t; }

// How channels lie in a dense tensor: `runs` runs of hw elements per channel, or `runs` rows that hold all channels.
struct Layout {
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  bool cols = false;
  int64_t runs = 1, channels = 1, hw = 1;

  explicit Layout(const Tensor& input) {
    TORCH_CHECK(input.dim() >= 2, "batch_norm: expected an input of at least 2 dimensions, got ", input.dim());
    channels = input.size(1);
    const int64_t count = channels ? input.numel() / channels : 0;
    const at::MemoryFormat suggested = input.suggest_memory_format();
    if (suggested != at::MemoryFormat::Contiguous && input.is_contiguous(suggested)) format = suggested;
    hw = input.size(0) ? count / input.size(0) : 0;
    runs = input.size(0);
    cols = format != at::MemoryFormat::Contiguous || hw == 1;
    if (cols) {
      runs = count;
      hw = 1;
    }
  }
  // The walk of whole channels.
  Walk walk(const Tensor& x) const {
    const Device& dev = netcl::device_of(x);
    const auto compute = compute_type(x.scalar_type());
    Walk w = cols ? walk_columns(dev, compute, /*outer=*/1, runs, channels)
                  : walk_runs(dev, compute, channels, runs * hw, hw);
    if (runs * hw > (cols ? kLongColumn : kLongRow)) w.defs.set("LONG_ROWS", 1);
    return w;
  }
  // Whether shares of the rows pay for a second launch (measured).
  std::optional<ChannelNormParams> along_channels(const Device& device) const {
    if (!cols || runs < 256 || runs * channels <= 1 << 16) return std::nullopt;
    return channel_norm_params(device, /*segments=*/1, runs, channels, /*group=*/1);
  }
  Tensor dense(const Tensor& t) const { return t.contiguous(format); }
};

struct Params {
  Tensor weight, bias;  // both of one dtype
  c10::ScalarType type;

  Params(const Tensor& input, OptTensor weight_opt, OptTensor bias_opt) {
    weight = contiguous(get(weight_opt));
    bias = contiguous(get(bias_opt));
    type = weight.defined() ? weight.scalar_type() : bias.defined() ? bias.scalar_type() : input.scalar_type();
    if (bias.defined()) bias = bias.to(type);
  }
};

Defs& batch_norm_defs(Defs& d, const Tensor& input, c10::ScalarType params, const Tensor& running_mean,
                      const Tensor& running_var) {
  const Tensor& some = running_mean.defined() ? running_mean : running_var;
  d.set("IN", dtype_tag(input.scalar_type())).set("WT", dtype_tag(params));
  return d.set("RT", dtype_tag(some.defined() ? some.scalar_type() : compute_type(input.scalar_type())));
}

void check_params(const Tensor& input, std::initializer_list<std::pair<const char*, Tensor>> params) {
  for (const auto& [name, t] : params) {
    TORCH_CHECK(!t.defined() || t.numel() == input.size(1), name, " should contain ", input.size(1), " elements not ",
                t.defined() ? t.numel() : 0);
  }
}

// What the input is normalised by: in training its own statistics, else the running ones.
struct Statistics {
  Tensor running_mean, running_var;
  bool training;
  double eps;
  double momentum = 0;                // of the running ones, in a forward pass
  Tensor save_mean{}, save_invstd{};  // what a forward pass saved, for a backward one
};

NormParams norm_params(const Walk& walk, const Layout& layout, const Statistics& stats) {
  return {.walk = walk.params,
          .channels = layout.channels,
          .hw = layout.hw,
          .train = stats.training,
          .eps = wide(stats.eps),
          .momentum = wide(stats.momentum)};
}

// One forward pass: x is dense, and `out` lies as x does. Training saves `mean` and `rstd`.
struct Forward {
  const char* op;
  const Layout& layout;
  const Params& params;
  const Statistics& stats;
  const Tensor &x, &out, &mean, &rstd;
  Tensor running_mean, running_var;  // contiguous
  Defs& defs(Defs& d) const { return batch_norm_defs(d, x, params.type, running_mean, running_var); }
  ChannelNormCall channels(const ChannelNormParams& p) const {
    return {op, p, params.type, params.weight, params.bias, running_mean, running_var};
  }
};

// One backward pass; the operands are dense, and gradients that are not wanted undefined.
struct Backward {
  const char* op;
  const Layout& layout;
  const Params& params;
  const Statistics& stats;
  const Tensor &x, &g, &mean, &rstd;  // if not training, the running mean and variance
  const Tensor &gin, &gw, &gb;
  Defs& defs(Defs& d) const { return batch_norm_defs(d, x, params.type, stats.running_mean, stats.running_var); }
};

// --- shares of channels: several work-groups per channel on a GPU
template <class Call>
std::optional<Walk> plan_shares(const Call& call) {
  const Device& dev = netcl::device_of(call.x);
  if (!call.stats.training) return {};
  Walk walk = call.layout.walk(call.x);
  // Enough groups to fill the device, but no long sums in a work-item.
  const auto group = int64_t(walk.local.x), lanes = call.layout.cols ? 1 : group;
  const int64_t wanted = ceil_div(enough_items(dev, 16), ceil_div(int64_t(walk.global.x), group));
  walk.params.rows_per = std::clamp<int64_t>(ceil_div(walk.params.n, wanted), 8 * lanes, 512 * lanes);
  walk.global.y = size_t(ceil_div(walk.params.n, walk.params.rows_per));
  call.defs(walk.defs);
  return walk;
}

// `numbers` for each channel of each share.
Tensor share_parts(const Walk& walk, const Layout& layout, const Tensor& like, int64_t numbers) {
  return at::empty({int64_t(walk.global.y), layout.channels, numbers}, like.options());
}

void train_shares(const Forward& f, const Walk& walk) {
  Device& dev = netcl::device_of(f.x);
  Queue& queue = queue_of(f.x);
  const NormParams p = norm_params(walk, f.layout, f.stats);
  const Tensor parts = share_parts(walk, f.layout, f.mean, 3);
  kernel(dev, "batch_norm.cl", "batch_norm_parts", walk.defs)
      .launch(f.op, queue, walk.global, walk.local, buf(parts), buf(f.x), p);
  kernel(dev, "batch_norm.cl", "batch_norm_finish", walk.defs)
      .launch(f.op, queue, {size_t(f.layout.channels)}, element_group(dev), buf(f.mean), buf(f.rstd),
              buf_or_null(f.running_mean), buf_or_null(f.running_var), buf(parts), p);
  kernel(dev, "batch_norm.cl", "batch_norm_apply", walk.defs)
      .launch(f.op, queue, {size_t(f.x.numel())}, element_group(dev), buf(f.out), buf(f.x), buf(f.mean), buf(f.rstd),
              buf_or_null(f.params.weight), buf_or_null(f.params.bias), p);
}

void backward_shares(const Backward& b, const Walk& walk) {
  Device& dev = netcl::device_of(b.x);
  Queue& queue = queue_of(b.x);
  const NormParams p = norm_params(walk, b.layout, b.stats);
  const Tensor parts = share_parts(walk, b.layout, b.mean, 2);
  const Tensor factors = at::empty({b.layout.channels, 3}, b.mean.options());
  kernel(dev, "batch_norm.cl", "batch_norm_grad_parts", walk.defs)
      .launch(b.op, queue, walk.global, walk.local, buf(parts), buf(b.g), buf(b.x), buf(b.mean), p);
  kernel(dev, "batch_norm.cl", "batch_norm_grad_finish", walk.defs)
      .launch(b.op, queue, {size_t(b.layout.channels)}, element_group(dev), buf_or_null(b.gw), buf_or_null(b.gb),
              buf(factors), buf(parts), buf(b.rstd), buf_or_null(b.params.weight), p);
  if (!b.gin.defined()) return;
  kernel(dev, "batch_norm.cl", "batch_norm_grad_apply", walk.defs)
      .launch(b.op, queue, {size_t(b.x.numel())}, element_group(dev), buf(b.gin), buf(b.g), buf(b.x), buf(b.mean),
              buf(factors), p);
}

// --- channels_last tensors in the order of their memory, on a CPU (ChannelNorm.cpp)
template <class Call>
std::optional<ChannelNormParams> plan_channels(const Call& call) {
  auto p = call.layout.along_channels(netcl::device_of(call.x));
  if (p) {
    p->train = call.stats.training;
    p->eps = wide(call.stats.eps);
    p->momentum = wide(call.stats.momentum);
  }
  return p;
}
void train_channels(const Forward& f, const ChannelNormParams& p) {
  channel_norm_train(f.channels(p), f.x, f.out, f.mean, f.rstd);
}
void eval_channels(const Forward& f, const ChannelNormParams& p) {
  batch_norm_channels_eval(f.channels(p), f.x, f.out);
}
void backward_channels(const Backward& b, const ChannelNormParams& p) {
  batch_norm_channels_backward({b.op, p, b.params.type, b.params.weight, {}, {}, {}}, b.g, b.x, b.mean, b.rstd,
                               {b.gin, b.gw, b.gb});
}

// --- whole channels, and in evaluation, shares or runs of them
template <class Call>
std::optional<Walk> plan_whole(const Call& call) {
  Walk walk = call.layout.walk(call.x);
  call.defs(walk.defs);
  return walk;
}
std::optional<Walk> plan_runs(const Forward& f) {
  const Layout& layout = f.layout;
  const Device& dev = netcl::device_of(f.x);
  Walk walk = layout.cols ? layout.walk(f.x)
                          : walk_rows(dev, compute_type(f.x.scalar_type()), layout.runs * layout.channels, layout.hw,
                                      layout.hw);
  if (layout.cols) {
    walk.params.rows_per = std::max(row_split(dev, layout.runs, layout.channels).rows_per, tuning(dev).norm_rows);
    walk.global.y = size_t(ceil_div(layout.runs, walk.params.rows_per));
  }
  f.defs(walk.defs);
  return walk;
}
void train_whole(const Forward& f, const Walk& walk) {
  kernel(netcl::device_of(f.x), "batch_norm.cl", "batch_norm_train", walk.defs)
      .launch(f.op, queue_of(f.x), walk.global, walk.local, buf(f.out), buf(f.mean), buf(f.rstd), buf(f.x),
              buf_or_null(f.params.weight), buf_or_null(f.params.bias), buf_or_null(f.running_mean),
              buf_or_null(f.running_var), norm_params(walk, f.layout, f.stats));
}
void eval_runs(const Forward& f, const Walk& walk) {
  kernel(netcl::device_of(f.x), "batch_norm.cl", "batch_norm_eval", walk.defs)
      .launch(f.op, queue_of(f.x), walk.global, walk.local, buf(f.out), buf(f.x), buf_or_null(f.params.weight),
              buf_or_null(f.params.bias), buf(f.running_mean), buf(f.running_var),
              norm_params(walk, f.layout, f.stats));
}
void backward_whole(const Backward& b, const Walk& walk) {
  kernel(netcl::device_of(b.x), "batch_norm.cl", "batch_norm_backward", walk.defs)
      .launch(b.op, queue_of(b.x), walk.global, walk.local, buf_or_null(b.gin), buf_or_null(b.gw), buf_or_null(b.gb),
              buf(b.g), buf(b.x), buf_or_null(b.params.weight), buf(b.mean), buf(b.rstd),
              norm_params(walk, b.layout, b.stats));
}

constexpr Way<Forward> kTrain[] = {
    {"shares", take<&plan_shares<Forward>, &train_shares>, Serves::kGpu},
    {"channels", take<&plan_channels<Forward>, &train_channels>, Serves::kCpu},
    {"whole", take<&plan_whole<Forward>, &train_whole>},
};
constexpr Way<Forward> kEval[] = {
    {"channels", take<&plan_channels<Forward>, &eval_channels>, Serves::kCpu},
    {"runs", take<&plan_runs, &eval_runs>},
};
constexpr Way<Backward> kBackward[] = {
    {"shares", take<&plan_shares<Backward>, &backward_shares>, Serves::kGpu},
    {"channels", take<&plan_channels<Backward>, &backward_channels>, Serves::kCpu},
    {"whole", take<&plan_whole<Backward>, &backward_whole>},
};

std::tuple<Tensor, Tensor, Tensor> forward(const char* op, const Tensor& input, const Params& params,
                                           const Statistics& stats) {
  const Layout layout(input);
  const bool training = stats.training;
  const Device& dev = netcl::device_of(input);
  check_floating(dev, input.scalar_type(), op);
  check_params(input, {{"weight", params.weight},
                       {"bias", params.bias},
                       {"running_mean", stats.running_mean},
                       {"running_var", stats.running_var}});
  TORCH_CHECK(training || (stats.running_mean.defined() && stats.running_var.defined()),
              "Expected running_mean and running_var to be defined when training=False");
  const Tensor x = layout.dense(input);
  Tensor out = at::empty_like(x, layout.format);
  const at::TensorOptions options = x.options().dtype(compute_type(x.scalar_type()));
  Tensor mean = at::empty({training ? layout.channels : 0}, options);
  Tensor rstd = at::empty({training ? layout.channels : 0}, options);
  if (x.numel() == 0) return {out, mean.zero_(), rstd.zero_()};
  const Tensor running_mean = contiguous(stats.running_mean), running_var = contiguous(stats.running_var);
  const Forward f{op, layout, params, stats, x, out, mean, rstd, running_mean, running_var};
  training ? run_first(kTrain, dev, f) : run_first(kEval, dev, f);
  // Running statistics are written in place, or if they are strided, through a copy.
  if (training && !running_mean.is_same(stats.running_mean)) stats.running_mean.copy_(running_mean);
  if (training && !running_var.is_same(stats.running_var)) stats.running_var.copy_(running_var);
  return {out, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> backward(const char* op, const Tensor& grad_out, const Tensor& input,
                                            const Params& params, const Statistics& stats, Mask mask) {
  const Layout layout(input);
  Device& dev = netcl::device_of(input);
  check_floating(dev, input.scalar_type(), op);
  check_sizes(op, "grad_out", grad_out, input.sizes());
  check_params(input, {{"weight", params.weight},
                       {"running_mean", stats.running_mean},
                       {"running_var", stats.running_var},
                       {"save_mean", stats.training ? stats.save_mean : Tensor()},
                       {"save_invstd", stats.training ? stats.save_invstd : Tensor()}});
  const bool known = stats.training ? stats.save_mean.defined() && stats.save_invstd.defined()
                                    : stats.running_mean.defined() && stats.running_var.defined();
  TORCH_CHECK(known, op, ": expected the ", stats.training ? "saved" : "running", " mean and variance");
  const Tensor x = layout.dense(input), g = layout.dense(grad_out.to(input.scalar_type()));
  const c10::ScalarType compute = compute_type(x.scalar_type());
  Tensor gin, gw, gb;
  if (mask[0]) gin = at::empty_like(x, layout.format);
  if (mask[1]) gw = at::empty({layout.channels}, x.options().dtype(params.type));
  if (mask[2]) gb = at::empty({layout.channels}, x.options().dtype(params.type));
  if (x.numel() == 0) {
    if (gw.defined()) gw.zero_();
    if (gb.defined()) gb.zero_();
    return {gin, gw, gb};
  }
  const bool train = stats.training;
  const Tensor mean = contiguous(train ? stats.save_mean.to(compute) : stats.running_mean);
  const Tensor rstd = contiguous(train ? stats.save_invstd.to(compute) : stats.running_var);
  run_first(kBackward, dev, Backward{op, layout, params, stats, x, g, mean, rstd, gin, gw, gb});
  return {gin, gw, gb};
}

using Triple = std::tuple<Tensor, Tensor, Tensor>;
using TripleRef = std::tuple<Tensor&, Tensor&, Tensor&>;

TripleRef into(const Triple& from, Tensor& out, Tensor& mean, Tensor& invstd) {
  check_out("native_batch_norm", out, std::get<0>(from).options());
  for (const Tensor& t : {mean, invstd}) check_out("native_batch_norm", t, std::get<1>(from).options());
  at::native::resize_output(out, std::get<0>(from).sizes());
  at::native::resize_output(mean, std::get<1>(from).sizes());
  at::native::resize_output(invstd, std::get<2>(from).sizes());
  out.copy_(std::get<0>(from));
  mean.copy_(std::get<1>(from));
  invstd.copy_(std::get<2>(from));
  return {out, mean, invstd};
}

Triple native_form(const Tensor& input, OptTensor weight, OptTensor bias, OptTensor running_mean, OptTensor running_var,
                   bool training, double momentum, double eps) {
  return forward("aten::native_batch_norm", input, {input, weight, bias},
                 {get(running_mean), get(running_var), training, eps, momentum});
}
TripleRef native_form_out(const Tensor& input, OptTensor weight, OptTensor bias, OptTensor running_mean,
                          OptTensor running_var, bool training, double momentum, double eps, Tensor& out,
                          Tensor& save_mean, Tensor& save_invstd) {
  return into(native_form(input, weight, bias, running_mean, running_var, training, momentum, eps), out, save_mean,
              save_invstd);
}
Triple legit(const Tensor& input, OptTensor weight, OptTensor bias, Tensor& running_mean, Tensor& running_var,
             bool training, double momentum, double eps) {
  return forward("aten::_native_batch_norm_legit", input, {input, weight, bias},
                 {running_mean, running_var, training, eps, momentum});
}
TripleRef legit_out(const Tensor& input, OptTensor weight, OptTensor bias, Tensor& running_mean, Tensor& running_var,
                    bool training, double momentum, double eps, Tensor& out, Tensor& save_mean, Tensor& save_invstd) {
  return into(legit(input, weight, bias, running_mean, running_var, training, momentum, eps), out, save_mean,
              save_invstd);
}
Triple legit_no_stats(const Tensor& input, OptTensor weight, OptTensor bias, bool training, double momentum,
                      double eps) {
  return forward("aten::_native_batch_norm_legit", input, {input, weight, bias}, {{}, {}, training, eps, momentum});
}
TripleRef legit_no_stats_out(const Tensor& input, OptTensor weight, OptTensor bias, bool training, double momentum,
                             double eps, Tensor& out, Tensor& save_mean, Tensor& save_invstd) {
  return into(legit_no_stats(input, weight, bias, training, momentum, eps), out, save_mean, save_invstd);
}
std::tuple<Tensor, Tensor, Tensor, Tensor> with_update(const Tensor& input, OptTensor weight, OptTensor bias,
                                                       Tensor& running_mean, Tensor& running_var, double momentum,
                                                       double eps) {
  auto [out, mean, invstd] = forward("aten::_batch_norm_with_update", input, {input, weight, bias},
                                     {running_mean, running_var, /*training=*/true, eps, momentum});
  return {out, mean, invstd, at::empty({0}, input.options().dtype(at::kByte))};
}
std::tuple<Tensor&, Tensor&, Tensor&, Tensor&> with_update_out(const Tensor& input, OptTensor weight, OptTensor bias,
                                                               Tensor& running_mean, Tensor& running_var,
                                                               double momentum, double eps, Tensor& out,
                                                               Tensor& save_mean, Tensor& save_invstd,
                                                               Tensor& reserve) {
  const auto [y, mean, invstd, none] = with_update(input, weight, bias, running_mean, running_var, momentum, eps);
  into({y, mean, invstd}, out, save_mean, save_invstd);
  return {out, save_mean, save_invstd, reserve};
}
// The mean and the biased variance of each channel; the running variance takes the unbiased one.
std::tuple<Tensor, Tensor> update_stats(const Tensor& input, OptTensor running_mean, OptTensor running_var,
                                        double momentum) {
  check_floating(netcl::device_of(input), input.scalar_type(), "aten::batch_norm_update_stats");
  const Layout layout(input);
  at::DimVector dims;
  for (int64_t d = 0; d < input.dim(); d++)
    if (d != 1) dims.push_back(d);
  const Tensor x = input.to(compute_type(input.scalar_type()));
  auto [var, mean] = at::var_mean(x, at::OptionalIntArrayRef(dims), /*correction=*/0);
  const double n = double(input.numel() / std::max<int64_t>(layout.channels, 1));
  if (const Tensor r = get(running_mean); r.defined()) r.mul_(1 - momentum).add_(mean, momentum);
  if (const Tensor r = get(running_var); r.defined()) r.mul_(1 - momentum).add_(var, momentum * n / (n - 1));
  return {mean, var};
}
Triple native_batch_norm_backward(const Tensor& grad_out, const Tensor& input, OptTensor weight, OptTensor running_mean,
                                  OptTensor running_var, OptTensor save_mean, OptTensor save_invstd, bool train,
                                  double eps, Mask mask) {
  return backward("aten::native_batch_norm_backward", grad_out, input, {input, weight, std::nullopt},
                  {.running_mean = get(running_mean),
                   .running_var = get(running_var),
                   .training = train,
                   .eps = eps,
                   .save_mean = get(save_mean),
                   .save_invstd = get(save_invstd)},
                  mask);
}
Triple batch_norm_backward(const Tensor& grad_out, const Tensor& input, const Tensor& weight, OptTensor running_mean,
                           OptTensor running_var, OptTensor save_mean, OptTensor save_var, bool update, double eps,
                           Mask mask, const Tensor& reserve) {
  return backward("aten::batch_norm_backward", grad_out, input, {input, weight, std::nullopt},
                  {.running_mean = get(running_mean),
                   .running_var = get(running_var),
                   .training = update,
                   .eps = eps,
                   .save_mean = get(save_mean),
                   .save_invstd = get(save_var)},
                  mask);
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", &native_form);
  m.impl("native_batch_norm.out", &native_form_out);
  m.impl("_native_batch_norm_legit", &legit);
  m.impl("_native_batch_norm_legit.out", &legit_out);
  m.impl("_native_batch_norm_legit.no_stats", &legit_no_stats);
  m.impl("_native_batch_norm_legit.no_stats_out", &legit_no_stats_out);
  m.impl("_batch_norm_with_update", &with_update);
  m.impl("_batch_norm_with_update.out", &with_update_out);
  m.impl("batch_norm_update_stats", &update_stats);
  m.impl("native_batch_norm_backward", &native_batch_norm_backward);
  m.impl("batch_norm_backward", &batch_norm_backward);
}

}  // namespace netcl
