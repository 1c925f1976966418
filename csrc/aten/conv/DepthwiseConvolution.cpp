// Depthwise convolutions of two dimensions on a CPU (kernels/conv/conv_depthwise.cl).
#include <bit>
#include <optional>

#include "args/conv.h"
#include "aten/conv/Convolution.h"
#include "aten/support/Launch.h"

namespace netcl {
namespace {

constexpr int64_t kCopyElements = 4096;  // elements of a strip: half of a first-level cache of 32 KiB in fp32
constexpr int64_t kMostTaps = 49;        // taps, which are unrolled

// Each of `channels` input planes gives `multiplier` output planes. `lo` zeros precede a column and a row; `reversed`
// reads the kernel backwards, as a gradient of the input does.
struct Depthwise {
  int64_t images, channels, multiplier;
  int64_t in_h, in_w, out_h, out_w, ker_h, ker_w;
  int64_t lo_h, lo_w, step_h, step_w;
  bool reversed;

  // The columns of the padded input that a row of the output needs.
  int64_t columns() const { return (out_w - 1) * step_w + ker_w; }
  // The elements of a row of the copy: a power of two, so that the widths of a network share a few kernels.
  int64_t pitch() const { return std::max<int64_t>(16, std::bit_ceil(static_cast<uint64_t>(columns()))); }
  // The rows of the output whose input fits into the copy; 0 if not even one row's input fits.
  int64_t strip_rows() const {
    const int64_t rows = kCopyElements / pitch();
    return rows < ker_h ? 0 : std::min((rows - ker_h) / step_h + 1, out_h);
  }
};

// The call as a convolution with one input plane per output plane, without dilation; nullopt if it is none. A gradient
// of the input is such a convolution of the gradient of the result.
std::optional<Depthwise> depthwise(const ConvCall& call) {
  const ConvGeometry& g = call.g;
  if (g.c_in != 1 || g.groups == 1 || g.dilation != ConvDims{1, 1, 1}) return {};
  if (g.in[0] != 1 || g.kernel[0] != 1 || g.out[0] != 1 || g.padding[0] != 0) return {};
  Depthwise d{};
  d.images = g.images;
  d.channels = g.groups;
  d.multiplier = g.c_out;
  d.in_h = g.in[1];
  d.in_w = g.in[2];
  d.out_h = g.out[1];
  d.out_w = g.out[2];
  d.ker_h = g.kernel[1];
  d.ker_w = g.kernel[2];
  d.lo_h = g.padding[1];
  d.lo_w = g.padding[2];
  d.step_h = g.stride[1];
  d.step_w = g.stride[2];
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
  ConvDepthwiseParams p{};
  p.planes = planes;
  p.planes_per_item = units_per_item(device, planes, plane_work, kPlaneWork);
  p.images = d.images;
  p.channels = d.channels;
  p.multiplier = d.multiplier;
  p.in_h = d.in_h;
  p.in_w = d.in_w;
  p.out_h = d.out_h;
  p.out_w = d.out_w;
  p.lo_h = d.lo_h;
  p.lo_w = d.lo_w;
  p.row_w = std::min(d.in_w, d.columns() - d.lo_w);
  p.step_h = d.step_h;
  p.strip = ceil_div(d.out_h, ceil_div(d.out_h, d.strip_rows()));
  p.reversed = d.reversed;
  return p;
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

bool serves_depthwise(const ConvCall& call) {
  const auto d = depthwise(call);
  if (!d || !netcl::device_of(call.x).is_cpu() || call.source().numel() == 0) return false;
  if (d->out_w < 4 || d->step_w > 2 || d->ker_h * d->ker_w > kMostTaps) return false;
  if (d->lo_h < 0 || d->lo_w < 0 || d->columns() <= d->lo_w) return false;
  // With strips of only a few rows, most of the input would be copied twice.
  return d->strip_rows() == d->out_h || d->strip_rows() >= 2 * d->ker_h;
}

void run_depthwise(const ConvCall& call) {
  const Depthwise d = *depthwise(call);
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
