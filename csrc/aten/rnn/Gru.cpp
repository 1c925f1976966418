// nn.GRU: its fused cell, and whole layers, as in Lstm.cpp. A layer is one node of the autograd graph; a time step is a
// product and a cell.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gru_native.h>

#include "aten/rnn/Rnn.h"
#include "aten/support/Library.h"

namespace netcl {
namespace {

using at::Tensor;
using at::TensorList;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kGruGates = 3;  // reset, update, new
constexpr int64_t kSaved = 5;     // the gates, the old state and the hidden part of the new gate

CellLaunch gru_launch(const char* op, const char* name, const Tensor& state, int64_t hx_row, int64_t hy_row) {
  return {op, "rnn/gru.cl", name, state.scalar_type(), state.size(0), state.size(1), hx_row, hy_row};
}

// --- the cell ---

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const char* op = "aten::_thnn_fused_gru_cell";
  CellInputs in{input_gates, hidden_gates, hx, input_bias.value_or(Tensor()), hidden_bias.value_or(Tensor())};
  in.check(op, kGruGates);
  const c10::DeviceGuard guard(hx.device());
  const int64_t n = in.state.size(0), hidden = in.state.size(1);
  Tensor hy = at::empty_like(in.state), workspace = at::empty({n, kSaved * hidden}, in.state.options());
  launch_cell(gru_launch(op, "gru_forward", in.state, hidden, hidden), queue_of(hx), buf(hy), buf(workspace),
              buf(in.state), buf(in.input_gates), buf(in.hidden_gates), buf_or_null(in.input_bias),
              buf_or_null(in.hidden_bias));
  return {hy, workspace};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  const char* op = "aten::_thnn_fused_gru_cell_backward";
  check_cell(op, workspace, grad_hy, kSaved);
  const c10::DeviceGuard guard(grad_hy.device());
  const Tensor gh = grad_hy.contiguous(), saved = workspace.contiguous();
  Tensor grad_ig = at::empty({gh.size(0), kGruGates * gh.size(1)}, gh.options());
  Tensor grad_hg = at::empty_like(grad_ig), grad_hx = at::empty_like(gh);
  launch_cell(gru_launch(op, "gru_backward", gh, 0, 0), queue_of(gh), buf(grad_ig), buf(grad_hg), buf(grad_hx), buf(gh),
              buf(saved), Buf{nullptr});
  return {grad_ig, grad_hg, grad_hx, has_bias ? grad_ig.sum(0) : Tensor(), has_bias ? grad_hg.sum(0) : Tensor()};
}

// --- the layer ---

struct Gru {
  static constexpr const char* kOp = "aten::gru";
  static constexpr const char* kBackward = "aten::gru_backward";
  static constexpr int64_t kGates = kGruGates;
  static constexpr size_t kStates = 1;  // h

  // Keeps (directions, steps, batch, 5 * hidden). Memory for the gates of some steps serves them all in turn.
  static void allocate(const Direction& s, int64_t directions, bool keep, LayerResult& r) {
    const auto options = r.output.options();
    r.kept.push_back(at::empty({keep ? directions : 1, keep ? s.steps : 1, s.batch, kSaved * s.hidden}, options));
    r.scratch = at::empty({steps_at_once(s), s.batch, s.gates()}, options);
  }

  static void forward(const Pass& pass, const Tensor& x, int64_t d, bool keep, LayerResult& r);
  static void backward(const Pass& pass, const variable_list& kept, const Incoming& grad,
                       const variable_list& grad_states, GateGrads& result);

  static variable_list composite(TensorList in, bool biased) {
    auto [y, h] = at::native::gru(in[0], in[1], in.slice(2), biased, /*num_layers=*/1, /*dropout=*/0, /*train=*/true,
                                  /*bidirectional=*/in[1].size(0) == 2, /*batch_first=*/false);
    return {y, h};
  }
};

void Gru::forward(const Pass& pass, const Tensor& x, int64_t d, bool keep, LayerResult& r) {
  const auto& [s, w, first_param, before] = pass;
  const Tensor saved = r.kept[0][keep ? d : 0];
  Queue& queue = queue_of(x);
  const int64_t wide = s.gates();
  const Tensor products = at::empty({s.batch, wide}, x.options()), none;
  const InputGates inputs(kOp, s, x, w.ih, none, r.scratch);
  const Tensor bias_ih = w.bias_ih.defined() ? w.bias_ih.contiguous() : none;
  const Tensor bias_hh = w.bias_hh.defined() ? w.bias_hh.contiguous() : none;
  Buf h_before = buf(before[0]);
  int64_t h_row = s.hidden;
  for (int64_t k = 0; k < s.steps; k++) {
    const int64_t t = s.time(k);
    const Buf input = inputs.of(k), h{element(r.output, s.output_at(t))};
    multiply(kOp, queue,
             {.m = s.batch,
              .n = wide,
              .k = s.hidden,
              .a = {h_before.address, x.scalar_type(), h_row, 1},
              .b = transposed(rows(w.hh, 0, s.hidden)),
              .c = rows(products, 0, wide)});
    launch_cell(gru_launch(kOp, "gru_forward", before[0], h_row, s.width), queue, h,
                Buf{element(saved, keep ? t * s.batch * kSaved * s.hidden : 0)}, h_before, input, buf(products),
                buf_or_null(bias_ih), buf_or_null(bias_hh));
    h_before = h;
    h_row = s.width;
  }
}

void Gru::backward(const Pass& pass, const variable_list& kept, const Incoming& grad, const variable_list& grad_states,
                   GateGrads& result) {
  const auto& [s, w, first_param, before] = pass;
  const Tensor &saved = kept[0], &grad_h = grad.states[0], &grad_h0 = grad_states[0];
  Queue& queue = queue_of(saved);
  const int64_t wide = s.gates(), step = s.batch * wide;
  if (!result.from_inputs.defined()) {
    result.from_inputs = at::empty({s.steps, s.batch, wide}, saved.options());
    result.from_states = at::empty_like(result.from_inputs);
  }
  const Tensor later = at::empty({s.batch, s.hidden}, saved.options()), past_gates = at::empty_like(later);
  if (grad_h.defined()) later.copy_(grad_h);
  const bool has_output = grad.output.defined();
  for (int64_t k = s.steps - 1; k >= 0; k--) {
    const int64_t t = s.time(k);
    const Buf output{has_output ? element(grad.output, t * grad.output.stride(0) + s.column) : nullptr};
    const Buf gh{k < s.steps - 1 || grad_h.defined() ? later.const_data_ptr() : nullptr};
    launch_cell(gru_launch(kBackward, "gru_backward", later, 0, has_output ? grad.output.stride(1) : 0), queue,
                Buf{element(result.from_inputs, t * step)}, Buf{element(result.from_states, t * step)}, buf(past_gates),
                gh, Buf{element(saved, t * s.batch * kSaved * s.hidden)}, output);
    if (k == 0 && !grad_h0.defined()) break;
    multiply(kBackward, queue,
             {.m = s.batch,
              .n = s.hidden,
              .k = wide,
              .a = rows(result.from_states, t * step, wide),
              .b = rows(w.hh, 0, s.hidden),
              .c = rows(k == 0 ? grad_h0 : later, 0, s.hidden),
              .d = rows(past_gates, 0, s.hidden)});
  }
}

std::tuple<Tensor, Tensor> gru(const Tensor& input, const Tensor& hx, TensorList params, bool biased, int64_t layers,
                               double dropout, bool train, bool bidirectional, bool batch_first) {
  const LayerOptions options{biased, layers, dropout, train, bidirectional, batch_first};
  if (!takes(input, hx, params, options, kGruGates))
    return at::native::gru(input, hx, params, biased, layers, dropout, train, bidirectional, batch_first);
  variable_list r = run_layers<Gru>(input, hx, params, options);
  return {std::move(r[0]), std::move(r[1])};
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_gru_cell", &gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
  m.impl("gru.input", &gru);
}
// An implicit composite with a backend's kernel needs one above autograd too.
NETCL_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("gru.input", &gru); }

}  // namespace netcl
