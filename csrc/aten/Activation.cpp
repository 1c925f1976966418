// Element-wise activations and losses: the expressions of their forward passes are in unary.cl, the others in binary.cl
// and ternary.cl.
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/Activation.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/ops/_prelu_kernel_backward_native.h>
#include <ATen/ops/_prelu_kernel_native.h>
#include <ATen/ops/elu_backward_native.h>
#include <ATen/ops/elu_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu_backward_meta.h>
#include <ATen/ops/gelu_meta.h>
#include <ATen/ops/glu_backward_jvp_native.h>
#include <ATen/ops/glu_jvp_native.h>
#include <ATen/ops/glu_native.h>
#include <ATen/ops/hardshrink_backward_native.h>
#include <ATen/ops/hardshrink_native.h>
#include <ATen/ops/hardsigmoid_backward_native.h>
#include <ATen/ops/hardsigmoid_native.h>
#include <ATen/ops/hardswish_backward_native.h>
#include <ATen/ops/hardswish_native.h>
#include <ATen/ops/hardtanh_backward_native.h>
#include <ATen/ops/hardtanh_native.h>
#include <ATen/ops/huber_loss_backward_native.h>
#include <ATen/ops/huber_loss_native.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/leaky_relu_backward_native.h>
#include <ATen/ops/leaky_relu_native.h>
#include <ATen/ops/logit_backward_native.h>
#include <ATen/ops/mish_backward_native.h>
#include <ATen/ops/mish_native.h>
#include <ATen/ops/mse_loss_backward_native.h>
#include <ATen/ops/mse_loss_native.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu_native.h>
#include <ATen/ops/sigmoid_backward_native.h>
#include <ATen/ops/silu_backward_native.h>
#include <ATen/ops/silu_native.h>
#include <ATen/ops/smooth_l1_loss_backward_native.h>
#include <ATen/ops/smooth_l1_loss_native.h>
#include <ATen/ops/softplus_backward_native.h>
#include <ATen/ops/softplus_native.h>
#include <ATen/ops/softshrink_backward_native.h>
#include <ATen/ops/softshrink_native.h>
#include <ATen/ops/tanh_backward_native.h>
#include <ATen/ops/threshold_backward_native.h>
#include <ATen/ops/threshold_native.h>

#include "args/loss.h"
#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Pointwise.h"
#include "aten/support/Rows.h"
#include "aten/support/Scalars.h"
#include "aten/support/Structured.h"
#include "runtime/Assertions.h"

namespace netcl {

namespace {

using at::Scalar;
using at::Tensor;
using at::TensorIterator;
using at::TensorIteratorBase;

// ATen's classes for gelu differ between CPU and CUDA, so this one is ours.
struct Gelu : at::meta::structured_gelu {
  void impl(const Tensor&, c10::string_view approximate, const Tensor&) {
    const bool tanh = at::native::get_gelutype_enum(approximate) == at::native::GeluType::Tanh;
    pointwise(*this, "unary.cl", tanh ? "gelu_tanh" : "gelu");
  }
};
struct GeluBackward : at::meta::structured_gelu_backward {
  void impl(const Tensor&, const Tensor&, c10::string_view approximate, const Tensor&) {
    const bool tanh = at::native::get_gelutype_enum(approximate) == at::native::GeluType::Tanh;
    pointwise(*this, "binary.cl", tanh ? "gelu_tanh_backward" : "gelu_backward");
  }
};

std::tuple<Tensor&, Tensor&> log_sigmoid_forward_out(const Tensor& self, Tensor& output, Tensor& buffer) {
  check_out("log_sigmoid_forward", buffer, self.options());
  auto iter = at::TensorIteratorConfig().add_output(output).add_const_input(self).build();
  pointwise(iter, "unary.cl", "log_sigmoid");
  return {output, buffer};
}
// The buffer is only useful on the CPU; here it stays empty, as on CUDA.
std::tuple<Tensor, Tensor> log_sigmoid_forward(const Tensor& self) {
  Tensor output = at::empty_like(self), buffer = at::empty({0}, self.options());
  log_sigmoid_forward_out(self, output, buffer);
  return {output, buffer};
}
Tensor& log_sigmoid_backward_out(const Tensor& grad, const Tensor& self, const Tensor&, Tensor& grad_input) {
  auto iter = at::TensorIteratorConfig().add_output(grad_input).add_const_input(self).add_const_input(grad).build();
  pointwise(iter, "binary.cl", "log_sigmoid_backward");
  return grad_input;
}
Tensor log_sigmoid_backward(const Tensor& grad, const Tensor& self, const Tensor& buffer) {
  Tensor grad_input = at::empty_like(grad);
  return log_sigmoid_backward_out(grad, self, buffer, grad_input);
}

Tensor& glu_backward_out(const Tensor& grad, const Tensor& self, int64_t dim, Tensor& grad_input) {
  TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
  const int64_t wrapped = c10::maybe_wrap_dim(dim, self.dim()), size = self.size(wrapped);
  TORCH_CHECK(size % 2 == 0, "Halving dimension must be even, but dimension ", wrapped, " is size ", size);
  at::native::resize_output(grad_input, self.sizes());
  const auto half = [&](const Tensor& t, int64_t which) { return t.narrow(wrapped, which * (size / 2), size / 2); };
  const Tensor first = half(grad_input, 0), second = half(grad_input, 1), a = half(self, 0), b = half(self, 1);
  auto iter = at::TensorIteratorConfig()
                  .resize_outputs(false)
                  .add_output(first)
                  .add_output(second)
                  .add_const_input(grad)
                  .add_const_input(a)
                  .add_const_input(b)
                  .build();
  pointwise(iter, "ternary.cl", "glu_backward_halves");
  return grad_input;
}
Tensor glu_backward(const Tensor& grad, const Tensor& self, int64_t dim) {
  Tensor grad_input = at::empty({0}, self.options());
  return glu_backward_out(grad, self, dim, grad_input);
}

Tensor reduce_loss(const Tensor& loss, const std::optional<Tensor>& weight, int64_t reduction) {
  const Tensor weighted = weight && weight->defined() ? loss * *weight : loss;
  return reduction == at::Reduction::Mean  ? weighted.mean()
         : reduction == at::Reduction::Sum ? weighted.sum()
                                           : weighted;
}
Tensor bce_elements(const Tensor& self, const Tensor& target) {
  TORCH_CHECK(self.sizes() == target.sizes(), "binary_cross_entropy: target size ", target.sizes(),
              " must be the same as input size ", self.sizes());
  const char* op = "aten::binary_cross_entropy";
  Device& dev = netcl::device_of(self);
  check_floating(dev, self.scalar_type(), op);
  TORCH_CHECK(self.scalar_type() == target.scalar_type(), "Found dtype ", target.scalar_type(), " but expected ",
              self.scalar_type());
  // Corresponding elements must lie at the same position in memory.
  const bool alike = self.is_non_overlapping_and_dense() && self.strides() == target.strides();
  const Tensor x = alike ? self : self.contiguous(), y = alike ? target : target.contiguous();
  const Tensor loss = at::empty_like(x);
  if (x.numel() == 0) return loss;
  const int64_t vec = tuning(dev).vec;
  const Split s = split(dev, x.numel(), vec);
  Defs defs;
  defs.set("IN", dtype_tag(x.scalar_type())).set("ACC", compute_tag(x.scalar_type())).set("VEC", vec);
  kernel(dev, "binary_cross_entropy.cl", "binary_cross_entropy", defs)
      .launch(op, queue_of(x), {s.items}, {s.local}, buf(loss), buf(x), buf(y), Buf{assert_buffer(dev)},
              BceParams{x.numel(), s.chunk, assert_message_code(dev, "all elements of input should be between 0 and 1"),
                        assert_message_code(dev, "all elements of target should be between 0 and 1")});
  return loss;
}
Tensor binary_cross_entropy(const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight,
                            int64_t reduction) {
  return reduce_loss(bce_elements(self, target), weight, reduction);
}
Tensor& binary_cross_entropy_out(const Tensor& self, const Tensor& target, const std::optional<Tensor>& weight,
                                 int64_t reduction, Tensor& out) {
  return copy_result("binary_cross_entropy", out, reduce_loss(bce_elements(self, target), weight, reduction));
}
Tensor& binary_cross_entropy_backward_out(const Tensor& grad, const Tensor& self, const Tensor& target,
                                          const std::optional<Tensor>& weight, int64_t reduction, Tensor& grad_input) {
  at::native::resize_output(grad_input, self.sizes());
  auto iter = at::TensorIteratorConfig()
                  .add_output(grad_input)
                  .add_const_input(grad)
                  .add_const_input(self)
                  .add_const_input(target)
                  .resize_outputs(false)
                  .build();
  pointwise(iter, "ternary.cl", "binary_cross_entropy_backward");
  if (weight && weight->defined()) grad_input.mul_(*weight);
  if (reduction == at::Reduction::Mean) grad_input.div_(self.numel());
  return grad_input;
}
Tensor binary_cross_entropy_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                                     const std::optional<Tensor>& weight, int64_t reduction) {
  Tensor grad_input = at::empty_like(self);
  return binary_cross_entropy_backward_out(grad, self, target, weight, reduction, grad_input);
}

// The noise is the slope of each element: a random number if the input is not positive, else 1.
Tensor& rrelu_out(const Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
                  std::optional<at::Generator> generator, Tensor& out) {
  if (!training) return at::leaky_relu_out(out, self, (lower.toDouble() + upper.toDouble()) / 2);
  TORCH_CHECK(self.sizes() == noise.sizes(), "rrelu_with_noise: expected noise of the input's shape ", self.sizes(),
              ", got ", noise.sizes());
  noise.uniform_(lower.toDouble(), upper.toDouble(), generator).masked_fill_(self > 0, 1);
  return at::mul_out(out, self, noise);
}
Tensor rrelu(const Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
             std::optional<at::Generator> generator) {
  Tensor out = at::empty_like(self, at::MemoryFormat::Contiguous);  // as on CPU and CUDA
  return rrelu_out(self, noise, lower, upper, training, generator, out);
}
Tensor& rrelu_(Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
               std::optional<at::Generator> generator) {
  return rrelu_out(self, noise, lower, upper, training, generator, self);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("rrelu_with_noise", &rrelu);
  m.impl("rrelu_with_noise_", &rrelu_);
  m.impl("rrelu_with_noise.out", &rrelu_out);
#define NETCL_IMPL(op) structured<at::native::structured_##op##_out>(m, #op, #op "_", #op ".out");
  NETCL_IMPL(elu)
  NETCL_IMPL(hardsigmoid)
  NETCL_IMPL(leaky_relu)
  NETCL_IMPL(mish)
  NETCL_IMPL(silu)
  NETCL_IMPL(threshold)
#undef NETCL_IMPL
#define NETCL_IMPL(op) structured<at::native::structured_##op##_out>(m, #op, nullptr, #op ".out");
  NETCL_IMPL(glu)
  NETCL_IMPL(hardshrink)
  NETCL_IMPL(mse_loss)
  NETCL_IMPL(smooth_l1_loss)
  NETCL_IMPL(softplus)
  NETCL_IMPL(softshrink)
#undef NETCL_IMPL
#define NETCL_IMPL(op) structured<at::native::structured_##op##_out>(m, #op, nullptr, #op ".grad_input");
  NETCL_IMPL(elu_backward)
  NETCL_IMPL(hardshrink_backward)
  NETCL_IMPL(hardsigmoid_backward)
  NETCL_IMPL(leaky_relu_backward)
  NETCL_IMPL(logit_backward)
  NETCL_IMPL(sigmoid_backward)
  NETCL_IMPL(silu_backward)
  NETCL_IMPL(softplus_backward)
  NETCL_IMPL(softshrink_backward)
  NETCL_IMPL(tanh_backward)
  NETCL_IMPL(threshold_backward)
#undef NETCL_IMPL
  structured<Gelu>(m, "gelu", "gelu_", "gelu.out");
  structured<GeluBackward>(m, "gelu_backward", nullptr, "gelu_backward.grad_input");
  m.impl("relu", &at::native::relu);
  m.impl("relu_", &at::native::relu_);
  m.impl("hardtanh", &at::native::hardtanh);
  m.impl("hardtanh_", &at::native::hardtanh_);
  m.impl("hardtanh.out", &at::native::hardtanh_out);
  m.impl("hardtanh_backward", &at::native::hardtanh_backward);
  m.impl("hardtanh_backward.grad_input", &at::native::hardtanh_backward_out);
  m.impl("hardswish", &at::native::hardswish);
  m.impl("hardswish_", &at::native::hardswish_);
  m.impl("hardswish.out", &at::native::hardswish_out);
  m.impl("hardswish_backward", &at::native::hardswish_backward);
  m.impl("mish_backward", &at::native::mish_backward);
  m.impl("_prelu_kernel", &at::native::_prelu_kernel);
  m.impl("_prelu_kernel_backward", &at::native::_prelu_kernel_backward);
  m.impl("log_sigmoid_forward", &log_sigmoid_forward);
  m.impl("log_sigmoid_forward.output", &log_sigmoid_forward_out);
  m.impl("log_sigmoid_backward", &log_sigmoid_backward);
  m.impl("log_sigmoid_backward.grad_input", &log_sigmoid_backward_out);
  m.impl("binary_cross_entropy", &binary_cross_entropy);
  m.impl("binary_cross_entropy.out", &binary_cross_entropy_out);
  m.impl("binary_cross_entropy_backward", &binary_cross_entropy_backward);
  m.impl("binary_cross_entropy_backward.grad_input", &binary_cross_entropy_backward_out);
  m.impl("glu_backward", &glu_backward);
  m.impl("glu_backward.grad_input", &glu_backward_out);
  m.impl("glu_jvp", &at::native::glu_jvp);
  m.impl("glu_backward_jvp", &at::native::glu_backward_jvp);
  m.impl("mse_loss_backward", &at::native::mse_loss_backward);
  m.impl("mse_loss_backward.grad_input", &at::native::mse_loss_backward_out);
  m.impl("smooth_l1_loss_backward.grad_input", &at::native::smooth_l1_loss_backward_out);
  m.impl("huber_loss", &at::native::huber_loss);
  m.impl("huber_loss.out", &at::native::huber_loss_out);
  m.impl("huber_loss_backward.out", &at::native::huber_loss_backward_out);
}

void elu_kernel(TensorIteratorBase& iter, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale) {
  pointwise(iter, "unary.cl", "elu", {alpha, scale, input_scale});
}
void elu_backward_kernel(TensorIteratorBase& iter, const Scalar& alpha, const Scalar& scale, const Scalar& input_scale,
                         bool is_result) {
  pointwise(iter, "binary.cl", is_result ? "elu_backward_result" : "elu_backward", {alpha, scale, input_scale});
}
void softplus_kernel(TensorIteratorBase& iter, const Scalar& beta, const Scalar& threshold) {
  pointwise(iter, "unary.cl", "softplus", {beta, threshold});
}
void softplus_backward_kernel(TensorIteratorBase& iter, const Scalar& beta, const Scalar& threshold) {
  pointwise(iter, "binary.cl", "softplus_backward", {beta, threshold});
}
void threshold_kernel(TensorIteratorBase& iter, const Scalar& threshold, const Scalar& value) {
  const auto type = iter.dtype();
  pointwise(iter, "binary.cl", "threshold", {in_dtype(threshold, compute_type(type)), in_dtype(value, type)});
}
void hardtanh_backward_kernel(TensorIterator& iter, const Scalar& min, const Scalar& max) {
  pointwise(iter, "binary.cl", "hardtanh_backward", {min, max});
}

}  // namespace

}  // namespace netcl

namespace at::native {
namespace {
#define NETCL_STUB(iterator, file, op)                                   \
  void netcl_##op(iterator& iter) { netcl::pointwise(iter, file, #op); } \
  REGISTER_PRIVATEUSE1_DISPATCH(op##_stub, &netcl_##op)
NETCL_STUB(TensorIteratorBase, "unary.cl", silu)
NETCL_STUB(TensorIteratorBase, "unary.cl", mish)
NETCL_STUB(TensorIteratorBase, "unary.cl", hardsigmoid)
NETCL_STUB(TensorIterator, "unary.cl", hardswish)
NETCL_STUB(TensorIteratorBase, "binary.cl", silu_backward)
NETCL_STUB(TensorIterator, "binary.cl", mish_backward)
NETCL_STUB(TensorIteratorBase, "binary.cl", hardsigmoid_backward)
NETCL_STUB(TensorIterator, "binary.cl", hardswish_backward)
NETCL_STUB(TensorIteratorBase, "binary.cl", glu)
NETCL_STUB(TensorIterator, "binary.cl", prelu)
NETCL_STUB(TensorIterator, "ternary.cl", prelu_backward)
NETCL_STUB(TensorIteratorBase, "ternary.cl", glu_jvp)
#undef NETCL_STUB
#define NETCL_STUB(file, op)                                                                           \
  void netcl_##op(TensorIteratorBase& iter, const Scalar& s) { netcl::pointwise(iter, file, #op, s); } \
  REGISTER_PRIVATEUSE1_DISPATCH(op##_stub, &netcl_##op)
NETCL_STUB("unary.cl", softshrink)
NETCL_STUB("unary.cl", leaky_relu)
NETCL_STUB("binary.cl", leaky_relu_backward)
#undef NETCL_STUB
// Of these, the number is rounded to the tensor's dtype.
#define NETCL_STUB(file, op)                                             \
  void netcl_##op(TensorIteratorBase& iter, const Scalar& s) {           \
    netcl::pointwise(iter, file, #op, netcl::in_dtype(s, iter.dtype())); \
  }                                                                      \
  REGISTER_PRIVATEUSE1_DISPATCH(op##_stub, &netcl_##op)
NETCL_STUB("unary.cl", hardshrink)
NETCL_STUB("binary.cl", shrink_backward)
#undef NETCL_STUB
REGISTER_PRIVATEUSE1_DISPATCH(elu_stub, &netcl::elu_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(elu_backward_stub, &netcl::elu_backward_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(softplus_stub, &netcl::softplus_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(softplus_backward_stub, &netcl::softplus_backward_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(threshold_stub, &netcl::threshold_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(hardtanh_backward_stub, &netcl::hardtanh_backward_kernel)
}  // namespace
}  // namespace at::native
