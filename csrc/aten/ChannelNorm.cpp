#include "aten/ChannelNorm.h"

#include <ATen/ops/empty.h>

#include "aten/support/Walk.h"

namespace netcl {
namespace {

constexpr int64_t kRowElements = 512;        // of a row that holds several pixels
constexpr int64_t kFoldElements = 1 << 15;   // read twice while they are in the second-level cache
constexpr int64_t kShareElements = 1 << 13;  // that pay for a work-item

// Pixels per row: they divide the pixels, so that all rows are whole.
int64_t repeats_of(int64_t pixels, int64_t channels) {
  int64_t n = std::max<int64_t>(1, std::min(kRowElements / channels, pixels));
  while (pixels % n != 0) n--;
  return n;
}

Defs channel_norm_defs(const ChannelNormCall& call, const at::Tensor& x, const at::Tensor& statistic) {
  const auto acc = compute_type(x.scalar_type());
  Defs d;
  d.set("IN", dtype_tag(x.scalar_type())).set("ACC", dtype_tag(acc)).set("VEC", kRowVec);
  d.set("WT", dtype_tag(call.weight_type)).set("RT", dtype_tag(statistic.defined() ? statistic.scalar_type() : acc));
  return d;
}

Kernel& channel_kernel(const at::Tensor& x, const char* name, const Defs& defs) {
  return kernel(netcl::device_of(x), "norm_channels.cl", name, defs);
}

Range items(const ChannelNormParams& p) { return {size_t(p.shares), size_t(p.segments)}; }

// The memory of the work-items: tables, and behind them so many numbers per channel of each share.
at::Tensor work(const ChannelNormParams& p, const at::Tensor& x, int64_t numbers) {
  const int64_t table = round_up(p.repeats * p.channels, kRowVec) + kRowVec, part = round_up(p.channels, kRowVec);
  const int64_t elements = p.segments * p.shares * (CHANNEL_NORM_TABLES * table + numbers * part) + kRowVec;
  return at::empty({elements}, x.options().dtype(compute_type(x.scalar_type())).memory_format(std::nullopt));
}

}  // namespace

std::optional<ChannelNormParams> channel_norm_params(const Device& device, int64_t segments, int64_t pixels,
                                                     int64_t channels, int64_t group) {
  if (!device.is_cpu() || segments * pixels * channels == 0) return std::nullopt;
  ChannelNormParams p{};
  p.segments = segments;
  p.pixels = pixels;
  p.channels = channels;
  p.group = group;
  p.repeats = repeats_of(pixels, channels);
  if (p.repeats * channels < kRowVec) return std::nullopt;
  p.rows = pixels / p.repeats;
  const int64_t row = p.repeats * channels, wanted = ceil_div(enough_items(device), segments);
  const int64_t most = std::clamp<int64_t>(pixels * channels / kShareElements, 1, p.rows);
  p.share_rows = ceil_div(p.rows, std::min(wanted, most));
  p.shares = ceil_div(p.rows, p.share_rows);
  p.fold_rows = std::max<int64_t>(kFoldElements / row, 4);
  return p;
}

void channel_norm_train(const ChannelNormCall& call, const at::Tensor& x, const at::Tensor& out, const at::Tensor& mean,
                        const at::Tensor& rstd) {
  const ChannelNormParams& p = call.params;
  const Defs d = channel_norm_defs(call, x, call.running_mean.defined() ? call.running_mean : call.running_var);
  const at::Tensor space = work(p, x, CHANNEL_NORM_MOMENTS);
  if (p.shares > 1)
    channel_kernel(x, "channel_moments", d).launch(call.op, queue_of(x), items(p), {1, 1}, buf(space), buf(x), p);
  channel_kernel(x, "channel_norm", d)
      .launch(call.op, queue_of(x), items(p), {1, 1}, buf(out), buf(mean), buf(rstd), buf(space), buf(x),
              buf_or_null(call.weight), buf_or_null(call.bias), buf_or_null(call.running_mean),
              buf_or_null(call.running_var), p);
}

void batch_norm_channels_eval(const ChannelNormCall& call, const at::Tensor& x, const at::Tensor& out) {
  const ChannelNormParams& p = call.params;
  channel_kernel(x, "channel_norm_eval", channel_norm_defs(call, x, call.running_mean))
      .launch(call.op, queue_of(x), items(p), {1, 1}, buf(out), buf(work(p, x, 0)), buf(x), buf_or_null(call.weight),
              buf_or_null(call.bias), buf(call.running_mean), buf(call.running_var), p);
}

void batch_norm_channels_backward(const ChannelNormCall& call, const at::Tensor& grad, const at::Tensor& x,
                                  const at::Tensor& mean, const at::Tensor& stat, const ChannelNormGrads& grads) {
  const ChannelNormParams& p = call.params;
  const Defs d = channel_norm_defs(call, x, mean);
  const at::Tensor space = work(p, x, CHANNEL_NORM_SUMS);
  if ((p.train && grads.gin.defined()) || grads.gw.defined() || grads.gb.defined()) {
    channel_kernel(x, "channel_grad_sums", d)
        .launch(call.op, queue_of(x), items(p), {1, 1}, buf(space), buf(grad), buf(x), buf(mean), p);
  }
  // Without a gradient of the input, the first share has all that is left.
  const Range global = grads.gin.defined() ? items(p) : Range{1, 1};
  channel_kernel(x, "channel_norm_grad", d)
      .launch(call.op, queue_of(x), global, {1, 1}, buf_or_null(grads.gin), buf_or_null(grads.gw),
              buf_or_null(grads.gb), buf(space), buf(grad), buf(x), buf_or_null(call.weight), buf(mean), buf(stat), p);
}

}  // namespace netcl
