// Whole layers of nn.LSTM, as cuDNN has them on CUDA. ATen's own way cuts a sequence into time steps and calls some ten
// operators for each; here a layer is one node of the autograd graph, a time step one or two kernels, and the products
// with the inputs and all gradients of weights are made for the whole sequence at once.
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/ops/add.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/sum.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "aten/rnn/RnnLayers.h"

namespace netcl {

using at::Tensor;
using at::TensorList;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// --- what the layers have in common ---

void multiply(const char* op, Queue& queue, int64_t m, int64_t n, int64_t k, const GemmMatrix& a, const GemmMatrix& b,
              const GemmMatrix& c, const GemmMatrix& d) {
  GemmArgs g;
  g.m = m;
  g.n = n;
  g.k = k;
  g.a = a;
  g.b = b;
  g.c = c;
  g.d = d;
  g.beta = d.data ? 1 : 0;
  gemm(op, queue, g);
}

Weights weights_of(TensorList params, bool biased, int64_t direction) {
  const auto p = params.slice(direction * (biased ? 4 : 2));
  return {p[0].contiguous(), p[1].contiguous(), biased ? p[2] : Tensor(), biased ? p[3] : Tensor()};
}

Buf InputGates::of(int64_t k) const {
  const int64_t wide = s_.gates(), at_once = gates_.size(0);
  const int64_t begin = k / at_once * at_once, count = std::min(at_once, s_.steps - begin);
  if (k == begin) {
    const int64_t first = s_.reverse ? s_.steps - k - count : k;
    GemmMatrix add;
    if (bias_.defined()) add = {bias_.const_data_ptr(), bias_.scalar_type(), 0, 1};
    multiply(op_, queue_of(x_), count * s_.batch, wide, s_.inputs, rows(x_, first * s_.batch * s_.inputs, s_.inputs),
             transposed(rows(weight_, 0, s_.inputs)), rows(gates_, 0, wide), add);
  }
  const int64_t place = s_.reverse ? count - 1 - k % at_once : k % at_once;
  return {element(gates_, place * s_.batch * wide)};
}

Tensor grad_hidden_weight(const char* op, const Direction& s, const Tensor& grad_gates, const Tensor& output,
                          const Tensor& h0) {
  Queue& queue = queue_of(grad_gates);
  const int64_t wide = s.gates();
  const Tensor grad = at::empty({wide, s.hidden}, grad_gates.options());
  const GemmMatrix g = rows(grad, 0, s.hidden);
  multiply(op, queue, wide, s.hidden, s.batch, transposed(rows(grad_gates, s.time(0) * s.batch * wide, wide)),
           rows(h0, 0, s.hidden), g);
  if (s.steps > 1)
    multiply(op, queue, wide, s.hidden, (s.steps - 1) * s.batch,
             transposed(rows(grad_gates, s.reverse ? 0 : s.batch * wide, wide)),
             rows(output, s.output_at(s.reverse ? 1 : 0), s.width), g, g);
  return grad;
}

bool plain(const Tensor& t) {
  constexpr c10::DispatchKeySet lazy(
      {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
  return !at::isTensorSubclassLike(t) && !t.key_set().has_any(lazy);
}

bool takes(const Tensor& input, TensorList hx, TensorList params, bool biased, int64_t layers, bool bidirectional,
           bool batch_first, int64_t gates) {
  using c10::DispatchKey;
  if (c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerFrontMode) ||
      c10::impl::tls_is_dispatch_key_included(DispatchKey::FuncTorchDynamicLayerBackMode))
    return false;
  const int64_t directions = bidirectional ? 2 : 1, each = biased ? 4 : 2;
  const auto type = input.scalar_type();
  const bool floating = type == c10::kFloat || type == c10::kHalf || type == c10::kBFloat16 || type == c10::kDouble;
  if (!floating || input.dim() != 3 || input.numel() == 0 || layers < 1 ||
      params.size() != static_cast<size_t>(layers * directions * each))
    return false;
  const auto fits = [&](const Tensor& t, c10::IntArrayRef sizes) {
    return t.defined() && t.device() == input.device() && t.scalar_type() == type && t.layout() == c10::kStrided &&
           plain(t) && !t._fw_grad(0).defined() && t.sizes() == sizes;
  };
  if (!input.device().is_privateuseone() || !fits(input, input.sizes())) return false;
  const int64_t hidden = hx[0].dim() == 3 ? hx[0].size(2) : 0;
  if (hidden == 0) return false;
  for (const Tensor& h : hx)
    if (!fits(h, {layers * directions, input.size(batch_first ? 0 : 1), hidden})) return false;
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

namespace {

constexpr const char* kLstm = "aten::lstm";
constexpr const char* kLstmBackward = "aten::lstm_backward";
constexpr int64_t kGates = 4;
constexpr int64_t kFewSteps = 4;            // for which it does not pay to pack W_hh
constexpr int64_t kGateElements = 1 << 20;  // of gates at a time where no backward pass will read them

// The product with W_hh and the cell in one launch (kernels/rnn/rnn_steps.cl), with W_hh packed once for all steps.
class FusedSteps {
 public:
  static bool serve(const Direction& s, const Queue& queue) { return queue.device().is_cpu() && s.steps >= kFewSteps; }

  FusedSteps(const char* op, const Direction& s, Queue& queue, const Tensor& hh, bool backward)
      : op_(op), queue_(queue), batch_(s.batch), hidden_(s.hidden), levels_(backward ? s.gates() : s.hidden) {
    const auto type = hh.scalar_type(), wide = compute_type(type);
    const RegisterTile tile = register_tile(queue.device(), wide);
    int64_t rows = batch_ == 1 ? 1 : batch_ < 6 ? 3 : tile.rows;
    if (rows == 12 && round_up(batch_, int64_t{8}) < round_up(batch_, rows)) rows = 8;
    const int64_t parts = backward ? 1 : kGates, panel = levels_ * 2 * tile.vec;
    blocks_ = ceil_div(hidden_, backward ? 2 * tile.vec : tile.vec);
    const int64_t tiles = ceil_div(batch_, rows), wanted = 4 * static_cast<int64_t>(queue.device().compute_units());
    rows_each_ = ceil_div(tiles, std::min(tiles, ceil_div(wanted, blocks_))) * rows;
    Defs d;
    d.set("S", dtype_tag(type)).set("A", dtype_tag(wide)).set("VEC", tile.vec).set("ROWS", rows);
    d.set("INB", dtype_tag(type)).set("ACC", dtype_tag(wide));
    if (type != wide) {
      d.set("COPY", 1);
      kept_ = at::empty({2, batch_, levels_}, hh.options().dtype(wide));
    }
    kernel_ = &kernel(queue.device(), "rnn/rnn_steps.cl", backward ? "lstm_step_backward" : "lstm_step", d);
    const int64_t panels = backward ? blocks_ : 2 * blocks_, gate = hidden_ * hidden_;
    panels_ = at::empty({panels * panel}, hh.options().dtype(wide));
    kernel(queue.device(), "rnn/rnn_steps.cl", "rnn_pack", d)
        .launch(op, queue, {static_cast<size_t>(panels)}, {1}, buf(hh), buf(panels_), levels_, hidden_, parts, gate,
                backward ? 1 : hidden_, backward ? hidden_ : 1);
  }

  // What step k leaves in the compute type for the next one, where the tensors are of another.
  bool keeps() const { return kept_.defined(); }
  Buf kept(int64_t k) const { return {keeps() ? element(kept_, (k & 1) * batch_ * levels_) : nullptr}; }

  template <class... Args>
  void launch(const Args&... args) const {
    kernel_->launch(op_, queue_, {static_cast<size_t>(blocks_), static_cast<size_t>(ceil_div(batch_, rows_each_))},
                    {1, 1}, args..., batch_, hidden_, rows_each_);
  }
  Buf panels() const { return buf(panels_); }

 private:
  const char* op_;
  Queue& queue_;
  int64_t batch_, hidden_, levels_, blocks_, rows_each_;
  Kernel* kernel_;
  Tensor panels_, kept_;
};

// All hidden states, written into `output`. x (steps, batch, inputs), h0 and c0 (batch, hidden) are contiguous.
// `gates` (some steps, batch, 4 * hidden) and `cells` (steps or 1, batch, hidden) keep what the backward pass reads if
// they hold all steps; else they are used again and again.
void lstm_forward(const Direction& s, const Tensor& x, const Tensor& h0, const Tensor& c0, const Weights& w,
                  const Tensor& output, const Tensor& gates, const Tensor& cells) {
  Queue& queue = queue_of(x);
  const int64_t state = s.batch * s.hidden, wide = s.gates();
  const bool keep_cells = cells.size(0) == s.steps;
  const Tensor bias = w.bias_ih.defined() ? at::add(w.bias_ih, w.bias_hh) : Tensor();
  const InputGates inputs(kLstm, s, x, w.ih, bias, gates);
  std::optional<FusedSteps> fused;
  Tensor products, first_h = h0;
  if (FusedSteps::serve(s, queue)) {
    fused.emplace(kLstm, s, queue, w.hh, false);
    first_h = h0.to(compute_type(h0.scalar_type()));
  } else {
    products = at::empty({s.batch, wide}, x.options());
  }
  const void* c_before = c0.const_data_ptr();
  for (int64_t k = 0; k < s.steps; k++) {
    const Buf g = inputs.of(k);
    const int64_t t = s.time(k);
    const bool first = k == 0;
    const int64_t h_row = first ? s.hidden : s.width;
    const void* h_before = first ? first_h.const_data_ptr() : element(output, s.output_at(s.time(k - 1)));
    const Buf h{element(output, s.output_at(t))}, c{element(cells, keep_cells ? t * state : 0)};
    const Buf none{nullptr};
    if (fused) {
      const bool kept = !first && fused->keeps();
      fused->launch(h, c, g, Buf{c_before}, fused->kept(k), kept ? fused->kept(k - 1) : Buf{h_before}, fused->panels(),
                    s.width, kept ? s.hidden : h_row);
    } else {
      multiply(kLstm, queue, s.batch, wide, s.hidden, {h_before, x.scalar_type(), h_row, 1},
               transposed(rows(w.hh, 0, s.hidden)), rows(products, 0, wide));
      launch_cell(kLstm, "lstm_forward", queue, x.scalar_type(), false, s.batch, s.hidden, h, c, g, g, buf(products),
                  Buf{c_before}, none, none, s.width);
    }
    c_before = c.address;
  }
}

// Gradients that reach a direction; undefined ones are zero. `output` has consecutive last elements.
struct Incoming {
  Tensor output, h, c;
};

// Gradients of all gates into `grad_gates` (steps, batch, 4 * hidden), of c0 into `grad_c`, of h0 into `grad_h` if it
// is defined. `gates`, `cells` and `output` are those of the forward pass.
void lstm_backward(const Direction& s, const Tensor& h0_grad, const Tensor& c0, const Weights& w, const Tensor& gates,
                   const Tensor& cells, const Incoming& grad, const Tensor& grad_gates, const Tensor& grad_c) {
  Queue& queue = queue_of(gates);
  const auto type = gates.scalar_type();
  const int64_t state = s.batch * s.hidden, wide = s.gates();
  const GemmMatrix hh = rows(w.hh, 0, s.hidden);
  std::optional<FusedSteps> fused;
  Tensor grad_h, later = grad_c;
  if (FusedSteps::serve(s, queue)) {
    fused.emplace(kLstmBackward, s, queue, w.hh, true);
    if (fused->keeps()) later = at::empty(grad_c.sizes(), grad_c.options().dtype(compute_type(type)));
  } else {
    grad_h = at::empty({s.batch, s.hidden}, gates.options());
  }
  if (grad.c.defined()) later.copy_(grad.c);
  for (int64_t k = s.steps - 1; k >= 0; k--) {
    const int64_t t = s.time(k);
    const bool last = k == s.steps - 1;
    const int has_c = !last || grad.c.defined();
    GemmMatrix from_output;
    if (grad.output.defined())
      from_output = {element(grad.output, t * grad.output.stride(0) + s.column), type, grad.output.stride(1), 1};
    const Buf to{element(grad_gates, t * s.batch * wide)}, g{element(gates, t * s.batch * wide)};
    const Buf c{element(cells, t * state)}, c_before = k == 0 ? buf(c0) : Buf{element(cells, s.time(k - 1) * state)};
    const void* next = last ? nullptr : element(grad_gates, s.time(k + 1) * s.batch * wide);
    if (fused) {
      fused->launch(to, buf(later), Buf{from_output.data}, buf_or_null(grad.h), c_before, c, g, fused->kept(k),
                    last || !fused->keeps() ? Buf{next} : fused->kept(k + 1), fused->panels(), last ? int64_t{0} : wide,
                    from_output.rs, int(grad.output.defined()), int(last && grad.h.defined()), has_c);
      continue;
    }
    bool has_h = true;
    if (!last) {
      multiply(kLstmBackward, queue, s.batch, s.hidden, wide, {next, type, wide, 1}, hh, rows(grad_h, 0, s.hidden),
               from_output);
    } else if (grad.output.defined()) {
      grad_h.copy_(grad.output.select(0, t).narrow(1, s.column, s.hidden));
      if (grad.h.defined()) grad_h.add_(grad.h);
    } else if (grad.h.defined()) {
      grad_h.copy_(grad.h);
    } else {
      has_h = false;
    }
    launch_cell(kLstmBackward, "lstm_backward", queue, type, false, s.batch, s.hidden, to, buf(later), buf(grad_h),
                buf(later), c_before, c, g, int(has_h), has_c);
  }
  if (!later.is_same(grad_c)) grad_c.copy_(later);
  if (h0_grad.defined())
    multiply(kLstmBackward, queue, s.batch, s.hidden, wide, rows(grad_gates, s.time(0) * s.batch * wide, wide), hh,
             rows(h0_grad, 0, s.hidden));
}

// --- a layer ---

struct LayerResult {
  Tensor output, h, c, gates, cells;  // the last two (directions, steps, batch, ...) if kept
};

// input (steps, batch, inputs); hx and cx (directions, batch, hidden).
LayerResult lstm_layer(const Tensor& input, const Tensor& hx, const Tensor& cx, TensorList params, bool biased,
                       bool keep) {
  const c10::DeviceGuard guard(input.device());
  const Tensor x = input.contiguous(), h0 = hx.contiguous(), c0 = cx.contiguous();
  const int64_t directions = hx.size(0), steps = x.size(0), batch = x.size(1), hidden = hx.size(2);
  const int64_t wide = kGates * hidden;
  const int64_t at_once = keep ? steps : std::clamp<int64_t>(kGateElements / (batch * wide), 1, steps);
  LayerResult r;
  r.output = at::empty({steps, batch, directions * hidden}, x.options());
  r.h = at::empty(h0.sizes(), x.options());
  r.c = at::empty(c0.sizes(), x.options());
  r.gates = at::empty({keep ? directions : 1, at_once, batch, wide}, x.options());
  if (keep) r.cells = at::empty({directions, steps, batch, hidden}, x.options());
  for (int64_t d = 0; d < directions; d++) {
    const Direction s(x, h0, d, kGates);
    const Tensor cells = keep ? r.cells[d] : r.c.narrow(0, d, 1);
    lstm_forward(s, x, h0[d], c0[d], weights_of(params, biased, d), r.output, r.gates[keep ? d : 0], cells);
    const int64_t last = s.time(steps - 1);
    r.h[d].copy_(r.output.select(0, last).narrow(1, s.column, hidden));
    if (keep) r.c[d].copy_(cells[last]);
  }
  return r;
}

class LstmLayer : public torch::autograd::Function<LstmLayer> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const Tensor& hx, const Tensor& cx,
                               TensorList params, bool biased) {
    const LayerResult r = lstm_layer(input, hx, cx, params, biased, true);
    variable_list saved{input, hx, cx, r.output, r.gates, r.cells};
    saved.insert(saved.end(), params.begin(), params.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["biased"] = biased;
    ctx->set_materialize_grads(false);
    return {r.output, r.h, r.c};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const TensorList all(saved), params = all.slice(kSaved);
    const bool biased = ctx->saved_data["biased"].toBool();
    variable_list result(3 + params.size() + 1);  // the last is that of `biased`
    bool any = false, ordinary = !at::GradMode::is_enabled();
    for (const Tensor& g : grads) {
      any |= g.defined();
      ordinary &= !g.defined() || plain(g);
    }
    if (!any) return result;
    // ATen's own way can be differentiated once more, and knows batches of gradients.
    if (!ordinary) return replay(ctx, saved, grads, biased, std::move(result));

    const c10::DeviceGuard guard(saved[0].device());
    const Tensor &output = saved[3], &gates = saved[4], &cells = saved[5];
    const Tensor x = saved[0].contiguous(), h0 = saved[1].contiguous(), c0 = saved[2].contiguous();
    Queue& queue = queue_of(x);
    const auto needs = [&](size_t i) { return ctx->needs_input_grad(i); };
    Tensor grad_output = grads[0];
    if (grad_output.defined() && grad_output.stride(2) != 1) grad_output = grad_output.contiguous();
    Tensor grad_h = needs(1) ? at::empty(h0.sizes(), h0.options()) : Tensor();
    Tensor grad_c = at::empty(c0.sizes(), c0.options());
    const Tensor grad_gates = at::empty(gates.sizes().slice(1), gates.options());
    for (int64_t d = 0; d < h0.size(0); d++) {
      const Direction s(x, h0, d, kGates);
      const Weights w = weights_of(params, biased, d);
      const Incoming incoming{grad_output, grads[1].defined() ? grads[1][d].contiguous() : Tensor(),
                              grads[2].defined() ? grads[2][d] : Tensor()};
      lstm_backward(s, grad_h.defined() ? grad_h[d] : Tensor(), c0[d], w, gates[d], cells[d], incoming, grad_gates,
                    grad_c[d]);
      const GemmMatrix g = rows(grad_gates, 0, s.gates());
      const int64_t all_rows = s.steps * s.batch;
      if (needs(0)) {
        if (d == 0) result[0] = at::empty(x.sizes(), x.options());
        const GemmMatrix to = rows(result[0], 0, s.inputs);
        multiply(kLstmBackward, queue, all_rows, s.inputs, s.gates(), g, rows(w.ih, 0, s.inputs), to,
                 d == 0 ? GemmMatrix{} : to);
      }
      const size_t first = 3 + d * (biased ? 4 : 2);
      if (needs(first)) {
        result[first] = at::empty(w.ih.sizes(), w.ih.options());
        multiply(kLstmBackward, queue, s.gates(), s.inputs, all_rows, transposed(g), rows(x, 0, s.inputs),
                 rows(result[first], 0, s.inputs));
      }
      if (needs(first + 1)) result[first + 1] = grad_hidden_weight(kLstmBackward, s, grad_gates, output, h0[d]);
      if (biased && (needs(first + 2) || needs(first + 3)))
        result[first + 2] = result[first + 3] = grad_gates.sum(at::IntArrayRef{0, 1});
    }
    result[1] = grad_h;
    if (needs(2)) result[2] = grad_c;
    return result;
  }

 private:
  static constexpr size_t kSaved = 6;

  static variable_list replay(AutogradContext* ctx, const variable_list& saved, const variable_list& grads, bool biased,
                              variable_list result) {
    variable_list inputs(saved.begin(), saved.begin() + 3);
    inputs.insert(inputs.end(), saved.begin() + kSaved, saved.end());
    const auto composite = [biased](TensorList in) -> variable_list {
      auto [y, h, c] = at::native::lstm(in[0], in.slice(1, 2), in.slice(3), biased, /*num_layers=*/1, /*dropout=*/0,
                                        /*train=*/true, /*bidirectional=*/in[1].size(0) == 2, /*batch_first=*/false);
      return {y, h, c};
    };
    return netcl::replay(ctx, inputs, grads, composite, std::move(result));
  }
};

// --- the operator ---

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, TensorList hx, TensorList params, bool biased,
                                        int64_t layers, double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  if (hx.size() != 2 || !takes(input, hx, params, biased, layers, bidirectional, batch_first, kGates))
    return at::native::lstm(input, hx, params, biased, layers, dropout, train, bidirectional, batch_first);
  check_dtype(netcl::device_of(input), input.scalar_type(), kLstm);
  const int64_t directions = bidirectional ? 2 : 1, each = directions * (biased ? 4 : 2);
  const auto tracked = [](const Tensor& t) { return t.requires_grad(); };
  Tensor y = batch_first ? input.transpose(0, 1) : input;
  variable_list h, c;
  for (int64_t layer = 0; layer < layers; layer++) {
    const Tensor h0 = hx[0].narrow(0, layer * directions, directions);
    const Tensor c0 = hx[1].narrow(0, layer * directions, directions);
    const TensorList own = params.slice(layer * each, each);
    if (at::GradMode::is_enabled() &&
        (tracked(y) || tracked(h0) || tracked(c0) || std::any_of(own.begin(), own.end(), tracked))) {
      variable_list r = LstmLayer::apply(y, h0, c0, own, biased);
      y = std::move(r[0]);
      h.push_back(std::move(r[1]));
      c.push_back(std::move(r[2]));
    } else {
      LayerResult r = lstm_layer(y, h0, c0, own, biased, false);
      y = std::move(r.output);
      h.push_back(std::move(r.h));
      c.push_back(std::move(r.c));
    }
    if (dropout != 0 && train && layer < layers - 1) y = at::dropout(y, dropout, true);
  }
  return {batch_first ? y.transpose(0, 1) : y, layers == 1 ? h[0] : at::cat(h), layers == 1 ? c[0] : at::cat(c)};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("lstm.input", &lstm); }
// An implicit composite with a backend's kernel needs one above autograd too.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("lstm.input", &lstm); }

}  // namespace netcl
