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

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  std::string name = schema.name();
  if (!schema.overload_name().empty()) name += "." + schema.overload_name();
  count_host_call(name);
  at::native::cpu_fallback(op, stack);
}

NETCL_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

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
}

}  // namespace

void count_host_call(const std::string& name) {
  bool warn = false;
  {
    State& s = state();
    const std::lock_guard<std::mutex> lock(s.mutex);
    TORCH_CHECK_NOT_IMPLEMENTED(
        s.mode != "error", name,
        " has no netcl kernel for these arguments, and NETCL_CPU_FALLBACK=error forbids running "
        "it on the CPU. Set NETCL_CPU_FALLBACK=warn to allow it.");
    s.calls[name]++;
    warn = s.mode == "warn" && s.warned.insert(name).second;
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
