// A cell of a recurrent layer without its products. A work-item takes up to P.chunk units of one row of the batch.
// -D: VEC, and those of rnn.h.
#include "rnn/rnn.h"

// Runs CELL(width, unit) over this work-item's units.
#define FOR_UNITS(CELL)                        \
  const long row = get_global_id(1);           \
  long j = (long)get_global_id(0) * P.chunk;   \
  const long end = min(j + P.chunk, P.hidden); \
  for (; j + VEC <= end; j += VEC) {           \
    CELL(VEC)                                  \
  }                                            \
  for (; j < end; j++) {                       \
    CELL(1)                                    \
  }

// What the gates are computed from: the products with inputs and with states, and the biases of both, or null.
#define GATE_BUFS BUF(ig), BUF(hg), BUF(ib), BUF(hb)
#define BIAS(p, V, i) (p##_buf ? AT(p, V, i) : (VTYPE(ACC, V))(0))
// The pre-activation of gate k, from both products and biases, and its two halves.
#define INPUT_PART(V, k, count) (AT(ig, V, (row * count + k) * P.hidden + j) + BIAS(ib, V, k * P.hidden + j))
#define HIDDEN_PART(V, k, count) (AT(hg, V, (row * count + k) * P.hidden + j) + BIAS(hb, V, k * P.hidden + j))
#define GATE(V, k, count) (INPUT_PART(V, k, count) + HIDDEN_PART(V, k, count))
