// What nn.LSTM and nn.GRU share (Lstm.cpp, Gru.cpp): launches of cells, products with weights, the layer's autograd
// node, and the driver over layers.
#pragma once

#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>

#include "args/rnn.h"
#include "aten/gemm/Gemm.h"
#include "aten/support/Launch.h"

namespace netcl {

// --- a cell ---

struct CellLaunch {
  const char *op, *file, *name;  // the operator; its kernel
  c10::ScalarType type;
  int64_t rows, hidden;            // of the batch; units of each
  int64_t hx_row = 0, hy_row = 0;  // as in RnnCellParams
};

template <class... Args>
void launch_cell(const CellLaunch& cell, Queue& queue, const Args&... args) {
  if (cell.rows == 0 || cell.hidden == 0) return;
  Device& dev = queue.device();
  const int64_t vec = tuning(dev).lanes, chunk = vec * vec;
  Defs d;
  d.set("IO", dtype_tag(cell.type)).set("ACC", compute_tag(cell.type)).set("VEC", vec);
  kernel(dev, cell.file, cell.name, d)
      .launch(cell.op, queue, {size_t(ceil_div(cell.hidden, chunk)), size_t(cell.rows)}, element_group(dev), args...,
              RnnCellParams{cell.hidden, chunk, cell.hx_row, cell.hy_row});
}

// Raises unless gates are (N, count * H) and state is (N, H), both of one dtype.
void check_cell(const char* op, const at::Tensor& gates, const at::Tensor& state, int64_t count);

// What a fused cell reads: both products (N, count * H), the state (N, H), and two biases or none. All is contiguous.
struct CellInputs {
  at::Tensor input_gates, hidden_gates, state, input_bias, hidden_bias;
  // Raises if shapes and dtypes do not fit together.
  void check(const char* op, int64_t count);
};

// --- a layer ---

inline const void* element(const at::Tensor& t, int64_t index) {
  return static_cast<const char*>(t.const_data_ptr()) + index * static_cast<int64_t>(t.element_size());
}
// The matrix whose rows begin at element `first` of `t` and lie `row` elements apart.
inline GemmMatrix rows(const at::Tensor& t, int64_t first, int64_t row) {
  return {element(t, first), t.scalar_type(), row, 1};
}

// C = A * B, plus D if it is given.
void multiply(const char* op, Queue& queue, GemmArgs product);

// Contiguous weights; the biases are undefined if there are none.
struct Weights {
  at::Tensor ih, hh, bias_ih, bias_hh;
};

// Parameters of a direction, in nn.LSTM's order.
Weights weights_of(at::TensorList params, bool biased, int64_t direction);

// The sizes of a layer, and where one direction's hidden states lie in the output (steps, batch, width).
struct Direction {
  int64_t steps, batch, inputs, hidden, width, column, kinds;
  bool reverse;

  // `kinds`: how many gates a unit has.
  Direction(const at::Tensor& x, const at::Tensor& hx, int64_t index, int64_t kinds)
      : steps(x.size(0)),
        batch(x.size(1)),
        inputs(x.size(2)),
        hidden(hx.size(2)),
        width(hx.size(0) * hidden),
        column(index * hidden),
        kinds(kinds),
        reverse(index == 1) {}

  int64_t gates() const { return kinds * hidden; }
  // The time of the k-th step.
  int64_t time(int64_t k) const { return reverse ? steps - 1 - k : k; }
  int64_t output_at(int64_t time) const { return time * batch * width + column; }
};

// How many steps' gates are made at once if no backward pass will read them.
int64_t steps_at_once(const Direction& s);

// What the inputs (and `bias`, if defined) add to the gates. `gates` (some steps, batch, gates) holds as many steps as
// are made at once.
class InputGates {
 public:
  InputGates(const char* op, const Direction& s, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
             const at::Tensor& gates)
      : op_(op), s_(s), x_(x), weight_(weight), bias_(bias), gates_(gates) {}
  // Those of step k, asked for in order. The next steps overwrite them.
  Buf of(int64_t k) const;

 private:
  const char* op_;
  const Direction& s_;
  const at::Tensor &x_, &weight_, &bias_, &gates_;
};

// One direction of a layer.
struct Pass {
  Direction s;
  Weights weights;
  size_t first_param;                     // the number of the first weight among the layer's inputs
  torch::autograd::variable_list before;  // the states before the first step (batch, hidden)
};

// Gradients that reach a direction; undefined ones are zero. The last dimension of `output` (steps, batch, width) has
// stride 1.
struct Incoming {
  at::Tensor output;
  torch::autograd::variable_list states;
};

// Gradients of what inputs and what states add to the gates (steps, batch, gates). An LSTM's are the same tensor.
struct GateGrads {
  at::Tensor from_inputs, from_states;
};

struct LayerResult {
  at::Tensor output;
  torch::autograd::variable_list states;  // the last ones (directions, batch, hidden)
  torch::autograd::variable_list kept;    // what the backward pass reads, in the cell's own order
  at::Tensor scratch;                     // of all directions
};

// Writes the gradients of a direction's parameters and of x into `result`. `wanted` tells by the number of a layer's
// input whether its gradient is.
using Wanted = std::function<bool(size_t)>;
void grad_parameters(const char* op, const Pass& pass, const GateGrads& gates, const at::Tensor& x,
                     const at::Tensor& output, const Wanted& wanted, torch::autograd::variable_list& result);

// Whether a kernel can read its memory. It cannot if the tensor is a wrapper (functorch, subclasses, modes), lazily
// negated, or a zero without memory.
bool plain(const at::Tensor& t);

// The arguments of nn.LSTM and nn.GRU that are no tensors.
struct LayerOptions {
  bool biased;
  int64_t layers;
  double dropout;
  bool train, bidirectional, batch_first;

  int64_t directions() const { return bidirectional ? 2 : 1; }
  int64_t params_each() const { return biased ? 4 : 2; }  // of one direction
};

// Whether these layers serve the arguments. ATen's do else, and raise its errors: for projections, empty sequences,
// tensors that are not plain, sizes that do not fit, functorch and forward-mode derivatives.
bool takes(const at::Tensor& input, at::TensorList states, at::TensorList params, const LayerOptions& options,
           int64_t gates);

// Writes the gradients of `inputs` that are wanted into `result`. `composite` is ATen's own layer, from the inputs to
// its outputs; the gradients have a graph if grad mode is on.
using Composite = std::function<torch::autograd::variable_list(at::TensorList)>;
torch::autograd::variable_list replay(torch::autograd::AutogradContext* ctx, at::TensorList inputs,
                                      const torch::autograd::variable_list& grads, const Composite& composite,
                                      torch::autograd::variable_list result);

// Row `index` of each tensor; undefined ones stay so.
torch::autograd::variable_list select_each(at::TensorList tensors, int64_t index);

// A cell type says what distinguishes a kind of layer:
//   kOp, kBackward     names for errors and profiles
//   kGates, kStates    how many gates a unit has, and states from one step to the next (h, and c of an LSTM)
//   allocate(s, directions, keep, r)
//                      makes r.kept and r.scratch, for all steps if `keep`
//   forward(pass, x, d, keep, r)
//                      writes all hidden states of direction d to r.output, and the last states but h to r.states
//   backward(pass, kept, incoming, grad_states, gates)
//                      writes the gradients of the states before the first step and of the gates. That of h0 is
//                      undefined if it is not wanted.
//   composite(inputs, biased)
//                      is ATen's own layer

// input (steps, batch, inputs); states (directions, batch, hidden) each.
template <class Cell>
LayerResult forward_layer(const at::Tensor& input, at::TensorList states, at::TensorList params, bool biased,
                          bool keep) {
  const c10::DeviceGuard guard(input.device());
  const at::Tensor x = input.contiguous();
  torch::autograd::variable_list before;
  for (const at::Tensor& t : states) before.push_back(t.contiguous());
  const int64_t directions = before[0].size(0), steps = x.size(0), batch = x.size(1), hidden = before[0].size(2);
  LayerResult r;
  r.output = at::empty({steps, batch, directions * hidden}, x.options());
  for (const at::Tensor& t : before) r.states.push_back(at::empty(t.sizes(), x.options()));
  Cell::allocate(Direction(x, before[0], 0, Cell::kGates), directions, keep, r);
  for (int64_t d = 0; d < directions; d++) {
    const Direction s(x, before[0], d, Cell::kGates);
    Cell::forward({s, weights_of(params, biased, d), 0, select_each(before, d)}, x, d, keep, r);
    r.states[0][d].copy_(r.output.select(0, s.time(steps - 1)).narrow(1, s.column, hidden));
  }
  return r;
}

// A layer as one node of the autograd graph. Its inputs are x, the states and the parameters.
template <class Cell>
class Layer : public torch::autograd::Function<Layer<Cell>> {
  using variable_list = torch::autograd::variable_list;
  using Context = torch::autograd::AutogradContext;
  static constexpr size_t kParams = 1 + Cell::kStates;  // where the parameters begin

 public:
  static variable_list forward(Context* ctx, at::TensorList inputs, bool biased) {
    LayerResult r = forward_layer<Cell>(inputs[0], inputs.slice(1, Cell::kStates), inputs.slice(kParams), biased, true);
    variable_list saved(inputs.begin(), inputs.end());
    saved.push_back(r.output);
    saved.insert(saved.end(), r.kept.begin(), r.kept.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["inputs"] = static_cast<int64_t>(inputs.size());
    ctx->saved_data["biased"] = biased;
    ctx->set_materialize_grads(false);
    variable_list outputs{r.output};
    outputs.insert(outputs.end(), r.states.begin(), r.states.end());
    return outputs;
  }

  static variable_list backward(Context* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const size_t count = ctx->saved_data["inputs"].toInt();
    const at::TensorList inputs = at::TensorList(saved).slice(0, count), kept = at::TensorList(saved).slice(count + 1);
    const bool biased = ctx->saved_data["biased"].toBool();
    variable_list result(count + 1);  // the last is that of `biased`
    bool any = false, ordinary = !at::GradMode::is_enabled();
    for (const at::Tensor& g : grads) {
      any |= g.defined();
      ordinary &= !g.defined() || plain(g);
    }
    if (!any) return result;
    // ATen's own way can be differentiated once more, and knows batches of gradients.
    if (!ordinary) {
      const auto composite = [biased](at::TensorList in) { return Cell::composite(in, biased); };
      return replay(ctx, inputs, grads, composite, std::move(result));
    }
    const c10::DeviceGuard guard(saved[0].device());
    const at::Tensor x = saved[0].contiguous(), &output = saved[count];
    const auto wanted = [ctx](size_t i) { return ctx->needs_input_grad(i); };
    variable_list before, grad_states;
    for (size_t i = 1; i < kParams; i++) {
      before.push_back(saved[i].contiguous());
      const bool made = wanted(i) || i > 1;  // all but h's serve as scratch memory
      grad_states.push_back(made ? at::empty(before.back().sizes(), x.options()) : at::Tensor());
    }
    Incoming incoming{grads[0], {}};
    if (incoming.output.defined() && incoming.output.stride(2) != 1) incoming.output = incoming.output.contiguous();
    const int64_t directions = before[0].size(0);
    GateGrads gates;
    for (int64_t d = 0; d < directions; d++) {
      const Direction s(x, before[0], d, Cell::kGates);
      const Pass pass{s, weights_of(inputs.slice(kParams), biased, d), kParams + d * (biased ? 4 : 2),
                      select_each(before, d)};
      incoming.states = select_each(at::TensorList(grads).slice(1), d);
      Cell::backward(pass, select_each(kept, d), incoming, select_each(grad_states, d), gates);
      grad_parameters(Cell::kBackward, pass, gates, x, output, wanted, result);
    }
    for (size_t i = 1; i < kParams; i++) {
      if (wanted(i)) result[i] = grad_states[i - 1];
    }
    return result;
  }
};

// All layers: the output, then the last states.
template <class Cell>
torch::autograd::variable_list run_layers(const at::Tensor& input, at::TensorList states, at::TensorList params,
                                          const LayerOptions& o) {
  check_dtype(netcl::device_of(input), input.scalar_type(), Cell::kOp);
  const int64_t directions = o.directions(), each = directions * o.params_each();
  at::Tensor y = o.batch_first ? input.transpose(0, 1) : input;
  std::array<torch::autograd::variable_list, Cell::kStates> last;
  for (int64_t layer = 0; layer < o.layers; layer++) {
    torch::autograd::variable_list inputs{y};
    for (const at::Tensor& t : states) inputs.push_back(t.narrow(0, layer * directions, directions));
    const at::TensorList own = params.slice(layer * each, each);
    inputs.insert(inputs.end(), own.begin(), own.end());
    const auto tracked = [](const at::Tensor& t) { return t.requires_grad(); };
    torch::autograd::variable_list r;
    if (at::GradMode::is_enabled() && std::any_of(inputs.begin(), inputs.end(), tracked)) {
      r = Layer<Cell>::apply(at::TensorList(inputs), o.biased);
    } else {
      LayerResult plain = forward_layer<Cell>(y, at::TensorList(inputs).slice(1, Cell::kStates), own, o.biased, false);
      r = std::move(plain.states);
      r.insert(r.begin(), std::move(plain.output));
    }
    y = std::move(r[0]);
    for (size_t i = 0; i < Cell::kStates; i++) last[i].push_back(std::move(r[i + 1]));
    if (o.dropout != 0 && o.train && layer < o.layers - 1) y = at::dropout(y, o.dropout, true);
  }
  torch::autograd::variable_list result{o.batch_first ? y.transpose(0, 1) : y};
  for (const auto& parts : last) result.push_back(o.layers == 1 ? parts[0] : at::cat(parts));
  return result;
}

}  // namespace netcl
