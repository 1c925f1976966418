// Divides a convolution into passes: parts of the batch, and for a gradient of the input one pass for each residue of
// the stride. DirectConvolution.cpp and ImplicitGemm.cpp compute a pass.
#pragma once

#include "aten/conv/ConvContext.h"

namespace netcl {

// out[image][c][dst] = bias[c] + sum over taps of source * weight, for the pixels of a grid. In dimension d, pixel i
// lies at i * src_step of the source (after padding, with the extent `padded`) and at dst_first + i * dst_step of the
// result; tap t is at tap_first + t * tap_step of the source and at ker_first + t * ker_step of the kernel. In an
// unpadded pass the source has no zeros around it, and some taps lie outside.
struct ConvPass {
  int64_t images, first_image, groups;
  int64_t c_in, c_out;  // per group
  ConvDims padded, src_step;
  ConvDims grid, dst, dst_first, dst_step;
  ConvDims taps, tap_first, tap_step;
  ConvDims ker, ker_first, ker_step;
  int64_t w_out, w_in, w_point, w_group;  // strides of the weight: between channels, positions in the kernel, groups
  bool channels_last;
  int64_t numbers = 1;  // per element of the source
  at::Tensor source, weight, bias, out;

  int64_t pixels() const { return images * volume(grid); }
  int64_t k() const { return c_in * volume(taps); }
  // Strides of the source and of the result.
  int64_t source_image() const { return groups * c_in * volume(padded) * numbers; }
  int64_t source_group() const { return channels_last ? c_in * numbers : c_in * volume(padded); }
  int64_t source_channel() const { return channels_last ? 1 : volume(padded); }
  int64_t source_point() const { return channels_last ? groups * c_in * numbers : 1; }
  int64_t out_image() const { return groups * c_out * volume(dst); }
  int64_t out_group() const { return channels_last ? c_out : c_out * volume(dst); }
  int64_t out_channel() const { return channels_last ? 1 : volume(dst); }
  int64_t out_point() const { return channels_last ? groups * c_out : 1; }
  // The offsets of the first tap in the source and in the weight, and of the first pixel of the result.
  int64_t source_first() const { return k() ? grid_offset(tap_first, padded) * source_point() : 0; }
  int64_t weight_first() const { return k() ? grid_offset(ker_first, ker) * w_point : 0; }
  Buf result() const { return at_element(out, first_image * out_image() + grid_offset(dst_first, dst) * out_point()); }
  MixedRadix source_pixels() const {
    return ConvGrid{images, source_image(), grid, padded, src_step, source_point()}.points_first();
  }
  MixedRadix result_pixels() const {
    return ConvGrid{images, out_image(), grid, dst, dst_step, out_point()}.points_first();
  }
  MixedRadix source_taps() const { return tap_order({c_in, source_channel(), taps, padded, tap_step, source_point()}); }
  MixedRadix weight_taps() const { return tap_order({c_in, w_in, taps, ker, ker_step, w_point}); }

  // The order of the taps in memory.
  MixedRadix tap_order(const ConvGrid& g) const { return channels_last ? g.others_first() : g.points_first(); }
};

using RunConvPass = void (*)(const ConvContext&, const ConvPass&);
// A forward pass or a gradient of the input. `read_ahead`: vectors that a kernel may read beyond the source.
void run_passes(const ConvContext& c, const ConvCall& call, int64_t read_ahead, RunConvPass run);
// The same without a copy of the source, for kernels that check where a tap lies; it takes all images at once.
void run_unpadded_passes(const ConvContext& c, const ConvCall& call, RunConvPass run);

// The gradient of the weight from some images. Slices of the sum over their pixels go to `slices` results in `out`.
struct ConvWeightPass {
  const ConvGeometry& g;
  int64_t images, first_image;
  ConvDims padded;
  at::Tensor source, grad;  // the padded images; the whole gradient of the result
  int64_t slices;
  at::Tensor out;
  bool channels_last, source_last;  // memory formats of the gradients, and of the source
  int64_t numbers;                  // per element of the source

  int64_t source_image() const { return g.groups * g.c_in * volume(padded) * numbers; }
  int64_t source_group() const { return source_last ? g.c_in * numbers : g.c_in * volume(padded); }
  int64_t source_channel() const { return source_last ? 1 : volume(padded); }
  int64_t source_point() const { return source_last ? g.groups * g.c_in * numbers : 1; }
  int64_t result_image() const { return g.groups * g.c_out * volume(g.out); }
  int64_t result_group() const { return channels_last ? g.c_out : g.c_out * volume(g.out); }
  int64_t result_channel() const { return channels_last ? 1 : volume(g.out); }
  int64_t result_point() const { return channels_last ? g.groups * g.c_out : 1; }
  MixedRadix source_pixels() const {
    return ConvGrid{images, source_image(), g.out, padded, g.stride, source_point()}.points_first();
  }
  // The order is that of the weight's elements.
  MixedRadix source_taps() const {
    constexpr int64_t kBlock = EngineTile::kUnroll;
    const int64_t column = g.dilation[2] * source_point(), line = g.dilation[1] * padded[2] * source_point();
    if (numbers > 1)  // of a plane
      return {{g.kernel[1], g.kernel[2], g.c_in / kBlock, kBlock}, {line, column, kBlock * numbers, 1}};
    const ConvGrid taps{g.c_in, source_channel(), g.kernel, padded, g.dilation, source_point()};
    return channels_last ? taps.others_first() : taps.points_first();
  }
};

// The images of a pass of run_weight_passes().
int64_t weight_pass_images(const ConvContext& c, const ConvCall& call, int64_t scratch_per_image);

using RunConvWeightPass = void (*)(const ConvContext&, const ConvWeightPass&);
// `scratch_per_image`: elements of scratch memory per image, besides the padded image; `slice_k`: pixels per slice, 0
// if a pass computes one sum over all of them.
void run_weight_passes(const ConvContext& c, const ConvCall& call, int64_t scratch_per_image, int64_t slice_k,
                       RunConvWeightPass run);

}  // namespace netcl
