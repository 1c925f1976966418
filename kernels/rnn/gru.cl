// The GRU cell and its derivative. A row of gates holds 3 times `hidden` units: reset, update, new. What the backward
// pass needs is in `saved`: the activated gates, the old state and the hidden part of the new gate.
#include "rnn/cell.h"

#define GRU_FORWARD(V)                                                      \
  const VTYPE(A, V) r = SIGMOID(GATE(V, 0, 3)), z = SIGMOID(GATE(V, 1, 3)); \
  const VTYPE(A, V) part = HIDDEN_PART(V, 2, 3);                            \
  const VTYPE(A, V) n = TANH(INPUT_PART(V, 2, 3) + r * part);               \
  const VTYPE(A, V) h = AT(hx, V, row * hx_row + j);                        \
  PUT(hy, V, row* hy_row + j, n + z * (h - n));                             \
  SAVE(V, 0, 5, r);                                                         \
  SAVE(V, 1, 5, z);                                                         \
  SAVE(V, 2, 5, n);                                                         \
  SAVE(V, 3, 5, h);                                                         \
  SAVE(V, 4, 5, part);

__kernel void gru_forward(BUF(hy), BUF(saved), BUF(ig), BUF(hg), BUF(hx), BUF(ib), BUF(hb), long hx_row, long hy_row,
                          long hidden, long chunk) {
  // hx_row and hy_row are the strides between rows of hx and hy.
  FOR_UNITS(GRU_FORWARD);
}

#define GRU_BACKWARD(V)                                                            \
  const VTYPE(A, V) r = SAVED(V, 0, 5), z = SAVED(V, 1, 5), n = SAVED(V, 2, 5);    \
  const VTYPE(A, V) h = SAVED(V, 3, 5), part = SAVED(V, 4, 5);                     \
  VTYPE(A, V) dh = has_gh ? AT(gh, V, row * hidden + j) : (VTYPE(A, V))(0);        \
  if (has_go) dh += AT(go, V, row * go_row + j);                                   \
  const VTYPE(A, V) dn = dh * (1 - z) * (1 - n * n);                               \
  const VTYPE(A, V) dr = dn * part * r * (1 - r), dz = dh * (h - n) * z * (1 - z); \
  PUT(gig, V, (row * 3 + 0) * hidden + j, dr);                                     \
  PUT(gig, V, (row * 3 + 1) * hidden + j, dz);                                     \
  PUT(gig, V, (row * 3 + 2) * hidden + j, dn);                                     \
  PUT(ghg, V, (row * 3 + 0) * hidden + j, dr);                                     \
  PUT(ghg, V, (row * 3 + 1) * hidden + j, dz);                                     \
  PUT(ghg, V, (row * 3 + 2) * hidden + j, dn * r);                                 \
  PUT(ghx, V, row* hidden + j, dh * z);

__kernel void gru_backward(BUF(gig), BUF(ghg), BUF(ghx), BUF(gh), BUF(saved), BUF(go), long go_row, int has_gh,
                           int has_go, long hidden, long chunk) {
  // gh and go are the gradients of hy from the next step and from outside.
  FOR_UNITS(GRU_BACKWARD);
}
