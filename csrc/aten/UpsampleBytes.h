// Linear, cubic and lanczos resampling of uint8 images.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace netcl {

// How the pixels of two images lie to each other.
struct ImageGrids {
  bool align_corners;
  std::optional<double> scale_h, scale_w;  // of the caller, instead of the ratio of the sizes
};

// Resamples uint8 [batch, channels, height, width] `from` into `to`; both passes use integers, as ATen on the CPU and
// Pillow do. `reach`: how many pixels the filter covers on each side (1 linear, 2 cubic, 3 lanczos).
void resample_bytes(const char* op, int reach, bool antialias, const ImageGrids& grids, const at::Tensor& from,
                    const at::Tensor& to);

}  // namespace netcl
