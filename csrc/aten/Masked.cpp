// Masks: masked_fill, nonzero, masked_select, masked_scatter.
#include <ATen/core/Tensor.h>  // first, since other headers of ATen rely on its includes

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/IndexKernel.h>
#include <ATen/native/Resize.h>

#include <limits>

#include "args/masked.h"
#include "aten/support/IndexSpace.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Rows.h"
#include "runtime/Assertions.h"
#include "runtime/Copies.h"
#include "runtime/OpName.h"

namespace netcl {
namespace {

using at::Tensor;

Defs bytes_defs(size_t bytes) {
  Defs d;
  d.set("BYTES", static_cast<int64_t>(bytes));
  return d;
}
// --- masked_fill ------------------------------------------------------------------------------------------

// Fills over the first `ndim` dimensions from these addresses on. Dimensions beyond the kernel's limit are looped over.
void fill_part(at::TensorIteratorBase& iter, int ndim, const char* out, const char* mask, Bits imm, const void* value) {
  constexpr const char* name = "aten::masked_fill_";
  Device& dev = device(iter.device(0).index());
  const auto shape = iter.shape(), os = iter.strides(0), ms = iter.strides(1);
  if (const int d = ndim - 1; ndim > kMaxFillOuter + 1) {
    for (int64_t i = 0; i < shape[d]; i++) fill_part(iter, d, out + i * os[d], mask + i * ms[d], imm, value);
    return;
  }
  MaskedFillParams a{};
  a.n = ndim ? shape[0] : 1;
  a.out_inner = ndim ? os[0] : 0;
  a.mask_inner = ndim ? ms[0] : 0;
  a.rows = 1;
  for (int d = 1; d < ndim; d++) {
    a.size[d - 1] = shape[d], a.out_stride[d - 1] = os[d], a.mask_stride[d - 1] = ms[d];
    a.rows *= shape[d];
    a.ndim++;
  }
  const int64_t grain = tuning(dev).grain;
  a.n_per_item = std::min(a.n, grain);
  a.rows_per_item = std::max<int64_t>(1, grain / a.n_per_item);
  kernel(dev, "masked.cl", "masked_fill", bytes_defs(iter.element_size(0)))
      .launch(
          name, current_queue(dev.index()),
          {static_cast<size_t>(ceil_div(a.n, a.n_per_item)), static_cast<size_t>(ceil_div(a.rows, a.rows_per_item))},
          element_group(dev), Buf{out}, Buf{mask}, Buf{value}, imm, a);
}

void fill_where(at::TensorIteratorBase& iter, Bits imm, const void* value) {
  if (iter.numel() == 0) return;
  fill_part(iter, iter.ndim(), static_cast<const char*>(iter.data_ptr(0)), static_cast<const char*>(iter.data_ptr(1)),
            imm, value);
}

void masked_fill_kernel(at::TensorIterator& iter, const at::Scalar& value) {
  fill_where(iter, scalar_bits(value, iter.dtype(0)), nullptr);
}

Tensor& masked_fill_scalar(Tensor& self, const Tensor& mask, const at::Scalar& value) {
  TORCH_CHECK(self.device() == mask.device(), "expected self and mask to be on the same device, but got mask on ",
              mask.device(), " and self on ", self.device());
  return at::native::masked_fill__cpu(self, mask, value);
}

// A value on the device is not read by the host, unless its conversion is checked.
Tensor& masked_fill_tensor(Tensor& self, const Tensor& mask, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  const bool converts =
      value.scalar_type() == self.scalar_type() ||
      (!at::isIntegralType(self.scalar_type(), true) && at::can_cast(value.scalar_type(), self.scalar_type()));
  const bool shared = at::has_internal_overlap(self) == at::MemOverlap::Yes;
  if (value.device() != self.device() || !converts || shared) return masked_fill_scalar(self, mask, value.item());
  TORCH_CHECK(self.device() == mask.device(), "expected self and mask to be on the same device, but got mask on ",
              mask.device(), " and self on ", self.device());
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask.dtype());
  at::assert_no_internal_overlap(self);
  at::assert_no_partial_overlap(self, mask);
  const auto expanded = at::expand_inplace(self, mask, "masked_fill_");
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(false)
                  .check_all_same_dtype(false)
                  .resize_outputs(false)
                  .add_output(self)
                  .add_const_input(*expanded)
                  .build();
  const Tensor v = value.to(self.scalar_type());
  fill_where(iter, {}, v.const_data_ptr());
  return self;
}

// --- compaction -------------------------------------------------------------------------------------------

// Where each chunk's elements go: the counts of non-zero elements per chunk, scanned, with their total at the end.
struct Chunks {
  Tensor starts;
  ChunkParams params{};
  int64_t items;     // chunks
  int64_t group;     // work-items that take a chunk together
  const char* file;  // of the kernels

  int64_t total(const char* op) const {
    const OpName scope(op);
    int64_t t = 0;
    copy_to_host(&t, static_cast<const int64_t*>(starts.const_data_ptr()) + items, sizeof(t), queue_of(starts));
    return t;
  }
  template <class... Args>
  void launch(const char* op, const char* name, size_t bytes, const Args&... args) const {
    Device& dev = netcl::device_of(starts);
    Defs defs = bytes_defs(bytes);
    defs.set("GROUP", group).set("IDX", params.n > std::numeric_limits<int32_t>::max() ? "i64" : "i32");
    kernel(dev, file, name, defs)
        .launch(op, queue_of(starts), {static_cast<size_t>(items * group)}, {static_cast<size_t>(group)}, args...);
  }
};

Chunks count_chunks(const char* op, const Tensor& x) {
  Device& dev = netcl::device_of(x);
  Chunks c;
  const bool cpu = dev.is_cpu();
  c.file = cpu ? "masked.cl" : "masked_gpu.cl";
  ChunkParams& p = c.params;
  p.n = x.numel();
  c.group = static_cast<int64_t>(row_group(dev));
  // One work-item, or one work-group, scans the counts, so there must be few.
  p.chunk = std::max<int64_t>(tuning(dev).counted * c.group, ceil_div<int64_t>(p.n, 4096));
  c.items = ceil_div(p.n, p.chunk);
  c.starts = at::empty({c.items + 1}, x.options().dtype(at::kLong));
  // For floating-point numbers the sign bit is ignored, since -0 equals 0.
  p.low = p.high = ~uint64_t{0};
  const auto type = at::toRealValueType(x.scalar_type());
  if (at::isFloatingType(type)) {
    const int bits = static_cast<int>(8 * at::elementSize(type));
    const uint64_t sign = uint64_t{1} << (bits - 1);
    p.low = p.high = ~sign;
    if (x.scalar_type() == at::kComplexFloat) p.low = ~(sign | sign << 32);
  }
  c.launch(op, "count", x.itemsize(), buf(x), buf(c.starts), p);
  if (cpu) {
    kernel(dev, c.file, "scan", bytes_defs(x.itemsize())).launch(op, queue_of(x), {1}, {1}, buf(c.starts), c.items);
  } else {
    c.starts.narrow(0, 1, c.items).cumsum_(0);
  }
  return c;
}

void write_positions(const char* op, const Chunks& chunks, const Tensor& x, const Tensor& out) {
  if (out.numel() == 0) return;
  PositionParams a{};
  a.ndim = std::max<int64_t>(1, x.dim());
  a.limit = out.size(0);
  a.out_row = out.stride(0);
  a.out_column = out.stride(1);
  for (int64_t d = 0; d < x.dim(); d++) a.size[d] = x.size(-1 - d);
  chunks.launch(op, "positions", x.itemsize(), buf(out), buf(x), buf(chunks.starts), chunks.params, a);
}

Tensor& nonzero_out(const Tensor& self, Tensor& out) {
  constexpr const char* name = "aten::nonzero";
  TORCH_CHECK(self.dim() <= kMaxPositionDims, "nonzero is not supported for tensor with more than ", kMaxPositionDims,
              " dimensions");
  TORCH_CHECK(out.scalar_type() == at::kLong, "nonzero: Expected out tensor to have scalar type Long but got ",
              out.scalar_type());
  TORCH_CHECK(out.device() == self.device(), "nonzero: expected out and self on the same device, got ", out.device(),
              " and ", self.device());
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  if (self.numel() == 0) {
    at::native::resize_output(out, {0, self.dim()});
    return out;
  }
  const Tensor x = self.contiguous();
  const Chunks chunks = count_chunks(name, x);
  at::native::resize_output(out, {chunks.total(name), self.dim()});
  write_positions(name, chunks, x, out);
  return out;
}
// The positions in each dimension are contiguous, as on CUDA.
Tensor nonzero(const Tensor& self) {
  constexpr const char* name = "aten::nonzero";
  TORCH_CHECK(self.dim() <= kMaxPositionDims, "nonzero is not supported for tensor with more than ", kMaxPositionDims,
              " dimensions");
  const auto options = self.options().dtype(at::kLong).memory_format(std::nullopt);
  if (self.numel() == 0) return at::empty({0, self.dim()}, options);
  const Tensor x = self.contiguous();
  const Chunks chunks = count_chunks(name, x);
  const Tensor out = at::empty({self.dim(), chunks.total(name)}, options).t();
  write_positions(name, chunks, x, out);
  return out;
}
Tensor& nonzero_static_out(const Tensor& self, int64_t size, int64_t fill_value, Tensor& out) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  TORCH_CHECK(self.dim() <= kMaxPositionDims, "nonzero is not supported for tensor with more than ", kMaxPositionDims,
              " dimensions");
  TORCH_CHECK(out.scalar_type() == at::kLong, "nonzero_static: Expected out tensor to have scalar type ", at::kLong,
              " but got ", out.scalar_type());
  TORCH_CHECK(self.device() == out.device(), "nonzero_static: self and out must be on the same device, got ",
              self.device(), " and ", out.device());
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::native::resize_output(out, {size, self.dim()});
  out.fill_(fill_value);
  if (self.numel() == 0 || out.numel() == 0) return out;
  const Tensor x = self.contiguous();
  write_positions("aten::nonzero_static", count_chunks("aten::nonzero_static", x), x, out);
  return out;
}
Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill_value) {
  Tensor out = at::empty({0}, self.options().dtype(at::kLong));
  return nonzero_static_out(self, size, fill_value, out);
}

Tensor& masked_select_out(const Tensor& self, const Tensor& mask, Tensor& out) {
  constexpr const char* name = "aten::masked_select";
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  TORCH_CHECK(self.device() == mask.device() && self.device() == out.device(),
              "masked_select: self, mask and out must be on the same device, got ", self.device(), ", ", mask.device(),
              " and ", out.device());
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mask);
  const auto expanded = at::expand_outplace(mask, self);
  const Tensor m = std::get<0>(expanded)->contiguous(), x = std::get<1>(expanded)->contiguous();
  if (x.numel() == 0) {
    at::native::resize_output(out, {0});
    return out;
  }
  const Chunks chunks = count_chunks(name, m);
  const int64_t total = chunks.total(name);
  at::native::resize_output(out, {total});
  if (total == 0) return out;
  const Tensor to = out.is_contiguous() ? out : at::empty_like(out, at::MemoryFormat::Contiguous);
  chunks.launch(name, "move", x.itemsize(), buf(to), buf(x), buf(m), buf(chunks.starts), Buf{}, chunks.params);
  if (!to.is_same(out)) out.copy_(to);
  return out;
}
Tensor masked_select(const Tensor& self, const Tensor& mask) {
  Tensor out = at::empty({0}, self.options());
  return masked_select_out(self, mask, out);
}

Tensor& masked_scatter_(Tensor& self, const Tensor& mask, const Tensor& source) {
  constexpr const char* name = "aten::masked_scatter_";
  at::assert_no_internal_overlap(self);
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter_: expected self and source to have same dtypes but got ", self.scalar_type(), " and ",
              source.scalar_type());
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_scatter_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  TORCH_CHECK(self.device() == mask.device() && self.device() == source.device(),
              "masked_scatter_: self, mask and source must be on the same device, got ", self.device(), ", ",
              mask.device(), " and ", source.device());
  if (self.numel() == 0) return self;
  const Tensor m = apart_from(*at::expand_inplace(self, mask, "masked_scatter_"), {self}).contiguous();
  const Tensor x = apart_from(source, {self}).contiguous(), to = self.contiguous();
  Chunks chunks = count_chunks(name, m);
  Device& dev = netcl::device_of(self);
  chunks.params.spreads = 1;
  chunks.params.size = x.numel();
  chunks.params.code = assert_code(dev, name);
  chunks.launch(name, "move", x.itemsize(), buf(to), buf(x), buf(m), buf(chunks.starts), Buf{assert_buffer(dev)},
                chunks.params);
  if (!to.is_same(self)) self.copy_(to);
  return self;
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("masked_fill_.Scalar", &masked_fill_scalar);
  m.impl("masked_fill_.Tensor", &masked_fill_tensor);
  m.impl("nonzero", &nonzero);
  m.impl("nonzero.out", &nonzero_out);
  m.impl("nonzero_static", &nonzero_static);
  m.impl("nonzero_static.out", &nonzero_static_out);
  m.impl("masked_select", &masked_select);
  m.impl("masked_select.out", &masked_select_out);
  m.impl("masked_scatter_", &masked_scatter_);
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(masked_fill_stub, &netcl::masked_fill_kernel)
}  // namespace at::native
