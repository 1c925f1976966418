// A cell of a recurrent layer without its products. A work-item takes up to `chunk` units of one row of the batch.
// -D: VEC, FLAG (there are biases), and those of rnn.h.
#include "rnn/rnn.h"

// Runs CELL(width, unit) over this work-item's units.
#define FOR_UNITS(CELL)                    \
  const long row = get_global_id(1);       \
  long j = (long)get_global_id(0) * chunk; \
  const long end = min(j + chunk, hidden); \
  for (; j + VEC <= end; j += VEC) {       \
    CELL(VEC)                              \
  }                                        \
  for (; j < end; j++) {                   \
    CELL(1)                                \
  }

#if FLAG
#define BIAS(p, V, i) +AT(p, V, i)
#else
#define BIAS(p, V, i)
#endif
// The pre-activation of gate k, from both products and biases, and its two halves.
#define INPUT_PART(V, k, count) (AT(ig, V, (row * count + k) * hidden + j) BIAS(ib, V, k * hidden + j))
#define HIDDEN_PART(V, k, count) (AT(hg, V, (row * count + k) * hidden + j) BIAS(hb, V, k * hidden + j))
#define GATE(V, k, count) (INPUT_PART(V, k, count) + HIDDEN_PART(V, k, count))
