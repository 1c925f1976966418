// The gradient of an embedding table on GPUs, by sorting the indices.
#pragma once

#include <ATen/core/Tensor.h>

namespace netcl {

// All tensors are contiguous. `total` [rows, width] holds zeros; `grad` [indices or bags, width].
struct EmbeddingSums {
  const char* op;
  const at::Tensor &total, &grad, &index;
  const at::Tensor& counts;  // how often each index occurs, or undefined
  int64_t padding;
  bool reports;  // whether an index that is no row is an error; else it is left out
  // For bags; the last two may be undefined.
  at::Tensor bag_of, bag_size, sample;
};

// Whether to use it: few indices are not worth the launches.
bool sums_sorted(const at::Tensor& index);
void sum_sorted(const EmbeddingSums& sums);

}  // namespace netcl
