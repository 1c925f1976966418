// torchvision's nms, roi_align, roi_pool, ps_roi_align and ps_roi_pool, with their gradients. torchvision defines the
// operators when it is imported, before or after this library; nothing here is linked with it.
#include <ATen/TensorUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include "args/vision.h"
#include "aten/support/Atomics.h"
#include "aten/support/Library.h"
#include "aten/support/Rows.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

using at::Tensor;

Tensor nms(const Tensor& boxes, const Tensor& scores, double iou_threshold) {
  const char* op = "torchvision::nms";
  TORCH_CHECK(boxes.device() == scores.device(), "boxes and scores should be on the same device, got ", boxes.device(),
              " and ", scores.device());
  TORCH_CHECK(boxes.dim() == 2, "boxes should be a 2d tensor, got ", boxes.dim(), "D");
  TORCH_CHECK(boxes.size(1) == 4, "boxes should have 4 elements in dimension 1, got ", boxes.size(1));
  TORCH_CHECK(scores.dim() == 1, "scores should be a 1d tensor, got ", scores.dim(), "D");
  TORCH_CHECK(boxes.size(0) == scores.size(0),
              "boxes and scores should have same number of elements in dimension 0, got ", boxes.size(0), " and ",
              scores.size(0));
  Device& dev = netcl::device_of(boxes);
  check_floating(dev, boxes.scalar_type(), op);
  const int64_t n = boxes.size(0), size = round_up<int64_t>(n, 64), words = size / 64;
  const auto indices = boxes.options().dtype(at::kLong);
  if (n == 0) return at::empty({0}, indices);
  const Tensor dense = boxes.contiguous();
  const Tensor order = std::get<1>(at::sort(scores, /*stable=*/true, 0, /*descending=*/true));

  const Tuning& t = tuning(dev);
  const c10::ScalarType acc = compute_type(boxes.scalar_type());
  Queue& queue = queue_of(boxes);
  const size_t group = row_group(dev);
  Defs defs;
  defs.set("IN", dtype_tag(boxes.scalar_type())).set("ACC", dtype_tag(acc)).set("GROUP", int64_t(group));
  defs.set("VEC", std::min<int64_t>(acc == at::kDouble ? 8 : 16, t.lanes));

  const Tensor edges = at::empty({5, size}, boxes.options().dtype(acc));
  NmsParams p{n, size, t.boxes, all_or_one(dev, words), {wide_high(iou_threshold), wide_low(iou_threshold)}};
  kernel(dev, "vision/nms.cl", "nms_edges", defs)
      .launch(op, queue, {size_t(ceil_div(size, p.per))}, element_group(dev), buf(edges), buf(dense), buf(order), p);
  const Tensor pairs = at::empty({n, words}, indices);
  p.per = t.box_rows;
  kernel(dev, "vision/nms.cl", "nms_pairs", defs)
      .launch(op, queue, {size_t(ceil_div(n, p.per)), size_t(words / p.words)}, element_group(dev), buf(pairs),
              buf(edges), p);
  const Tensor kept = at::empty({n}, indices), count = at::empty({1}, indices), gone = at::zeros({words}, indices);
  kernel(dev, "vision/nms.cl", "nms_walk", defs)
      .launch(op, queue, {group}, {group}, buf(kept), buf(count), buf(pairs), buf(order), buf(gone), n);
  return kept.narrow(0, 0, count.item<int64_t>());
}

// On a CPU, a work-item takes this many channels of a region, whose points are then computed once.
constexpr int64_t kChannels = 16;

struct Pooled {
  double scale;  // from the regions' units to pixels of the input
  int64_t h, w;  // of the output
  bool by_position = false;
};

// What the pooling operators share. `values` is the input, or the gradient of the output.
struct Roi {
  const char* op;
  Device& dev;
  Tensor values, rois;
  float scale, scale_low;
  RoiParams p;
  Defs defs;
  int32_t sampling = 0, aligned = 1;

  // `shape`: images, channels, height, width of the input.
  Roi(const char* op, const char* of, const Tensor& values_, const Tensor& rois_, std::array<int64_t, 4> shape,
      Pooled out)
      : op(op), dev(netcl::device_of(rois_)), scale(wide_high(out.scale)), scale_low(wide_low(out.scale)) {
    TORCH_CHECK(values_.device() == rois_.device(), op, ": ", of, " and rois should be on the same device, got ",
                values_.device(), " and ", rois_.device());
    const at::TensorArg first{values_, of, 1}, second{rois_, "rois", 2};
    at::checkAllSameType(op, {first, second});
    TORCH_CHECK(rois_.dim() == 2 && rois_.size(1) == 5, "rois must have shape as Tensor[K, 5]");
    TORCH_CHECK(values_.dim() == 4, op, ": expected ", of, " of 4 dimensions, got ", values_.dim());
    TORCH_CHECK(out.h >= 0 && out.w >= 0, op, ": expected an output of a size >= 0, got ", out.h, " x ", out.w);
    check_floating(dev, values_.scalar_type(), op);
    values = values_.contiguous();
    rois = rois_.contiguous();
    int64_t out_channels = shape[1];
    if (out.by_position) {
      TORCH_CHECK(out.h > 0 && out.w > 0 && shape[1] % (out.h * out.w) == 0,
                  "input channels must be a multiple of pooling height * pooling width");
      out_channels /= out.h * out.w;
    }
    TORCH_CHECK_INDEX(shape[0] > 0 || rois.size(0) == 0, op, ": regions of an input without images");
    p = {rois.size(0), shape[0], shape[1], shape[2], shape[3], out_channels, out.h, out.w, 1, 1, 0, out.by_position};
    defs.set("IN", dtype_tag(values.scalar_type())).set("ACC", compute_tag(values.scalar_type()));
    defs.set("BLOCK", all_or_one(dev, kChannels));
  }
  int64_t bins() const { return p.out_h * p.out_w; }
  int64_t results() const { return p.rois * p.out_channels * bins(); }
  Tensor result(c10::ScalarType type) const {
    return at::empty({p.rois, p.out_channels, p.out_h, p.out_w}, values.options().dtype(type));
  }
  bool empty_input() const { return p.images * p.channels * p.height * p.width == 0; }

  void run(const char* name, const char* filter, const Tensor& a, const Tensor& b, const Tensor& c) {
    const int64_t blocks = ceil_div(p.out_channels, p.block);
    const int64_t items = p.by_image ? p.images * blocks : p.rois * blocks * ceil_div(bins(), p.bins_per);
    defs.set("FILTER", filter);
    kernel(dev, "vision/roi.cl", name, defs)
        .launch(op, queue_of(values), {size_t(items)}, element_group(dev), buf_or_null(a), buf_or_null(b),
                buf_or_null(c), buf(rois), Buf{assert_buffer(dev)}, int32_t(assert_code(dev, op)), scale, scale_low,
                sampling, aligned, p);
  }
  // A CPU's work-item takes all bins of a region and a block of channels, a GPU's one element of the output.
  void forward(const char* filter, const Tensor& out, const Tensor& places = {}) {
    if (results() == 0) return;
    if (empty_input()) {
      out.zero_();
      return;
    }
    p.block = all_or_one(dev, kChannels);
    p.bins_per = all_or_one(dev, bins());
    run("roi_pool", filter, out, places, values);
  }
  // Regions overlap. Either a work-item takes all regions of an image for some channels, and adds in a fixed order, or
  // there is one per element and the sums are atomic.
  Tensor backward(const char* filter, const Tensor& places = {}) {
    const c10::ScalarType acc = compute_type(values.scalar_type());
    const Tensor sum = at::zeros({p.images, p.channels, p.height, p.width}, values.options().dtype(acc));
    if (results() > 0 && !empty_input()) {
      if (atomic_sums(dev, acc)) {
        define_atomic_sums(defs, acc);
      } else {
        const int64_t wanted = enough_items(dev);
        p.by_image = 1;
        p.bins_per = bins();
        p.block = std::clamp<int64_t>(p.images * p.out_channels / wanted, 1, kChannels);
      }
      run("roi_backward", filter, sum, values, places);
    }
    return sum.to(values.scalar_type());
  }
};

std::array<int64_t, 4> shape_of(const Tensor& input) {
  TORCH_CHECK(input.dim() == 4, "expected an input of 4 dimensions, got ", input.dim());
  return {input.size(0), input.size(1), input.size(2), input.size(3)};
}

Tensor roi_align(const Tensor& input, const Tensor& rois, double scale, int64_t out_h, int64_t out_w, int64_t sampling,
                 bool aligned) {
  Roi roi("torchvision::roi_align", "input", input, rois, shape_of(input), {scale, out_h, out_w});
  roi.sampling = int32_t(sampling);
  roi.aligned = aligned;
  const Tensor out = roi.result(input.scalar_type());
  roi.forward("POINTS", out);
  return out;
}

Tensor roi_align_backward(const Tensor& grad, const Tensor& rois, double scale, int64_t out_h, int64_t out_w,
                          int64_t images, int64_t channels, int64_t height, int64_t width, int64_t sampling,
                          bool aligned) {
  Roi roi("torchvision::_roi_align_backward", "grad", grad, rois, {images, channels, height, width},
          {scale, out_h, out_w});
  roi.sampling = int32_t(sampling);
  roi.aligned = aligned;
  return roi.backward("POINTS");
}

std::tuple<Tensor, Tensor> roi_pool(const Tensor& input, const Tensor& rois, double scale, int64_t out_h,
                                    int64_t out_w) {
  Roi roi("torchvision::roi_pool", "input", input, rois, shape_of(input), {scale, out_h, out_w});
  const Tensor out = roi.result(input.scalar_type()), places = roi.result(at::kInt);
  if (roi.empty_input()) places.fill_(-1);
  roi.forward("MOST", out, places);
  return {out, places};
}

Tensor roi_pool_backward(const Tensor& grad, const Tensor& rois, const Tensor& places, double scale, int64_t out_h,
                         int64_t out_w, int64_t images, int64_t channels, int64_t height, int64_t width) {
  Roi roi("torchvision::_roi_pool_backward", "grad", grad, rois, {images, channels, height, width},
          {scale, out_h, out_w});
  TORCH_CHECK(places.scalar_type() == at::kInt && places.sizes() == grad.sizes(), roi.op,
              ": expected an argmax of dtype int32 and shape ", grad.sizes(), ", got ", places.scalar_type(), " ",
              places.sizes());
  return roi.backward("MOST", places.contiguous());
}

// The channel of the input for each element of the result, which torchvision's gradients take. netcl's compute it.
Tensor channel_mapping(const Roi& roi) {
  return at::arange(roi.p.channels, roi.values.options().dtype(at::kInt))
      .view({1, roi.p.out_channels, roi.p.out_h, roi.p.out_w})
      .expand({roi.p.rois, -1, -1, -1})
      .contiguous();
}

std::tuple<Tensor, Tensor> ps_roi_align(const Tensor& input, const Tensor& rois, double scale, int64_t out_h,
                                        int64_t out_w, int64_t sampling) {
  Roi roi("torchvision::ps_roi_align", "input", input, rois, shape_of(input), {scale, out_h, out_w, true});
  roi.sampling = int32_t(sampling);
  const Tensor out = roi.result(input.scalar_type());
  roi.forward("POINTS", out);
  return {out, channel_mapping(roi)};
}

Tensor ps_roi_align_backward(const Tensor& grad, const Tensor& rois, const Tensor&, double scale, int64_t out_h,
                             int64_t out_w, int64_t sampling, int64_t images, int64_t channels, int64_t height,
                             int64_t width) {
  Roi roi("torchvision::_ps_roi_align_backward", "grad", grad, rois, {images, channels, height, width},
          {scale, out_h, out_w, true});
  roi.sampling = int32_t(sampling);
  return roi.backward("POINTS");
}

std::tuple<Tensor, Tensor> ps_roi_pool(const Tensor& input, const Tensor& rois, double scale, int64_t out_h,
                                       int64_t out_w) {
  Roi roi("torchvision::ps_roi_pool", "input", input, rois, shape_of(input), {scale, out_h, out_w, true});
  const Tensor out = roi.result(input.scalar_type());
  roi.forward("MEAN", out);
  return {out, channel_mapping(roi)};
}

Tensor ps_roi_pool_backward(const Tensor& grad, const Tensor& rois, const Tensor&, double scale, int64_t out_h,
                            int64_t out_w, int64_t images, int64_t channels, int64_t height, int64_t width) {
  Roi roi("torchvision::_ps_roi_pool_backward", "grad", grad, rois, {images, channels, height, width},
          {scale, out_h, out_w, true});
  return roi.backward("MEAN");
}

}  // namespace

NETCL_LIBRARY_IMPL(torchvision, PrivateUse1, m) {
  m.impl("nms", &nms);
  m.impl("roi_align", &roi_align);
  m.impl("_roi_align_backward", &roi_align_backward);
  m.impl("roi_pool", &roi_pool);
  m.impl("_roi_pool_backward", &roi_pool_backward);
  m.impl("ps_roi_align", &ps_roi_align);
  m.impl("_ps_roi_align_backward", &ps_roi_align_backward);
  m.impl("ps_roi_pool", &ps_roi_pool);
  m.impl("_ps_roi_pool_backward", &ps_roi_pool_backward);
}

}  // namespace netcl
