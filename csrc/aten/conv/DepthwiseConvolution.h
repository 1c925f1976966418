// Depthwise convolutions of two dimensions on a CPU, for csrc/aten/conv/Convolution.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace netcl {

// Each of `channels` planes of the input makes `multiplier` planes of the output. `lo` zeros stand in front of a column
// and of a row; `reversed` reads the kernel backwards, as a gradient of the input does.
struct Depthwise {
  int64_t images, channels, multiplier;
  int64_t in_h, in_w, out_h, out_w, ker_h, ker_w;
  int64_t lo_h, lo_w, step_h, step_w;
  bool reversed;
};

// Whether the kernels here serve a shape on the device of `x`.
bool serves_depthwise(const Depthwise& d, const at::Tensor& x);
// All tensors are contiguous and of one dtype, but for `bias` (none if undefined), which is of the compute type.
void depthwise_pass(const char* op, const Depthwise& d, const at::Tensor& x, const at::Tensor& w,
                    const at::Tensor& bias, const at::Tensor& out);
void depthwise_weight(const char* op, const Depthwise& d, const at::Tensor& x, const at::Tensor& dy,
                      const at::Tensor& dw);

}  // namespace netcl
