#include "aten/support/Fallback.h"

#include <ATen/native/CPUFallback.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "aten/support/Library.h"

namespace netcl {

namespace {

struct State {
  std::mutex mutex;
  std::map<std::string, int64_t> calls;
  std::set<std::string> warned;
  std::string mode = "warn";
  State() {
    const char* v = std::getenv("NETCL_CPU_FALLBACK");
    if (v && *v) check(mode = v);
  }
  static void check(const std::string& mode) {
    TORCH_CHECK_VALUE(mode == "warn" || mode == "error" || mode == "silent",
                      "NETCL_CPU_FALLBACK must be warn, error or silent, got '", mode, "'");
  }
};
State& state() {
  static auto* s = new State();
  return *s;
}

std::string name_of(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

// A convolution of a CPU tensor with a weight on a device comes here, and its result would be a CPU tensor.
void check_devices(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!op.schema().name().starts_with("aten::")) return;
  std::optional<c10::Device> first;
  for (const auto& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (!value.isTensor() || !value.toTensor().defined() || value.toTensor().dim() == 0) continue;
    const c10::Device device = value.toTensor().device();
    TORCH_CHECK(!first || *first == device,
                "Expected all tensors to be on the same device, but found at least two devices, ", *first, " and ",
                device, " (when running ", name_of(op), ")");
    first = device;
  }
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_devices(op, *stack);
  count_host_call(name_of(op));
  at::native::cpu_fallback(op, stack);
}

NETCL_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

// The CPU's kernels would make quantised tensors of netcl, for which there is no dispatch key.
void refuse(const c10::OperatorHandle& op, torch::jit::Stack* /*stack*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, name_of(op),
                              ": netcl has no quantised tensors; call it on the CPU, or use torchao");
}
constexpr const char* kQuantised[] = {
    "_empty_affine_quantized",
    "_empty_per_channel_affine_quantized",
    "_make_per_channel_quantized_tensor",
    "_make_per_tensor_quantized_tensor",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quantize_per_tensor.tensor_qparams",
    "quantize_per_tensor.tensors",
    "quantize_per_tensor_dynamic",
};

// ATen has one function for all devices of each of these, and it accesses its tensors' memory on the host.
constexpr const char* kHostMemory[] = {
    "_rowwise_prune",
    "_saturate_weight_to_fp16",
    "_sobol_engine_draw",
    "_sobol_engine_ff_",
    "_sobol_engine_initialize_state_",
    "_sobol_engine_scramble_",
    "choose_qparams_optimized",
    "fbgemm_linear_fp16_weight",
    "fbgemm_linear_fp16_weight.out",
    "fbgemm_linear_fp16_weight_fp32_activation",
    "fbgemm_linear_fp16_weight_fp32_activation.out",
    "fbgemm_linear_int8_weight",
    "fbgemm_linear_int8_weight_fp32_activation",
    "fbgemm_linear_quantize_weight",
    "fbgemm_pack_gemm_matrix_fp16",
    "fbgemm_pack_quantized_matrix",
    "fbgemm_pack_quantized_matrix.KN",
    "range.out_",
};
NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : kHostMemory) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  for (const char* name : kQuantised) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse>());
}
// A copy of the CPU's quantised tensor.
NETCL_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("empty_quantized", torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

}  // namespace

void count_host_call(const std::string& name, bool by_choice) {
  bool warn = false;
  {
    State& s = state();
    const std::lock_guard<std::mutex> lock(s.mutex);
    TORCH_CHECK_NOT_IMPLEMENTED(
        s.mode != "error", name,
        " has no netcl kernel for these arguments, and NETCL_CPU_FALLBACK=error forbids running "
        "it on the CPU. Set NETCL_CPU_FALLBACK=warn to allow it.");
    s.calls[name]++;
    warn = !by_choice && s.mode == "warn" && s.warned.insert(name).second;
  }
  if (warn) {
    TORCH_WARN(name,
               " has no netcl kernel and runs on the CPU, which waits for the device and copies both ways. "
               "torch.netcl.cpu_fallback_ops() counts such calls; NETCL_CPU_FALLBACK=error forbids them.");
  }
}

std::vector<std::pair<std::string, int64_t>> cpu_fallback_ops() {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  return {s.calls.begin(), s.calls.end()};
}

void reset_cpu_fallback_ops() {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.calls.clear();
}

std::string cpu_fallback_mode() {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  return s.mode;
}

void set_cpu_fallback_mode(const std::string& mode) {
  State::check(mode);
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.mode = mode;
}

}  // namespace netcl
