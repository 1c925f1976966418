// Arguments of products with sparse matrices (csrc/aten/SparseCsr.cpp, kernels/sparse.cl). alpha, beta: of the compute
// type. `code` is for assertions.
#pragma once
#include "args/scalar.h"
BEGIN_ARGS

// A sparse matrix of `rows` rows times a dense one of `n` columns, whose rows lie `stride` elements apart. A work-item
// takes `per` rows. `inner` and `nnz` bound the indices.
typedef struct {
  int64_t rows, n, stride, per, inner, nnz, code;
  Bits alpha, beta;
} SpmmParams;
SAME_SIZE(SpmmParams, 11 * 8)

// Products of rows of `k` elements at `nnz` places of a matrix of rows x columns. A work-item takes `per` of them.
typedef struct {
  int64_t nnz, k, per, rows, columns, code;
  Bits alpha, beta;
} SampledParams;
SAME_SIZE(SampledParams, 10 * 8)

END_ARGS
