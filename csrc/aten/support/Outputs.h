// What operators without a meta class check of their outputs, and of the devices and sizes of their inputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

namespace netcl {

// Raises unless the output has this dtype and device.
void check_out(const char* op, const at::Tensor& out, const at::TensorOptions& options);

// The out= form of an operator that has a functional one: resizes `out` and copies the result.
at::Tensor& copy_result(const char* op, at::Tensor& out, const at::Tensor& result);

// Raises unless the argument `name` has these sizes. For arguments that autograd passes and ATen does not check: a
// caller of the operator itself may pass anything.
void check_sizes(const char* op, const char* name, const at::Tensor& t, at::IntArrayRef sizes);

// Raises unless all tensors are on one device; undefined ones and numbers on the host do not count.
void check_one_device(c10::ArrayRef<const at::Tensor*> tensors);

// An operator registered as `&OnOneDevice<&at::native::f>::call` checks its inputs' devices first: functions that are
// not structured choose the kernel by one input's device, and read the others as if they were there too.
template <auto Function>
struct OnOneDevice;
template <class R, class... A, R (*Function)(A...)>
struct OnOneDevice<Function> {
  static R call(A... args) {
    const std::array<const at::Tensor*, sizeof...(A)> tensors{input(args)...};
    check_one_device(tensors);
    return Function(std::forward<A>(args)...);
  }
  static const at::Tensor* input(const at::Tensor& t) { return &t; }
  static const at::Tensor* input(const std::optional<at::Tensor>& t) { return t ? &*t : nullptr; }
  static const at::Tensor* input(at::TensorList list) { return list.empty() ? nullptr : &list[0]; }
  template <class T>
  static const at::Tensor* input(const T&) {
    return nullptr;
  }
};

// Whether two tensors may have a byte in common; true also for strided ones that only take turns.
bool may_overlap(const at::Tensor& a, const at::Tensor& b);

// `in`, or a copy of it if one of the outputs may overlap it: kernels read their inputs while they write.
at::Tensor apart_from(const at::Tensor& in, std::initializer_list<at::Tensor> outputs);

// The tensor that a kernel writes: `out` if it has this memory format and dtype, else a scratch tensor, which finish()
// copies to it.
class DenseOut {
 public:
  DenseOut(const at::Tensor& out, at::MemoryFormat format, c10::ScalarType type);
  explicit DenseOut(const at::Tensor& out, at::MemoryFormat format = at::MemoryFormat::Contiguous)
      : DenseOut(out, format, out.scalar_type()) {}
  const at::Tensor& get() const { return dense_; }
  void finish() const;

 private:
  const at::Tensor& out_;
  at::Tensor dense_;
};

}  // namespace netcl
