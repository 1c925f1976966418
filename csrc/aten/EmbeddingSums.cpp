#include "aten/EmbeddingSums.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <bit>
#include <limits>

#include "args/embedding.h"
#include "args/sort.h"
#include "aten/support/Launch.h"
#include "aten/support/RadixSort.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {}  // namespace

bool sums_sorted(const at::Tensor& index) {
  return index.numel() > tuning(netcl::device_of(index)).few_indices &&
         index.numel() < std::numeric_limits<uint32_t>::max();
}

void sum_sorted(const EmbeddingSums& sums) {
  const char* file = "embedding_sorted.cl";
  Device& dev = netcl::device_of(sums.grad);
  Queue& queue = queue_of(sums.grad);
  const int64_t n = sums.index.numel(), rows = sums.total.size(0), width = sums.total.size(1);
  const at::Tensor index = sums.index.view({-1}), sorted = at::empty_like(index);
  const at::Tensor order = at::empty_like(index, index.options().dtype(at::kLong));
  radix_sort({sums.op, index, sorted, order, 0, /*descending=*/false}, n, std::bit_width(static_cast<uint64_t>(rows)));
  const int64_t chunks = ceil_div(n, int64_t{kSortedChunk});
  const at::Tensor partial = at::empty({2 * chunks, width}, sums.total.options());
  Defs d;
  d.set("IN", dtype_tag(sums.grad.scalar_type())).set("IDX", dtype_tag(index.scalar_type()));
  d.set("ACC", dtype_tag(sums.total.scalar_type()));
  const Buf err{sums.reports ? assert_buffer(dev) : nullptr};
  EmbeddingParams params{n, rows, width, sums.padding};
  if (sums.reports) params.code = assert_code(dev, sums.op);
  const Range items{static_cast<size_t>(chunks * width)}, group{64};
  kernel(dev, file, "sum_sorted", d)
      .launch(sums.op, queue, items, group, buf(sums.total), buf(partial), buf(sorted), err, params, buf(sums.grad),
              buf(order), buf_or_null(sums.bag_of), buf_or_null(sums.bag_size), buf_or_null(sums.sample),
              buf_or_null(sums.counts));
  if (chunks == 1) return;
  kernel(dev, file, "join_sorted", d)
      .launch(sums.op, queue, items, group, buf(sums.total), buf(partial), buf(sorted), err, params);
}

}  // namespace netcl
