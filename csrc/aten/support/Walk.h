// How kernels that include kernels/common/walk.h visit rows.
#pragma once

#include <optional>

#include "args/rows.h"
#include "aten/support/PastCache.h"
#include "aten/support/Rows.h"

namespace netcl {

// The -D options of walks in memory, for vectors along `run` adjacent elements.
inline Defs& walk_defs(Defs& d, const Device& dev, c10::ScalarType compute, int64_t run) {
  return row_defs(d, dev, compute, run).set("TAIL", int64_t(run % row_vec(dev, run) != 0));
}

inline WideFloat wide(double x) { return {wide_high(x), wide_low(x)}; }

struct Walk {
  enum Kind { kRows, kColumns, kRuns, kHeld, kTiles } kind;
  Defs defs;
  RowWalk params;
  Range global, local;
};

// Rows of n adjacent elements, whose vectors begin again after `run` elements.
inline Walk walk_rows(const Device& dev, c10::ScalarType compute, int64_t rows, int64_t n, int64_t run) {
  const RowSplit split = row_split(dev, rows, n);
  const size_t local = row_group(dev);
  Walk walk{Walk::kRows, {}, {rows, split.rows_per, n, 1}, {split.groups * local}, {local}};
  walk_defs(walk.defs, dev, compute, run);
  return walk;
}

// `inner` rows side by side, `outer` times.
inline Walk walk_columns(const Device& dev, c10::ScalarType compute, int64_t outer, int64_t n, int64_t inner) {
  const size_t columns = size_t(ceil_div(inner, row_vec(dev, inner)));
  Walk walk{Walk::kColumns, {}, {inner, n, outer * n, inner}, {columns, size_t(outer)}, element_group(dev)};
  walk_defs(walk.defs, dev, compute, inner).set("COLS", 1);
  return walk;
}

// Rows of n elements, in runs of `run` that take turns.
inline Walk walk_runs(const Device& dev, c10::ScalarType compute, int64_t rows, int64_t n, int64_t run) {
  const size_t local = row_group(dev);
  Walk walk{Walk::kRuns, {}, {rows, n, n, run}, {size_t(rows) * local}, {local}};
  walk_defs(walk.defs, dev, compute, run).set("RUNS", 1);
  return walk;
}

// The vector width for dense rows of n elements: 4 if all rows of all tensors begin at a whole vector. Undefined
// tensors do not count.
inline int64_t whole_vec(int64_t n, std::initializer_list<at::Tensor> tensors) {
  constexpr int64_t kVec = 4;
  for (const at::Tensor& t : tensors)
    if (t.defined() && reinterpret_cast<uintptr_t>(t.const_data_ptr()) % (kVec * t.element_size()) != 0) return 1;
  return n % kVec == 0 ? kVec : 1;
}

// The -D options of rows that a GPU keeps in registers: a row has `lanes` work-items with `held` vectors each.
inline Defs& held_defs(Defs& d, c10::ScalarType compute, int64_t vec, int64_t lanes, int64_t held, int64_t group) {
  d.set("ACC", dtype_tag(compute)).set("VEC", vec);
  return d.set("WIDTH", lanes).set("HELD", held).set("GROUP", group);
}

// Rows that a GPU keeps in registers, unless they are too long. All tensors are dense.
inline std::optional<Walk> walk_held(const Device& dev, c10::ScalarType compute, int64_t rows, int64_t n,
                                     std::initializer_list<at::Tensor> tensors) {
  constexpr int64_t kGroup = 256;
  const int64_t most_held = tuning(dev).held;
  if (most_held == 0 || n == 0) return std::nullopt;
  const auto power = [](int64_t x) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(x))); };
  const int64_t group = std::min<int64_t>(kGroup, std::bit_floor(dev.info().max_work_group_size));
  const int64_t vec = whole_vec(n, tensors), vectors = n / vec;
  // Two vectors each, so that neighbours read neighbours and few steps combine their results.
  const int64_t lanes = std::min(group, power(ceil_div<int64_t>(vectors, 2))), held = power(ceil_div(vectors, lanes));
  if (held > most_held) return std::nullopt;
  const auto items = static_cast<size_t>(ceil_div(rows, group / lanes) * group);
  Walk walk{Walk::kHeld, {}, {rows, 1, n, 1}, {items}, {static_cast<size_t>(group)}};
  held_defs(walk.defs, compute, vec, lanes, held, group);
  return walk;
}

// Rows of few vectors, which a CPU transposes.
inline std::optional<Walk> walk_tiles(const Device& dev, c10::ScalarType compute, int64_t rows, int64_t n) {
  const int64_t longest = tuning(dev).transposed;
  if (n > longest || rows < kRowVec || compute != at::kFloat) return std::nullopt;
  const int64_t rows_per = round_up(row_split(dev, rows, n).rows_per, kRowVec);
  Walk walk{Walk::kTiles, {}, {rows, rows_per, n, 1}, {size_t(ceil_div(rows, rows_per))}, {1}};
  walk.defs.set("ACC", "f32").set("VEC", kRowVec).set("HELD", longest);
  return walk;
}

// The walk of rows of n adjacent elements in some dense tensors.
inline Walk choose_walk(const Device& dev, c10::ScalarType compute, int64_t rows, int64_t n,
                        std::initializer_list<at::Tensor> tensors) {
  if (const auto held = walk_held(dev, compute, rows, n, tensors)) return *held;
  if (const auto tiles = walk_tiles(dev, compute, rows, n)) return *tiles;
  return walk_rows(dev, compute, rows, n, n);
}

}  // namespace netcl
