// Arguments of matrix decompositions (csrc/aten/linalg, kernels/linalg).
#ifndef NETCL_ARGS_LINALG_H
#define NETCL_ARGS_LINALG_H
#include "args/args.h"
BEGIN_ARGS

// jacobi_round: `blocks` (an even number) of `block` columns each, in round `round` of sweep `sweep` of `sweeps`.
typedef struct {
  int64_t rows, columns, block, blocks, round, sweep, sweeps;
} JacobiRoundParams;
SAME_SIZE(JacobiRoundParams, 7 * 8)

END_ARGS
#endif
