// uint8 images. The host computes weights in double and rounds them to 16-bit integers; the device adds in 32 bits.
// Each of the two passes rounds to bytes.
#include "aten/UpsampleBytes.h"

#include <ATen/native/UpSample.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "args/upsample.h"
#include "aten/support/Rows.h"

namespace netcl {
namespace {

using at::Tensor;

double filter(int reach, bool antialias, double x) {
  x = std::abs(x);
  if (x >= reach) return 0;
  if (reach == 1) return 1 - x;
  if (reach == 2) {
    const double a = antialias ? -0.5 : -0.75;
    return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  }
  const double turn = M_PI * x;
  return x == 0 ? 1 : 3 * std::sin(turn) * std::sin(turn / 3) / (turn * turn);
}

// The weights of one dimension, for each of `out` positions.
struct Taps {
  int64_t most;            // columns of the weights
  int64_t precision = 0;   // bits of the weights after the binary point
  Tensor weights, starts;  // int16 (out, most), and int64 (out, 2): position of the first tap, number of taps

  Taps(int reach, bool antialias, bool align, const std::optional<double>& given, int64_t in, int64_t out) {
    const double scale = at::native::area_pixel_compute_scale<double>(in, out, align, given);
    const double support = antialias && scale >= 1 ? reach * scale : reach;
    most = antialias ? 2 * static_cast<int64_t>(std::ceil(support)) + 1 : 2 * reach;
    const Tensor exact = at::zeros({out, most}, at::kDouble);
    starts = at::empty({out, 2}, at::kLong);
    auto* s = starts.mutable_data_ptr<int64_t>();
    auto* w = exact.mutable_data_ptr<double>();
    for (int64_t o = 0; o < out; o++) {
      if (antialias) {
        spread(reach, scale, support, in, o, w + o * most, s + 2 * o);
      } else {
        interpolate(reach, scale, align, in, o, w + o * most, s + 2 * o);
      }
    }
    // Use as many bits as keep the largest weight below 2^15.
    double largest = 0;
    for (int64_t k = 0; k < out * most; k++) largest = std::max(largest, w[k]);
    while (precision < 22 && static_cast<int>(0.5 + largest * (1 << (precision + 1))) < 1 << 15) precision++;
    weights = at::empty({out, most}, at::kShort);
    auto* rounded = weights.mutable_data_ptr<int16_t>();
    for (int64_t k = 0; k < out * most; k++) {
      const double v = w[k] * (1 << precision);
      rounded[k] = static_cast<int16_t>(static_cast<int>(v < 0 ? v - 0.5 : v + 0.5));
    }
  }

 private:
  // If the image shrinks, the filter is wider. Its weights add up to 1.
  void spread(int reach, double scale, double support, int64_t in, int64_t o, double* w, int64_t* start) const {
    const double centre = scale * (o + 0.5), narrow = scale >= 1 ? 1 / scale : 1;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(centre + support + 0.5), in);
    const int64_t count = std::clamp<int64_t>(end - first, 0, most);
    double total = 0;
    for (int64_t k = 0; k < count; k++) total += w[k] = filter(reach, true, (k + first - centre + 0.5) * narrow);
    for (int64_t k = 0; k < count && total != 0; k++) w[k] /= total;
    start[0] = first;
    start[1] = count;
  }

  // Pixels outside the image have the value at its border.
  void interpolate(int reach, double scale, bool align, int64_t in, int64_t o, double* w, int64_t* start) const {
    const double place = at::native::area_pixel_compute_source_index<double>(scale, o, align, reach > 1);
    int64_t index;
    double rest;
    at::native::guard_index_and_lambda(place, in, index, rest);
    const int64_t unbounded = index - reach + 1, first = std::max<int64_t>(unbounded, 0);
    const int64_t count = std::clamp<int64_t>(std::min(index + reach + 1, in) - first, 0, most);
    for (int64_t k = 0; k < most; k++) {
      w[std::clamp(unbounded + k, int64_t{0}, in - 1) - first] += filter(reach, false, k + 1 - reach - rest);
    }
    start[0] = first;
    start[1] = count;
  }
};

// Resamples dimension `dim` of a contiguous tensor.
void pass(const char* op, const Taps& taps, const Tensor& x, int64_t dim, const Tensor& y) {
  Device& dev = netcl::device_of(x);
  const RowSplit split = row_split(dev, y.numel(), 2 * taps.most);
  AntialiasParams p{y.numel(), split.rows_per, x.size(dim), y.size(dim)};
  p.inner = c10::multiply_integers(x.sizes().slice(dim + 1));
  p.taps = taps.most;
  p.precision = int32_t(taps.precision);
  Defs d;
  d.set("IN", "u8").set("OUT", "u8").set("ACC", "i32").set("WT", "i16");
  kernel(dev, "upsample_aa.cl", "aa_forward", d)
      .launch(op, queue_of(x), {split.groups}, element_group(dev), buf(y), buf(x),
              buf(taps.weights.to(x.device(), /*non_blocking=*/true)),
              buf(taps.starts.to(x.device(), /*non_blocking=*/true)), p);
}

}  // namespace

void resample_bytes(const char* op, int reach, bool antialias, const ImageGrids& grids, const Tensor& from,
                    const Tensor& to) {
  Tensor x = from.contiguous();
  for (const int64_t dim : {3, 2}) {
    if (to.size(dim) == x.size(dim)) continue;
    auto sizes = x.sizes().vec();
    sizes[dim] = to.size(dim);
    const Tensor y = at::empty(sizes, x.options());
    const Taps taps(reach, antialias, grids.align_corners, dim == 3 ? grids.scale_w : grids.scale_h, x.size(dim),
                    to.size(dim));
    pass(op, taps, x, dim, y);
    x = y;
  }
  to.copy_(x);
}

}  // namespace netcl
