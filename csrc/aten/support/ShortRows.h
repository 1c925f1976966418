// How kernels that include kernels/common/short_rows.h are launched: rows that GPUs keep in registers.
#pragma once

#include <bit>
#include <initializer_list>
#include <optional>

#include "aten/support/Rows.h"

namespace netcl {

struct ShortRows {
  int64_t vec, lanes, held, group;  // a row has lanes work-items with `held` vectors each; a work-group has `group`

  Defs& set(Defs& d) const { return d.set("VEC", vec).set("LS", lanes).set("HELD", held).set("GROUP", group); }
  // The range for some rows, whose local size is `group`.
  Range items(int64_t rows) const { return {static_cast<size_t>(ceil_div(rows, group / lanes) * group)}; }
  Range local() const { return {static_cast<size_t>(group)}; }
};

// The vector width for dense rows of n elements: 4 if all rows of all tensors begin at a whole vector. Undefined
// tensors do not count.
inline int64_t whole_vec(int64_t n, std::initializer_list<at::Tensor> tensors) {
  constexpr int64_t kVec = 4;
  for (const at::Tensor& t : tensors)
    if (t.defined() && reinterpret_cast<uintptr_t>(t.const_data_ptr()) % (kVec * t.element_size()) != 0) return 1;
  return n % kVec == 0 ? kVec : 1;
}

// Nothing for CPUs, and for rows that are too long.
inline std::optional<ShortRows> short_rows(const Device& dev, int64_t n, std::initializer_list<at::Tensor> tensors) {
  constexpr int64_t kGroup = 256, kMostHeld = 8;
  if (dev.is_cpu() || n == 0) return {};
  ShortRows s{};
  s.group = std::min<int64_t>(kGroup, std::bit_floor(dev.info().max_work_group_size));
  s.vec = whole_vec(n, tensors);
  const auto power = [](int64_t x) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(x))); };
  const int64_t vectors = n / s.vec;
  // Two vectors each, so that neighbours read neighbours and few steps combine their results.
  s.lanes = std::min(s.group, power(ceil_div<int64_t>(vectors, 2)));
  s.held = power(ceil_div(vectors, s.lanes));
  return s.held <= kMostHeld ? std::optional(s) : std::nullopt;
}

}  // namespace netcl
