// The operators of torch.amp.GradScaler. Both stay on the device, so a scaled step never waits for the host.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>
#include <c10/util/bit_cast.h>

#include <cmath>
#include <map>

#include "args/amp.h"
#include "aten/support/Library.h"
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

// `record`, if defined, has two words per gradient, in which the kernel says how many elements are not finite, and
// where.
void unscale(const char* op, at::TensorList grads, at::Tensor& found_inf, const at::Tensor& inv_scale,
             const at::Tensor& record) {
  if (grads.empty()) return;
  TORCH_CHECK(inv_scale.device() == found_inf.device() && inv_scale.is_privateuseone(),
              "inv_scale and found_inf must be on the same netcl device.");
  TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(inv_scale.scalar_type() == at::kFloat, "inv_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  const c10::DeviceGuard guard(found_inf.device());

  std::vector<std::pair<at::Tensor, at::Tensor>> write_back;  // (gradient, its dense copy, which is unscaled)
  std::map<at::ScalarType, MultiTensor> by_dtype;
  int64_t number = 0;
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
    // A complex number is two reals, and it is finite if both are.
    const at::Tensor real = dense.is_complex() ? at::view_as_real(dense) : dense;
    const auto type = real.scalar_type();
    TORCH_CHECK(at::isFloatingType(type), op, ": gradients must be floating point, not ", type);
    const at::Tensor* row[] = {&real};
    by_dtype.try_emplace(type, op, grad.device(), 1, compute_type(type)).first->second.add(real.numel(), row, number++);
  }
  for (auto& [type, tensors] : by_dtype) {
    Defs defs;
    defs.set("IO", dtype_tag(type));
    tensors.launch("amp.cl", "unscale", defs, buf(found_inf), buf(inv_scale), buf_or_null(record));
  }
  // This write does not increment the version, as on CPU and CUDA.
  const at::AutoDispatchBelowADInplaceOrView uncounted;
  for (const auto& [grad, dense] : write_back) grad.copy_(dense);
}

void non_finite_check_and_unscale_(at::TensorList grads, at::Tensor& found_inf, const at::Tensor& inv_scale) {
  unscale("aten::_amp_foreach_non_finite_check_and_unscale_", grads, found_inf, inv_scale, {});
}

void check_and_unscale_(at::TensorList grads, at::Tensor found_inf, const at::Tensor& inv_scale,
                        const at::Tensor& record) {
  // The kernel holds the gradient's number in a float.
  TORCH_CHECK(grads.size() < (1 << 24), "at most 2^24 gradients can be told apart, not ", grads.size());
  TORCH_CHECK(record.scalar_type() == at::kInt && record.is_contiguous() && record.device() == found_inf.device() &&
                  record.numel() >= 2 * static_cast<int64_t>(grads.size()),
              "record must hold two int32 for each gradient, on the device of found_inf.");
  unscale("netcl::_amp_check_and_unscale_", grads, found_inf, inv_scale, record);
}

// If found_inf is not zero: live[k] = saved[k] for every k, bit by bit.
void take_back_(at::TensorList live, at::TensorList saved, const at::Tensor& found_inf) {
  constexpr const char* kOp = "netcl::_amp_take_back_";
  TORCH_CHECK(live.size() == saved.size(), kOp, ": as many tensors must be saved as there are.");
  TORCH_CHECK(found_inf.numel() == 1 && found_inf.scalar_type() == at::kFloat && found_inf.is_privateuseone(), kOp,
              ": found_inf must be a 1-element float tensor on netcl.");
  const c10::DeviceGuard guard(found_inf.device());
  std::map<int64_t, MultiTensor> by_size;
  for (size_t k = 0; k < live.size(); k++) {
    const at::Tensor &to = live[k], &from = saved[k];
    TORCH_CHECK(to.device() == found_inf.device() && from.device() == found_inf.device(), kOp,
                ": expected all tensors on ", found_inf.device(), ".");
    TORCH_CHECK(to.scalar_type() == from.scalar_type() && to.sizes() == from.sizes() &&
                    to.strides() == from.strides() && to.is_non_overlapping_and_dense(),
                kOp, ": a saved tensor must have the dtype, shape and strides of the live one, both dense.");
    const int64_t bytes = to.numel() * static_cast<int64_t>(to.element_size());
    const int64_t word = std::min<int64_t>(static_cast<int64_t>(to.element_size()), 8);
    const at::Tensor* row[] = {&to, &from};
    by_size.try_emplace(word, kOp, found_inf.device(), 2, at::kInt).first->second.add(bytes / word, row);
    to.unsafeGetTensorImpl()->bump_version();
  }
  for (auto& [word, tensors] : by_size) {
    Defs defs;
    const auto type = word == 8 ? at::kLong : word == 4 ? at::kInt : word == 2 ? at::kShort : at::kByte;
    defs.set("IO", dtype_tag(type));
    tensors.launch("amp.cl", "take_back", defs, buf(found_inf));
  }
}

// Sets bits of flags[at]: 1 if one of the tensors holds an Inf, 2 if one holds a NaN.
void flag_non_finite_(at::TensorList tensors, at::Tensor flags, int64_t at) {
  constexpr const char* kOp = "netcl::_amp_flag_non_finite_";
  TORCH_CHECK(flags.scalar_type() == at::kInt && flags.is_contiguous() && at >= 0 && at < flags.numel(), kOp,
              ": flags must be a contiguous int32 tensor, with a place for number ", at, ".");
  const c10::DeviceGuard guard(flags.device());
  std::map<at::ScalarType, MultiTensor> by_dtype;
  std::vector<at::Tensor> kept;  // keeps copies alive until the launch
  kept.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.device() == flags.device(), kOp, ": expected all tensors on ", flags.device(), ".");
    at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : distinct(tensor).contiguous();
    kept.push_back(dense.is_complex() ? at::view_as_real(dense) : dense);
    const auto type = kept.back().scalar_type();
    TORCH_CHECK(at::isFloatingType(type), kOp, ": tensors must be floating point, not ", type);
    const at::Tensor* row[] = {&kept.back()};
    by_dtype.try_emplace(type, kOp, tensor.device(), 1, compute_type(type)).first->second.add(kept.back().numel(), row);
  }
  for (auto& [type, list] : by_dtype) {
    Defs defs;
    defs.set("IO", dtype_tag(type));
    list.launch("amp.cl", "flag_non_finite", defs, Buf{flags.const_data_ptr<int32_t>() + at});
  }
}

ScaleFactor scale_factor(double x) {
  const auto high = static_cast<float>(x);
  const double rest = x - static_cast<double>(high);
  return {c10::bit_cast<uint64_t>(x), high, std::isfinite(rest) ? static_cast<float>(rest) : 0.0f};
}

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
              scale_factor(growth), scale_factor(backoff), every);
  return scale;
}

// For blame.py, transactional.py and detect_overflow.py of torch_netcl/amp.
NETCL_LIBRARY_FRAGMENT(netcl, m) {
  m.def("_amp_check_and_unscale_(Tensor(a!)[] grads, Tensor(b!) found_inf, Tensor inv_scale, Tensor(c!) record) -> ()");
  m.def("_amp_take_back_(Tensor(a!)[] live, Tensor[] saved, Tensor found_inf) -> ()");
  m.def("_amp_flag_non_finite_(Tensor[] tensors, Tensor(a!) flags, int at) -> ()");
}

NETCL_LIBRARY_IMPL(netcl, PrivateUse1, m) {
  m.impl("_amp_check_and_unscale_", &check_and_unscale_);
  m.impl("_amp_take_back_", &take_back_);
  m.impl("_amp_flag_non_finite_", &flag_non_finite_);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &non_finite_check_and_unscale_);
  m.impl("_amp_update_scale_", &update_scale_);
}

}  // namespace
}  // namespace netcl
