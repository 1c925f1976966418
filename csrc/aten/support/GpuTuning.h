// The numbers that suit GPUs, with many small work-items. None was measured on one: they are estimates.
#pragma once

#include "aten/support/CpuTuning.h"

namespace netcl {

inline constexpr Tuning kGpuTuning = [] {
  Tuning t;
  t.most_group = std::numeric_limits<size_t>::max();
  t.element_group = 64;
  t.team = 16;
  t.vec = t.wide_vec = 4;
  t.lanes = 1;  // work-items are lanes

  // Most work-items take one unit.
  t.least_chunk = t.most_chunk = t.losses = t.least_draws = t.most_draws = t.boxes = t.box_rows = 1;
  t.unpacked = t.packed = t.gemm_sums = t.conv_sums = t.offsets = 1;
  t.grain = t.draw_items = 16;
  t.padded = 64;
  t.counted = 8;
  t.norm_rows = 4;
  t.offset_block = 32;  // kUnitDepth (MatrixUnits.h)
  t.sort_piece = 256;

  t.copied_bytes = t.past_cache_bytes = t.folded = t.fused_steps = t.real_products = kNever;
  t.host_matrix = t.host_factor = kNever;
  t.kept_bytes = t.fft_length = 0;
  t.scores = 16 << 20;
  t.held = 8;
  t.transposed = -1;
  t.summed_alone = t.few_indices = t.whole_columns = 64;

  t.radix_sort = t.atomic_sums = true;
  t.gathers_channels = false;  // not tested
  return t;
}();

}  // namespace netcl
