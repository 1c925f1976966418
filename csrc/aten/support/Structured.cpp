#include "aten/support/Structured.h"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>

namespace netcl::structured_detail {
namespace {

at::Tensor create_out(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  return strides.empty() ? at::empty(sizes, options) : at::empty_strided(sizes, strides, options);
}

void resize_out(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(), ", but got ",
              out.dtype(), " instead");
  TORCH_CHECK(options.device() == out.device(), "Expected out tensor to have device ", options.device(), ", but got ",
              out.device(), " instead");
  if (!at::native::resize_output(out, sizes)) return;
  if (!strides.empty()) {
    TORCH_INTERNAL_ASSERT(!options.memory_format_opt().has_value());
    out.as_strided_(sizes, strides);
  } else if (options.memory_format_opt().has_value()) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
  }
}

void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ", self.dtype(),
              " and output tensor dtype ", options.dtype(), " should match");
  TORCH_CHECK(options.device() == self.device(), "Bad in-place call: input tensor device ", self.device(),
              " and output tensor device ", options.device(), " should match");
  TORCH_CHECK(sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(), " and output tensor size ",
              sizes, " should match");
}

}  // namespace

void set_output(Form form, at::Tensor& output, at::Tensor& proxy, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions& options, bool exact_strides) {
  if (form == Form::kFunctional) {
    output = create_out(sizes, strides, options);
    return;
  }
  if (form == Form::kInplace) {
    check_inplace(output, sizes, options);
  } else {
    resize_out(output, sizes, strides, options);
  }
  if (exact_strides && !strides.empty() && output.strides() != strides) {
    proxy = at::empty_strided(sizes, strides, options);
  }
}

void keep_apart(Form form, bool has_inplace, c10::ArrayRef<at::Tensor> outputs, std::span<at::Tensor> proxies,
                c10::ArrayRef<const at::Tensor*> inputs) {
  for (size_t i = 0; i < outputs.size(); i++) {
    const at::Tensor& out = outputs[i];
    at::assert_no_internal_overlap(out);
    for (size_t k = 0; k < inputs.size() && !proxies[i].defined(); k++) {
      if (!inputs[k] || (k == 0 && form == Form::kInplace) || !may_overlap(out, *inputs[k])) continue;
      at::assert_no_partial_overlap(out, *inputs[k]);
      if (k == 0 && has_inplace && at::get_overlap_status(out, *inputs[k]) == at::MemOverlapStatus::Full) continue;
      proxies[i] = at::empty_strided(out.sizes(), out.strides(), out.options());
    }
  }
}

void copy_proxies(c10::ArrayRef<at::Tensor> outputs, c10::ArrayRef<at::Tensor> proxies) {
  for (size_t i = 0; i < outputs.size(); i++) {
    if (proxies[i].defined()) outputs[i].copy_(proxies[i]);
  }
}

}  // namespace netcl::structured_detail
