// How work is split among work-items. Nothing else in aten/ asks for the number of compute units, which are a CPU's
// threads, or which numbers suit the device's class.
#pragma once

#include <algorithm>
#include <bit>

#include "aten/support/CpuTuning.h"
#include "aten/support/GpuTuning.h"
#include "runtime/Kernel.h"

namespace netcl {

template <class T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}
template <class T>
constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

inline const Tuning& tuning(const Device& device) { return device.is_cpu() ? kCpuTuning : kGpuTuning; }

// Some work-items per compute unit, so that units that are done early take over from the others.
constexpr int64_t kItemsPerUnit = 4;

// Enough work-items to keep the device busy: so many per compute unit, or `gpu` in all on a GPU, unless that is 0.
inline int64_t enough_items(const Device& device, int64_t per_unit = kItemsPerUnit, int64_t gpu = 0) {
  return gpu && !device.is_cpu() ? gpu : per_unit * static_cast<int64_t>(device.compute_units());
}

// Splits were measured on CPUs of two units. One of more units takes others that its units share more evenly.
inline bool has_many_units(const Device& device) { return enough_items(device, 1, 1) > 2; }

// Of `n` equal units of work, how many a work-item takes: `most`, or fewer if many compute units are then done sooner.
inline int64_t evened(const Device& device, int64_t n, int64_t most) {
  const int64_t units = enough_items(device, 1), rounds = n > 0 ? ceil_div(n, most * units) : 0;
  if (!has_many_units(device) || rounds > 16) return most;
  const auto longest = [&](int64_t each) { return ceil_div(ceil_div(n, each), units) * each; };
  int64_t best = most;
  for (int64_t r = std::max<int64_t>(rounds, 1); r <= 2 * rounds; r++)
    if (const int64_t each = ceil_div(n, r * units); 100 * longest(each) < 97 * longest(best)) best = each;
  return best;
}

// Into how many parts each of `sets` equal sets of work is divided: `parts`, or up to `most` for the same reason.
inline int64_t even_parts(const Device& device, int64_t sets, int64_t parts, int64_t most) {
  const int64_t units = enough_items(device, 1);
  const auto rounds = [&](int64_t n) { return ceil_div(sets * n, units); };
  int64_t best = parts;
  for (int64_t n = parts + 1; n <= most && has_many_units(device); n++) {
    if (20 * rounds(best) * units <= 21 * sets * best) break;
    if (rounds(n) * best < rounds(best) * n) best = n;
  }
  return best;
}

// Of `n` units of work, as many per work-item as leave the device busy.
inline int64_t even_part(const Device& device, int64_t n, int64_t per_unit = kItemsPerUnit) {
  return evened(device, n, ceil_div(n, enough_items(device, per_unit)));
}

// Units of work per work-item: on a CPU all `n`, which lie together, on a GPU one.
inline int64_t all_or_one(const Device& device, int64_t n) { return device.is_cpu() ? n : 1; }

// On a CPU, as many units of work per work-item as have the cost `least` together, which pays for its start, but no
// more than even_part(). A GPU's work-item takes one.
inline int64_t units_per_item(const Device& device, int64_t n, int64_t cost, int64_t least) {
  return all_or_one(
      device, std::clamp<int64_t>(least / std::max<int64_t>(cost, 1), 1, std::max<int64_t>(even_part(device, n), 1)));
}

// The work-group of a kernel whose work-items do not know each other.
inline Range element_group(const Device& device) { return {tuning(device).element_group}; }
// A work-group of `items`, or of as many as the device takes; on a CPU, of one.
inline size_t group_of(const Device& device, size_t items) {
  return std::min({items, std::bit_floor(device.info().max_work_group_size), tuning(device).most_group});
}

// The work-items of kernels that include kernels/common/row_elements.h, for `rows` rows of `width` elements: one per
// some rows on a CPU, one per element on a GPU.
inline Range row_elements(const Device& device, int64_t rows, int64_t rows_per_item, int64_t width) {
  return {static_cast<size_t>(device.is_cpu() ? ceil_div(rows, rows_per_item) : rows * width)};
}

}  // namespace netcl
