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

// Divides the scanned dimension into about `wanted` segments.
void cut(ScanParams& params, int64_t wanted) {
  params.segment = ceil_div(params.n, std::clamp<int64_t>(wanted, 1, kMaxSegments));
  params.segments = ceil_div(params.n, params.segment);
}
// The segments that give a device `target` work-items, of tiles of `width` rows.
int64_t segments_for(const ScanParams& params, int64_t target, int64_t width) {
  return params.tiles < target ? std::min(target / params.tiles, params.n * width / kItemElements) : 1;
}

// A GPU has a work-item per row; or a work-group for each segment of a dense row, or of some rows, if these are too few
// for a work-item each.
Plan plan_gpu(const Device& device, int64_t rest, bool dense, ScanParams& params) {
  const int64_t neighbours = params.dims.size[0], target = enough_items(device, 512);
  params.tiles = neighbours * rest;
  if (params.n < kGroupRow || (!dense && params.tiles >= target)) {
    cut(params, segments_for(params, target, 1));
    return {false, 1, 1};
  }
  const int64_t most = static_cast<int64_t>(std::bit_floor(device.info().max_work_group_size));
  const int64_t wide = dense ? 1 : std::min(kWide, static_cast<int64_t>(std::bit_floor(uint64_t(neighbours))));
  cut(params, std::min(enough_items(device, 16) / ceil_div(params.tiles, wide), params.n * wide / kItemElements));
  return {false, 1, 1, std::min(kGroup, most), wide};
}

// A CPU scans neighbouring rows side by side. It also does so for dense rows (`dense`: their results are dense too),
// transposed, if there are enough and an element's operation is `cheap`: it takes less than transposing it.
Plan plan_cpu(const Device& device, int64_t rest, bool dense, bool cheap, ScalarType acc, int64_t element,
              ScanParams& params) {
  const bool complex_acc = c10::isComplexType(acc), wide = c10::elementSize(acc) == 8 && !complex_acc;
  const int64_t neighbours = params.dims.size[0], target = enough_items(device);
  const bool together = !complex_acc && params.dims.in[0] == element && neighbours >= 4;
  const bool transposed =
      cheap && !together && dense && params.n >= 16 && neighbours >= 16 && neighbours / 16 * rest >= target;
  const int64_t vec = transposed ? 16 : together ? (wide ? 8 : 16) : 1, panel = together ? 128 / vec : 1;
  const int64_t width = std::min(neighbours, vec * panel);
  params.tiles = ceil_div(neighbours, vec * panel) * rest;
  cut(params, segments_for(params, target, width));
  params.tiles_per_item =
      std::clamp<int64_t>(kItemElements / (params.segment * width), 1, ceil_div(params.tiles, target));
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
  params.tiles_per_item = 1;
  const int64_t rest = c10::multiply_integers(params.dims.size + 1, params.dims.size + params.dims.ndim);
  const bool dense = params.in_stride == in_size;
  const Plan plan = device.is_cpu()
                        ? plan_cpu(device, rest, dense && params.out0_stride == out_size, cheap, acc, in_size, params)
                        : plan_gpu(device, rest, dense, params);

  Defs defs;
  defs.set("OP", name).set("IN", dtype_tag(self.scalar_type())).set("ACC", dtype_tag(acc));
  defs.set("OUT0", dtype_tag(out.scalar_type())).set("VEC", plan.vec).set("PANEL", plan.panel);
  Tensor totals;
  const bool grouped = plan.group > 1;
  if (grouped) defs.set("GROUP", plan.group).set("WIDE", plan.wide);
  const Range items{static_cast<size_t>(grouped ? ceil_div(params.tiles, plan.wide) * plan.group
                                                : ceil_div(params.tiles, params.tiles_per_item)),
                    static_cast<size_t>(params.segments)};
  const Range group = grouped ? Range{static_cast<size_t>(plan.group)} : element_group(device);
  Queue& queue = queue_of(self);
  const char* kernel_name = plan.transposed ? "scan_transposed" : grouped ? "scan_group" : "scan";
  if (params.segments > 1) {  // an accumulator takes at most 16 bytes
    totals = at::empty({params.segments * params.tiles * plan.panel * plan.vec * 16}, self.options().dtype(at::kByte));
    ScanParams first = params;
    first.totals = 1;
    kernel(device, "scan.cl", kernel_name, defs)
        .launch(aten, queue, items, group, buf(out), buf_or_null(index), buf(self), buf(totals), first);
  }
  // Non-temporal stores, on 16 rows in turn, need whole cache lines.
  if (plan.transposed && out.is_contiguous() && plan.vec * out_size == 64) {
    past_cache(defs, device, out, params.n, plan.vec, {self});
  }
  kernel(device, "scan.cl", kernel_name, defs)
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
