// Whole layers of nn.GRU, as RnnLayers.cpp has those of nn.LSTM: a layer is one node of the autograd graph, a time step
// a product and a cell (kernels/rnn/rnn.cl), and the products with the inputs and all gradients of weights are made for
// the whole sequence at once.
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include "aten/rnn/RnnLayers.h"

namespace netcl {
namespace {

using at::Tensor;
using at::TensorList;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kGru = "aten::gru";
constexpr const char* kGruBackward = "aten::gru_backward";
constexpr int64_t kGates = 3, kSaved = 5;   // for each unit; the latter is what the backward pass reads
constexpr int64_t kGateElements = 1 << 20;  // of gates at a time

// All hidden states, written into `output`. x (steps, batch, inputs) and h0 (batch, hidden) are contiguous. `gates`
// (some steps, batch, 3 * hidden) is used again and again; `saved` (steps or 1, batch, 5 * hidden) keeps what the
// backward pass reads if it holds all steps.
void gru_forward(const Direction& s, const Tensor& x, const Tensor& h0, const Weights& w, const Tensor& output,
                 const Tensor& gates, const Tensor& saved) {
  Queue& queue = queue_of(x);
  const auto type = x.scalar_type();
  const int64_t wide = s.gates();
  const bool keep = saved.size(0) == s.steps;
  const Tensor products = at::empty({s.batch, wide}, x.options()), none;
  const InputGates inputs(kGru, s, x, w.ih, none, gates);
  const Tensor bias_ih = w.bias_ih.defined() ? w.bias_ih.contiguous() : none;
  const Tensor bias_hh = w.bias_hh.defined() ? w.bias_hh.contiguous() : none;
  Buf before = buf(h0);
  int64_t before_row = s.hidden;
  for (int64_t k = 0; k < s.steps; k++) {
    const int64_t t = s.time(k);
    const Buf input = inputs.of(k), h{element(output, s.output_at(t))};
    multiply(kGru, queue, s.batch, wide, s.hidden, {before.address, type, before_row, 1},
             transposed(rows(w.hh, 0, s.hidden)), rows(products, 0, wide));
    launch_cell(kGru, "gru_forward", queue, type, bias_ih.defined(), s.batch, s.hidden, h,
                Buf{element(saved, keep ? t * s.batch * kSaved * s.hidden : 0)}, input, buf(products), before,
                buf_or_null(bias_ih), buf_or_null(bias_hh), before_row, s.width);
    before = h;
    before_row = s.width;
  }
}

// Gradients of what inputs and states add to the gates into `from_inputs` and `from_states` (steps, batch, 3 * hidden),
// of h0 into `grad_h0` if it is defined. grad_output has consecutive last elements; it and grad_h may be undefined.
void gru_backward(const Direction& s, const Weights& w, const Tensor& saved, const Tensor& grad_output,
                  const Tensor& grad_h, const Tensor& from_inputs, const Tensor& from_states, const Tensor& grad_h0) {
  Queue& queue = queue_of(saved);
  const auto type = saved.scalar_type();
  const int64_t wide = s.gates(), step = s.batch * wide;
  const Tensor later = at::empty({s.batch, s.hidden}, saved.options()), past_gates = at::empty_like(later);
  if (grad_h.defined()) later.copy_(grad_h);
  for (int64_t k = s.steps - 1; k >= 0; k--) {
    const int64_t t = s.time(k);
    const bool has_output = grad_output.defined();
    const Buf output{has_output ? element(grad_output, t * grad_output.stride(0) + s.column) : nullptr};
    launch_cell(kGruBackward, "gru_backward", queue, type, false, s.batch, s.hidden,
                Buf{element(from_inputs, t * step)}, Buf{element(from_states, t * step)}, buf(past_gates), buf(later),
                Buf{element(saved, t * s.batch * kSaved * s.hidden)}, output,
                has_output ? grad_output.stride(1) : int64_t{0}, int(k < s.steps - 1 || grad_h.defined()),
                int(has_output));
    if (k == 0 && !grad_h0.defined()) break;
    multiply(kGruBackward, queue, s.batch, s.hidden, wide, rows(from_states, t * step, wide), rows(w.hh, 0, s.hidden),
             rows(k == 0 ? grad_h0 : later, 0, s.hidden), rows(past_gates, 0, s.hidden));
  }
}

// --- a layer ---

struct LayerResult {
  Tensor output, h, saved;  // the last (directions, steps, batch, ...) if kept
};

// input (steps, batch, inputs); hx (directions, batch, hidden).
LayerResult gru_layer(const Tensor& input, const Tensor& hx, TensorList params, bool biased, bool keep) {
  const c10::DeviceGuard guard(input.device());
  const Tensor x = input.contiguous(), h0 = hx.contiguous();
  const int64_t directions = hx.size(0), steps = x.size(0), batch = x.size(1), hidden = hx.size(2);
  const int64_t wide = kGates * hidden;
  const int64_t at_once = std::clamp<int64_t>(kGateElements / (batch * wide), 1, steps);
  LayerResult r;
  r.output = at::empty({steps, batch, directions * hidden}, x.options());
  r.h = at::empty(h0.sizes(), x.options());
  r.saved = at::empty({keep ? directions : 1, keep ? steps : 1, batch, kSaved * hidden}, x.options());
  const Tensor gates = at::empty({at_once, batch, wide}, x.options());
  for (int64_t d = 0; d < directions; d++) {
    const Direction s(x, h0, d, kGates);
    gru_forward(s, x, h0[d], weights_of(params, biased, d), r.output, gates, r.saved[keep ? d : 0]);
    r.h[d].copy_(r.output.select(0, s.time(steps - 1)).narrow(1, s.column, hidden));
  }
  return r;
}

class GruLayer : public torch::autograd::Function<GruLayer> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const Tensor& hx, TensorList params,
                               bool biased) {
    const LayerResult r = gru_layer(input, hx, params, biased, true);
    variable_list saved{input, hx, r.output, r.saved};
    saved.insert(saved.end(), params.begin(), params.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["biased"] = biased;
    ctx->set_materialize_grads(false);
    return {r.output, r.h};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const TensorList params = TensorList(saved).slice(kOwn);
    const bool biased = ctx->saved_data["biased"].toBool();
    variable_list result(2 + params.size() + 1);  // the last is that of `biased`
    bool any = false, ordinary = !at::GradMode::is_enabled();
    for (const Tensor& g : grads) {
      any |= g.defined();
      ordinary &= !g.defined() || plain(g);
    }
    if (!any) return result;
    // ATen's own way can be differentiated once more, and knows batches of gradients.
    if (!ordinary) {
      variable_list inputs{saved[0], saved[1]};
      inputs.insert(inputs.end(), params.begin(), params.end());
      const auto composite = [biased](TensorList in) -> variable_list {
        auto [y, h] =
            at::native::gru(in[0], in[1], in.slice(2), biased, /*num_layers=*/1, /*dropout=*/0, /*train=*/true,
                            /*bidirectional=*/in[1].size(0) == 2, /*batch_first=*/false);
        return {y, h};
      };
      return replay(ctx, inputs, grads, composite, std::move(result));
    }

    const c10::DeviceGuard guard(saved[0].device());
    const Tensor &output = saved[2], &kept = saved[3];
    const Tensor x = saved[0].contiguous(), h0 = saved[1].contiguous();
    Queue& queue = queue_of(x);
    const auto needs = [&](size_t i) { return ctx->needs_input_grad(i); };
    Tensor grad_output = grads[0];
    if (grad_output.defined() && grad_output.stride(2) != 1) grad_output = grad_output.contiguous();
    const Tensor grad_h = needs(1) ? at::empty(h0.sizes(), h0.options()) : Tensor();
    const Tensor from_inputs = at::empty({x.size(0), x.size(1), kGates * h0.size(2)}, x.options());
    const Tensor from_states = at::empty_like(from_inputs);
    for (int64_t d = 0; d < h0.size(0); d++) {
      const Direction s(x, h0, d, kGates);
      const Weights w = weights_of(params, biased, d);
      gru_backward(s, w, kept[d], grad_output, grads[1].defined() ? grads[1][d] : Tensor(), from_inputs, from_states,
                   grad_h.defined() ? grad_h[d] : Tensor());
      const GemmMatrix g = rows(from_inputs, 0, s.gates());
      const int64_t all_rows = s.steps * s.batch;
      if (needs(0)) {
        if (d == 0) result[0] = at::empty(x.sizes(), x.options());
        const GemmMatrix to = rows(result[0], 0, s.inputs);
        multiply(kGruBackward, queue, all_rows, s.inputs, s.gates(), g, rows(w.ih, 0, s.inputs), to,
                 d == 0 ? GemmMatrix{} : to);
      }
      const size_t first = 2 + d * (biased ? 4 : 2);
      if (needs(first)) {
        result[first] = at::empty(w.ih.sizes(), w.ih.options());
        multiply(kGruBackward, queue, s.gates(), s.inputs, all_rows, transposed(g), rows(x, 0, s.inputs),
                 rows(result[first], 0, s.inputs));
      }
      if (needs(first + 1)) result[first + 1] = grad_hidden_weight(kGruBackward, s, from_states, output, h0[d]);
      if (biased && needs(first + 2)) result[first + 2] = from_inputs.sum(at::IntArrayRef{0, 1});
      if (biased && needs(first + 3)) result[first + 3] = from_states.sum(at::IntArrayRef{0, 1});
    }
    result[1] = grad_h;
    return result;
  }

 private:
  static constexpr size_t kOwn = 4;
};

std::tuple<Tensor, Tensor> gru(const Tensor& input, const Tensor& hx, TensorList params, bool biased, int64_t layers,
                               double dropout, bool train, bool bidirectional, bool batch_first) {
  if (!takes(input, hx, params, biased, layers, bidirectional, batch_first, kGates))
    return at::native::gru(input, hx, params, biased, layers, dropout, train, bidirectional, batch_first);
  check_dtype(netcl::device_of(input), input.scalar_type(), kGru);
  const int64_t directions = bidirectional ? 2 : 1, each = directions * (biased ? 4 : 2);
  const auto tracked = [](const Tensor& t) { return t.requires_grad(); };
  Tensor y = batch_first ? input.transpose(0, 1) : input;
  variable_list h;
  for (int64_t layer = 0; layer < layers; layer++) {
    const Tensor h0 = hx.narrow(0, layer * directions, directions);
    const TensorList own = params.slice(layer * each, each);
    if (at::GradMode::is_enabled() && (tracked(y) || tracked(h0) || std::any_of(own.begin(), own.end(), tracked))) {
      variable_list r = GruLayer::apply(y, h0, own, biased);
      y = std::move(r[0]);
      h.push_back(std::move(r[1]));
    } else {
      LayerResult r = gru_layer(y, h0, own, biased, false);
      y = std::move(r.output);
      h.push_back(std::move(r.h));
    }
    if (dropout != 0 && train && layer < layers - 1) y = at::dropout(y, dropout, true);
  }
  return {batch_first ? y.transpose(0, 1) : y, layers == 1 ? h[0] : at::cat(h)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("gru.input", &gru); }
// An implicit composite with a backend's kernel needs one above autograd too.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("gru.input", &gru); }

}  // namespace netcl
