// The gradient of an embedding table: how work-items share its rows and, on GPUs, how it is made by sorting the
// indices.
#pragma once

#include <algorithm>

#include "aten/support/Launch.h"

namespace netcl {

// Into how many shares a table of `rows` rows of `vectors` vectors is divided. Every share reads all indices, so there
// are only as many as keep the device busy.
inline int64_t table_shares(const Device& device, int64_t vectors, int64_t rows) {
  return std::min({ceil_div(enough_items(device, 2, 8192), vectors), rows, int64_t{64}});
}

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
