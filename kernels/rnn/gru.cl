// The GRU cell and its derivative. A row of gates holds 3 times `hidden` units: reset, update, new. What the backward
// pass needs is in `saved`: the activated gates, the old state and the hidden part of the new gate.
#include "rnn/cell.h"

#define GRU_FORWARD(V)                                                        \
  const VTYPE(ACC, V) r = SIGMOID(GATE(V, 0, 3)), z = SIGMOID(GATE(V, 1, 3)); \
  const VTYPE(ACC, V) part = HIDDEN_PART(V, 2, 3);                            \
  const VTYPE(ACC, V) n = TANH(INPUT_PART(V, 2, 3) + r * part);               \
  const VTYPE(ACC, V) h = AT(hx, V, row * P.hx_row + j);                      \
  PUT(hy, V, row* P.hy_row + j, n + z * (h - n));                             \
  SAVE(V, 0, 5, r);                                                           \
  SAVE(V, 1, 5, z);                                                           \
  SAVE(V, 2, 5, n);                                                           \
  SAVE(V, 3, 5, h);                                                           \
  SAVE(V, 4, 5, part);

__kernel void gru_forward(BUF(hy), BUF(saved), BUF(hx), GATE_BUFS, const RnnCellParams P) {
  // hy and hx are rows of larger tensors.
  FOR_UNITS(GRU_FORWARD);
}

#define GRU_BACKWARD(V)                                                              \
  const VTYPE(ACC, V) r = SAVED(V, 0, 5), z = SAVED(V, 1, 5), n = SAVED(V, 2, 5);    \
  const VTYPE(ACC, V) h = SAVED(V, 3, 5), part = SAVED(V, 4, 5);                     \
  VTYPE(ACC, V) dh = gh_buf ? AT(gh, V, row * P.hidden + j) : (VTYPE(ACC, V))(0);    \
  if (go_buf) dh += AT(go, V, row * P.hy_row + j);                                   \
  const VTYPE(ACC, V) dn = dh * (1 - z) * (1 - n * n);                               \
  const VTYPE(ACC, V) dr = dn * part * r * (1 - r), dz = dh * (h - n) * z * (1 - z); \
  PUT(gig, V, (row * 3 + 0) * P.hidden + j, dr);                                     \
  PUT(gig, V, (row * 3 + 1) * P.hidden + j, dz);                                     \
  PUT(gig, V, (row * 3 + 2) * P.hidden + j, dn);                                     \
  PUT(ghg, V, (row * 3 + 0) * P.hidden + j, dr);                                     \
  PUT(ghg, V, (row * 3 + 1) * P.hidden + j, dz);                                     \
  PUT(ghg, V, (row * 3 + 2) * P.hidden + j, dn * r);                                 \
  PUT(ghx, V, row* P.hidden + j, dh * z);

__kernel void gru_backward(BUF(gig), BUF(ghg), BUF(ghx), BUF(gh), BUF(saved), BUF(go), const RnnCellParams P) {
  // gh and go are the gradients of hy from the next step and from outside, or null.
  FOR_UNITS(GRU_BACKWARD);
}
