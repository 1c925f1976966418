// Depthwise convolutions of two dimensions on a CPU (kernels/conv/conv_depthwise.cl).
#include <bit>
#include <optional>

#include "args/conv.h"
#include "aten/conv/ConvWays.h"

namespace netcl {
namespace {

constexpr int64_t kCopyElements = 4096;  // elements of a strip: half of a first-level cache of 32 KiB in fp32
constexpr int64_t kMostTaps = 49;        // taps, which are unrolled

// The call as a convolution with one input plane per output plane, without dilation; nullopt if it is none. A gradient
// of the input is such a convolution of the gradient of the result.
std::optional<Depthwise> depthwise(const ConvCall& call) {
  const ConvGeometry& g = call.g;
  if (g.c_in != 1 || g.groups == 1 || g.dilation != ConvDims{1, 1, 1}) return {};
  if (g.in[0] != 1 || g.kernel[0] != 1 || g.out[0] != 1 || g.padding[0] != 0) return {};
  Depthwise d{g.images,    g.groups,    g.c_out,      g.in[1],      g.in[2],     g.out[1],    g.out[2],
              g.kernel[1], g.kernel[2], g.padding[1], g.padding[2], g.stride[1], g.stride[2], /*reversed=*/false};
  if (call.direction != ConvDirection::kInputGradient) return d;
  if (d.multiplier != 1 || d.step_h != 1 || d.step_w != 1) return {};
  std::swap(d.in_h, d.out_h);
  std::swap(d.in_w, d.out_w);
  d.lo_h = d.ker_h - 1 - d.lo_h;
  d.lo_w = d.ker_w - 1 - d.lo_w;
  d.reversed = true;
  return d;
}

ConvDepthwiseParams params(const Depthwise& d, const Device& device, int64_t planes, int64_t plane_work) {
  const int64_t per_item = units_per_item(device, planes, plane_work, kPlaneWork);
  const int64_t row_w = std::min(d.in_w, d.columns() - d.lo_w);
  const int64_t strip = ceil_div(d.out_h, ceil_div(d.out_h, d.strip_rows()));
  return {planes,  per_item, d.images, d.channels, d.multiplier, d.in_h, d.in_w,    d.out_h,
          d.out_w, d.lo_h,   d.lo_w,   row_w,      d.step_h,     strip,  d.reversed};
}

Defs defs(const Depthwise& d, const Device& device, c10::ScalarType dtype) {
  const auto acc = compute_type(dtype);
  Defs r;
  r.set("ACC", dtype_tag(acc)).set("IO", dtype_tag(dtype));
  r.set("VEC", std::min<int64_t>(register_tile(device, acc).vec, std::bit_floor(static_cast<uint64_t>(d.out_w))));
  r.set("KH", d.ker_h).set("KW", d.ker_w).set("STEP", d.step_w).set("PITCH", d.pitch()).set("SPACE", kCopyElements);
  return r;
}

}  // namespace

int64_t Depthwise::pitch() const { return std::max<int64_t>(16, std::bit_ceil(static_cast<uint64_t>(columns()))); }
int64_t Depthwise::strip_rows() const {
  const int64_t rows = kCopyElements / pitch();
  return rows < ker_h ? 0 : std::min((rows - ker_h) / step_h + 1, out_h);
}

std::optional<Depthwise> plan_depthwise(const ConvCall& call) {
  auto d = depthwise(call);
  if (!d || call.source().numel() == 0) return {};
  if (d->out_w < 4 || d->step_w > 2 || d->ker_h * d->ker_w > kMostTaps) return {};
  if (d->lo_h < 0 || d->lo_w < 0 || d->columns() <= d->lo_w) return {};
  // With strips of only a few rows, most of the input would be copied twice.
  const int64_t rows = d->strip_rows();
  return rows == d->out_h || rows >= 2 * d->ker_h ? d : std::nullopt;
}

void run_depthwise(const ConvCall& call, const Depthwise& d) {
  const at::Tensor& source = call.source();
  Queue& queue = queue_of(source);
  const bool of_weight = call.direction == ConvDirection::kWeightGradient;
  const int64_t taps_work = d.out_h * d.out_w * d.ker_h * d.ker_w;
  const int64_t planes = d.channels * (of_weight ? d.multiplier : d.images);
  const ConvDepthwiseParams p = params(d, queue.device(), planes, taps_work * (of_weight ? d.images : d.multiplier));
  auto& k = kernel(queue.device(), "conv/conv_depthwise.cl", of_weight ? "conv_depthwise_weight" : "conv_depthwise",
                   defs(d, queue.device(), source.scalar_type()));
  const Range items{size_t(ceil_div(p.planes, p.planes_per_item))};
  if (of_weight) {
    k.launch(call.op, queue, items, {1}, buf(source), buf(call.y), buf(call.w), p);
  } else {
    const at::Tensor bias =
        call.bias.defined() ? call.bias.to(compute_type(source.scalar_type())).contiguous() : call.bias;
    k.launch(call.op, queue, items, {1}, buf(source), buf(call.w), buf_or_null(bias), buf(call.result()), p);
  }
}

}  // namespace netcl
