// Arguments of the attention kernels (csrc/aten/Attention.cpp, csrc/aten/FlashAttention.cpp, kernels/attention*.cl).
#pragma once
#include "args/args.h"
BEGIN_ARGS

CONSTANT(kAttentionRows, 64)   // queries that attention_blocks takes at once, or a few more
CONSTANT(kAttentionKeys, 256)  // keys of a block
CONSTANT(kBackwardRows, 96)    // the same in attention_blocks_backward: multiples of the tile's sides and of 32
CONSTANT(kBackwardKeys, 192)

typedef struct {
  int64_t heads, queries, keys;  // sizes; a row is one query of one head
  int64_t rows, rows_per_item;
  int64_t first_batch, first_head, first_query;  // position of the scores within lse and bias
  int64_t all_heads, all_queries;                // sizes of lse
  int64_t causal;                                // whether a query sees only the keys up to its own position
  int64_t bias_b, bias_h, bias_q, bias_k;        // strides of the bias in elements
} AttentionParams;
SAME_SIZE(AttentionParams, 15 * 8)

// Strides in elements of a tensor of (batch, heads, rows, columns) whose columns are adjacent.
typedef struct {
  int64_t b, h, row;
  int64_t aligned;  // whether every row begins at a multiple of 16 bytes
} HeadStrides;
SAME_SIZE(HeadStrides, 4 * 8)

// Arguments of attention_flash.cl. Strides of rows, and those of the bias along queries and keys, fit into 24 bits.
typedef struct {
  int64_t heads, kv_heads, queries, keys;
  int64_t depth, width;                    // columns of queries and keys, and of values
  int64_t causal;                          // whether a query sees only the keys up to its own position
  int64_t bias_b, bias_h, bias_q, bias_k;  // strides of the bias
  int64_t seen_b, seen_h, seen_q;          // MODIFIED: strides of the table of blocks
  int64_t q_block, k_block;                // queries and keys of its blocks
  HeadStrides q, k, v, out, grad;          // grad: of out
  HeadStrides dq, dk, dv;
  float scale;
  int32_t batches;  // attention_blocks
  int64_t scratch;  // numbers of a work-item of attention_blocks_backward
} FlashParams;
SAME_SIZE(FlashParams, 18 * 8 + 8 * 4 * 8)

END_ARGS
