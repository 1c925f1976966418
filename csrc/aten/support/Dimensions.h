// Dimensions that an input and its results have in common, as reductions, scans and sorting bring them to their
// kernels.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstdint>

#include "args/dimensions.h"

namespace netcl {

// A dimension; strides count bytes.
struct Dim {
  int64_t size, in, out0, out1;
};
using Dims = c10::SmallVector<Dim, 8>;

// Makes one dimension of neighbours along which each operand goes on where it was. At least one dimension remains.
void merge_neighbours(Dims& dims);
// How many elements they have.
int64_t product(const Dims& dims);
// As kernels take them. Raises NotImplementedError, which names `op`, if there are too many.
Dimensions as_dimensions(const Dims& dims, const char* op);

}  // namespace netcl
