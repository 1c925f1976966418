// Losses that are not element-wise: the negative log likelihood, over a class axis that may be the last one.
#include <ATen/core/Reduction.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss_backward_meta.h>
#include <ATen/ops/nll_loss_forward_meta.h>

#include "args/loss.h"
#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Rows.h"
#include "aten/support/Structured.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

using at::Tensor;

Tensor optional_contiguous(const Tensor& weight, const Tensor& self) {
  TORCH_CHECK(!weight.defined() || weight.scalar_type() == self.scalar_type(), "expected scalar type ",
              self.scalar_type(), " but found ", weight.scalar_type());
  return weight.defined() ? weight.contiguous() : weight;
}

struct Nll {
  const char* op;
  Device& dev;
  Tensor target, weight;
  int64_t n, classes, inner, ignore;
  int64_t per = 0;
  Defs defs;

  // `scores`: (C), (n, C) or (n, C, inner...).
  Nll(const char* op, const Tensor& scores, const Tensor& target_, const Tensor& weight_, int64_t ignore_index)
      : op(op),
        dev(netcl::device_of(scores)),
        target(target_.contiguous()),
        weight(optional_contiguous(weight_, scores)),
        ignore(ignore_index) {
    check_floating(dev, scores.scalar_type(), op);
    TORCH_CHECK(target.scalar_type() == at::kLong || target.scalar_type() == at::kByte, op,
                ": expected a target of dtype int64 or uint8, got ", target.scalar_type());
    classes = scores.dim() == 1 ? scores.size(0) : scores.size(1);
    n = target.numel();
    const int64_t batch = scores.dim() == 1 ? 1 : scores.size(0);
    inner = batch ? std::max<int64_t>(1, n / batch) : 1;
    // Each element is one gather. A GPU's work-item takes few elements, a CPU's enough to pay for the work-item.
    const int64_t items = enough_items(dev, kItemsPerUnit, 16384);
    per = std::max(tuning(dev).losses, ceil_div(std::max<int64_t>(n, 1), items));
    defs.set("IN", dtype_tag(scores.scalar_type())).set("IDX", dtype_tag(target.scalar_type()));
    defs.set("ACC", compute_tag(scores.scalar_type()));
  }
  Range items() const { return {size_t(std::max<int64_t>(1, ceil_div(n, per)))}; }
  Range local() const { return element_group(dev); }
  Buf err() const { return {assert_buffer(dev)}; }
  NllParams params(bool each = false, bool mean = false) const {
    return {n, per, classes, inner, ignore, assert_code(dev, op), each, mean};
  }

  void forward(const Tensor& self, int64_t reduction, const Tensor& output, const Tensor& total_weight) const {
    Queue& queue = queue_of(self);
    const Tensor x = self.contiguous();
    if (reduction == at::Reduction::None && output.dim() > 0) {
      if (total_weight.defined()) total_weight.zero_();
      if (n == 0) return;
      const DenseOut out(output);
      kernel(dev, "loss.cl", "nll_each", defs)
          .launch(op, queue, items(), local(), buf(out.get()), buf(x), buf(target), buf_or_null(weight), err(),
                  params());
      out.finish();
      return;
    }
    // Work-items of a GPU beyond `parts` write nothing.
    const int64_t parts = int64_t(items().x);
    const Tensor part = at::empty({parts, 2}, self.options().dtype(compute_type(self.scalar_type())));
    kernel(dev, "loss.cl", "nll_parts", defs)
        .launch(op, queue, items(), local(), buf(part), buf(x), buf(target), buf_or_null(weight), err(), params());
    const size_t group = group_of(dev, 256);
    kernel(dev, "loss.cl", "nll_finish", Defs(defs).set("GROUP", int64_t(group)))
        .launch(op, queue, {group}, {group}, buf(output), buf(total_weight), buf(part), parts,
                int32_t(reduction == at::Reduction::Mean));
  }

  void backward(const Tensor& grad_output, int64_t reduction, const Tensor& total_weight, const Tensor& out) const {
    if (out.numel() == 0) return;
    const DenseOut gin(out);
    gin.get().zero_();
    if (n > 0) {
      const Tensor g = grad_output.to(out.scalar_type()).contiguous();
      const bool mean = reduction == at::Reduction::Mean;
      kernel(dev, "loss.cl", "nll_backward", defs)
          .launch(op, queue_of(out), items(), local(), buf(gin.get()), buf(g), buf(target), buf_or_null(weight),
                  buf(total_weight), err(), params(reduction == at::Reduction::None && g.dim() > 0, mean));
    }
    gin.finish();
  }
};

Tensor get(at::OptionalTensorRef t) { return t.has_value() ? *t : Tensor(); }

struct NllForward : at::meta::structured_nll_loss_forward {
  void impl(const Tensor& self, const Tensor& target, at::OptionalTensorRef weight, int64_t reduction,
            int64_t ignore_index, const Tensor& output, const Tensor& total_weight) {
    Nll("aten::nll_loss_forward", self, target, get(weight), ignore_index)
        .forward(self, reduction, output, total_weight);
  }
};
struct NllBackward : at::meta::structured_nll_loss_backward {
  void impl(const Tensor& grad_output, const Tensor& self, const Tensor& target, at::OptionalTensorRef weight,
            int64_t reduction, int64_t ignore_index, const Tensor& total_weight, const Tensor& grad_input) {
    Nll("aten::nll_loss_backward", self, target, get(weight), ignore_index)
        .backward(grad_output, reduction, total_weight, grad_input);
  }
};

void check_2d(const Tensor& self, const Tensor& target, const Tensor& weight) {
  TORCH_CHECK(target.dim() == 3,
              "only batches of spatial targets supported (3D tensors) but got targets of dimension: ", target.dim());
  TORCH_CHECK(self.dim() == 4,
              "only batches of spatial inputs supported (4D tensors), but got input of dimension: ", self.dim());
  TORCH_CHECK(!weight.defined() || weight.numel() == self.size(1),
              "weight tensor should be defined either for all or no classes");
  TORCH_CHECK(self.size(0) == target.size(0) && self.size(2) == target.size(1) && self.size(3) == target.size(2),
              "input and target batch or spatial sizes don't match: target ", target.sizes(), ", input ", self.sizes());
}

std::tuple<Tensor, Tensor> nll2d_forward(const Tensor& self, const Tensor& target,
                                         const std::optional<Tensor>& weight_opt, int64_t reduction,
                                         int64_t ignore_index) {
  const Tensor weight = weight_opt.value_or(Tensor());
  check_2d(self, target, weight);
  Tensor output =
      reduction == at::Reduction::None ? at::empty(target.sizes(), self.options()) : at::empty({}, self.options());
  Tensor total_weight = at::empty({}, self.options());
  Nll("aten::nll_loss2d_forward", self, target, weight, ignore_index).forward(self, reduction, output, total_weight);
  return {output, total_weight};
}
std::tuple<Tensor&, Tensor&> nll2d_forward_out(const Tensor& self, const Tensor& target,
                                               const std::optional<Tensor>& weight, int64_t reduction,
                                               int64_t ignore_index, Tensor& output, Tensor& total_weight) {
  const auto [loss, total] = nll2d_forward(self, target, weight, reduction, ignore_index);
  check_out("nll_loss2d_forward", total_weight, total.options());
  return {copy_result("nll_loss2d_forward", output, loss), copy_result("nll_loss2d_forward", total_weight, total)};
}
Tensor nll2d_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                      const std::optional<Tensor>& weight_opt, int64_t reduction, int64_t ignore_index,
                      const Tensor& total_weight) {
  const Tensor weight = weight_opt.value_or(Tensor());
  check_2d(self, target, weight);
  TORCH_CHECK(reduction != at::Reduction::None || grad_output.sizes() == target.sizes(),
              "nll_loss2d_backward: expected a gradient of shape ", target.sizes(), ", got ", grad_output.sizes());
  Tensor grad_input = at::empty_like(self, at::MemoryFormat::Contiguous);
  Nll("aten::nll_loss2d_backward", self, target, weight, ignore_index)
      .backward(grad_output, reduction, total_weight, grad_input);
  return grad_input;
}
Tensor& nll2d_backward_out(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                           const std::optional<Tensor>& weight, int64_t reduction, int64_t ignore_index,
                           const Tensor& total_weight, Tensor& grad_input) {
  const Tensor g = nll2d_backward(grad_output, self, target, weight, reduction, ignore_index, total_weight);
  return copy_result("nll_loss2d_backward", grad_input, g);
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<NllForward>(m, "nll_loss_forward", nullptr, "nll_loss_forward.output");
  structured<NllBackward>(m, "nll_loss_backward", nullptr, "nll_loss_backward.grad_input");
  m.impl("nll_loss2d_forward", &nll2d_forward);
  m.impl("nll_loss2d_forward.output", &nll2d_forward_out);
  m.impl("nll_loss2d_backward", &nll2d_backward);
  m.impl("nll_loss2d_backward.grad_input", &nll2d_backward_out);
}

}  // namespace netcl
