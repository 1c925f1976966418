// The arithmetic of one LSTM cell, for kernels of a cell alone (lstm.cl) and of a cell with its product
// (lstm_steps.cl).
#include "rnn/rnn.h"

// Computes the gates from their pre-activations, and the states from the gates: `saved`, cy and hy, which is also `h`.
#define LSTM_BUFS BUF(hy), BUF(cy), BUF(saved), BUF(cx)
#define LSTM_CELL(V, gate0, gate1, gate2, gate3)                                                   \
  const VTYPE(ACC, V) i = SIGMOID(gate0), f = SIGMOID(gate1), g = TANH(gate2), o = SIGMOID(gate3); \
  const VTYPE(ACC, V) c = f * AT(cx, V, row * P.hidden + j) + i * g, h = o * TANH(c);              \
  PUT(cy, V, row* P.hidden + j, c);                                                                \
  PUT(hy, V, row* P.hy_row + j, h);                                                                \
  SAVE(V, 0, 4, i);                                                                                \
  SAVE(V, 1, 4, f);                                                                                \
  SAVE(V, 2, 4, g);                                                                                \
  SAVE(V, 3, 4, o);

// Computes the gradients of the gates' pre-activations (d0 to d3, and gg) and of cx (dcx) from dh, the gradient of hy,
// and from the gradient of cy that later steps give.
#define LSTM_GRAD_BUFS BUF(gg), BUF(cx), BUF(cy), BUF(saved)
#define LSTM_CELL_BACKWARD(V, later)                                         \
  const VTYPE(ACC, V) i = SAVED(V, 0, 4), f = SAVED(V, 1, 4);                \
  const VTYPE(ACC, V) g = SAVED(V, 2, 4), o = SAVED(V, 3, 4);                \
  const VTYPE(ACC, V) t = TANH(AT(cy, V, row * P.hidden + j));               \
  const VTYPE(ACC, V) dc = dh * o * (1 - t * t) + later;                     \
  const VTYPE(ACC, V) dcx = dc * f, d0 = dc * g * i * (1 - i);               \
  const VTYPE(ACC, V) d1 = dc * AT(cx, V, row * P.hidden + j) * f * (1 - f); \
  const VTYPE(ACC, V) d2 = dc * i * (1 - g * g), d3 = dh * t * o * (1 - o);  \
  PUT(gg, V, (row * 4 + 0) * P.hidden + j, d0);                              \
  PUT(gg, V, (row * 4 + 1) * P.hidden + j, d1);                              \
  PUT(gg, V, (row * 4 + 2) * P.hidden + j, d2);                              \
  PUT(gg, V, (row * 4 + 3) * P.hidden + j, d3);
