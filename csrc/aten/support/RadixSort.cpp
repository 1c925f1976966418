// Sorting by digits, for GPUs: kernels/sort/radix*.cl.
#include "aten/support/RadixSort.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <bit>
#include <limits>

#include "args/sort.h"
#include "aten/support/Launch.h"

namespace netcl {
namespace {

using at::ScalarType;
using at::Tensor;

constexpr int64_t kSelectShare = 16384;  // elements whose digits a work-group counts for a selection
constexpr int64_t kDigitBits = 8;

// Pairs in scratch memory.
struct Pairs {
  Tensor keys, places;
};

class RadixSorter {
 public:
  explicit RadixSorter(const SortTask& task, int64_t bits = 64)
      : task_(task), device_(netcl::device_of(task.self)), queue_(queue_of(task.self)) {
    bits_ = 8 * task.self.element_size();
    sorted_bits_ = std::clamp<int64_t>(bits, 1, bits_);  // equal keys need a pass too: it writes the results
    group_ = std::min<int64_t>(256, std::bit_floor(device_.info().max_work_group_size));
    task.describe(L);
    defs_.set("IN", dtype_tag(task.self.scalar_type())).set("BYTES", bits_ / 8).set("GROUP", group_);
  }

  void sort(int64_t take) {
    L.take = take;
    // Selecting reads the rows about as often as sorting moves them once.
    if (L.n > 4 * tile() && take <= L.n / 8) {
      const Pairs pairs = select();
      L.n = take;
      sort_pairs(pairs);
    } else {
      sort_pairs({});
    }
  }

  void pick(const Tensor& sorted, const Tensor& order, const char* which, int64_t nth) {
    L.take = nth;
    const bool mode = std::string_view(which) == "mode";
    Defs defs = defs_;
    if (!mode) defs.set("OP", which);
    kernel(device_, "sort/radix_results.cl", mode ? "pick_mode" : "pick_sorted", defs)
        .launch(task_.aten, queue_, {static_cast<size_t>(mode ? L.rows * group_ : L.rows)},
                {static_cast<size_t>(group_)}, buf(task_.values), buf(task_.indices), buf(sorted), buf(order), L);
  }

 private:
  int64_t tile() const { return group_ * kRadixEach; }
  Tensor bytes(int64_t n) const { return at::empty({n}, task_.self.options().dtype(at::kByte)); }
  Pairs pairs_of(int64_t n) const { return {bytes(n * (bits_ == 64 ? 8 : 4)), bytes(n * 4)}; }

  template <class... Args>
  void launch(const char* file, const char* name, const Defs& defs, int64_t groups, const Args&... args) {
    kernel(device_, file, name, defs)
        .launch(task_.aten, queue_, {static_cast<size_t>(groups * group_)}, {static_cast<size_t>(group_)}, args...);
  }
  // Calls f with the arguments ROW_ARGS of a kernel that reads pairs, or the tensor if they are undefined.
  template <class F>
  void with_rows(const Pairs& from, const F& f) const {
    f(buf(task_.values), buf(task_.indices), buf(task_.self), buf_or_null(from.keys), buf_or_null(from.places));
  }
  Defs defs_for(const Pairs& from) const {
    Defs defs = defs_;
    if (!from.keys.defined()) defs.set("FIRST", 1);
    return defs;
  }

  // Sorts rows of n pairs, or the tensor if they are undefined, and writes the first `take` of each.
  void sort_pairs(Pairs pairs) {
    if (L.n <= tile() || L.n <= kShortRow) return sort_short(pairs);
    Pairs spare;
    for (L.shift = 0; L.shift < sorted_bits_; L.shift += kDigitBits) {
      if (!spare.keys.defined()) spare = pairs_of(L.rows * L.n);
      pass(pairs, L.shift + kDigitBits < sorted_bits_ ? spare : Pairs{});
      std::swap(pairs, spare);
    }
  }

  // A work-group sorts a row, or several.
  void sort_short(const Pairs& pairs) {
    const bool network = L.n <= kShortRow;
    L.width = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(L.n)));
    with_rows(pairs, [&](const auto&... rows) {
      launch("sort/radix_rows.cl", network ? "sort_rows" : "sort_tile", defs_for(pairs),
             network ? ceil_div(L.rows, kShortRow / L.width) : L.rows, rows..., L);
    });
  }

  // Sorts by one digit. If `to` is undefined, the pairs become the results.
  void pass(const Pairs& from, const Pairs& to) {
    const char* file = "sort/radix_pass.cl";
    L.tiles = ceil_div(L.n, tile());
    L.chunks = ceil_div(L.tiles, int64_t{kRadixChunk});
    const Tensor counts = bytes(L.rows * L.tiles * kRadixDigits * 4);
    Tensor sums;
    Defs defs = defs_for(from);
    with_rows(from, [&](const auto&... rows) {
      launch(file, "count_digits", defs, L.rows * L.tiles, buf(counts), rows..., L);
    });
    if (L.chunks > 1) {
      sums = bytes(L.rows * L.chunks * kRadixDigits * 4);
      launch(file, "add_chunks", defs_, L.rows * L.chunks, buf(counts), buf(sums), L);
    }
    launch(file, "add_digits", defs_, L.rows, buf(sums.defined() ? sums : counts), sums.defined() ? L.chunks : L.tiles);
    if (!to.keys.defined()) defs.set("LAST", 1);
    with_rows(from, [&](const auto&... rows) {
      launch(file, "scatter", defs, L.rows * L.tiles, buf(counts), buf_or_null(sums), rows..., buf_or_null(to.keys),
             buf_or_null(to.places), L);
    });
  }

  // The first `take` pairs of each row, in their order there.
  Pairs select() {
    const char* file = "sort/radix_select.cl";
    const Defs defs = defs_for({});
    const Tensor counts = at::zeros({L.rows * kRadixDigits}, task_.self.options().dtype(at::kInt));
    const Tensor choices = bytes(L.rows * 16);
    const Pairs pairs = pairs_of(L.rows * L.take);
    with_rows({}, [&](const auto&... rows) {
      L.width = kSelectShare;
      L.tiles = ceil_div(L.n, kSelectShare);
      for (L.shift = bits_ - kDigitBits; L.shift >= 0; L.shift -= kDigitBits) {
        launch(file, "count_candidates", defs, L.rows * L.tiles, buf(counts), buf(choices), rows..., L);
        launch(file, "choose_digit", defs, L.rows, buf(counts), buf(choices), L);
      }
      L.tiles = ceil_div(L.n, tile());
      const Tensor taken = bytes(L.rows * L.tiles * 8);
      launch(file, "count_taken", defs, L.rows * L.tiles, buf(taken), buf(choices), rows..., L);
      launch(file, "add_taken", defs, L.rows, buf(taken), L.tiles);
      launch(file, "collect", defs, L.rows * L.tiles, buf(taken), buf(choices), rows..., buf(pairs.keys),
             buf(pairs.places), L);
    });
    return pairs;
  }

  const SortTask& task_;
  Device& device_;
  Queue& queue_;
  int64_t bits_, sorted_bits_, group_;
  RadixParams L{};
  Defs defs_;
};

}  // namespace

Dims SortTask::rows() const {
  Dims rows;
  for (int64_t d = self.dim() - 1; d >= 0; d--) {
    if (d == dim || self.size(d) == 1) continue;
    rows.push_back({self.size(d), self.stride(d) * self.element_size(), values.stride(d) * values.element_size(),
                    indices.stride(d) * indices.element_size()});
  }
  merge_neighbours(rows);
  return rows;
}

bool sorts_by_digits(const SortTask& task) {
  return tuning(netcl::device_of(task.self)).radix_sort && task.n() < std::numeric_limits<uint32_t>::max();
}

void radix_sort(const SortTask& task, int64_t take, int64_t bits) { RadixSorter(task, bits).sort(take); }

void radix_pick(const SortTask& task, const char* which, int64_t nth) {
  const Tensor& self = task.self;
  at::DimVector sizes(self.sizes());
  if (self.dim() > 0) {
    sizes.erase(sizes.begin() + task.dim);
    sizes.push_back(task.n());
  }
  const auto dense = [&](ScalarType type) {
    const Tensor t = at::empty(sizes, self.options().dtype(type));
    return self.dim() > 0 ? t.movedim(-1, task.dim) : t;
  };
  const Tensor sorted = dense(self.scalar_type()), order = dense(at::kLong);
  radix_sort({task.aten, self, sorted, order, task.dim, false}, task.n());
  RadixSorter({task.aten, sorted, task.values, task.indices, task.dim, false}).pick(sorted, order, which, nth);
}

}  // namespace netcl
