// The LSTM cell and its derivative. A row of gates holds 4 times `hidden` units: input, forget, cell, output. What the
// backward pass needs is in `saved`: the activated gates.
#include "rnn/cell.h"
#include "rnn/lstm_cell.h"

#define LSTM_FORWARD(V) LSTM_CELL(V, GATE(V, 0, 4), GATE(V, 1, 4), GATE(V, 2, 4), GATE(V, 3, 4))

__kernel void lstm_forward(LSTM_BUFS, GATE_BUFS, const RnnCellParams P) {
  // `saved` may be ig and cy may be cx, since a work-item reads elements before it writes them.
  FOR_UNITS(LSTM_FORWARD);
}

#define LSTM_BACKWARD(V)                                                                   \
  const VTYPE(ACC, V) dh = gh_buf ? AT(gh, V, row * P.hidden + j) : (VTYPE(ACC, V))(0);    \
  const VTYPE(ACC, V) later = gc_buf ? AT(gc, V, row * P.hidden + j) : (VTYPE(ACC, V))(0); \
  LSTM_CELL_BACKWARD(V, later)                                                             \
  PUT(gcx, V, row* P.hidden + j, dcx);

__kernel void lstm_backward(LSTM_GRAD_BUFS, BUF(gcx), BUF(gh), BUF(gc), const RnnCellParams P) {
  // gcx may be gc. A gradient that is null is 0.
  FOR_UNITS(LSTM_BACKWARD);
}
