// The LSTM cell and its derivative. A row of gates holds 4 times `hidden` units: input, forget, cell, output. What the
// backward pass needs is in `saved`: the activated gates.
#include "rnn/cell.h"
#include "rnn/lstm_cell.h"

#define LSTM_FORWARD(V) LSTM_CELL(V, GATE(V, 0, 4), GATE(V, 1, 4), GATE(V, 2, 4), GATE(V, 3, 4))

__kernel void lstm_forward(BUF(hy), BUF(cy), BUF(saved), BUF(ig), BUF(hg), BUF(cx), BUF(ib), BUF(hb), long hy_row,
                           long hidden, long chunk) {
  // `saved` may be ig and cy may be cx, since a work-item reads elements before it writes them. hy_row: stride of hy's
  // rows.
  FOR_UNITS(LSTM_FORWARD);
}

#define LSTM_BACKWARD(V)                                                             \
  const VTYPE(A, V) dh = has_gh ? AT(gh, V, row * hidden + j) : (VTYPE(A, V))(0);    \
  const VTYPE(A, V) later = has_gc ? AT(gc, V, row * hidden + j) : (VTYPE(A, V))(0); \
  LSTM_CELL_BACKWARD(V, later)                                                       \
  PUT(gcx, V, row* hidden + j, dcx);

__kernel void lstm_backward(BUF(gg), BUF(gcx), BUF(gh), BUF(gc), BUF(cx), BUF(cy), BUF(saved), int has_gh, int has_gc,
                            long hidden, long chunk) {
  // gcx may be gc.
  FOR_UNITS(LSTM_BACKWARD);
}
