// Shared by the kernels of LSTM and GRU cells: everything between the two matrix products and the new state.
// -D: IO (storage tag), ACC (compute tag). The macros use the caller's `row` (of the batch), `j` (the first of V units)
// and `P`. A row of gates, and of `saved`, holds `count` times `P.hidden` units.
#include "args/rnn.h"
#include "common/dtypes.h"
#include "special/tanh.h"

#define AT(p, V, i) LOAD(IO, ACC, V, PTR(p, const STORAGE(IO)), i)
#define PUT(p, V, i, v) STORE(IO, ACC, V, PTR(p, STORAGE(IO)), i, v)
#define SIGMOID(x) (1 / (1 + exp(-(x))))

#define SAVE(V, k, count, v) PUT(saved, V, (row * count + k) * P.hidden + j, v)
#define SAVED(V, k, count) AT(saved, V, (row * count + k) * P.hidden + j)
