// The fused cells behind nn.LSTM and nn.GRU. ATen calls them on every device but the CPU: what they do to a
// pair of matrix products is one kernel forward and one backward.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include "aten/rnn/Rnn.h"

namespace netcl {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor dense(const OptionalTensor& t) { return t.has_value() && t->defined() ? t->contiguous() : Tensor(); }

// Raises unless gates are (N, count * H) and state is (N, H), both of one dtype.
void check_cell(const char* op, const Tensor& gates, const Tensor& state, int64_t count) {
  TORCH_CHECK(
      gates.dim() == 2 && state.dim() == 2 && gates.size(0) == state.size(0) && gates.size(1) == count * state.size(1),
      op, ": expected gates (N, ", count, " * H) and state (N, H), got ", gates.sizes(), " and ", state.sizes());
  TORCH_CHECK(gates.scalar_type() == state.scalar_type(), op, ": expected one dtype, got ", gates.scalar_type(),
              " and ", state.scalar_type(), "; cast the state to the dtype of the input");
  TORCH_CHECK(gates.is_floating_point(), op, ": not implemented for ", gates.scalar_type());
  check_dtype(netcl::device_of(gates), gates.scalar_type(), op);
}

void check_bias(const char* op, const Tensor& bias, const Tensor& gates) {
  TORCH_CHECK(!bias.defined() || (bias.numel() == gates.size(1) && bias.scalar_type() == gates.scalar_type()), op,
              ": expected a bias of ", gates.size(1), " ", gates.scalar_type(), ", got ", bias.sizes(), " ",
              bias.scalar_type());
}

template <class... Args>
void launch(const char* op, const char* name, bool biased, const Tensor& state, const Args&... args) {
  launch_cell(op, name, queue_of(state), state.scalar_type(), biased, state.size(0), state.size(1), args...);
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const char* op = "aten::_thnn_fused_lstm_cell";
  check_cell(op, input_gates, cx, 4);
  check_cell(op, hidden_gates, cx, 4);
  const c10::DeviceGuard guard(cx.device());
  const Tensor ig = input_gates.contiguous(), hg = hidden_gates.contiguous(), c = cx.contiguous();
  const Tensor ib = dense(input_bias), hb = dense(hidden_bias);
  check_bias(op, ib, ig);
  check_bias(op, hb, hg);
  TORCH_CHECK(ib.defined() == hb.defined(), op, ": expected two biases or none");
  Tensor hy = at::empty_like(c), cy = at::empty_like(c), workspace = at::empty_like(ig);
  launch(op, "lstm_forward", ib.defined(), c, buf(hy), buf(cy), buf(workspace), buf(ig), buf(hg), buf(c),
         buf_or_null(ib), buf_or_null(hb), c.size(1));
  return {hy, cy, workspace};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  const char* op = "aten::_thnn_fused_lstm_cell_backward_impl";
  const Tensor gh = dense(grad_hy), gc = dense(grad_cy);
  if (!gh.defined() && !gc.defined()) return {};
  check_cell(op, workspace, cx, 4);
  const c10::DeviceGuard guard(cx.device());
  const Tensor c = cx.contiguous(), c_new = cy.contiguous(), gates = workspace.contiguous();
  Tensor grad_gates = at::empty_like(gates), grad_cx = at::empty_like(c);
  // A gradient that is not there counts as zero.
  launch(op, "lstm_backward", false, c, buf(grad_gates), buf(grad_cx), buf_or_null(gh), buf_or_null(gc), buf(c),
         buf(c_new), buf(gates), int(gh.defined()), int(gc.defined()));
  return {grad_gates, grad_cx, has_bias ? grad_gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const char* op = "aten::_thnn_fused_gru_cell";
  check_cell(op, input_gates, hx, 3);
  check_cell(op, hidden_gates, hx, 3);
  const c10::DeviceGuard guard(hx.device());
  const Tensor ig = input_gates.contiguous(), hg = hidden_gates.contiguous(), h = hx.contiguous();
  const Tensor ib = dense(input_bias), hb = dense(hidden_bias);
  check_bias(op, ib, ig);
  check_bias(op, hb, hg);
  TORCH_CHECK(ib.defined() == hb.defined(), op, ": expected two biases or none");
  Tensor hy = at::empty_like(h), workspace = at::empty({h.size(0), 5 * h.size(1)}, h.options());
  launch(op, "gru_forward", ib.defined(), h, buf(hy), buf(workspace), buf(ig), buf(hg), buf(h), buf_or_null(ib),
         buf_or_null(hb), h.size(1), h.size(1));
  return {hy, workspace};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  const char* op = "aten::_thnn_fused_gru_cell_backward";
  check_cell(op, workspace, grad_hy, 5);
  const c10::DeviceGuard guard(grad_hy.device());
  const Tensor gh = grad_hy.contiguous(), saved = workspace.contiguous();
  Tensor grad_ig = at::empty({gh.size(0), 3 * gh.size(1)}, gh.options());
  Tensor grad_hg = at::empty_like(grad_ig), grad_hx = at::empty_like(gh);
  launch(op, "gru_backward", false, gh, buf(grad_ig), buf(grad_hg), buf(grad_hx), buf(gh), buf(saved), Buf{nullptr},
         int64_t{0}, 1, 0);
  return {grad_ig, grad_hg, grad_hx, has_bias ? grad_ig.sum(0) : Tensor(), has_bias ? grad_hg.sum(0) : Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

}  // namespace netcl
