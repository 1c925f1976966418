// Arguments of matrix decompositions (csrc/aten/linalg, csrc/aten/Factorizations.cpp, kernels/linalg*).
#pragma once
#include "args/args.h"
BEGIN_ARGS

// lu_panel, lu_block: row 0 of a panel is row `first` of the matrix. `exchange`: rows are exchanged for pivots.
typedef struct {
  int64_t batches, rows, columns, first, exchange;
} PanelParams;
SAME_SIZE(PanelParams, 5 * 8)

// exchange_rows: with the pivots from `begin` up to `end`, or `down` from the last. `code` is for assertions.
typedef struct {
  int64_t begin, end, rows, columns, down, code;
} ExchangeParams;
SAME_SIZE(ExchangeParams, 6 * 8)

// ldl_factor, ldl_solve: matrices of n rows, Hermitian ones if they are complex and `hermitian`. `columns` are those of
// B, and `code` is for assertions.
typedef struct {
  int64_t n, hermitian, columns, code;
} LdlParams;
SAME_SIZE(LdlParams, 4 * 8)

// svd_small reads `conjugate`, eigh_small `upper` (the triangle that is stored); `vectors`: whether they are wanted.
typedef struct {
  int64_t rows, columns;
  int64_t conjugate, upper, vectors;
} JacobiParams;
SAME_SIZE(JacobiParams, 5 * 8)

// jacobi_round: `blocks` (an even number) of `block` columns each, in round `round` of sweep `sweep` of `sweeps`.
typedef struct {
  int64_t rows, columns, block, blocks, round, sweep, sweeps;
} JacobiRoundParams;
SAME_SIZE(JacobiRoundParams, 7 * 8)

END_ARGS
