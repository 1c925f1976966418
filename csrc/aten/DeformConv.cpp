// torchvision's deform_conv2d and its gradient: matrix products over columns that kernels sample from the input.
#include <ATen/TensorUtils.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "args/vision.h"
#include "aten/support/Atomics.h"
#include "aten/support/Library.h"
#include "aten/support/Rows.h"

namespace netcl {
namespace {

using at::Tensor;

// Elements of the columns of one pass.
constexpr int64_t kColumns = 1 << 24;

struct Pair {
  int64_t h, w;
};
struct Geometry {
  Pair stride, pad, dilation;
  int64_t groups, offset_groups;
  bool use_mask;
};

struct DeformConv {
  const char* op;
  Device& dev;
  Tensor input, weight, offset, mask;
  int64_t groups, per_pass = 1;
  bool use_mask;
  DeformParams p;
  Defs defs;

  DeformConv(const char* op, const Tensor& input_, const Tensor& weight_, const Tensor& offset_, const Tensor& mask_,
             const Geometry& g)
      : op(op), dev(netcl::device_of(input_)), groups(g.groups), use_mask(g.use_mask) {
    const at::TensorArg args[] = {
        {input_, "input", 1}, {weight_, "weight", 2}, {offset_, "offset", 3}, {mask_, "mask", 4}};
    for (const at::TensorArg& arg : args) {
      TORCH_CHECK(arg->device() == input_.device(), op, ": expected ", arg.name, " on ", input_.device(), ", got ",
                  arg->device());
      TORCH_CHECK(arg->dim() == 4 || (arg.pos == 4 && !use_mask), op, ": expected ", arg.name, " of 4 dimensions, got ",
                  arg->dim());
    }
    at::checkAllSameType(op, args);
    check_floating(dev, input_.scalar_type(), op);
    input = input_.contiguous();
    weight = weight_.contiguous();
    offset = offset_.contiguous();
    mask = mask_.contiguous();
    check_geometry(g);
    const Pair stride = g.stride, pad = g.pad, dilation = g.dilation;
    const int64_t kh = weight.size(2), kw = weight.size(3);
    const int64_t out_h = (input.size(2) + 2 * pad.h - dilation.h * (kh - 1) - 1) / stride.h + 1;
    const int64_t out_w = (input.size(3) + 2 * pad.w - dilation.w * (kw - 1) - 1) / stride.w + 1;
    p = {input.size(0), input.size(1), input.size(2), input.size(3),   kh, kw, out_h, out_w, stride.h, stride.w, pad.h,
         pad.w,         dilation.h,    dilation.w,    g.offset_groups, 1,  1};
    check_points(offset, "offset", 2);
    if (use_mask) check_points(mask, "mask", 1);
    TORCH_CHECK(out_h > 0 && out_w > 0, "Calculated output size too small - out_h: ", out_h, " out_w: ", out_w);
    per_pass =
        std::clamp<int64_t>(kColumns / std::max<int64_t>(rows() * pixels(), 1), 1, std::max<int64_t>(images(), 1));
    defs.set("IN", dtype_tag(input.scalar_type())).set("ACC", compute_tag(input.scalar_type()));
  }

  void check_geometry(const Geometry& g) const {
    const int64_t kh = weight.size(2), kw = weight.size(3);
    TORCH_CHECK(kh > 0 && kw > 0, "weight_h: ", kh, " weight_w: ", kw);
    TORCH_CHECK(g.stride.h > 0 && g.stride.w > 0, "stride_h: ", g.stride.h, " stride_w: ", g.stride.w);
    TORCH_CHECK(g.pad.h >= 0 && g.pad.w >= 0, "pad_h: ", g.pad.h, " pad_w: ", g.pad.w);
    TORCH_CHECK(g.dilation.h > 0 && g.dilation.w > 0, "dilation_h: ", g.dilation.h, " dilation_w: ", g.dilation.w);
    TORCH_CHECK(groups > 0 && weight.size(1) * groups == input.size(1) && weight.size(0) % groups == 0, op, ": ",
                groups, " groups of a weight of shape ", weight.sizes(), " do not fit an input of shape ",
                input.sizes());
    TORCH_CHECK(g.offset_groups > 0 && input.size(1) % g.offset_groups == 0, op, ": ", input.size(1),
                " channels cannot be divided into ", g.offset_groups, " groups of offsets");
  }
  // `each`: how many channels of the tensor belong to a tap.
  void check_points(const Tensor& t, const char* name, int64_t each) const {
    const int64_t expected = p.groups * each * p.kernel_h * p.kernel_w;
    TORCH_CHECK(t.size(1) == expected, name, ".shape[1] is not valid: got: ", t.size(1), " expected: ", expected);
    TORCH_CHECK(t.size(0) == p.images, "invalid batch size of ", name);
    TORCH_CHECK(t.size(2) == p.out_h && t.size(3) == p.out_w, name, " output dims: (", t.size(2), ", ", t.size(3),
                ") - computed output dims: (", p.out_h, ", ", p.out_w, ")");
  }

  int64_t images() const { return input.size(0); }
  int64_t pixels() const { return p.out_h * p.out_w; }
  int64_t taps() const { return p.kernel_h * p.kernel_w; }
  int64_t rows() const { return p.channels * taps(); }
  int64_t out_channels() const { return weight.size(0); }
  // The weight as a matrix per group.
  Tensor matrix() const { return weight.view({groups, out_channels() / groups, rows() / groups}); }
  Tensor columns(int64_t n) const { return at::empty({groups, rows() / groups, n * pixels()}, input.options()); }
  // A gradient (n, channels, h, w) as a matrix per group.
  Tensor as_matrix(const Tensor& grad) const {
    return grad.view({grad.size(0), groups, out_channels() / groups, pixels()})
        .permute({1, 2, 0, 3})
        .reshape({groups, out_channels() / groups, grad.size(0) * pixels()});
  }

  // Runs a kernel on n images from `first` on; `per` points and `block` channels per work-item.
  template <class... Bufs>
  void run(const char* name, int64_t n, int64_t per, int64_t block, const Bufs&... bufs) {
    p.images = n;
    p.per = per;
    p.block = std::max<int64_t>(block, 1);
    const int64_t points = n * p.groups * taps() * pixels(), blocks = ceil_div(p.channels / p.groups, p.block);
    if (points * blocks == 0) return;
    kernel(dev, "vision/deform_conv.cl", name, defs)
        .launch(op, queue_of(input), {size_t(ceil_div(points, per)), size_t(blocks)}, element_group(dev), bufs..., p);
  }
  // A CPU's work-item takes a row of pixels and all channels of a group, a GPU's one of each.
  int64_t points_per() const { return all_or_one(dev, p.out_w); }
  int64_t channels_per() const { return all_or_one(dev, p.channels / p.groups); }
  void sample(const Tensor& out, int64_t first, int64_t n) {
    run("deform_columns", n, points_per(), channels_per(), buf(out), part(input, first, n), part(offset, first, n),
        mask_part(first, n));
  }
  Buf part(const Tensor& t, int64_t first, int64_t n) const { return buf(t.narrow(0, first, n)); }
  Buf mask_part(int64_t first, int64_t n) const { return use_mask ? part(mask, first, n) : Buf{nullptr}; }

  Tensor forward(const Tensor& bias) {
    const Tensor out = at::empty({images(), out_channels(), p.out_h, p.out_w}, input.options());
    for (int64_t first = 0; first < images(); first += per_pass) {
      const int64_t n = std::min(per_pass, images() - first);
      const Tensor sampled = columns(n);
      sample(sampled, first, n);
      out.narrow(0, first, n)
          .view({n, groups, out_channels() / groups, pixels()})
          .copy_(at::bmm(matrix(), sampled).view({groups, out_channels() / groups, n, pixels()}).permute({2, 0, 1, 3}));
    }
    return out.add_(bias.view({1, -1, 1, 1}));
  }
};

using Gradients = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

// Adds the gradient of n images from `first` on to `sum`, from that of their columns.
void add_input_gradient(DeformConv& conv, const Tensor& sum, const Tensor& columns, int64_t first, int64_t n) {
  const Defs plain = conv.defs;
  int64_t per = 1, block = 1;
  if (atomic_sums(conv.dev, sum.scalar_type())) {
    define_atomic_sums(conv.defs, sum.scalar_type());
  } else {
    // Points overlap, so a work-item takes all points of an image for some channels, and adds in a fixed order.
    const int64_t wanted = enough_items(conv.dev), channels = conv.p.channels / conv.p.groups;
    per = conv.taps() * conv.pixels();
    block = std::clamp<int64_t>(n * conv.p.channels / wanted, 1, std::clamp<int64_t>(channels, 1, 16));
  }
  conv.run("deform_backward_input", n, per, block, conv.part(sum, first, n), buf(columns),
           conv.part(conv.offset, first, n), conv.mask_part(first, n));
  conv.defs = plain;
}

Gradients gradients(DeformConv& conv, const Tensor& grad, const Tensor& bias) {
  const auto acc = conv.input.options().dtype(compute_type(conv.input.scalar_type()));
  const Tensor input = at::zeros(conv.input.sizes(), acc), offset = at::zeros_like(conv.offset);
  const Tensor weight = at::zeros(conv.matrix().sizes(), acc), mask = at::zeros_like(conv.mask);
  for (int64_t first = 0; first < conv.images(); first += conv.per_pass) {
    const int64_t n = std::min(conv.per_pass, conv.images() - first);
    const Tensor results = conv.as_matrix(grad.narrow(0, first, n));
    const Tensor columns = at::bmm(conv.matrix().transpose(1, 2), results);
    conv.run("deform_backward_offset", n, conv.points_per(), conv.p.channels / conv.p.groups,
             conv.part(offset, first, n), conv.use_mask ? conv.part(mask, first, n) : Buf{nullptr}, buf(columns),
             conv.part(conv.input, first, n), conv.part(conv.offset, first, n), conv.mask_part(first, n));
    add_input_gradient(conv, input, columns, first, n);
    conv.sample(columns, first, n);
    weight.add_(at::bmm(results, columns.transpose(1, 2)));
  }
  const auto type = conv.input.scalar_type();
  return {input.to(type), weight.view(conv.weight.sizes()).to(type), offset, mask,
          grad.sum(at::IntArrayRef{0, 2, 3}).to(bias.scalar_type())};
}

Tensor deform_conv2d(const Tensor& input, const Tensor& weight, const Tensor& offset, const Tensor& mask,
                     const Tensor& bias, int64_t stride_h, int64_t stride_w, int64_t pad_h, int64_t pad_w,
                     int64_t dilation_h, int64_t dilation_w, int64_t groups, int64_t offset_groups, bool use_mask) {
  DeformConv conv("torchvision::deform_conv2d", input, weight, offset, mask,
                  {{stride_h, stride_w}, {pad_h, pad_w}, {dilation_h, dilation_w}, groups, offset_groups, use_mask});
  return conv.forward(bias);
}

Gradients deform_conv2d_backward(const Tensor& grad, const Tensor& input, const Tensor& weight, const Tensor& offset,
                                 const Tensor& mask, const Tensor& bias, int64_t stride_h, int64_t stride_w,
                                 int64_t pad_h, int64_t pad_w, int64_t dilation_h, int64_t dilation_w, int64_t groups,
                                 int64_t offset_groups, bool use_mask) {
  DeformConv conv("torchvision::_deform_conv2d_backward", input, weight, offset, mask,
                  {{stride_h, stride_w}, {pad_h, pad_w}, {dilation_h, dilation_w}, groups, offset_groups, use_mask});
  const Tensor dense = grad.to(input.scalar_type()).contiguous();
  TORCH_CHECK(dense.sizes() == at::IntArrayRef({conv.images(), conv.out_channels(), conv.p.out_h, conv.p.out_w}),
              conv.op, ": unexpected gradient of shape ", grad.sizes());
  return gradients(conv, dense, bias);
}

}  // namespace

NETCL_LIBRARY_IMPL(torchvision, PrivateUse1, m) {
  m.impl("deform_conv2d", &deform_conv2d);
  m.impl("_deform_conv2d_backward", &deform_conv2d_backward);
}

}  // namespace netcl
