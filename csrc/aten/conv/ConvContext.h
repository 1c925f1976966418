// Shared by the launches of one convolution: types, the tile, tables of offsets, padded copies.
#pragma once

#include <optional>

#include "args/conv.h"
#include "aten/conv/ConvCall.h"
#include "aten/gemm/GroupTile.h"
#include "aten/gemm/MatrixEngine.h"
#include "aten/gemm/MatrixUnits.h"
#include "aten/support/Launch.h"

namespace netcl {

constexpr int64_t kConvScratchBytes = 32 << 20;

struct ConvContext {
  const char* op;
  Device& device;
  Queue& queue;
  c10::ScalarType acc;          // compute type
  c10::ScalarType source_type;  // the type as which the operand that is not packed beforehand is read
  int64_t vec, mr;              // the tile: mr rows of 1 or 2 vectors
  // Of products. On a CPU: a matrix engine; on a GPU: the tile of a work-group, or that on matrix units.
  std::optional<EngineTile> engine;
  bool by_channels = false;  // contiguous tensors are copied to channels_last for the engine
  bool in_place = false;     // the engine reads the source without panels
  bool split = false;        // the padded source is in the engine's parts
  std::optional<GroupTile> group;
  std::optional<UnitTile> unit;

  explicit ConvContext(const ConvCall& call);

  // Numbers per element of the padded source.
  int64_t numbers() const { return split ? engine->parts : 1; }
  const char* source_tag() const { return split ? "bf16x2" : dtype_tag(source_type); }
  bool in_groups() const { return unit || group; }
  int64_t vectors(int64_t n) const { return engine || n > vec ? 2 : 1; }
  int64_t nr(int64_t n) const { return unit ? unit->width() : group ? group->width() : vectors(n) * vec; }
  // The elements of a panel of `width` rows or columns and k taps.
  int64_t panel(int64_t width, int64_t k) const {
    if (group) return width * round_up(k, group->kc);
    return engine ? width * round_up(k, engine->kUnroll) * engine->parts : width * k;
  }
  at::Tensor scratch(int64_t elements) const { return scratch(elements, acc); }
  at::Tensor scratch(int64_t elements, c10::ScalarType type) const;
  at::Tensor panels(int64_t elements) const { return scratch(elements, engine ? c10::kShort : acc); }

  Defs defs() const;
  Defs offset_defs(const char* offset_type) const;
  // The options of kernels that write or read panels of n columns.
  Defs tile_defs(int64_t n, const char* offset_type) const;

  // The number of images per pass, which limits the memory for their copies.
  int64_t images_at_once(int64_t images, int64_t elements_per_image) const;
};

// A grid of points in a tensor. Its offsets have rows with the tensor's extents, and its points are `point` apart.
struct ConvGrid {
  int64_t others, other_stride;  // images, or channels
  ConvDims count, extent, step;
  int64_t point = 1;

  MixedRadix points_first() const;  // digits of which the points' change fastest
  MixedRadix others_first() const;
};
MixedRadix linear_radix(int64_t count, int64_t stride);
inline void put(const ConvDims& d, int64_t& z, int64_t& y, int64_t& x) {
  z = d[0];
  y = d[1];
  x = d[2];
}
inline int64_t grid_offset(const ConvDims& at, const ConvDims& extent) {
  return (at[0] * extent[1] + at[1]) * extent[2] + at[2];
}

// A table of offsets, with 32 bits if that suffices. On a GPU it ends with a whole block of a product on matrix units.
struct OffsetTable {
  at::Tensor data;
  int64_t contiguous;  // from each multiple of this number on, this many offsets are consecutive

  bool is_wide() const { return data.scalar_type() == c10::kLong; }
  const char* type() const { return is_wide() ? "i64" : "i32"; }
  OffsetTable widened() const { return {data.to(c10::kLong), contiguous}; }
};
OffsetTable offset_table(const ConvContext& c, const MixedRadix& radix, int64_t count);

// Copies the images [first, first + images) of src as source_type, with zeros around them. Returns src itself if no
// copy is needed; with `slack`, always copies, with room for this many elements after the copy.
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
