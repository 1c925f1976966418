// Fake quantisation, for training with quantised weights and activations: ATen's operators with the kernels of
// fake_quantize.cl, and the observer of FusedMovingAvgObsFakeQuantize. The host waits for no number on the device,
// except for a learnable scale of a whole tensor, which ATen reads.
#include <ATen/TensorOperators.h>
#include <ATen/native/quantized/FakeQuantAffine.h>
#include <ATen/ops/_fake_quantize_learnable_per_channel_affine_backward_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_channel_affine_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_tensor_affine_backward_native.h>
#include <ATen/ops/_fake_quantize_learnable_per_tensor_affine_native.h>
#include <ATen/ops/_fake_quantize_per_tensor_affine_cachemask_tensor_qparams_native.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/fake_quantize_per_channel_affine_cachemask_native.h>
#include <ATen/ops/fake_quantize_per_tensor_affine_cachemask_native.h>
#include <ATen/ops/scalar_tensor.h>

#include <array>
#include <limits>

#include "aten/support/Dtypes.h"
#include "aten/support/Library.h"
#include "aten/support/Pointwise.h"

namespace netcl {
namespace {

using at::Scalar;
using at::Tensor;
using at::TensorIterator;

constexpr const char* kFile = "fake_quantize.cl";

// An operator's results of x and parameters, which broadcast. One of these may be a number of the host.
void run(const char* op, at::TensorList results, at::TensorList inputs, c10::ArrayRef<Scalar> scalars) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).allow_cpu_scalars(true).resize_outputs(false);
  for (const Tensor& t : results) config.add_output(t);
  for (const Tensor& t : inputs) config.add_const_input(t);
  auto iter = config.build();
  // Scales are float: rounded to the dtype of a half or bfloat16 input, they would be others.
  pointwise(iter, kFile, op, scalars, compute_type(inputs[0].scalar_type()));
}

Tensor number(double value) { return at::scalar_tensor(value, at::TensorOptions().dtype(at::kDouble)); }

void tensor_kernel(Tensor& output, Tensor& mask, const Tensor& input, float scale, int64_t zero, int64_t low,
                   int64_t high) {
  run("fake_quantize_numbers", {output, mask}, input, {scale, zero, low, high});
}

void tensor_qparams_kernel(Tensor& output, Tensor& mask, const Tensor& input, const Tensor& scale, const Tensor& zero,
                           const Tensor& enabled, int64_t low, int64_t high) {
  // Of one element, whatever their shape.
  run("fake_quantize", {output, mask}, {input, scale.reshape({}), zero.reshape({}), enabled.reshape({})}, {low, high});
}

void channel_kernel(TensorIterator& iter, TensorIterator& iter_mask, int64_t low, int64_t high) {
  const Tensor &input = iter.tensor(1), &scale = iter.tensor(2), &zero = iter.tensor(3);
  run(at::isFloatingType(zero.scalar_type()) ? "fake_quantize_float" : "fake_quantize",
      {iter.tensor(0), iter_mask.tensor(0)}, {input, scale, zero, number(1)}, {low, high});
}

// Outputs: the gradients of x, scale and zero point. Inputs: x, its gradient, and parameters of channels.
void learnable_tensor_kernel(TensorIterator& iter, float scale, float /*inverse*/, int64_t zero, int64_t low,
                             int64_t high, float factor) {
  const std::array<Tensor, 3> inputs{iter.tensor(3), iter.tensor(4), number(factor)};
  run("learn_numbers", {iter.tensor(0), iter.tensor(1)}, inputs, {scale, zero, low, high});
  run("learn_zero_numbers", iter.tensor(2), inputs, {scale, zero, low, high});
}
void learnable_channel_kernel(TensorIterator& iter, int64_t low, int64_t high, float factor) {
  const std::array<Tensor, 4> inputs{iter.tensor(3), iter.tensor(4), iter.tensor(5), iter.tensor(6)};
  run("learn", {iter.tensor(0), iter.tensor(1)}, inputs, {low, high, factor});
  run("learn_zero", iter.tensor(2), inputs, {low, high, factor});
}

// What each part of FusedMovingAvgObsFakeQuantize does is decided by flags, which are read on the device.
std::tuple<Tensor, Tensor> moving_average_fake_quantize(const Tensor& self, const Tensor& observer_on,
                                                        const Tensor& fake_quant_on, Tensor& running_min,
                                                        Tensor& running_max, Tensor& scale, Tensor& zero_point,
                                                        double averaging, int64_t low, int64_t high, int64_t axis,
                                                        bool per_row, bool symmetric) {
  TORCH_CHECK(!per_row || axis == 0,
              "Per-channel FakeQuant in fused_moving_avg_obs_fake_quant is only supported on axis == 0");
  TORCH_CHECK(low < high, "`quant_min` should be less than `quant_max`.");
  const Tensor observe = observer_on.to(self.device()).reshape({}), fake = fake_quant_on.to(self.device()).reshape({});
  at::DimVector along(self.dim(), 1);
  std::tuple<Tensor, Tensor> ends;
  if (per_row) {
    const int64_t channels = along[0] = self.size(0);
    if (running_min.numel() == 0) {
      constexpr float infinity = std::numeric_limits<float>::infinity();
      running_min.resize_(channels).fill_(infinity);
      running_max.resize_(channels).fill_(-infinity);
      scale.resize_(channels).fill_(1);
      zero_point.resize_(channels).fill_(0);
    }
    ends = at::aminmax(self.flatten(1), 1);
  } else {
    ends = at::aminmax(self);
  }
  const auto update = [&](Tensor& running, const Tensor& newest) {
    run("moving_average", running, {running, newest.to(running.scalar_type()).view(running.sizes()), observe},
        Scalar(averaging));
  };
  update(running_min, std::get<0>(ends));
  update(running_max, std::get<1>(ends));
  Tensor chosen_scale = at::empty_like(scale), chosen_zero = at::empty_like(zero_point);
  run("choose_qparams", {chosen_scale, chosen_zero}, {running_min.view(scale.sizes()), running_max.view(scale.sizes())},
      {low, high, int64_t(symmetric)});
  // Parameters stay if nothing is quantised, as on CPU and CUDA.
  scale.copy_(chosen_scale.where(fake.ne(0), scale));
  zero_point.copy_(chosen_zero.where(fake.ne(0), zero_point));
  Tensor output = at::empty_like(self), mask = at::empty_like(self, at::kBool);
  const auto spread = [&](const Tensor& t) { return per_row ? t.view(along) : t.reshape({}); };
  run("fake_quantize", {output, mask}, {self, spread(scale), spread(zero_point), fake}, {low, high});
  return {output, mask};
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("fake_quantize_per_tensor_affine_cachemask", &at::native::fake_quantize_per_tensor_affine_cachemask);
  m.impl("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
         &at::native::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams);
  m.impl("fake_quantize_per_channel_affine_cachemask", &at::native::fake_quantize_per_channel_affine_cachemask);
  m.impl("_fake_quantize_learnable_per_tensor_affine", &at::native::_fake_quantize_learnable_per_tensor_affine);
  m.impl("_fake_quantize_learnable_per_tensor_affine_backward",
         &at::native::_fake_quantize_learnable_per_tensor_affine_backward);
  m.impl("_fake_quantize_learnable_per_channel_affine", &at::native::_fake_quantize_learnable_per_channel_affine);
  m.impl("_fake_quantize_learnable_per_channel_affine_backward",
         &at::native::_fake_quantize_learnable_per_channel_affine_backward);
  m.impl("_fused_moving_avg_obs_fq_helper", &moving_average_fake_quantize);
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_tensor_cachemask_stub, &netcl::tensor_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_tensor_cachemask_tensor_qparams_stub, &netcl::tensor_qparams_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_per_channel_cachemask_stub, &netcl::channel_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_grad_learnable_tensor_stub, &netcl::learnable_tensor_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_grad_learnable_channel_stub, &netcl::learnable_channel_kernel)
}  // namespace at::native
