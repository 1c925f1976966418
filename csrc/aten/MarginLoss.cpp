// multi_margin_loss and multilabel_margin_loss with their derivatives.
#include <ATen/core/Reduction.h>
#include <ATen/native/LossMulti.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "args/loss.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Walk.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

using at::Scalar;
using at::Tensor;
using OptTensor = const std::optional<Tensor>&;

// Scores (C) or (rows, C) with their targets. All are checked and dense.
struct Margin {
  const char* op;
  Device& dev;
  Tensor x, target, weight;
  int64_t rows, classes;
  Defs defs;

  Margin(const char* op, const Tensor& self, const Tensor& target_, OptTensor weight_, bool label_rows)
      : op(op), dev(netcl::device_of(self)), x(self.contiguous()), target(target_.contiguous()) {
    check_floating(dev, x.scalar_type(), op);
    if (label_rows) {
      at::native::multilabel_margin_loss_shape_check(rows, classes, self.dim(), self, target_);
    } else {
      at::native::multi_margin_loss_shape_check(rows, classes, self.dim(), self, target_, weight_);
    }
    TORCH_CHECK(target.scalar_type() == at::kLong, op, ": expected scalar type Long but found ", target.scalar_type());
    if (weight_.has_value() && weight_->defined()) weight = weight_->to(x.scalar_type()).contiguous();
    defs.set("IN", dtype_tag(x.scalar_type())).set("ACC", compute_tag(x.scalar_type()));
  }
  Tensor each() const { return at::empty({rows}, x.options().dtype(compute_type(x.scalar_type()))); }
  Range items() const { return {size_t(std::max<int64_t>(rows, 1))}; }
  Range local() const { return element_group(dev); }
  Buf err() const { return {assert_buffer(dev)}; }
  MarginParams params(int64_t power = 1, double margin = 1) const {
    return {.rows = rows, .classes = classes, .power = power, .code = assert_code(dev, op), .margin = wide(margin)};
  }
  // Of a gradient; `g` is the output's.
  MarginParams with_grad(MarginParams p, const Tensor& g, int64_t reduction) const {
    p.each = g.dim() > 0;
    p.scale = wide(scale(reduction));
    return p;
  }
  Tensor reduce(const Tensor& each, int64_t reduction) const {
    if (reduction == at::Reduction::None) return (x.dim() < 2 ? each.squeeze(0) : each).to(x.scalar_type());
    return (reduction == at::Reduction::Mean && rows > 0 ? each.mean() : each.sum()).to(x.scalar_type());
  }
  Tensor grad(const Tensor& g) const { return g.to(x.scalar_type()).contiguous(); }
  double scale(int64_t reduction) const { return reduction == at::Reduction::Mean ? 1.0 / double(rows) : 1.0; }
};

int64_t power(const Scalar& p) {
  const int64_t value = p.toLong();
  TORCH_CHECK(value == 1 || value == 2, "only p == 1 and p == 2 supported");
  return value;
}

Tensor multi_margin_loss(const Tensor& self, const Tensor& target, const Scalar& p, const Scalar& margin,
                         OptTensor weight, int64_t reduction) {
  const Margin m("aten::multi_margin_loss", self, target, weight, false);
  const Tensor each = m.each();
  kernel(m.dev, "margin_loss.cl", "multi_margin", m.defs)
      .launch(m.op, queue_of(m.x), m.items(), m.local(), buf(each), Buf{}, buf(m.x), buf(m.target),
              buf_or_null(m.weight), m.err(), m.params(power(p), margin.toDouble()));
  return m.reduce(each, reduction);
}
Tensor multi_margin_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target, const Scalar& p,
                                  const Scalar& margin, OptTensor weight, int64_t reduction) {
  const Margin m("aten::multi_margin_loss_backward", self, target, weight, false);
  const Tensor g = m.grad(grad_output), gin = at::empty_like(m.x);
  const MarginParams params = m.with_grad(m.params(power(p), margin.toDouble()), g, reduction);
  kernel(m.dev, "margin_loss.cl", "multi_margin", m.defs)
      .launch(m.op, queue_of(m.x), m.items(), m.local(), buf(gin), buf(g), buf(m.x), buf(m.target),
              buf_or_null(m.weight), m.err(), params);
  return gin;
}
std::tuple<Tensor, Tensor> multilabel_margin_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  const Margin m("aten::multilabel_margin_loss_forward", self, target, std::nullopt, true);
  const Tensor each = m.each();
  Tensor is_target = at::empty(target.sizes(), m.x.options());
  kernel(m.dev, "margin_loss.cl", "multilabel_margin", m.defs)
      .launch(m.op, queue_of(m.x), m.items(), m.local(), buf(each), buf(is_target), buf(m.x), buf(m.target), m.err(),
              m.params());
  return {m.reduce(each, reduction), is_target};
}
Tensor multilabel_margin_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                                       int64_t reduction, const Tensor& is_target) {
  const Margin m("aten::multilabel_margin_loss_backward", self, target, std::nullopt, true);
  check_sizes(m.op, "is_target", is_target, target.sizes());
  const Tensor g = m.grad(grad_output), is = is_target.to(m.x.scalar_type()).contiguous(), gin = at::empty_like(m.x);
  kernel(m.dev, "margin_loss.cl", "multilabel_margin_backward", m.defs)
      .launch(m.op, queue_of(m.x), m.items(), m.local(), buf(gin), buf(g), buf(is), buf(m.x), buf(m.target), m.err(),
              m.with_grad(m.params(), g, reduction));
  return gin;
}

Tensor& multi_margin_loss_out(const Tensor& self, const Tensor& target, const Scalar& p, const Scalar& margin,
                              OptTensor weight, int64_t reduction, Tensor& out) {
  return copy_result("multi_margin_loss", out, netcl::multi_margin_loss(self, target, p, margin, weight, reduction));
}
Tensor& multi_margin_loss_backward_out(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                                       const Scalar& p, const Scalar& margin, OptTensor weight, int64_t reduction,
                                       Tensor& grad_input) {
  return copy_result("multi_margin_loss_backward", grad_input,
                     netcl::multi_margin_loss_backward(grad_output, self, target, p, margin, weight, reduction));
}
std::tuple<Tensor&, Tensor&> multilabel_margin_loss_out(const Tensor& self, const Tensor& target, int64_t reduction,
                                                        Tensor& output, Tensor& is_target) {
  const auto [loss, is] = netcl::multilabel_margin_loss(self, target, reduction);
  const char* op = "multilabel_margin_loss_forward";
  check_out(op, is_target, is.options());
  return {copy_result(op, output, loss), copy_result(op, is_target, is)};
}
Tensor& multilabel_margin_loss_backward_out(const Tensor& grad_output, const Tensor& self, const Tensor& target,
                                            int64_t reduction, const Tensor& is_target, Tensor& grad_input) {
  return copy_result("multilabel_margin_loss_backward", grad_input,
                     netcl::multilabel_margin_loss_backward(grad_output, self, target, reduction, is_target));
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("multi_margin_loss", &multi_margin_loss);
  m.impl("multi_margin_loss_backward", &multi_margin_loss_backward);
  m.impl("multilabel_margin_loss_forward", &multilabel_margin_loss);
  m.impl("multilabel_margin_loss_backward", &multilabel_margin_loss_backward);
  m.impl("multi_margin_loss.out", &multi_margin_loss_out);
  m.impl("multi_margin_loss_backward.grad_input", &multi_margin_loss_backward_out);
  m.impl("multilabel_margin_loss_forward.output", &multilabel_margin_loss_out);
  m.impl("multilabel_margin_loss_backward.grad_input", &multilabel_margin_loss_backward_out);
}

}  // namespace netcl
