// Shared by the kernels of LSTM and GRU cells: everything between the two matrix products and the new state.
// -D: S (storage tag), A (compute tag). The macros use the caller's `row` (of the batch), `j` (the first of V units)
// and `hidden`. A row of gates, and of `saved`, holds `count` times `hidden` units.
#include "common/dtypes.h"
#include "special/tanh.h"

#define AT(p, V, i) LOAD(S, A, V, PTR(p, const STORAGE(S)), i)
#define PUT(p, V, i, v) STORE(S, A, V, PTR(p, STORAGE(S)), i, v)
#define SIGMOID(x) (1 / (1 + exp(-(x))))

#define SAVE(V, k, count, v) PUT(saved, V, (row * count + k) * hidden + j, v)
#define SAVED(V, k, count) AT(saved, V, (row * count + k) * hidden + j)
