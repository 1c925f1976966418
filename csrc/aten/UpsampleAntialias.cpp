// Anti-aliased resampling of images (the filters that Pillow calls bilinear, bicubic and lanczos) and its derivative:
// one pass down the columns and one along the rows, each with a table of weights.
#include <ATen/native/UpSample.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bicubic2d_aa_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_meta.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "args/upsample.h"
#include "aten/UpsampleBytes.h"
#include "aten/support/Library.h"
#include "aten/support/Rows.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::IntArrayRef;
using at::Tensor;
using ScaleOpt = std::optional<double>;

// The value is the filter's reach on each side, in steps of the coarser grid.
enum class Filter { kLinear = 1, kCubic = 2, kLanczos = 3 };

// Resamples dimension `dim` of a contiguous tensor, or computes the gradient of this.
struct Pass {
  const char* op;
  Device& dev;
  int64_t in, out, taps;
  double scale, support;
  Tensor weights, starts;  // (out, taps), and (out, 2): position of the first tap, number of taps

  Pass(const char* op, Filter filter, const Tensor& like, int64_t in, int64_t out, bool align, const ScaleOpt& given)
      : op(op), dev(netcl::device_of(like)), in(in), out(out) {
    const auto type = compute_type(like.scalar_type());
    scale = type == at::kDouble ? at::native::area_pixel_compute_scale<double>(in, out, align, given)
                                : at::native::area_pixel_compute_scale<float>(in, out, align, given);
    support = double(filter) * std::max(scale, 1.0);
    taps = 2 * int64_t(std::ceil(support)) + 1;
    weights = at::empty({out, taps}, like.options().dtype(type));
    starts = at::empty({out, 2}, like.options().dtype(at::kLong));
    Defs d;
    d.set("IN", dtype_tag(type)).set("OUT", dtype_tag(type)).set("ACC", dtype_tag(type)).set("FILTER", int64_t(filter));
    kernel(dev, "upsample_aa.cl", "aa_weights", d)
        .launch(op, queue_of(like), {size_t(out)}, element_group(dev), buf(weights), buf(starts), in, out, taps,
                wide_high(scale), wide_low(scale));
  }

  Tensor run(bool backward, const Tensor& x, int64_t dim, c10::ScalarType type) const {
    auto sizes = x.sizes().vec();
    sizes[dim] = backward ? in : out;
    Tensor y = at::empty(sizes, x.options().dtype(type));
    Defs d;
    d.set("IN", dtype_tag(x.scalar_type())).set("OUT", dtype_tag(type)).set("ACC", compute_tag(type));
    if (!backward) d.set("WT", dtype_tag(weights.scalar_type()));
    const RowSplit split = row_split(dev, y.numel(), 2 * taps);
    const int64_t inner = c10::multiply_integers(x.sizes().slice(dim + 1));
    const AntialiasParams p{y.numel(), split.rows_per, in, out, inner, taps, 0, 0, float(scale), float(support)};
    kernel(dev, "upsample_aa.cl", backward ? "aa_backward" : "aa_forward", d)
        .launch(op, queue_of(x), {split.groups}, element_group(dev), buf(y), buf(x), buf(weights), buf(starts), p);
    return y;
  }
};

void resample(const char* op, Filter filter, bool backward, const ImageGrids& grids, const Tensor& from,
              const Tensor& to) {
  if (to.numel() == 0) return;
  if (from.scalar_type() == at::kByte && !backward) {
    return resample_bytes(op, static_cast<int>(filter), /*antialias=*/true, grids, from, to);
  }
  check_floating(netcl::device_of(from), from.scalar_type(), op);
  const Tensor &small = backward ? to : from, &large = backward ? from : to;
  const Pass rows(op, filter, from, small.size(3), large.size(3), grids.align_corners, grids.scale_w);
  const Pass columns(op, filter, from, small.size(2), large.size(2), grids.align_corners, grids.scale_h);
  // Between the two passes, numbers stay in the compute type.
  const auto type = from.scalar_type(), wide = compute_type(type);
  const Tensor x = from.contiguous();
  to.copy_(backward ? rows.run(true, columns.run(true, x, 2, wide), 3, type)
                    : columns.run(false, rows.run(false, x, 3, wide), 2, type));
}

template <class Meta, Filter filter>
struct Forward : Meta {
  void impl(const Tensor& x, IntArrayRef, bool align, ScaleOpt scale_h, ScaleOpt scale_w, const Tensor& out) {
    resample("aten::_upsample_aa", filter, false, {align, scale_h, scale_w}, x, out);
  }
};
template <class Meta, Filter filter>
struct Backward : Meta {
  void impl(const Tensor& grad, IntArrayRef, IntArrayRef, bool align, ScaleOpt scale_h, ScaleOpt scale_w,
            const Tensor& out) {
    resample("aten::_upsample_aa_backward", filter, true, {align, scale_h, scale_w}, grad, out);
  }
};

#define NETCL_ANTIALIAS(name, filter)                                                                         \
  structured<Forward<at::meta::structured_##name, Filter::filter>>(m, #name, nullptr, #name ".out");          \
  structured<Backward<at::meta::structured_##name##_backward, Filter::filter>>(m, #name "_backward", nullptr, \
                                                                               #name "_backward.grad_input");

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  NETCL_ANTIALIAS(_upsample_bilinear2d_aa, kLinear)
  NETCL_ANTIALIAS(_upsample_bicubic2d_aa, kCubic)
  NETCL_LANCZOS(NETCL_ANTIALIAS)
}

}  // namespace
}  // namespace netcl
