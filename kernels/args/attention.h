// Arguments of the attention kernels (csrc/aten/Attention.cpp, kernels/attention.cl).
#ifndef NETCL_ARGS_ATTENTION_H
#define NETCL_ARGS_ATTENTION_H
#include "args/args.h"
BEGIN_ARGS

typedef struct {
  int64_t heads, queries, keys;  // sizes; a row is one query of one head
  int64_t rows, rows_per_item;
  int64_t first_batch, first_head, first_query;  // position of the scores within lse and bias
  int64_t all_heads, all_queries;                // sizes of lse
  int64_t causal;                                // whether a query sees only the keys up to its own position
  int64_t bias_b, bias_h, bias_q, bias_k;        // strides of the bias in elements
} AttentionParams;
SAME_SIZE(AttentionParams, 15 * 8)

END_ARGS
#endif
