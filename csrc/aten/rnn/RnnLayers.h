// What whole layers of nn.LSTM and nn.GRU have in common (RnnLayers.cpp, GruLayers.cpp).
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <functional>

#include "aten/gemm/Gemm.h"
#include "aten/rnn/Rnn.h"

namespace netcl {

inline const void* element(const at::Tensor& t, int64_t index) {
  return static_cast<const char*>(t.const_data_ptr()) + index * static_cast<int64_t>(t.element_size());
}
// Rows of consecutive elements from element `first` on, `row` elements from one to the next.
inline GemmMatrix rows(const at::Tensor& t, int64_t first, int64_t row) {
  return {element(t, first), t.scalar_type(), row, 1};
}

// c (m x n) = a (m x k) * b (k x n) + d, where d is given.
void multiply(const char* op, Queue& queue, int64_t m, int64_t n, int64_t k, const GemmMatrix& a, const GemmMatrix& b,
              const GemmMatrix& c, const GemmMatrix& d = {});

// Contiguous weights; the biases undefined where there are none.
struct Weights {
  at::Tensor ih, hh, bias_ih, bias_hh;
};

// Parameters of a direction, in nn.LSTM's order.
Weights weights_of(at::TensorList params, bool biased, int64_t direction);

// The sizes of a layer and where one direction's hidden states lie in the output (steps, batch, width).
struct Direction {
  int64_t steps, batch, inputs, hidden, width, column, kinds;
  bool reverse;

  // kinds: of gates, so many of `hidden` units each
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

// What the inputs (and `bias`, if defined) add to the gates, made for as many steps at once as `gates` (some steps,
// batch, gates) holds.
class InputGates {
 public:
  InputGates(const char* op, const Direction& s, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
             const at::Tensor& gates)
      : op_(op), s_(s), x_(x), weight_(weight), bias_(bias), gates_(gates) {}
  // Those of step k, for k in order; overwritten once the steps made with it are over.
  Buf of(int64_t k) const;

 private:
  const char* op_;
  const Direction& s_;
  const at::Tensor &x_, &weight_, &bias_, &gates_;
};

// The gradient of W_hh: grad_gates^T times the hidden state before each step, which is h0 before the first.
at::Tensor grad_hidden_weight(const char* op, const Direction& s, const at::Tensor& grad_gates,
                              const at::Tensor& output, const at::Tensor& h0);

// Can its memory be read as it is? Not so for wrappers (functorch, subclasses, modes), lazily negated tensors, and
// zeros that have none.
bool plain(const at::Tensor& t);

// Do these layers apply? All else, errors included, is ATen's: projections, empty sequences, odd tensors, sizes that do
// not fit, functorch, forward-mode derivatives.
bool takes(const at::Tensor& input, at::TensorList hx, at::TensorList params, bool biased, int64_t layers,
           bool bidirectional, bool batch_first, int64_t gates);

// Fills the gradients of `inputs` that are wanted into `result` by way of `composite`, ATen's own layer from the inputs
// to its outputs, with a graph if grad mode is on.
using Composite = std::function<torch::autograd::variable_list(at::TensorList)>;
torch::autograd::variable_list replay(torch::autograd::AutogradContext* ctx, at::TensorList inputs,
                                      const torch::autograd::variable_list& grads, const Composite& composite,
                                      torch::autograd::variable_list result);

}  // namespace netcl
