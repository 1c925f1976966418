// What the launches of one convolution share: types, the tile, tables of offsets, padded copies.
#pragma once

#include <optional>

#include "args/conv.h"
#include "aten/conv/Convolution.h"
#include "aten/gemm/MatrixEngine.h"
#include "aten/support/Launch.h"

namespace netcl {

constexpr int64_t kConvScratchBytes = 32 << 20;

struct ConvContext {
  const char* op;
  Device& device;
  Queue& queue;
  c10::ScalarType acc;          // compute type
  c10::ScalarType source_type;  // what the operand that is not packed beforehand is read as
  int64_t vec, mr;              // the tile: mr rows of 1 or 2 vectors
  std::optional<EngineTile> engine;

  explicit ConvContext(const ConvCall& call);

  int64_t vectors(int64_t n) const { return engine || n > vec ? 2 : 1; }
  int64_t nr(int64_t n) const { return vectors(n) * vec; }
  // Elements of a panel of `width` rows or columns and k taps.
  int64_t panel(int64_t width, int64_t k) const {
    return engine ? width * round_up(k, engine->kUnroll) * engine->parts : width * k;
  }
  at::Tensor scratch(int64_t elements) const { return scratch(elements, acc); }
  at::Tensor scratch(int64_t elements, c10::ScalarType type) const;
  at::Tensor panels(int64_t elements) const { return scratch(elements, engine ? c10::kShort : acc); }

  Defs defs() const;
  // For the kernels that make or read panels of n columns.
  Defs tile_defs(int64_t n, const char* offset_type) const;

  // Images at once, so that what is made of them stays within bounds.
  int64_t images_at_once(int64_t images, int64_t elements_per_image) const;
  // A CPU's work-item takes as many planes as make it worth its start, as long as every core has some.
  int64_t planes_per_item(int64_t planes, int64_t work) const;
};

// Offsets of a grid of points, in rows whose extents are those of the tensor and whose points are `point` apart.
struct ConvGrid {
  int64_t others, other_stride;  // images, or channels
  ConvDims count, extent, step;
  int64_t point = 1;

  MixedRadix points_first() const;  // of the digits, the points' run fastest
  MixedRadix others_first() const;
};
MixedRadix linear_radix(int64_t count, int64_t stride);
inline int64_t grid_offset(const ConvDims& at, const ConvDims& extent) {
  return (at[0] * extent[1] + at[1]) * extent[2] + at[2];
}

// A table of offsets, 32-bit if that is enough.
struct OffsetTable {
  at::Tensor data;
  int64_t contiguous;  // from each multiple of it on, so many offsets are consecutive

  bool is_wide() const { return data.scalar_type() == c10::kLong; }
  const char* type() const { return is_wide() ? "long" : "int"; }
  OffsetTable widened() const { return {data.to(c10::kLong), contiguous}; }
};
OffsetTable offset_table(const ConvContext& c, const MixedRadix& radix, int64_t count);

// Images [first, first + images) of src as source_type, with zeros around. src itself if nothing is to do, but if
// `slack` is given: then a copy with so many elements of room behind it.
struct ConvPadding {
  const at::Tensor& src;
  int64_t first, images;
  ConvDims in, before, padded;
  bool channels_last;
  int64_t slack = 0;
};
at::Tensor pad_images(const ConvContext& c, const ConvPadding& p);

inline Buf at_element(const at::Tensor& t, int64_t element) {
  return {static_cast<const char*>(t.const_data_ptr()) + element * static_cast<int64_t>(t.element_size())};
}

}  // namespace netcl
