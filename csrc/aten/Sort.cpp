// sort, topk, kthvalue, median, mode, searchsorted: kernels/sort. This file holds the algorithms for CPUs.
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/SortingUtils.h>
#include <ATen/ops/sort_native.h>
#include <ATen/ops/topk_native.h>

#include <bit>

#include "args/sort.h"
#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/OwnInput.h"
#include "aten/support/RadixSort.h"
#include "aten/support/Reduce.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::ScalarType;
using at::Tensor;

constexpr int64_t kMostInRun = int64_t{1} << 31;  // kernels count its elements in 32 bits
constexpr int64_t kMostSelected = 64;             // topk of more sorts unless the row is much longer

class Sorter {
 public:
  explicit Sorter(const SortTask& task)
      : task_(task), device_(netcl::device_of(task.self)), queue_(queue_of(task.self)) {
    const Tensor& self = task.self;
    wide_ = self.element_size() == 8;
    task.describe(L);
    TORCH_CHECK_NOT_IMPLEMENTED(wide_ || L.n <= std::numeric_limits<uint32_t>::max(), task.aten,
                                ": a dimension of more than 2^32 elements");
    defs_.set("IN", dtype_tag(self.scalar_type())).set("BYTES", self.element_size());
  }

  // Writes the first `take` elements of every row in order; if that is 0, leaves all pairs in order in from_.
  void sort(int64_t take) {
    L.take = take;
    const int64_t parts = std::max<int64_t>(enough_items(device_, 1) / L.rows, 1);
    const int64_t each =
        L.n <= kShortRun ? L.n : std::clamp(ceil_div(L.n, parts), tuning(device_).sort_piece, kMostInRun);
    // Has few factors but 2, for the chunks of merge().
    const int64_t unit = std::max<int64_t>(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(each))) / 128, 1);
    L.width = ceil_div(each, unit) * unit;
    from_ = scratch(L.rows * L.n);
    to_ = scratch(L.rows * L.n);
    launch("sort/sort_merge.cl", "runs", L.width, take > 0 && L.width >= L.n);
    merge();
  }
  // As sort() for few of long rows. Each segment gives its first k; merging these gives the row's.
  void select(int64_t k) {
    const int64_t target = enough_items(device_, kItemsPerUnit, 4096);
    const int64_t segments = std::clamp<int64_t>(target / L.rows, 1, ceil_div(L.n, std::max<int64_t>(32 * k, 2048)));
    const int64_t chunk = ceil_div(L.n, segments), lists = ceil_div(L.n, chunk);
    L.take = L.width = k;
    from_ = scratch(L.rows * lists * k * 4);
    to_ = scratch(L.rows * lists * k);
    launch("sort/sort_select.cl", "select_first", chunk, lists == 1);
    L.n = lists * k;
    merge();
  }
  // Writes one element of every row: the one that OP of sort_results.cl names, e.g. the nth.
  void pick(const char* which, int64_t nth) {
    const bool mode = std::string_view(which) == "mode";
    mode ? sort(0) : void(from_ = scratch(L.rows * L.n));
    L.width = mode;
    defs_.set("OP", which);
    L.take = nth;
    launch("sort/sort_results.cl", "pick", L.n, true);
  }

 private:
  Tensor scratch(int64_t pairs) { return at::empty({pairs * (wide_ ? 16 : 8)}, task_.self.options().dtype(at::kByte)); }

  // Merges runs of L.width.
  void merge() {
    for (; L.width < L.n; L.width *= 2) {
      std::swap(from_, to_);
      // A chunk must divide 2 * width, which is a power of two times the first width.
      int64_t chunk = 2 * L.width;
      while (chunk > tuning(device_).sort_piece && chunk % 2 == 0) chunk /= 2;
      launch("sort/sort_merge.cl", "merge", chunk, L.take > 0 && 2 * L.width >= L.n);
    }
    std::swap(from_, to_);
  }

  void launch(const char* file, const char* name, int64_t piece, bool last) {
    L.piece = piece;
    L.pieces = L.rows * ceil_div(L.n, L.piece);
    L.pieces_per_item = units_per_item(device_, L.pieces, std::min(L.piece, L.n), 4096);
    kernel(device_, file, name, Defs(defs_).set("LAST", int64_t{last}))
        .launch(task_.aten, queue_, {static_cast<size_t>(ceil_div(L.pieces, L.pieces_per_item))},
                element_group(device_), buf(task_.values), buf(task_.indices), buf(task_.self), buf(from_),
                buf_or_null(to_), L);
  }

  const SortTask& task_;
  Device& device_;
  Queue& queue_;
  bool wide_ = false;
  SortParams L{};
  Defs defs_;
  Tensor from_, to_;  // pairs before and after a kernel
};

// Calls f with the task, or with one of dense tensors if kernels cannot count its dimensions.
template <class F>
void run(const SortTask& task, const F& f) {
  const ScalarType type = task.self.scalar_type();
  check_dtype(netcl::device_of(task.self), type, task.aten);
  ordered_type(type, task.aten);  // raises for complex numbers
  dtype_tag(type);                // raises for dtypes that are for storage
  if (task.rows().size() <= kMaxDims) return f(task);
  const Tensor from = task.self.contiguous();
  through_dense(task.values, task.indices, [&](auto& values, auto& indices) {
    f(SortTask{task.aten, from, values, indices, task.dim, task.descending});
  });
}

struct Sort : at::meta::structured_sort_stable {
  void impl(const Tensor& self, std::optional<bool>, int64_t dim, bool descending, const Tensor& values,
            const Tensor& indices) {
    if (self.numel() == 0) return;
    const SortTask task{"aten::sort", self, values, indices, at::maybe_wrap_dim(dim, self.dim()), descending};
    run(task, [](const SortTask& t) {
      if (sorts_by_digits(t)) return radix_sort(t, t.n());
      Sorter(t).sort(t.n());
    });
  }
};

struct Topk : at::meta::structured_topk {
  void impl(const Tensor& self, int64_t k, int64_t dim, bool largest, bool, const Tensor& values,
            const Tensor& indices) {
    if (self.dim() == 0) {  // any k gives the element
      values.copy_(self);
      indices.zero_();
      return;
    }
    if (self.numel() == 0 || k == 0) return;
    const SortTask task{"aten::topk", self, values, indices, at::maybe_wrap_dim(dim, self.dim()), largest};
    run(task, [k](const SortTask& t) {
      if (sorts_by_digits(t)) return radix_sort(t, k);
      const bool few = t.n() >= std::max<int64_t>((k <= kMostSelected ? 4 : 16) * k, kShortRun);
      few ? Sorter(t).select(k) : Sorter(t).sort(k);
    });
  }
};

// --- one element of each row
struct Pick {
  const char *aten, *which;  // the operator, and OP of kernels/sort/sort_results.cl
  int64_t nth = 0;
};
void pick(const Pick& p, const Tensor& self, int64_t dim, bool keepdim, Tensor& values, Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  const bool nothing = self.numel() == 0 && std::string_view(p.which) == "mode";  // then the CPU takes any dtype
  TORCH_CHECK_NOT_IMPLEMENTED(nothing || !self.is_complex(), p.aten, " is not implemented for ", self.scalar_type());
  if (values.defined()) at::assert_no_overlap(self, values);  // resizing `values` would resize the input
  at::native::_reduction_with_indices_allocate_or_resize_output(values, indices, self, dim, keepdim);
  if (self.numel() > 0) {
    const Tensor from = apart_from(self, {values, indices});
    const SortTask task{p.aten, from, values, indices, dim, /*descending=*/false};
    run(task, [&p](const SortTask& t) {
      if (sorts_by_digits(t)) return radix_pick(t, p.which, p.nth);
      Sorter(t).pick(p.which, p.nth);
    });
  }
  if (!keepdim && self.dim() > 0) {
    values.squeeze_(dim);
    indices.squeeze_(dim);
  }
}

std::tuple<Tensor&, Tensor&> kthvalue_out(const Tensor& self, int64_t k, int64_t dim, bool keepdim, Tensor& values,
                                          Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (self.numel() == 0) at::native::zero_numel_check_dims(self, dim, "kthvalue()");
  const int64_t n = self.dim() > 0 ? self.size(dim) : 1;
  TORCH_CHECK(k >= 1 && k <= n, "kthvalue(): selected number k out of range for dimension ", dim);
  pick({"aten::kthvalue", "nth", k - 1}, self, dim, keepdim, values, indices);
  return {values, indices};
}
template <bool kSkipNan>
constexpr Pick kMedian = kSkipNan ? Pick{"aten::nanmedian", "nanmedian"} : Pick{"aten::median", "median"};
template <bool kSkipNan>
std::tuple<Tensor&, Tensor&> median_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& values,
                                        Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (self.numel() == 0) at::native::zero_numel_check_dims(self, dim, "median()");
  pick(kMedian<kSkipNan>, self, dim, keepdim, values, indices);
  return {values, indices};
}
template <bool kSkipNan>
Tensor median(const Tensor& self) {
  if (self.numel() == 0) return at::full({}, std::numeric_limits<float>::quiet_NaN()).to(self.options());
  Tensor values, indices;
  pick(kMedian<kSkipNan>, self.reshape({-1}), 0, false, values, indices);
  return values;
}
std::tuple<Tensor&, Tensor&> mode_out(const Tensor& self, int64_t dim, bool keepdim, Tensor& values, Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  if (self.numel() == 0) at::native::zero_numel_check_dims(self, dim, "mode()");
  pick({"aten::mode", "mode"}, self, dim, keepdim, values, indices);
  return {values, indices};
}
std::tuple<Tensor, Tensor> mode(const Tensor& self, int64_t dim, bool keepdim) {
  Tensor values, indices;
  mode_out(self, dim, keepdim, values, indices);
  return {values, indices};
}

// --- searchsorted
using Side = std::optional<std::string_view>;
Tensor& searchsorted_out(const Tensor& sorted, const Tensor& self, bool out_int32, bool right, const Side side,
                         const std::optional<Tensor>& sorter_opt, Tensor& out) {
  const Tensor sorter = sorter_opt.value_or(Tensor());
  at::native::searchsorted_pre_check(sorted, self, out, out_int32, right, side, sorter);
  at::native::resize_output(out, self.sizes());
  if (self.numel() == 0) return out;
  const bool is_right = side ? *side == "right" : right;
  if (sorted.numel() == 0) return out.fill_(0);
  const ScalarType common = at::result_type(sorted, self);
  TORCH_CHECK(!c10::isComplexType(common), "searchsorted: complex numbers have no order");
  const Tensor bounds = sorted.to(common).contiguous(), values = self.to(common).contiguous();
  const Tensor order = sorter.defined() ? sorter.contiguous() : sorter;
  Tensor result = out.is_contiguous() ? out : at::empty(out.sizes(), out.options());
  Device& device = netcl::device_of(self);
  check_dtype(device, common, "aten::searchsorted");
  Defs defs;
  defs.set("IN", dtype_tag(common)).set("ACC", dtype_tag(value_type(common))).set("OUT", dtype_tag(out.scalar_type()));
  const int64_t n = values.numel(), chunk = units_per_item(device, n, 1, 256);
  kernel(device, "sort/searchsorted.cl", "search", defs)
      .launch("aten::searchsorted", queue_of(self), {static_cast<size_t>(ceil_div(n, chunk))}, element_group(device),
              buf(result), buf(bounds), buf(values), buf_or_null(order),
              SearchParams{n, self.dim() > 0 ? std::max<int64_t>(self.sizes().back(), 1) : 1, bounds.sizes().back(),
                           bounds.dim() == 1, is_right, chunk});
  if (!result.is_same(out)) out.copy_(result);
  return out;
}
Tensor searchsorted_tensor(const Tensor& sorted, const Tensor& self, bool out_int32, bool right, const Side side,
                           const std::optional<Tensor>& sorter) {
  Tensor out = at::empty({0}, self.options().dtype(out_int32 ? at::kInt : at::kLong));
  return searchsorted_out(sorted, self, out_int32, right, side, sorter, out);
}
Tensor searchsorted_scalar(const Tensor& sorted, const at::Scalar& self, bool out_int32, bool right, const Side side,
                           const std::optional<Tensor>& sorter) {
  return searchsorted_tensor(sorted, at::native::searchsorted_scalar_tensor(self, sorted.device()), out_int32, right,
                             side, sorter);
}
Tensor& searchsorted_scalar_out(const Tensor& sorted, const at::Scalar& self, bool out_int32, bool right,
                                const Side side, const std::optional<Tensor>& sorter, Tensor& out) {
  return searchsorted_out(sorted, at::native::searchsorted_scalar_tensor(self, sorted.device()), out_int32, right, side,
                          sorter, out);
}
Tensor& bucketize_out(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right, Tensor& out) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(), ")");
  return searchsorted_out(boundaries, self, out_int32, right, std::nullopt, std::nullopt, out);
}
Tensor bucketize_tensor(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  Tensor out = at::empty({0}, self.options().dtype(out_int32 ? at::kInt : at::kLong));
  return bucketize_out(self, boundaries, out_int32, right, out);
}
Tensor bucketize_scalar(const at::Scalar& self, const Tensor& boundaries, bool out_int32, bool right) {
  return bucketize_tensor(at::native::searchsorted_scalar_tensor(self, boundaries.device()), boundaries, out_int32,
                          right);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<Sort>(m, "sort.stable", nullptr, "sort.values_stable");
  structured_reduction<Topk>(m, "topk", "topk.values");
  m.impl("kthvalue.values", &kthvalue_out);
  m.impl("median", &median<false>);
  m.impl("nanmedian", &median<true>);
  m.impl("median.dim_values", &median_out<false>);
  m.impl("nanmedian.dim_values", &median_out<true>);
  m.impl("mode", &mode);
  m.impl("mode.values", &OwnInput<&mode_out>::call);
  m.impl("searchsorted.Tensor", &searchsorted_tensor);
  m.impl("searchsorted.Tensor_out", &searchsorted_out);
  m.impl("searchsorted.Scalar", &searchsorted_scalar);
  m.impl("searchsorted.Scalar_out", &searchsorted_scalar_out);
  m.impl("bucketize.Tensor", &bucketize_tensor);
  m.impl("bucketize.Tensor_out", &bucketize_out);
  m.impl("bucketize.Scalar", &bucketize_scalar);
}

}  // namespace
}  // namespace netcl
