// cumsum, cumprod, logcumsumexp, cummax, cummin: kernels/scan.cl.
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_logcumsumexp_native.h>
#include <ATen/ops/cumprod_native.h>
#include <ATen/ops/cumsum_native.h>

#include <bit>

#include "args/scan.h"
#include "aten/support/Dimensions.h"
#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/PastCache.h"
#include "aten/support/Reduce.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::ScalarType;
using at::Tensor;

constexpr int64_t kItemElements = 4096;  // elements that pay for a work-item
constexpr int64_t kMaxSegments = 64;     // each segment adds the totals of all before it
constexpr int64_t kGroup = 128;          // largest work-group of scan_group
constexpr int64_t kGroupRow = 64;        // dense or few rows at least this long are scanned by work-groups of a GPU
constexpr int64_t kWide = 8;             // most rows that are not dense to a work-group, whose reads fill a sector

// How the work is split (kernels/scan.cl).
struct Plan {
  bool transposed;
  int64_t vec, panel;  // lanes, vectors per tile
  int64_t group = 1;   // work-items that scan `wide` rows together
  int64_t wide = 1;
};

Plan plan_tiles(const Device& device, bool cheap, int64_t element, int64_t out_element, ScalarType acc,
                ScanParams& params) {
  const bool complex_acc = c10::isComplexType(acc), wide = c10::elementSize(acc) == 8 && !complex_acc;
  const Dimensions& dims = params.dims;
  const int64_t neighbours = dims.size[0];
  const int64_t rest = c10::multiply_integers(dims.size + 1, dims.size + dims.ndim);
  const int64_t target = enough_items(device, device.is_cpu() ? kItemsPerUnit : 512);
  // A GPU has a work-group for each segment of a dense row, or of some rows, if these are too few for a work-item each.
  const bool dense = params.in_stride == element;
  if (!device.is_cpu() && params.n >= kGroupRow && (dense || neighbours * rest < target)) {
    const int64_t most = static_cast<int64_t>(std::bit_floor(device.info().max_work_group_size));
    params.tiles = neighbours * rest;
    const int64_t wide = dense ? 1 : std::min(kWide, static_cast<int64_t>(std::bit_floor(uint64_t(neighbours))));
    const int64_t wanted =
        std::min(enough_items(device, 16) / ceil_div(params.tiles, wide), params.n * wide / kItemElements);
    params.segment = ceil_div(params.n, std::clamp<int64_t>(wanted, 1, kMaxSegments));
    params.segments = ceil_div(params.n, params.segment);
    return {false, 1, 1, std::min(kGroup, most), wide};
  }
  // A CPU scans neighbouring rows side by side; a GPU has one work-item per row.
  const bool together = device.is_cpu() && !complex_acc && dims.in[0] == element && neighbours >= 4;
  // It also does so for dense rows, transposed, if there are enough and an element's operation takes less than
  // transposing it.
  const bool transposed = device.is_cpu() && cheap && !together && params.in_stride == element &&
                          params.out0_stride == out_element && params.n >= 16 && neighbours >= 16 &&
                          neighbours / 16 * rest >= target;
  const int64_t vec = transposed ? 16 : together ? (wide ? 8 : 16) : 1, panel = together ? 128 / vec : 1;
  const int64_t width = std::min(neighbours, vec * panel);
  params.tiles = ceil_div(neighbours, vec * panel) * rest;
  params.segments = 1;
  if (params.tiles < target) {
    params.segments =
        std::clamp<int64_t>(std::min(target / params.tiles, params.n * width / kItemElements), 1, kMaxSegments);
  }
  params.segment = ceil_div(params.n, params.segments);
  params.segments = ceil_div(params.n, params.segment);
  params.tiles_per_item = 1;
  if (device.is_cpu()) {
    params.tiles_per_item =
        std::clamp<int64_t>(kItemElements / (params.segment * width), 1, ceil_div(params.tiles, target));
  }
  return {transposed, vec, panel};
}

// Scans `self` along `dim` into `out` (and `index`, if defined) of the same sizes.
void scan(const char* aten, const char* name, const Tensor& out, const Tensor& index, const Tensor& self, int64_t dim,
          ScalarType acc) {
  if (self.numel() == 0) return;
  Device& device = netcl::device_of(self);
  check_dtype(device, self.scalar_type(), aten);
  check_dtype(device, acc, aten);
  const int64_t in_size = self.element_size(), out_size = out.element_size();
  ScanParams params{};
  params.n = 1;
  Dims rows;
  for (int64_t d = 0; d < self.dim(); d++) {
    const Dim x{self.size(d), self.stride(d) * in_size, out.stride(d) * out_size,
                index.defined() ? index.stride(d) * index.element_size() : 0};
    if (d == dim) {
      params.n = x.size;
      params.in_stride = x.in;
      params.out0_stride = x.out0;
      params.out1_stride = x.out1;
    } else if (x.size != 1) {
      rows.push_back(x);
    }
  }
  const bool complex_acc = c10::isComplexType(acc), wide = c10::elementSize(acc) == 8 && !complex_acc;
  TORCH_CHECK_NOT_IMPLEMENTED(!index.defined() || wide || params.n <= std::numeric_limits<int32_t>::max(), aten,
                              ": a dimension of more than 2^31 elements");
  const std::string_view op = name;
  const bool cheap = (op == "sum" || op == "prod") && !complex_acc;
  std::stable_sort(rows.begin(), rows.end(), [](const Dim& a, const Dim& b) { return a.in < b.in; });
  merge_neighbours(rows);
  if (rows.size() > kMaxDims) {
    const Tensor from = self.contiguous();
    return through_dense(out, index, [&](auto& o, auto& i) { scan(aten, name, o, i, from, dim, acc); });
  }
  params.dims = as_dimensions(rows);
  const Plan plan = plan_tiles(device, cheap, in_size, out_size, acc, params);

  Defs defs;
  defs.set("OP", name).set("IN", dtype_tag(self.scalar_type())).set("ACC", dtype_tag(acc));
  defs.set("OUT0", dtype_tag(out.scalar_type())).set("VEC", plan.vec).set("PANEL", plan.panel);
  if (index.defined()) defs.set("WITH_INDEX", 1);
  if (wide) defs.set("ACC_WIDE", 1);
  defs.set(complex_acc ? "ACC_COMPLEX" : c10::isFloatingType(acc) ? "ACC_FLOATING" : "ACC_INTEGRAL", 1);
  if (acc == at::kComplexDouble) defs.set("ACC_DOUBLE", 1);
  Tensor totals;
  const bool grouped = plan.group > 1;
  if (grouped) defs.set("LOCAL", plan.group).set("WIDE", plan.wide);
  const Range items{static_cast<size_t>(grouped ? ceil_div(params.tiles, plan.wide) * plan.group
                                                : ceil_div(params.tiles, params.tiles_per_item)),
                    static_cast<size_t>(params.segments)};
  const Range group{device.is_cpu() ? size_t{1} : grouped ? static_cast<size_t>(plan.group) : size_t{64}};
  Queue& queue = queue_of(self);
  if (params.segments > 1) {  // an accumulator takes at most 16 bytes
    totals = at::empty({params.segments * params.tiles * plan.panel * plan.vec * 16}, self.options().dtype(at::kByte));
    kernel(device, "scan.cl", grouped ? "scan_group_totals" : "scan_totals", defs)
        .launch(aten, queue, items, group, buf(out), buf_or_null(index), buf(self), buf(totals), params);
  }
  // Non-temporal stores, on 16 rows in turn, need whole cache lines.
  if (plan.transposed && out.is_contiguous() && plan.vec * out_size == 64) {
    past_cache(defs, device, out, params.n, plan.vec, {self});
  }
  const char* name_of_kernel = plan.transposed ? "scan_transposed" : grouped ? "scan_group" : "scan";
  kernel(device, "scan.cl", name_of_kernel, defs)
      .launch(aten, queue, items, group, buf(out), buf_or_null(index), buf(self), buf_or_null(totals), params);
}

// A running sum accumulates every rounding error. If double costs nothing, floats are summed in it, as on the CPU.
ScalarType scan_type(const Tensor& self, ScalarType result) {
  const Device& device = netcl::device_of(self);
  const bool doubles = device.is_cpu() && device.info().has_fp64;
  const ScalarType acc = sum_type(result);
  if (doubles && result == at::kFloat) return at::kDouble;
  if (doubles && acc == at::kComplexFloat) return at::kComplexDouble;
  return acc;
}

void cumsum_kernel(const Tensor& out, const Tensor& self, int64_t dim) {
  scan("aten::cumsum", "sum", out, Tensor(), self, dim, scan_type(self, out.scalar_type()));
}
void cumprod_kernel(const Tensor& out, const Tensor& self, int64_t dim) {
  scan("aten::cumprod", "prod", out, Tensor(), self, dim, scan_type(self, out.scalar_type()));
}
void logcumsumexp_kernel(Tensor& out, const Tensor& self, int64_t dim) {
  TORCH_CHECK_NOT_IMPLEMENTED(out.is_floating_point() || out.is_complex(), "\"logcumsumexp\" not implemented for '",
                              c10::toString(out.scalar_type()), "'");
  // For this operator, ATen leaves to the kernel what the other scans' classes do.
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::native::resize_output(out, self.sizes());
  if (self.dim() == 0) {
    out.copy_(self);
    return;
  }
  at::assert_no_internal_overlap(out);
  at::assert_no_partial_overlap(out, self);
  scan("aten::logcumsumexp", "logsumexp", out, Tensor(), self, dim, scan_type(self, out.scalar_type()));
}

template <class Meta, auto Kernel>
struct Cum : Meta {
  void impl(const Tensor& self, int64_t dim, std::optional<ScalarType>, const Tensor& out) {
    if (self.dim() == 0) {
      out.copy_(self);
    } else {
      const bool direct = widens(self.scalar_type(), out.scalar_type());
      Kernel(out, direct ? self : self.to(out.scalar_type()), at::maybe_wrap_dim(dim, self.dim()));
    }
  }
};

template <bool kMax>
void cum_extreme(const Tensor& self, Tensor& values, Tensor& indices, int64_t dim) {
  const char* aten = kMax ? "aten::cummax" : "aten::cummin";
  scan(aten, kMax ? "cummax" : "cummin", values, indices, apart_from(self, {values, indices}),
       at::maybe_wrap_dim(dim, self.dim()), ordered_type(self.scalar_type(), aten));
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<Cum<at::meta::structured_cumsum, &cumsum_kernel>>(m, "cumsum", "cumsum_", "cumsum.out");
  structured<Cum<at::meta::structured_cumprod, &cumprod_kernel>>(m, "cumprod", "cumprod_", "cumprod.out");
  m.impl("_logcumsumexp", &at::native::_logcumsumexp_cpu);
  m.impl("_logcumsumexp.out", &at::native::_logcumsumexp_out_cpu);
  m.impl("_cummax_helper", &cum_extreme<true>);
  m.impl("_cummin_helper", &cum_extreme<false>);
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(cumsum_stub, &netcl::cumsum_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(cumprod_stub, &netcl::cumprod_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(logcumsumexp_stub, &netcl::logcumsumexp_kernel)
}  // namespace at::native
