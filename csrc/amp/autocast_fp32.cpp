// Operators that autocast runs in float32 although they are on no list of ATen/autocast_mode.h. The functions are
// boxed, so they take any arguments.
#include <ATen/autocast_mode.h>

#include "aten/support/Library.h"

namespace netcl {
namespace {

// Casts the tensors among an operator's arguments to float32, if autocast casts such tensors.
void cast_arguments(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); i++) {
    if (stack[i].isTensor() && stack[i].toTensor().defined()) {
      stack[i] = at::autocast::cached_cast(at::kFloat, stack[i].toTensor(), at::kPrivateUse1);
    }
  }
}

void fp32(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  cast_arguments(op, *stack);
  op.callBoxed(stack);
}

// The same, and casts floating results back to the dtype of the first argument.
void fp32_and_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  const auto dtype = torch::jit::peek(*stack, 0, op.schema().arguments().size()).toTensor().scalar_type();
  cast_arguments(op, *stack);
  op.callBoxed(stack);
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); i++) {
    at::IValue& value = (*stack)[i];
    if (value.isTensor() && value.toTensor().is_floating_point()) value = value.toTensor().to(dtype);
  }
}

// These have no policy on CUDA, where cuFFT transforms half in lengths that are powers of 2, and no bfloat16. netcl
// casts both to float32, as CPU autocast does: its own transforms of half compute in float32, but round the result, and
// it has none of bfloat16.
NETCL_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  for (const char* name :
       {"fft_fft",   "fft_ifft",   "fft_rfft",   "fft_irfft",  "fft_hfft",   "fft_ihfft",   "fft_fft2",
        "fft_ifft2", "fft_rfft2",  "fft_irfft2", "fft_hfft2",  "fft_ihfft2", "fft_fftn",    "fft_ifftn",
        "fft_rfftn", "fft_irfftn", "fft_hfftn",  "fft_ihfftn", "stft",       "stft.center", "istft"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fp32>());
  }
}

// The operators that torchvision registers for CUDA's autocast; used if torchvision is imported.
NETCL_LIBRARY_IMPL(torchvision, AutocastPrivateUse1, m) {
  for (const char* name : {"nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fp32_and_back>());
  }
}

}  // namespace
}  // namespace netcl
