// nn.LSTM: its fused cell, which ATen calls on every device but the CPU, and whole layers, as cuDNN has them on CUDA.
// ATen's own way cuts a sequence into time steps and calls some ten operators for each. Here a layer is one node of the
// autograd graph, and a time step is one or two kernels. The products with the inputs and all gradients of weights are
// made for the whole sequence at once.
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/lstm_native.h>

#include "aten/gemm/MatrixEngine.h"
#include "aten/rnn/Rnn.h"
#include "aten/support/Library.h"

namespace netcl {
namespace {

using at::Tensor;
using at::TensorList;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;

constexpr int64_t kLstmGates = 4;  // input, forget, cell, output

CellLaunch lstm_launch(const char* op, const char* name, const Tensor& state, int64_t hy_row) {
  return {op, "rnn/lstm.cl", name, state.scalar_type(), state.size(0), state.size(1), 0, hy_row};
}

// --- the cell ---

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const OptionalTensor& input_bias, const OptionalTensor& hidden_bias) {
  const char* op = "aten::_thnn_fused_lstm_cell";
  CellInputs in{input_gates, hidden_gates, cx, input_bias.value_or(Tensor()), hidden_bias.value_or(Tensor())};
  in.check(op, kLstmGates);
  const c10::DeviceGuard guard(cx.device());
  Tensor hy = at::empty_like(in.state), cy = at::empty_like(in.state), workspace = at::empty_like(in.input_gates);
  launch_cell(lstm_launch(op, "lstm_forward", in.state, in.state.size(1)), queue_of(cx), buf(hy), buf(cy),
              buf(workspace), buf(in.state), buf(in.input_gates), buf(in.hidden_gates), buf_or_null(in.input_bias),
              buf_or_null(in.hidden_bias));
  return {hy, cy, workspace};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hy, const OptionalTensor& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  const char* op = "aten::_thnn_fused_lstm_cell_backward_impl";
  const auto dense = [](const OptionalTensor& t) { return t && t->defined() ? t->contiguous() : Tensor(); };
  const Tensor gh = dense(grad_hy), gc = dense(grad_cy);
  if (!gh.defined() && !gc.defined()) return {};
  check_cell(op, workspace, cx, kLstmGates);
  const c10::DeviceGuard guard(cx.device());
  const Tensor c = cx.contiguous(), c_new = cy.contiguous(), gates = workspace.contiguous();
  Tensor grad_gates = at::empty_like(gates), grad_cx = at::empty_like(c);
  launch_cell(lstm_launch(op, "lstm_backward", c, 0), queue_of(c), buf(grad_gates), buf(c), buf(c_new), buf(gates),
              buf(grad_cx), buf_or_null(gh), buf_or_null(gc));
  return {grad_gates, grad_cx, has_bias ? grad_gates.sum(0) : Tensor()};
}

// --- the layer ---

// The product with W_hh and the cell in one launch (kernels/rnn/lstm_steps.cl), with W_hh packed once for all steps.
class FusedSteps {
 public:
  static bool serve(const Direction& s, const Queue& queue) { return s.steps >= tuning(queue.device()).fused_steps; }

  FusedSteps(const char* op, const Direction& s, Queue& queue, const Tensor& hh, bool backward)
      : op_(op), queue_(queue), batch_(s.batch), hidden_(s.hidden), depth_(backward ? s.gates() : s.hidden) {
    const auto type = hh.scalar_type(), wide = compute_type(type);
    const RegisterTile tile = register_tile(queue.device(), wide);
    int64_t rows = batch_ == 1 ? 1 : batch_ < 6 ? 3 : tile.rows;
    if (rows == 12 && round_up(batch_, int64_t{8}) < round_up(batch_, rows)) rows = 8;
    const auto engine = engine_tile(queue.device(), type, type);
    const bool amx =
        engine && engine->in_place && type == c10::kBFloat16 && hidden_ % engine->kUnroll == 0 && batch_ > 1;
    if (amx) rows = engine->rows;
    const int64_t parts = backward ? 1 : kLstmGates, panel = depth_ * 2 * tile.vec;
    blocks_ = ceil_div(hidden_, backward ? 2 * tile.vec : tile.vec);
    const int64_t tiles = ceil_div(batch_, rows), wanted = enough_items(queue.device());
    rows_each_ = ceil_div(tiles, std::min(tiles, ceil_div(wanted, blocks_))) * rows;
    Defs d;
    d.set("IO", dtype_tag(type)).set("INB", dtype_tag(type)).set("ACC", dtype_tag(wide));
    d.set("VEC", tile.vec).set("MR", rows);
    if (amx) d.set(engine->define, 1).set("PARTS", engine->parts);
    const auto kept = hh.options().dtype(amx ? type : wide);
    kept_ = at::empty({2, round_up(batch_, rows), depth_}, kept);
    kernel_ = &kernel(queue.device(), "rnn/lstm_steps.cl", backward ? "lstm_step_backward" : "lstm_step", d);
    const int64_t panels = backward ? blocks_ : 2 * blocks_, gate = hidden_ * hidden_;
    panels_ = at::empty({panels * panel}, kept);
    kernel(queue.device(), "rnn/lstm_steps.cl", "lstm_pack", d)
        .launch(op, queue, {static_cast<size_t>(panels)}, {1}, buf(hh), buf(panels_),
                LstmPackParams{depth_, hidden_, parts, gate, backward ? 1 : hidden_, backward ? hidden_ : 1});
  }

  // What step 0 multiplies, as if a step had left it.
  void keep(const Tensor& first) const { kept_[1].narrow(0, 0, batch_).copy_(first); }

  LstmStepParams params() const { return {batch_, hidden_, depth_, rows_each_, hidden_, 1}; }
  // Step k multiplies what the step before it left.
  template <class... Args>
  void launch(int64_t k, const LstmStepParams& params, const Args&... args) const {
    const auto kept = [&](int64_t step) { return Buf{element(kept_, (step & 1) * kept_.stride(0))}; };
    kernel_->launch(op_, queue_, {static_cast<size_t>(blocks_), static_cast<size_t>(ceil_div(batch_, rows_each_))},
                    {1, 1}, args..., kept(k), kept(k + 1), buf(panels_), params);
  }

 private:
  const char* op_;
  Queue& queue_;
  int64_t batch_, hidden_, depth_, blocks_, rows_each_;
  Kernel* kernel_;
  Tensor panels_, kept_;
};

struct Lstm {
  static constexpr const char* kOp = "aten::lstm";
  static constexpr const char* kBackward = "aten::lstm_backward";
  static constexpr int64_t kGates = kLstmGates;
  static constexpr size_t kStates = 2;         // h and c
  enum Kept : size_t { kGateValues, kCells };  // (directions, steps, batch, 4 * hidden or hidden)

  // Without a backward pass, memory for the gates of some steps serves them all in turn, and the result's memory holds
  // the cell states.
  static void allocate(const Direction& s, int64_t directions, bool keep, LayerResult& r) {
    const auto options = r.output.options();
    const int64_t steps = keep ? s.steps : steps_at_once(s);
    r.kept.push_back(at::empty({keep ? directions : 1, steps, s.batch, s.gates()}, options));
    if (keep) r.kept.push_back(at::empty({directions, s.steps, s.batch, s.hidden}, options));
  }

  static void forward(const Pass& pass, const Tensor& x, int64_t d, bool keep, LayerResult& r);
  static void backward(const Pass& pass, const variable_list& kept, const Incoming& grad,
                       const variable_list& grad_states, GateGrads& result);

  static variable_list composite(TensorList in, bool biased) {
    auto [y, h, c] = at::native::lstm(in[0], in.slice(1, 2), in.slice(3), biased, /*num_layers=*/1, /*dropout=*/0,
                                      /*train=*/true, /*bidirectional=*/in[1].size(0) == 2, /*batch_first=*/false);
    return {y, h, c};
  }
};

void Lstm::forward(const Pass& pass, const Tensor& x, int64_t d, bool keep, LayerResult& r) {
  const auto& [s, w, first_param, before] = pass;
  const Tensor &h0 = before[0], &c0 = before[1];
  const Tensor gates = r.kept[kGateValues][keep ? d : 0],
               cells = keep ? r.kept[kCells][d] : r.states[1].narrow(0, d, 1);
  Queue& queue = queue_of(x);
  const int64_t state = s.batch * s.hidden, wide = s.gates();
  const Tensor bias = w.bias_ih.defined() ? at::add(w.bias_ih, w.bias_hh) : Tensor();
  const InputGates inputs(kOp, s, x, w.ih, bias, gates);
  std::optional<FusedSteps> fused;
  Tensor products;
  if (FusedSteps::serve(s, queue)) {
    fused.emplace(kOp, s, queue, w.hh, false);
    fused->keep(h0);
  } else {
    products = at::empty({s.batch, wide}, x.options());
  }
  const void* c_before = c0.const_data_ptr();
  for (int64_t k = 0; k < s.steps; k++) {
    const Buf g = inputs.of(k);
    const int64_t t = s.time(k);
    const bool first = k == 0;
    const int64_t h_row = first ? s.hidden : s.width;
    const void* h_before = first ? h0.const_data_ptr() : element(r.output, s.output_at(s.time(k - 1)));
    const Buf h{element(r.output, s.output_at(t))}, c{element(cells, keep ? t * state : 0)}, none{nullptr};
    if (fused) {
      LstmStepParams params = fused->params();
      params.hy_row = s.width;
      fused->launch(k, params, h, c, g, Buf{c_before});
    } else {
      multiply(kOp, queue,
               {.m = s.batch,
                .n = wide,
                .k = s.hidden,
                .a = {h_before, x.scalar_type(), h_row, 1},
                .b = transposed(rows(w.hh, 0, s.hidden)),
                .c = rows(products, 0, wide)});
      launch_cell(lstm_launch(kOp, "lstm_forward", h0, s.width), queue, h, c, g, Buf{c_before}, g, buf(products), none,
                  none);
    }
    c_before = c.address;
  }
  if (keep) r.states[1][d].copy_(cells[s.time(s.steps - 1)]);
}

// Writes the gradient that reaches h at the last step from outside to `to`. False if there is none.
bool copy_last(const Direction& s, const Incoming& grad, const Tensor& to) {
  if (grad.output.defined()) {
    to.copy_(grad.output.select(0, s.time(s.steps - 1)).narrow(1, s.column, s.hidden));
    if (grad.states[0].defined()) to.add_(grad.states[0]);
  } else if (grad.states[0].defined()) {
    to.copy_(grad.states[0]);
  }
  return grad.output.defined() || grad.states[0].defined();
}

void Lstm::backward(const Pass& pass, const variable_list& kept, const Incoming& grad, const variable_list& grad_states,
                    GateGrads& result) {
  const auto& [s, w, first_param, before] = pass;
  const Tensor &gates = kept[kGateValues], &cells = kept[kCells], &c0 = before[1], &grad_c = grad_states[1];
  if (!result.from_inputs.defined()) result.from_inputs = result.from_states = at::empty_like(gates);
  const Tensor& grad_gates = result.from_inputs;
  const Tensor h_last = grad.states[0].defined() ? grad.states[0].contiguous() : Tensor();
  Queue& queue = queue_of(gates);
  const int64_t state = s.batch * s.hidden, wide = s.gates();
  const GemmMatrix hh = rows(w.hh, 0, s.hidden);
  std::optional<FusedSteps> fused;
  Tensor grad_h, later = grad_c;
  if (FusedSteps::serve(s, queue)) {
    fused.emplace(kBackward, s, queue, w.hh, true);
    const auto wide_type = compute_type(gates.scalar_type());
    if (grad_c.scalar_type() != wide_type) later = at::empty(grad_c.sizes(), grad_c.options().dtype(wide_type));
  } else {
    grad_h = at::empty({s.batch, s.hidden}, gates.options());
  }
  if (grad.states[1].defined()) later.copy_(grad.states[1]);
  for (int64_t k = s.steps - 1; k >= 0; k--) {
    const int64_t t = s.time(k);
    const bool last = k == s.steps - 1, has_c = !last || grad.states[1].defined();
    GemmMatrix from_output;
    if (grad.output.defined())
      from_output = rows(grad.output, t * grad.output.stride(0) + s.column, grad.output.stride(1));
    const Buf to{element(grad_gates, t * s.batch * wide)}, g{element(gates, t * s.batch * wide)};
    const Buf c{element(cells, t * state)}, c_before = k == 0 ? buf(c0) : Buf{element(cells, s.time(k - 1) * state)};
    const void* next = last ? nullptr : element(grad_gates, s.time(k + 1) * s.batch * wide);
    if (fused) {
      LstmStepParams params = fused->params();
      if (last) params.depth = 0;
      params.hy_row = from_output.rs;
      params.has_dc = has_c;
      fused->launch(k, params, to, c_before, c, g, buf(later), Buf{from_output.data},
                    last ? buf_or_null(h_last) : Buf{nullptr});
      continue;
    }
    if (!last) {
      multiply(kBackward, queue,
               {.m = s.batch,
                .n = s.hidden,
                .k = wide,
                .a = {next, gates.scalar_type(), wide, 1},
                .b = hh,
                .c = rows(grad_h, 0, s.hidden),
                .d = from_output});
    }
    const bool has_h = !last || copy_last(s, grad, grad_h);
    launch_cell(lstm_launch(kBackward, "lstm_backward", grad_h, 0), queue, to, c_before, c, g, buf(later),
                has_h ? buf(grad_h) : Buf{nullptr}, has_c ? buf(later) : Buf{nullptr});
  }
  if (!later.is_same(grad_c)) grad_c.copy_(later);
  if (!grad_states[0].defined()) return;
  multiply(kBackward, queue,
           {.m = s.batch,
            .n = s.hidden,
            .k = wide,
            .a = rows(grad_gates, s.time(0) * s.batch * wide, wide),
            .b = hh,
            .c = rows(grad_states[0], 0, s.hidden)});
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, TensorList hx, TensorList params, bool biased,
                                        int64_t layers, double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  const LayerOptions options{biased, layers, dropout, train, bidirectional, batch_first};
  if (hx.size() != Lstm::kStates || !takes(input, hx, params, options, kLstmGates))
    return at::native::lstm(input, hx, params, biased, layers, dropout, train, bidirectional, batch_first);
  variable_list r = run_layers<Lstm>(input, hx, params, options);
  return {std::move(r[0]), std::move(r[1]), std::move(r[2])};
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  m.impl("lstm.input", &lstm);
}
// An implicit composite with a backend's kernel needs one above autograd too.
NETCL_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("lstm.input", &lstm); }

}  // namespace netcl
