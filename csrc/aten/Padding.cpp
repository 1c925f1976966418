// Reflection and replication padding with their gradients, and unfold and fold (im2col, col2im). constant_pad_nd is a
// composite operator.
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Padding.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/ops/reflection_pad1d_backward_meta.h>
#include <ATen/ops/reflection_pad1d_meta.h>
#include <ATen/ops/reflection_pad3d_backward_meta.h>
#include <ATen/ops/reflection_pad3d_meta.h>
#include <ATen/ops/replication_pad1d_backward_meta.h>
#include <ATen/ops/replication_pad1d_meta.h>
#include <ATen/ops/replication_pad2d_meta.h>
#include <ATen/ops/replication_pad3d_meta.h>

#include "args/pad.h"
#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::IntArrayRef;
using at::Tensor;

template <class P>
void set_rows(const Device& device, P& p, int64_t rows, int64_t row_size) {
  p.rows = rows;
  p.rows_per_item = ceil_div(tuning(device).padded, std::max<int64_t>(row_size, 1));
}

// The tag of an unsigned integer of the same size, for kernels that only copy bits.
const char* bits_tag(c10::ScalarType type) {
  switch (c10::elementSize(type)) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    case 8:
      return "u64";
    default:
      return dtype_tag(type);
  }
}

Defs pad_defs(c10::ScalarType type, bool bits) {
  Defs d;
  d.set("ACC", bits ? bits_tag(type) : compute_tag(type)).set("IN", bits ? bits_tag(type) : dtype_tag(type));
  return d;
}

// `large` is the padded tensor: the output of the forward pass, the input of the backward pass.
PadParams describe(IntArrayRef padding, const Tensor& small, const Tensor& large) {
  const int64_t dims = padding.size() / 2;
  PadParams p{};
  p.inner = 1;
  for (int64_t d = 0; d < 3; d++) {
    const int64_t i = 2 - d;  // padding lists the last dimension first
    p.in[d] = i < dims ? small.size(-1 - i) : 1;
    p.out[d] = i < dims ? large.size(-1 - i) : 1;
    p.before[d] = i < dims ? padding[2 * i] : 0;
  }
  return p;
}

template <bool Backward>
void pad(const char* op, bool reflect, const Tensor& src, IntArrayRef padding, const Tensor& dst) {
  if (dst.numel() == 0) return;
  if (src.numel() == 0) {
    dst.zero_();
    return;
  }
  const c10::DeviceGuard guard(src.device());
  // If the channels come last, a position holds all of them.
  const bool batched = dst.dim() == int64_t(padding.size()) / 2 + 2;
  const auto format = batched ? dst.suggest_memory_format() : at::MemoryFormat::Contiguous;
  const Tensor from = src.contiguous(format);
  const DenseOut result(dst, format);
  const Tensor& to = result.get();
  Device& device = netcl::device_of(src);
  if (Backward) check_dtype(device, src.scalar_type(), op);
  PadParams p = Backward ? describe(padding, to, from) : describe(padding, from, to);
  if (format != at::MemoryFormat::Contiguous) p.inner = to.size(1);
  const int64_t width = to.size(-1) * p.inner;
  set_rows(device, p, to.numel() / width, width);
  p.reflect = reflect;
  kernel(device, "pad.cl", Backward ? "pad_backward" : "pad_forward", pad_defs(src.scalar_type(), !Backward))
      .launch(op, queue_of(src), row_elements(device, p.rows, p.rows_per_item, width), element_group(device), buf(from),
              buf(to), p);
  result.finish();
}

template <int Dims, bool Reflect>
void check_pad(const Tensor& self, IntArrayRef padding) {
  check_padding<Dims>(self, padding);
  for (int64_t i = 0; Reflect && i < Dims; i++) {
    const int64_t size = self.size(-1 - i);
    TORCH_CHECK(padding[2 * i] < size && padding[2 * i + 1] < size,
                "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding (",
                padding[2 * i], ", ", padding[2 * i + 1], ") at dimension ", self.dim() - 1 - i, " of input ",
                self.sizes());
  }
}

#define NETCL_PAD_FORWARD(Class, name, reflect)                                       \
  struct Class : at::meta::structured_##name {                                        \
    void impl(const Tensor& self, at::ArrayRef<int64_t> padding, const Tensor& out) { \
      pad<false>("aten::" #name, reflect, self, padding, out);                        \
    }                                                                                 \
  };
// ATen's meta functions of the gradients read padding and sizes before they check them.
#define NETCL_PAD_BACKWARD(Class, name, dims, reflect)                                                      \
  struct Class : at::meta::structured_##name {                                                              \
    void meta(const Tensor& grad, const Tensor& self, at::ArrayRef<int64_t> padding) {                      \
      check_pad<dims, reflect>(self, padding);                                                              \
      at::meta::structured_##name::meta(grad, self, padding);                                               \
    }                                                                                                       \
    void impl(const Tensor& grad, const Tensor&, at::ArrayRef<int64_t> padding, const Tensor& grad_input) { \
      pad<true>("aten::" #name, reflect, grad, padding, grad_input);                                        \
    }                                                                                                       \
  };
NETCL_PAD_FORWARD(ReflectionPad1d, reflection_pad1d, true)
NETCL_PAD_FORWARD(ReflectionPad3d, reflection_pad3d, true)
NETCL_PAD_FORWARD(ReplicationPad1d, replication_pad1d, false)
NETCL_PAD_FORWARD(ReplicationPad2d, replication_pad2d, false)
NETCL_PAD_FORWARD(ReplicationPad3d, replication_pad3d, false)
NETCL_PAD_BACKWARD(ReflectionPad1dBackward, reflection_pad1d_backward, 1, true)
NETCL_PAD_BACKWARD(ReflectionPad3dBackward, reflection_pad3d_backward, 3, true)
NETCL_PAD_BACKWARD(ReplicationPad1dBackward, replication_pad1d_backward, 1, false)

// An output in the memory format of the input, as on the CPU.
Tensor like(const Tensor& input, IntArrayRef sizes) {
  return at::empty(sizes, input.options().memory_format(input.suggest_memory_format()));
}
template <class Class>
Tensor pad_like(const Tensor& self, IntArrayRef padding) {
  structured_detail::Op<Class, 1> op(structured_detail::Form::kFunctional);
  op.meta(self, padding);
  const Tensor out = like(self, op.outputs[0].sizes());
  op.impl(self, padding, out);
  return out;
}
Tensor reflection_pad3d_backward(const Tensor& grad, const Tensor& self, IntArrayRef padding) {
  structured_detail::Op<ReflectionPad3dBackward, 1> op(structured_detail::Form::kFunctional);
  op.meta(grad, self, padding);
  const Tensor grad_input = like(self, op.outputs[0].sizes());
  op.impl(grad, self, padding, grad_input);
  return grad_input;
}

// The forms for which ATen has no meta class.
at::DimVector padded_sizes(const char* op, const Tensor& self, IntArrayRef padding) {
  at::DimVector sizes(self.sizes());
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
  for (size_t i = 0; i < padding.size() / 2; i++) {
    auto& size = sizes[sizes.size() - 1 - i];
    size += padding[2 * i] + padding[2 * i + 1];
    least = std::min(least, size);
    most = std::max(most, size);
  }
  TORCH_CHECK(least >= 0 && most >= 1, op, ": input ", self.sizes(), " is too small for padding ", padding);
  return sizes;
}

Tensor& reflection_pad2d_out(const Tensor& self, IntArrayRef padding, Tensor& out) {
  check_pad<2, true>(self, padding);
  check_out("reflection_pad2d", out, self.options());
  at::native::resize_output(out, padded_sizes("reflection_pad2d", self, padding));
  pad<false>("aten::reflection_pad2d", true, apart_from(self, {out}), padding, out);
  return out;
}
Tensor reflection_pad2d(const Tensor& self, IntArrayRef padding) {
  check_pad<2, true>(self, padding);
  const Tensor out = like(self, padded_sizes("reflection_pad2d", self, padding));
  pad<false>("aten::reflection_pad2d", true, self, padding, out);
  return out;
}

template <int Dims, bool Reflect>
Tensor& pad_backward_out(const char* op, const Tensor& grad, const Tensor& self, IntArrayRef padding,
                         Tensor& grad_input) {
  check_pad<Dims, Reflect>(self, padding);
  check_sizes(op, "grad_output", grad, padded_sizes(op, self, padding));
  check_out(op, grad_input, grad.options());
  at::native::resize_output(grad_input, self.sizes());
  pad<true>(op, Reflect, apart_from(grad, {grad_input}), padding, grad_input);
  return grad_input;
}
#define NETCL_PAD_BACKWARD_PAIR(name, dims, reflect)                                                    \
  Tensor& name##_out(const Tensor& grad, const Tensor& self, IntArrayRef padding, Tensor& grad_input) { \
    return pad_backward_out<dims, reflect>("aten::" #name, grad, self, padding, grad_input);            \
  }                                                                                                     \
  Tensor name(const Tensor& grad, const Tensor& self, IntArrayRef padding) {                            \
    Tensor grad_input = like(self, self.sizes());                                                       \
    return name##_out(grad, self, padding, grad_input);                                                 \
  }
NETCL_PAD_BACKWARD_PAIR(reflection_pad2d_backward, 2, true)
NETCL_PAD_BACKWARD_PAIR(replication_pad2d_backward, 2, false)
NETCL_PAD_BACKWARD_PAIR(replication_pad3d_backward, 3, false)

// --- unfold and fold ------------------------------------------------------------------------------------

UnfoldParams describe(IntArrayRef size, IntArrayRef ker, IntArrayRef dil, IntArrayRef pad, IntArrayRef stride) {
  UnfoldParams p{};
  for (int64_t d = 0; d < 2; d++) {
    p.size[d] = size[d];
    p.ker[d] = ker[d];
    p.dil[d] = dil[d];
    p.pad[d] = pad[d];
    p.stride[d] = stride[d];
    p.blocks[d] = div_rtn<int64_t>(size[d] + 2 * pad[d] - (dil[d] * (ker[d] - 1) + 1), stride[d]) + 1;
  }
  return p;
}

void check_pairs(const char* op, std::initializer_list<IntArrayRef> args) {
  for (const auto& a : args) TORCH_CHECK(a.size() == 2, op, ": expected pairs of sizes, but got ", a);
}

// Unfolds or folds. The rows of out have `width` elements, each of which reads at most `each` elements of self.
Tensor& move_windows(bool unfolds, const Tensor& self, Tensor& out, const at::DimVector& sizes, UnfoldParams p,
                     int64_t width, int64_t each) {
  const char* op = unfolds ? "aten::im2col" : "aten::col2im";
  check_out(unfolds ? "im2col" : "col2im", out, self.options());
  at::native::resize_output(out, sizes);
  if (out.numel() == 0) return out;
  const c10::DeviceGuard guard(self.device());
  const Tensor from = apart_from(self, {out}).contiguous();
  const DenseOut result(out);
  const Tensor& to = result.get();
  Device& device = netcl::device_of(self);
  if (!unfolds) check_dtype(device, self.scalar_type(), op);
  set_rows(device, p, to.numel() / width, width * each);
  kernel(device, "pad.cl", unfolds ? "unfold" : "fold", pad_defs(self.scalar_type(), unfolds))
      .launch(op, queue_of(self), row_elements(device, p.rows, p.rows_per_item, width), element_group(device),
              buf(from), buf(to), p);
  result.finish();
  return out;
}

Tensor& im2col_out(const Tensor& self, IntArrayRef ker, IntArrayRef dil, IntArrayRef pad, IntArrayRef stride,
                   Tensor& out) {
  check_pairs("im2col", {ker, dil, pad, stride});
  at::native::im2col_shape_check(self, Tensor(), ker[0], ker[1], dil[0], dil[1], pad[0], pad[1], stride[0], stride[1]);
  const UnfoldParams p = describe(self.sizes().slice(self.dim() - 2), ker, dil, pad, stride);
  at::DimVector sizes{self.size(-3) * ker[0] * ker[1], p.blocks[0] * p.blocks[1]};
  if (self.dim() == 4) sizes.insert(sizes.begin(), self.size(0));
  return move_windows(true, self, out, sizes, p, p.blocks[1], 1);
}
Tensor im2col(const Tensor& self, IntArrayRef ker, IntArrayRef dil, IntArrayRef pad, IntArrayRef stride) {
  Tensor out = at::empty({0}, self.options().memory_format(std::nullopt));
  return im2col_out(self, ker, dil, pad, stride, out);
}

Tensor& col2im_out(const Tensor& self, IntArrayRef size, IntArrayRef ker, IntArrayRef dil, IntArrayRef pad,
                   IntArrayRef stride, Tensor& out) {
  check_pairs("col2im", {size, ker, dil, pad, stride});
  at::native::col2im_shape_check(self, Tensor(), size[0], size[1], ker[0], ker[1], dil[0], dil[1], pad[0], pad[1],
                                 stride[0], stride[1]);
  at::DimVector sizes{self.size(-2) / (ker[0] * ker[1]), size[0], size[1]};
  if (self.dim() == 3) sizes.insert(sizes.begin(), self.size(0));
  return move_windows(false, self, out, sizes, describe(size, ker, dil, pad, stride), size[1], ker[0] * ker[1]);
}
Tensor col2im(const Tensor& self, IntArrayRef size, IntArrayRef ker, IntArrayRef dil, IntArrayRef pad,
              IntArrayRef stride) {
  Tensor out = at::empty({0}, self.options().memory_format(std::nullopt));
  return col2im_out(self, size, ker, dil, pad, stride, out);
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<ReflectionPad1d>(m, "reflection_pad1d", nullptr, "reflection_pad1d.out");
  structured<ReflectionPad1dBackward>(m, "reflection_pad1d_backward", nullptr, "reflection_pad1d_backward.grad_input");
  structured<ReflectionPad3d>(m, nullptr, nullptr, "reflection_pad3d.out");
  m.impl("reflection_pad3d", &pad_like<ReflectionPad3d>);
  structured<ReflectionPad3dBackward>(m, nullptr, nullptr, "reflection_pad3d_backward.grad_input");
  m.impl("reflection_pad3d_backward", &reflection_pad3d_backward);
  structured<ReplicationPad1d>(m, "replication_pad1d", nullptr, "replication_pad1d.out");
  structured<ReplicationPad1dBackward>(m, "replication_pad1d_backward", nullptr,
                                       "replication_pad1d_backward.grad_input");
  structured<ReplicationPad2d>(m, nullptr, nullptr, "replication_pad2d.out");
  m.impl("replication_pad2d", &pad_like<ReplicationPad2d>);
  structured<ReplicationPad3d>(m, nullptr, nullptr, "replication_pad3d.out");
  m.impl("replication_pad3d", &pad_like<ReplicationPad3d>);
  m.impl("reflection_pad2d", &reflection_pad2d);
  m.impl("reflection_pad2d.out", &reflection_pad2d_out);
  m.impl("reflection_pad2d_backward", &reflection_pad2d_backward);
  m.impl("reflection_pad2d_backward.grad_input", &reflection_pad2d_backward_out);
  m.impl("replication_pad2d_backward", &replication_pad2d_backward);
  m.impl("replication_pad2d_backward.grad_input", &replication_pad2d_backward_out);
  m.impl("replication_pad3d_backward", &replication_pad3d_backward);
  m.impl("replication_pad3d_backward.grad_input", &replication_pad3d_backward_out);
  m.impl("im2col", &im2col);
  m.impl("im2col.out", &im2col_out);
  m.impl("col2im", &col2im);
  m.impl("col2im.out", &col2im_out);
}

}  // namespace netcl
