// The fused optimizers, with one launch for all parameters. They read GradScaler's scale and its flag of non-finite
// gradients on the device, so a scaled step does not wait for the host.
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <c10/util/bit_cast.h>

#include <array>
#include <cmath>
#include <optional>

#include "args/optimizers.h"
#include "aten/support/Library.h"
#include "aten/support/MultiTensor.h"

namespace netcl {
namespace {

using at::Tensor;
using at::TensorList;
using MaybeTensor = std::optional<Tensor>;

// The learning rate: a number, or a tensor of one element on the device.
struct Rate {
  double value = 0;
  Tensor tensor;

  explicit Rate(double lr) : value(lr) {}
  // The host reads a tensor in its own memory, which does not wait.
  explicit Rate(const Tensor& lr) {
    TORCH_CHECK(lr.numel() == 1, "lr must be a number or a tensor of one element");
    if (lr.is_cpu()) {
      value = lr.item<double>();
    } else {
      tensor = lr.scalar_type() == at::kFloat ? lr : lr.to(at::kFloat);
    }
  }
};

Buf flag(const char* op, const char* name, const MaybeTensor& t, const Tensor& param) {
  if (!t || !t->defined()) return {nullptr};
  TORCH_CHECK(t->device() == param.device() && t->scalar_type() == at::kFloat && t->numel() == 1, op, ": ", name,
              " must be a float32 tensor of one element on ", param.device());
  return buf(*t);
}

// Whether corresponding elements lie at the same position in memory. Strides of dimensions of size 1 do not matter.
bool same_layout(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes() || a.layout() != at::kStrided || !a.is_non_overlapping_and_dense()) return false;
  for (int64_t d = 0; d < a.dim(); d++) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

template <template <class> class Params>
Params<float> as_floats(const Params<double>& h) {
  constexpr size_t n = sizeof(h) / sizeof(double);
  static_assert(sizeof(Params<float>) == n * sizeof(float));
  const auto numbers = c10::bit_cast<std::array<double, n>>(h);
  std::array<float, n> floats;
  for (size_t k = 0; k < n; k++) floats[k] = static_cast<float>(numbers[k]);
  return c10::bit_cast<Params<float>>(floats);
}

// One step of an optimizer, without its hyperparameters.
struct Step {
  const char *op, *kernel;                // the operator, and its kernel in kernels/optimizers.cl
  c10::SmallVector<TensorList, 6> lists;  // parameters, gradients and states, and for some the counts of steps
  std::optional<size_t> counts;           // which of the lists those are
  const Rate& lr;
  const MaybeTensor &grad_scale, &found_inf;
};

template <template <class> class Params>
void run(const Step& step, const Params<double>& hyperparameters) {
  const char* op = step.op;
  const auto& lists = step.lists;
  const TensorList params = lists[0];
  if (params.empty()) return;
  const Tensor& first = params[0];
  const c10::DeviceGuard guard(first.device());
  for (const TensorList list : lists) {
    TORCH_CHECK(list.size() == params.size(), op, ": expected lists of equal length, got ", params.size(), " and ",
                list.size());
  }
  // Rows are grouped by dtype, since a launch has one dtype; the states may have another dtype than the parameters.
  const auto state_of = [&](size_t i) {
    return lists.size() > 2 && step.counts != size_t{2} ? lists[2][i].scalar_type() : params[i].scalar_type();
  };
  std::vector<bool> done(params.size());
  for (size_t start = 0; start < params.size(); start++) {
    if (done[start]) continue;
    const auto type = params[start].scalar_type(), state = state_of(start);
    const auto compute = compute_type(type);
    TORCH_CHECK(at::isFloatingType(type), op, ": parameters must be floating point, not ", type);
    MultiTensor tensors(op, first.device(), lists.size(), compute);
    for (size_t i = start; i < params.size(); i++) {
      if (done[i] || params[i].scalar_type() != type || state_of(i) != state) continue;
      done[i] = true;
      c10::SmallVector<const Tensor*, 8> row;
      for (const TensorList list : lists) {
        const Tensor& t = list[i];
        const size_t k = row.size();
        TORCH_CHECK(t.device() == first.device(), op, ": expected all tensors on ", first.device(), ", got one on ",
                    t.device());
        if (step.counts == k) {
          TORCH_CHECK(t.scalar_type() == at::kFloat && t.numel() == 1, op, ": steps must be float32 scalars");
        } else {
          TORCH_CHECK(t.scalar_type() == (k < 2 ? type : state), op,
                      ": parameters and gradients, and the states among themselves, must have one dtype each");
          TORCH_CHECK(same_layout(t, params[i]), op,
                      ": parameters, gradients and states must be dense, with the same sizes and strides");
        }
        row.push_back(&t);
      }
      tensors.add(params[i].numel(), row);
    }
    Defs d;
    d.set("IO", dtype_tag(type)).set("RT", dtype_tag(state));
    const auto launch = [&](const auto& values) {
      tensors.launch("optimizers.cl", step.kernel, d, values, buf_or_null(step.lr.tensor),
                     flag(op, "grad_scale", step.grad_scale, first), flag(op, "found_inf", step.found_inf, first));
    };
    if (compute == at::kDouble) {
      launch(hyperparameters);
    } else {
      launch(as_floats(hyperparameters));
    }
  }
}

template <bool decoupled, class Lr>
void fused_adam_(TensorList params, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                 TensorList max_exp_avg_sqs, TensorList steps, Lr lr, double beta1, double beta2, double weight_decay,
                 double eps, bool amsgrad, bool maximize, const MaybeTensor& grad_scale, const MaybeTensor& found_inf) {
  const Rate rate(lr);
  AdamParams<double> h;
  h.lr = rate.value;
  h.beta1 = beta1;
  h.beta2 = beta2;
  h.one_minus_beta1 = 1 - beta1;
  h.one_minus_beta2 = 1 - beta2;
  h.log_beta1 = std::log(beta1);
  h.log_beta2 = std::log(beta2);
  h.weight_decay = weight_decay;
  h.eps = eps;
  h.maximize = maximize;
  h.decoupled = decoupled;
  Step step{.op = decoupled ? "aten::_fused_adamw_" : "aten::_fused_adam_",
            .kernel = "adam",
            .lists = {params, grads, exp_avgs, exp_avg_sqs, steps},
            .counts = 4,
            .lr = rate,
            .grad_scale = grad_scale,
            .found_inf = found_inf};
  if (amsgrad) step.lists.push_back(max_exp_avg_sqs);
  run(step, h);
}

template <class Lr>
void fused_sgd_(TensorList params, TensorList grads, TensorList buffers, double weight_decay, double momentum, Lr lr,
                double dampening, bool nesterov, bool maximize, bool is_first_step, const MaybeTensor& grad_scale,
                const MaybeTensor& found_inf) {
  const Rate rate(lr);
  SgdParams<double> h;
  h.lr = rate.value;
  h.weight_decay = weight_decay;
  h.momentum = momentum;
  h.one_minus_dampening = 1 - dampening;
  h.nesterov = nesterov;
  h.maximize = maximize;
  h.first_step = is_first_step;
  Step step{.op = "aten::_fused_sgd_",
            .kernel = "sgd",
            .lists = {params, grads},
            .counts = std::nullopt,
            .lr = rate,
            .grad_scale = grad_scale,
            .found_inf = found_inf};
  TORCH_CHECK(!buffers.empty() || momentum == 0, step.op, ": momentum needs a list of buffers");
  if (!buffers.empty()) step.lists.push_back(buffers);
  run(step, h);
}

template <class Lr>
void fused_adagrad_(TensorList params, TensorList grads, TensorList sums, TensorList steps, Lr lr, double lr_decay,
                    double weight_decay, double eps, bool maximize, const MaybeTensor& grad_scale,
                    const MaybeTensor& found_inf) {
  const Rate rate(lr);
  AdagradParams<double> h;
  h.lr = rate.value;
  h.lr_decay = lr_decay;
  h.weight_decay = weight_decay;
  h.eps = eps;
  h.maximize = maximize;
  run(Step{.op = "aten::_fused_adagrad_",
           .kernel = "adagrad",
           .lists = {params, grads, sums, steps},
           .counts = 3,
           .lr = rate,
           .grad_scale = grad_scale,
           .found_inf = found_inf},
      h);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_adam_", &(fused_adam_<false, double>));
  m.impl("_fused_adam_.tensor_lr", &(fused_adam_<false, const Tensor&>));
  m.impl("_fused_adamw_", &(fused_adam_<true, double>));
  m.impl("_fused_adamw_.tensor_lr", &(fused_adam_<true, const Tensor&>));
  m.impl("_fused_sgd_", &fused_sgd_<double>);
  m.impl("_fused_sgd_.tensor_lr", &fused_sgd_<const Tensor&>);
  m.impl("_fused_adagrad_", &fused_adagrad_<double>);
  m.impl("_fused_adagrad_.tensor_lr", &fused_adagrad_<const Tensor&>);
}

}  // namespace
}  // namespace netcl
