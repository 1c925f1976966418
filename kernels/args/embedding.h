// Arguments of embeddings and their bags (csrc/aten/Embedding*.cpp, kernels/embedding*.cl).
#pragma once
#include "args/args.h"
BEGIN_ARGS

typedef struct {
  int64_t n, rows, width;    // indices; rows of the table, and their length
  int64_t padding;           // the row that counts for nothing, or -1
  int64_t shares;            // work-items that share the table's rows; forward, a work-item's bags
  int64_t bags, offsets;     // an offset more than bags says where the last one ends
  int32_t code, bad_offset;  // for assertions
} EmbeddingParams;
SAME_SIZE(EmbeddingParams, 8 * 8)

END_ARGS
