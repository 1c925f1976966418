// What torch.amp.GradScaler runs: both operators stay on the device, so a scaled step never waits for the host.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>
#include <c10/util/bit_cast.h>
#include <torch/library.h>

#include <cmath>
#include <map>

#include "aten/support/MultiTensor.h"

namespace netcl {
namespace {

// A tensor's distinct elements: an expanded dimension repeats one element, which must be unscaled once.
at::Tensor distinct(at::Tensor t) {
  for (int64_t d = 0; d < t.dim(); d++) {
    if (t.stride(d) == 0 && t.size(d) > 1) t = t.narrow(d, 0, 1);
  }
  return t;
}

void non_finite_check_and_unscale_(at::TensorList grads, at::Tensor& found_inf, const at::Tensor& inv_scale) {
  constexpr const char* kOp = "aten::_amp_foreach_non_finite_check_and_unscale_";
  if (grads.empty()) return;
  TORCH_CHECK(inv_scale.device() == found_inf.device() && inv_scale.is_privateuseone(),
              "inv_scale and found_inf must be on the same netcl device.");
  TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(inv_scale.scalar_type() == at::kFloat, "inv_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  const c10::DeviceGuard guard(found_inf.device());

  std::vector<std::pair<at::Tensor, at::Tensor>> write_back;  // gradient, and the dense copy that was unscaled
  std::map<at::ScalarType, MultiTensor> by_dtype;
  for (const at::Tensor& grad : grads) {
    TORCH_CHECK(grad.device() == found_inf.device(), "one of scaled_grads was on ", grad.device(),
                ", but found_inf is on ", found_inf.device(), ".");
    TORCH_CHECK(grad.layout() == at::kStrided, "one of scaled_grads was not a strided tensor.");
    at::Tensor dense = grad;
    if (!grad.is_non_overlapping_and_dense()) {
      const at::Tensor source = distinct(grad);
      dense = source.contiguous();
      if (!dense.is_same(source)) write_back.emplace_back(source, dense);
    }
    // A complex number is two reals, and is finite where both are.
    const at::Tensor real = dense.is_complex() ? at::view_as_real(dense) : dense;
    const auto type = real.scalar_type();
    TORCH_CHECK(at::isFloatingType(type), kOp, ": gradients must be floating point, not ", type);
    const at::Tensor* row[] = {&real};
    by_dtype.try_emplace(type, kOp, grad.device(), 1, compute_type(type)).first->second.add(real.numel(), row);
  }
  for (auto& [type, tensors] : by_dtype) {
    Defs defs;
    defs.set("S", dtype_tag(type));
    tensors.launch("amp.cl", "unscale", defs, buf(found_inf), buf(inv_scale));
  }
  // CPU and CUDA do not count this write either.
  const at::AutoDispatchBelowADInplaceOrView uncounted;
  for (const auto& [grad, dense] : write_back) grad.copy_(dense);
}

// factor_t of kernels/amp.cl.
struct Factor {
  uint64_t bits;
  float high, low;
  explicit Factor(double x) : bits(c10::bit_cast<uint64_t>(x)), high(static_cast<float>(x)) {
    const double rest = x - static_cast<double>(high);
    low = std::isfinite(rest) ? static_cast<float>(rest) : 0.0f;
  }
};

at::Tensor& update_scale_(at::Tensor& scale, at::Tensor& growth_tracker, const at::Tensor& found_inf, double growth,
                          double backoff, int64_t interval) {
  TORCH_CHECK(growth_tracker.device() == scale.device() && found_inf.device() == scale.device(),
              "current_scale, growth_tracker and found_inf must be on the same netcl device.");
  TORCH_CHECK(scale.numel() == 1, "current_scale must be a 1-element tensor.");
  TORCH_CHECK(growth_tracker.numel() == 1, "growth_tracker must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(scale.scalar_type() == at::kFloat, "current_scale must be a float tensor.");
  TORCH_CHECK(growth_tracker.scalar_type() == at::kInt, "growth_tracker must be an int tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  const c10::DeviceGuard guard(scale.device());
  const int32_t every = static_cast<int32_t>(std::min<int64_t>(interval, INT32_MAX));
  kernel(netcl::device_of(scale), "amp.cl", "update_scale", Defs())
      .launch("aten::_amp_update_scale_", queue_of(scale), {1}, {1}, buf(scale), buf(growth_tracker), buf(found_inf),
              Factor(growth), Factor(backoff), every);
  return scale;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &non_finite_check_and_unscale_);
  m.impl("_amp_update_scale_", &update_scale_);
}

}  // namespace
}  // namespace netcl
