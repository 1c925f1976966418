// LSTM and GRU cells: everything between the two matrix products and the new state, and its derivative.
// -D: S (storage tag), A (compute tag), VEC, FLAG (there are biases). A row of gates holds 4 (LSTM: input,
// forget, cell, output) or 3 (GRU: reset, update, new) runs of `hidden` units. What the backward pass needs is in
// `saved`: the activated gates, and for the GRU also the old state and the hidden part of the new gate.
#include "rnn/rnn_cells.h"

// Runs CELL(width, unit) over this work-item's units.
#define FOR_UNITS(CELL)                                              \
  const long row = get_global_id(1);                                 \
  long j = (long)get_global_id(0) * chunk;                           \
  const long end = min(j + chunk, hidden);                           \
  for (; j + VEC <= end; j += VEC) { CELL(VEC) }                     \
  for (; j < end; j++) { CELL(1) }

#if FLAG
#define BIAS(p, V, i) +AT(p, V, i)
#else
#define BIAS(p, V, i)
#endif
// Pre-activation of gate k, from both products and biases; and its two halves.
#define INPUT_PART(V, k, count) (AT(ig, V, (row * count + k) * hidden + j) BIAS(ib, V, k * hidden + j))
#define HIDDEN_PART(V, k, count) (AT(hg, V, (row * count + k) * hidden + j) BIAS(hb, V, k * hidden + j))
#define GATE(V, k, count) (INPUT_PART(V, k, count) + HIDDEN_PART(V, k, count))

#define LSTM_FORWARD(V) LSTM_CELL(V, GATE(V, 0, 4), GATE(V, 1, 4), GATE(V, 2, 4), GATE(V, 3, 4))

// `saved` may be ig and cy may be cx: a work-item reads what it writes first. hy_row: from one row of hy to the next.
__kernel void lstm_forward(BUF(hy), BUF(cy), BUF(saved), BUF(ig), BUF(hg), BUF(cx), BUF(ib), BUF(hb), long hy_row,
                           long hidden, long chunk) {
  FOR_UNITS(LSTM_FORWARD)
}

#define LSTM_BACKWARD(V)                                                                  \
  const VTYPE(A, V) dh = has_gh ? AT(gh, V, row * hidden + j) : (VTYPE(A, V))(0);         \
  const VTYPE(A, V) later = has_gc ? AT(gc, V, row * hidden + j) : (VTYPE(A, V))(0);      \
  LSTM_CELL_BACKWARD(V, later)                                                            \
  PUT(gcx, V, row * hidden + j, dcx);

// gcx may be gc.
__kernel void lstm_backward(BUF(gg), BUF(gcx), BUF(gh), BUF(gc), BUF(cx), BUF(cy), BUF(saved), int has_gh,
                            int has_gc, long hidden, long chunk) {
  FOR_UNITS(LSTM_BACKWARD)
}

#define GRU_FORWARD(V)                                                                    \
  const VTYPE(A, V) r = SIGMOID(GATE(V, 0, 3)), z = SIGMOID(GATE(V, 1, 3));               \
  const VTYPE(A, V) part = HIDDEN_PART(V, 2, 3);                                          \
  const VTYPE(A, V) n = tanh(INPUT_PART(V, 2, 3) + r * part);                             \
  const VTYPE(A, V) h = AT(hx, V, row * hx_row + j);                                      \
  PUT(hy, V, row * hy_row + j, n + z * (h - n));                                          \
  SAVE(V, 0, 5, r);                                                                       \
  SAVE(V, 1, 5, z);                                                                       \
  SAVE(V, 2, 5, n);                                                                       \
  SAVE(V, 3, 5, h);                                                                       \
  SAVE(V, 4, 5, part);

// hx_row, hy_row: from one row of hx and hy to the next.
__kernel void gru_forward(BUF(hy), BUF(saved), BUF(ig), BUF(hg), BUF(hx), BUF(ib), BUF(hb), long hx_row, long hy_row,
                          long hidden, long chunk) {
  FOR_UNITS(GRU_FORWARD)
}

#define GRU_BACKWARD(V)                                                                   \
  const VTYPE(A, V) r = SAVED(V, 0, 5), z = SAVED(V, 1, 5), n = SAVED(V, 2, 5);           \
  const VTYPE(A, V) h = SAVED(V, 3, 5), part = SAVED(V, 4, 5);                            \
  VTYPE(A, V) dh = has_gh ? AT(gh, V, row * hidden + j) : (VTYPE(A, V))(0);               \
  if (has_go) dh += AT(go, V, row * go_row + j);                                          \
  const VTYPE(A, V) dn = dh * (1 - z) * (1 - n * n);                                      \
  const VTYPE(A, V) dr = dn * part * r * (1 - r), dz = dh * (h - n) * z * (1 - z);        \
  PUT(gig, V, (row * 3 + 0) * hidden + j, dr);                                            \
  PUT(gig, V, (row * 3 + 1) * hidden + j, dz);                                            \
  PUT(gig, V, (row * 3 + 2) * hidden + j, dn);                                            \
  PUT(ghg, V, (row * 3 + 0) * hidden + j, dr);                                            \
  PUT(ghg, V, (row * 3 + 1) * hidden + j, dz);                                            \
  PUT(ghg, V, (row * 3 + 2) * hidden + j, dn * r);                                        \
  PUT(ghx, V, row * hidden + j, dh * z);

// gh and go: what reaches hy from the next step and from outside.
__kernel void gru_backward(BUF(gig), BUF(ghg), BUF(ghx), BUF(gh), BUF(saved), BUF(go), long go_row, int has_gh,
                           int has_go, long hidden, long chunk) {
  FOR_UNITS(GRU_BACKWARD)
}
