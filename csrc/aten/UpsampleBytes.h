// Linear, cubic and lanczos resampling of uint8 images.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace netcl {

// Resamples uint8 [batch, channels, height, width] `from` into `to`, both passes in whole numbers as ATen on the CPU
// and Pillow do. `reach`: to how many places on each side the filter goes (1 linear, 2 cubic, 3 lanczos).
void resample_bytes(const char* op, int reach, bool antialias, bool align_corners, const std::optional<double>& scale_h,
                    const std::optional<double>& scale_w, const at::Tensor& from, const at::Tensor& to);

}  // namespace netcl
