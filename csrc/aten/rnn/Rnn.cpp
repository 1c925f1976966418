#include "aten/rnn/Rnn.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/ops/alias.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

namespace netcl {

using at::Tensor;
using at::TensorList;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// --- a cell ---

void check_cell(const char* op, const Tensor& gates, const Tensor& state, int64_t count) {
  TORCH_CHECK(
      gates.dim() == 2 && state.dim() == 2 && gates.size(0) == state.size(0) && gates.size(1) == count * state.size(1),
      op, ": expected gates (N, ", count, " * H) and state (N, H), got ", gates.sizes(), " and ", state.sizes());
  TORCH_CHECK(gates.scalar_type() == state.scalar_type(), op, ": expected one dtype, got ", gates.scalar_type(),
              " and ", state.scalar_type(), "; cast the state to the dtype of the input");
  TORCH_CHECK(gates.is_floating_point(), op, ": not implemented for ", gates.scalar_type());
  check_dtype(netcl::device_of(gates), gates.scalar_type(), op);
}

void CellInputs::check(const char* op, int64_t count) {
  check_cell(op, input_gates, state, count);
  check_cell(op, hidden_gates, state, count);
  for (Tensor* t : {&input_gates, &hidden_gates, &state, &input_bias, &hidden_bias}) {
    if (t->defined()) *t = t->contiguous();
  }
  for (const Tensor& bias : {input_bias, hidden_bias}) {
    TORCH_CHECK(
        !bias.defined() || (bias.numel() == input_gates.size(1) && bias.scalar_type() == input_gates.scalar_type()), op,
        ": expected a bias of ", input_gates.size(1), " ", input_gates.scalar_type(), ", got ", bias.sizes(), " ",
        bias.scalar_type());
  }
  TORCH_CHECK(input_bias.defined() == hidden_bias.defined(), op, ": expected two biases or none");
}

// --- a layer ---

void multiply(const char* op, Queue& queue, GemmArgs product) {
  product.beta = product.d.data ? 1 : 0;
  gemm(op, queue, product);
}

Weights weights_of(TensorList params, bool biased, int64_t direction) {
  const auto p = params.slice(direction * (biased ? 4 : 2));
  return {p[0].contiguous(), p[1].contiguous(), biased ? p[2] : Tensor(), biased ? p[3] : Tensor()};
}

int64_t steps_at_once(const Direction& s) {
  constexpr int64_t kGateElements = 1 << 20;
  return std::clamp<int64_t>(kGateElements / (s.batch * s.gates()), 1, s.steps);
}

Buf InputGates::of(int64_t k) const {
  const int64_t wide = s_.gates(), at_once = gates_.size(0);
  const int64_t begin = k / at_once * at_once, count = std::min(at_once, s_.steps - begin);
  if (k == begin) {
    const int64_t first = s_.reverse ? s_.steps - k - count : k;
    GemmMatrix add;
    if (bias_.defined()) add = {bias_.const_data_ptr(), bias_.scalar_type(), 0, 1};
    multiply(op_, queue_of(x_),
             {.m = count * s_.batch,
              .n = wide,
              .k = s_.inputs,
              .a = rows(x_, first * s_.batch * s_.inputs, s_.inputs),
              .b = transposed(rows(weight_, 0, s_.inputs)),
              .c = rows(gates_, 0, wide),
              .d = add});
  }
  const int64_t place = s_.reverse ? count - 1 - k % at_once : k % at_once;
  return {element(gates_, place * s_.batch * wide)};
}

namespace {

// The gradient of W_hh: grad_gates^T times the hidden state before each step, which is h0 before the first.
Tensor grad_hidden_weight(const char* op, const Direction& s, const Tensor& grad_gates, const Tensor& output,
                          const Tensor& h0) {
  Queue& queue = queue_of(grad_gates);
  const int64_t wide = s.gates();
  const Tensor grad = at::empty({wide, s.hidden}, grad_gates.options());
  const GemmMatrix g = rows(grad, 0, s.hidden);
  multiply(op, queue,
           {.m = wide,
            .n = s.hidden,
            .k = s.batch,
            .a = transposed(rows(grad_gates, s.time(0) * s.batch * wide, wide)),
            .b = rows(h0, 0, s.hidden),
            .c = g});
  if (s.steps > 1) {
    multiply(op, queue,
             {.m = wide,
              .n = s.hidden,
              .k = (s.steps - 1) * s.batch,
              .a = transposed(rows(grad_gates, s.reverse ? 0 : s.batch * wide, wide)),
              .b = rows(output, s.output_at(s.reverse ? 1 : 0), s.width),
              .c = g,
              .d = g});
  }
  return grad;
}

}  // namespace

void grad_parameters(const char* op, const Pass& pass, const GateGrads& gates, const Tensor& x, const Tensor& output,
                     const Wanted& wanted, variable_list& result) {
  const Direction& s = pass.s;
  Queue& queue = queue_of(x);
  const GemmMatrix g = rows(gates.from_inputs, 0, s.gates());
  const int64_t all_rows = s.steps * s.batch;
  if (wanted(0)) {
    const bool first = !result[0].defined();
    if (first) result[0] = at::empty(x.sizes(), x.options());
    const GemmMatrix to = rows(result[0], 0, s.inputs);
    multiply(op, queue,
             {.m = all_rows,
              .n = s.inputs,
              .k = s.gates(),
              .a = g,
              .b = rows(pass.weights.ih, 0, s.inputs),
              .c = to,
              .d = first ? GemmMatrix{} : to});
  }
  const size_t ih = pass.first_param, hh = ih + 1, bias_ih = ih + 2, bias_hh = ih + 3;
  if (wanted(ih)) {
    result[ih] = at::empty(pass.weights.ih.sizes(), x.options());
    multiply(op, queue,
             {.m = s.gates(),
              .n = s.inputs,
              .k = all_rows,
              .a = transposed(g),
              .b = rows(x, 0, s.inputs),
              .c = rows(result[ih], 0, s.inputs)});
  }
  if (wanted(hh)) result[hh] = grad_hidden_weight(op, s, gates.from_states, output, pass.before[0]);
  if (!pass.weights.bias_ih.defined()) return;
  if (wanted(bias_ih)) result[bias_ih] = gates.from_inputs.sum(at::IntArrayRef{0, 1});
  if (!wanted(bias_hh)) return;
  const bool same = gates.from_states.is_same(gates.from_inputs) && result[bias_ih].defined();
  result[bias_hh] = same ? result[bias_ih] : gates.from_states.sum(at::IntArrayRef{0, 1});
}

bool plain(const Tensor& t) {
  constexpr c10::DispatchKeySet lazy(
      {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
  return !at::isTensorSubclassLike(t) && !t.key_set().has_any(lazy);
}

bool takes(const Tensor& input, TensorList states, TensorList params, const LayerOptions& o, int64_t gates) {
  using c10::DispatchKey;
  if (c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerFrontMode) ||
      c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerBackMode))
    return false;
  const int64_t directions = o.directions(), each = o.params_each();
  const auto type = input.scalar_type();
  const bool floating = type == c10::kFloat || type == c10::kHalf || type == c10::kBFloat16 || type == c10::kDouble;
  if (!floating || input.dim() != 3 || input.numel() == 0 || o.layers < 1 ||
      params.size() != static_cast<size_t>(o.layers * directions * each))
    return false;
  const auto fits = [&](const Tensor& t, c10::IntArrayRef sizes) {
    return t.defined() && t.device() == input.device() && t.scalar_type() == type && t.layout() == c10::kStrided &&
           plain(t) && !t._fw_grad(0).defined() && t.sizes() == sizes;
  };
  if (!input.device().is_privateuseone() || !fits(input, input.sizes())) return false;
  const int64_t hidden = states[0].dim() == 3 ? states[0].size(2) : 0;
  if (hidden == 0) return false;
  for (const Tensor& h : states)
    if (!fits(h, {o.layers * directions, input.size(o.batch_first ? 0 : 1), hidden})) return false;
  for (size_t i = 0; i < params.size(); i++) {
    const int64_t layer = static_cast<int64_t>(i) / (directions * each), kind = static_cast<int64_t>(i) % each;
    const int64_t inputs = layer == 0 ? input.size(2) : directions * hidden, rows = gates * hidden;
    if (kind >= 2 ? !fits(params[i], {rows}) : !fits(params[i], {rows, kind == 0 ? inputs : hidden})) return false;
  }
  return true;
}

variable_list replay(AutogradContext* ctx, TensorList inputs, const variable_list& grads, const Composite& composite,
                     variable_list result) {
  const bool create_graph = at::GradMode::is_enabled();
  const at::AutoGradMode enable(true);
  // The tensors have their dtypes already.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  // Aliases, since one tensor may be given in two places.
  variable_list in, wanted;
  std::vector<size_t> where;
  for (const Tensor& t : inputs) {
    in.push_back(at::alias(t));
    if (ctx->needs_input_grad(in.size() - 1)) {
      wanted.push_back(in.back());
      where.push_back(in.size() - 1);
    }
  }
  const variable_list outputs = composite(in);
  variable_list out, grad_out;
  for (size_t i = 0; i < grads.size(); i++)
    if (grads[i].defined()) {
      out.push_back(outputs[i]);
      grad_out.push_back(grads[i]);
    }
  const variable_list found = torch::autograd::grad(out, wanted, grad_out, /*retain_graph=*/create_graph, create_graph,
                                                    /*allow_unused=*/true);
  for (size_t i = 0; i < where.size(); i++) result[where[i]] = found[i];
  return result;
}

variable_list select_each(TensorList tensors, int64_t index) {
  variable_list selected;
  for (const Tensor& t : tensors) selected.push_back(t.defined() ? t[index] : t);
  return selected;
}

}  // namespace netcl
