// Operators that autocast runs in float32 though no list of ATen/autocast_mode.h has them, boxed: whatever their
// arguments.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace netcl {
namespace {

// The tensors among an operator's arguments as float32, if autocast casts such tensors.
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

// … and floating results in the dtype of the first argument.
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

// On CUDA these have no policy: cuFFT takes half numbers, of lengths that are powers of 2, and no bfloat16. There is no
// transform of 16-bit numbers here, so they are what CPU's autocast makes them.
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  for (const char* name :
       {"fft_fft",   "fft_ifft",   "fft_rfft",   "fft_irfft",  "fft_hfft",   "fft_ihfft",   "fft_fft2",
        "fft_ifft2", "fft_rfft2",  "fft_irfft2", "fft_hfft2",  "fft_ihfft2", "fft_fftn",    "fft_ifftn",
        "fft_rfftn", "fft_irfftn", "fft_hfftn",  "fft_ihfftn", "stft",       "stft.center", "istft"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fp32>());
  }
}

// The operators that torchvision itself registers for CUDA's autocast, for when it is imported.
TORCH_LIBRARY_IMPL(torchvision, AutocastPrivateUse1, m) {
  for (const char* name : {"nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fp32_and_back>());
  }
}

}  // namespace
}  // namespace netcl
