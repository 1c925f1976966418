// Arguments of the matrix multiplication kernels (csrc/aten/gemm, kernels/gemm).
#pragma once
#include "args/args.h"
BEGIN_ARGS

CONSTANT(kDotColumns, 4)   // gemm_dots: columns per tile
CONSTANT(kGemvVectors, 8)  // gemm_gemv: vectors per tile
// gemm_rows: rows of A, at most; bytes of sums in local memory, while so many rows of B, each in a page of its own, are
// read along the columns that have them (2026-11-29: 16 rows 1.9 ms, 64 rows 3.6, for 8 x 4096 x 4096).
CONSTANT(kFewRows, 32)
CONSTANT(kKeptBytes, 16384)
CONSTANT(kKeptDepth, 16)
// If the rows of A, or the columns of B, are not contiguous, neighbouring panels read neighbouring bytes of the same
// pages. So all panels of a work-item are packed to this depth (a multiple of 32) before any goes deeper. An operand
// that is contiguous along k is packed panel by panel.
CONSTANT(kPackDepth, 64)

// The strides of a matrix in elements: between rows, columns, outer and inner batch entries.
typedef struct {
  int64_t rs, cs, b0, b1;
} MatrixStrides;

// One launch. A tile is what a kernel keeps in registers; in the packed kernels it is MR x NR (kernels/gemm/gemm.h).
typedef struct {
  int64_t m, n, k;
  int64_t batch0, batch1;      // index of the first matrix in the batch; size of the inner batch dimension
  int64_t a_panels, b_panels;  // elements from one matrix's panels to the next matrix's, 0 if all share them
  // Tiles per work-item, down and across (gemm_tiled: of C); when packing: panels of A and B.
  int64_t m_tiles, n_tiles;
  int64_t a_items;           // when packing: how many work-items pack A
  int64_t k_slice, k_whole;  // split-k: each batch entry is a slice of k_slice, of k_whole in all; else 0
  // gemm_fused: number of matrices; depth of a block of k (gemm_rows: too; gemm_pack: of a work-item); whether B is
  // read in place; elements of a work-item's panels
  int64_t batches, kc, b_in_place, item_panels;
  int64_t a_aligned, b_aligned;  // gemm_tiled: whether whole vectors of A and B may be read
  int64_t has_d;
  MatrixStrides a, b, c, d;
} GemmParams;
SAME_SIZE(GemmParams, 35 * 8)

// C = alpha * A * B + beta * D, in the compute type.
TEMPLATE_STRUCT(class ST, GemmScalars) { ST alpha, beta; };

END_ARGS
