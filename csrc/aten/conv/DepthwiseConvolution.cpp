#include "aten/conv/DepthwiseConvolution.h"

#include <bit>

#include "args/conv.h"
#include "aten/support/Launch.h"

namespace netcl {
namespace {

constexpr int64_t kCopyElements = 4096;  // of a strip of a plane: half of a first-level cache of 32 KiB in fp32
constexpr int64_t kMostTaps = 49;        // unrolled
constexpr int64_t kItemWork = 1 << 16;   // multiply-adds that are worth a work-item

// Columns of the padded input that a row of the output needs.
int64_t columns(const Depthwise& d) { return (d.out_w - 1) * d.step_w + d.ker_w; }
// Elements of a row of the copy. Powers of two, so that the widths of a network share a few kernels.
int64_t pitch(const Depthwise& d) { return std::max<int64_t>(16, std::bit_ceil(uint64_t(columns(d)))); }
int64_t copy_rows(const Depthwise& d, int64_t out_rows) { return (out_rows - 1) * d.step_h + d.ker_h; }
// Rows of the output whose input fits into the copy; 0 where not even one's does.
int64_t strip_rows(const Depthwise& d) {
  const int64_t rows = kCopyElements / pitch(d);
  return rows < d.ker_h ? 0 : std::min((rows - d.ker_h) / d.step_h + 1, d.out_h);
}

void launch(const char* name, const char* which, const char* op, const Depthwise& d, int64_t planes, int64_t plane_work,
            const at::Tensor& x, const Buf& b, const Buf& c, const at::Tensor* out) {
  Queue& queue = queue_of(x);
  const auto acc = compute_type(x.scalar_type());
  const int64_t units = queue.device().compute_units();
  const int64_t strip = ceil_div(d.out_h, ceil_div(d.out_h, strip_rows(d)));
  ConvDepthwiseParams p{planes, 1,       d.images, d.channels, d.multiplier, d.in_h,
                        d.in_w, d.out_h, d.out_w,  d.lo_h,     d.lo_w};
  p.row_w = std::min(d.in_w, columns(d) - d.lo_w);
  p.step_h = d.step_h;
  p.strip = strip;
  p.reversed = d.reversed;
  // As many planes as make a work-item worth its start, as long as every core has some.
  p.planes_per_item = std::clamp<int64_t>(kItemWork / plane_work, 1, ceil_div(planes, 4 * units));
  Defs defs;
  defs.set(which, int64_t{1}).set("ACC", dtype_tag(acc)).set("IO", dtype_tag(x.scalar_type()));
  defs.set("VEC", std::min<int64_t>(register_tile(queue.device(), acc).vec, std::bit_floor(uint64_t(d.out_w))));
  defs.set("KH", d.ker_h).set("KW", d.ker_w).set("STEP", d.step_w).set("PITCH", pitch(d)).set("SPACE", kCopyElements);
  auto& k = kernel(queue.device(), "conv/conv_depthwise.cl", name, defs);
  const Range items{size_t(ceil_div(planes, p.planes_per_item))};
  if (out) {
    k.launch(op, queue, items, {1}, buf(x), b, c, buf(*out), p);
  } else {
    k.launch(op, queue, items, {1}, buf(x), b, c, p);
  }
}

}  // namespace

bool serves_depthwise(const Depthwise& d, const at::Tensor& x) {
  if (!netcl::device_of(x).is_cpu() || d.out_w < 4 || d.step_w > 2 || d.ker_h * d.ker_w > kMostTaps) return false;
  if (d.lo_h < 0 || d.lo_w < 0 || columns(d) <= d.lo_w) return false;
  // Strips of a few rows would copy most of the input twice.
  return strip_rows(d) == d.out_h || strip_rows(d) >= 2 * d.ker_h;
}

void depthwise_pass(const char* op, const Depthwise& d, const at::Tensor& x, const at::Tensor& w,
                    const at::Tensor& bias, const at::Tensor& out) {
  const int64_t work = d.multiplier * d.out_h * d.out_w * d.ker_h * d.ker_w;
  launch("conv_depthwise", "DEPTHWISE_PASS", op, d, d.images * d.channels, work, x, buf(w), buf_or_null(bias), &out);
}

void depthwise_weight(const char* op, const Depthwise& d, const at::Tensor& x, const at::Tensor& dy,
                      const at::Tensor& dw) {
  const int64_t work = d.images * d.out_h * d.out_w * d.ker_h * d.ker_w;
  launch("conv_depthwise_weight", "DEPTHWISE_WEIGHT", op, d, d.channels * d.multiplier, work, x, buf(dy), buf(dw),
         nullptr);
}

}  // namespace netcl
