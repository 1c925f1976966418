#include "aten/support/Outputs.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

namespace netcl {

void check_out(const char* op, const at::Tensor& out, const at::TensorOptions& options) {
  TORCH_CHECK(out.scalar_type() == c10::typeMetaToScalarType(options.dtype()), op,
              ": Expected out tensor to have dtype ", options.dtype(), ", but got ", out.dtype(), " instead");
  TORCH_CHECK(out.device() == options.device(), op, ": Expected out tensor to have device ", options.device(),
              ", but got ", out.device(), " instead");
}

at::Tensor& copy_result(const char* op, at::Tensor& out, const at::Tensor& result) {
  check_out(op, out, result.options());
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

void check_sizes(const char* op, const char* name, const at::Tensor& t, at::IntArrayRef sizes) {
  TORCH_CHECK(t.sizes() == sizes, op, ": expected ", name, " of size ", sizes, ", got ", t.sizes());
}

void check_one_device(c10::ArrayRef<const at::Tensor*> tensors) {
  const at::Tensor* first = nullptr;
  for (const at::Tensor* t : tensors) {
    if (!t || !t->defined() || (t->dim() == 0 && t->is_cpu())) continue;
    TORCH_CHECK(!first || t->device() == first->device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", first->device(),
                " and ", t->device(), "!");
    first = t;
  }
}

bool may_overlap(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || !a.has_storage() || !b.has_storage() || !a.is_alias_of(b)) return false;
  const at::MemOverlapStatus status = at::get_overlap_status(a, b);
  if (status != at::MemOverlapStatus::TooHard) return status != at::MemOverlapStatus::No;
  const auto begin = [](const at::Tensor& t) { return static_cast<const char*>(t.const_data_ptr()); };
  const auto bytes = [](const at::Tensor& t) {
    return at::detail::computeStorageNbytes(t.sizes(), t.strides(), t.element_size());
  };
  return begin(a) < begin(b) + bytes(b) && begin(b) < begin(a) + bytes(a);
}

at::Tensor apart_from(const at::Tensor& in, std::initializer_list<at::Tensor> outputs) {
  return std::any_of(outputs.begin(), outputs.end(), [&](const at::Tensor& out) { return may_overlap(in, out); })
             ? in.clone()
             : in;
}

DenseOut::DenseOut(const at::Tensor& out, at::MemoryFormat format, c10::ScalarType type)
    : out_(out),
      dense_(out.is_contiguous(format) && out.scalar_type() == type
                 ? out
                 : at::empty(out.sizes(), out.options().dtype(type).memory_format(format))) {}

void DenseOut::finish() const {
  if (!dense_.is_same(out_)) out_.copy_(dense_);
}

}  // namespace netcl
