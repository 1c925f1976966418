#include "aten/gemm/MatrixEngine.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/cpu/Utils.h>
#include <c10/util/Exception.h>
#include <torch/library.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "aten/gemm/Gemm.h"

namespace netcl {
namespace {

constexpr const char* kNames[] = {"none", "avx512_bf16", "amx"};

const char* name_of(MatrixEngine engine) { return kNames[static_cast<int>(engine)]; }

MatrixEngine engine_of(const std::string& name) {
  for (int i = 0; i < 3; i++)
    if (name == kNames[i]) return static_cast<MatrixEngine>(i);
  TORCH_CHECK_VALUE(false, "netcl: a matrix engine is none, avx512_bf16 or amx, got '", name, "'");
}

// The best engine that this CPU has.
MatrixEngine of_this_cpu() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  __builtin_cpu_init();
  const bool leaf0 = __get_cpuid_count(7, 0, &a, &b, &c, &d);
  constexpr unsigned kAmxBits = 1u << 22 | 1u << 24;  // AMX-BF16, AMX-TILE
  // The state of the tiles is large, so Linux permits its use only to a process that asks.
  if (leaf0 && (d & kAmxBits) == kAmxBits && at::cpu::init_amx()) return MatrixEngine::kAmx;
  constexpr unsigned kBf16Bit = 1u << 5;
  // "avx512f" also implies that the operating system saves the registers.
  if (__builtin_cpu_supports("avx512f") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kBf16Bit)) {
    return MatrixEngine::kAvx512Bf16;
  }
#endif
  return MatrixEngine::kNone;
}

MatrixEngine wanted(const Device& device) {
  if (!device.is_cpu() || !(device.info().type & CL_DEVICE_TYPE_CPU)) return MatrixEngine::kNone;
  const char* v = std::getenv("NETCL_MATRIX_ENGINE");
  if (!v || !*v) return of_this_cpu();
  const MatrixEngine chosen = engine_of(v), best = of_this_cpu();
  TORCH_CHECK(chosen <= best, "NETCL_MATRIX_ENGINE: this CPU has no ", v, " (", name_of(best), ")");
  return chosen;
}

std::recursive_mutex mutex;
std::map<c10::DeviceIndex, MatrixEngine>& engines() {
  static auto& all = *new std::map<c10::DeviceIndex, MatrixEngine>;
  return all;
}

// Whether products of integers, whose sums are exact, are correct: for full and partial blocks, and every memory order
// of the operands.
bool multiplies(const Device& device) {
  constexpr int64_t m = 88, n = 84, k = 74;  // larger than products that need no panels
  const at::Tensor x = at::arange(m * k, at::kFloat).mul(7).remainder(17).sub(8).view({m, k});
  const at::Tensor y = at::arange(k * n, at::kFloat).mul(5).remainder(13).sub(6).view({k, n});
  const at::Tensor expected = x.matmul(y);
  const auto on_device = [&](const at::Tensor& t) {
    return t.to(at::TensorOptions(at::kBFloat16).device(c10::DeviceType::PrivateUse1, device.index()));
  };
  const at::Tensor a = on_device(x), b = on_device(y), at = on_device(x.t().contiguous()).t(),
                   bt = on_device(y.t().contiguous()).t();
  for (const auto& [left, right] : {std::pair(a, b), std::pair(a, bt), std::pair(at, b), std::pair(at, bt)}) {
    const at::Tensor c = at::empty({m, n}, left.options().dtype(at::kFloat));
    GemmArgs g;
    g.m = m;
    g.n = n;
    g.k = k;
    g.a = gemm_matrix(left);
    g.b = gemm_matrix(right);
    g.c = gemm_matrix(c);
    gemm("matrix_engine", current_queue(device.index()), g);
    if (!c.cpu().equal(expected)) return false;
  }
  return true;
}

MatrixEngine checked(const Device& device, MatrixEngine engine) {
  auto& known = engines()[device.index()];
  known = engine;  // the check itself uses it
  if (engine == MatrixEngine::kNone) return engine;
  std::string why = "its results were wrong";
  try {
    if (multiplies(device)) return engine;
  } catch (const c10::Error& e) {
    why = e.what_without_backtrace();
  }
  TORCH_WARN("netcl: the matrix engine ", name_of(engine), " is not used on ", device.info().name, ": ", why);
  return known = MatrixEngine::kNone;
}

TORCH_LIBRARY_FRAGMENT(netcl, m) {
  m.def("matrix_engine(int index) -> str", [](int64_t index) {
    return std::string(name_of(matrix_engine(device(static_cast<c10::DeviceIndex>(index)))));
  });
  // For tests, which may emulate the instructions: does not check whether the CPU has them.
  m.def("set_matrix_engine(int index, str name) -> str", [](int64_t index, const std::string& name) {
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    return std::string(name_of(checked(device(static_cast<c10::DeviceIndex>(index)), engine_of(name))));
  });
}

}  // namespace

MatrixEngine matrix_engine(const Device& device) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const auto found = engines().find(device.index());
  return found != engines().end() ? found->second : checked(device, wanted(device));
}

std::optional<EngineTile> engine_tile(const Device& device, c10::ScalarType a, c10::ScalarType b) {
  using at::Float32MatmulPrecision;
  using c10::kBFloat16, c10::kFloat, c10::kHalf;
  const auto known = [](c10::ScalarType type) { return type == kBFloat16 || type == kHalf || type == kFloat; };
  if (!known(a) || !known(b)) return std::nullopt;
  auto precision = Float32MatmulPrecision::MEDIUM;
  if (a == kFloat || b == kFloat) precision = at::globalContext().float32MatmulPrecision();
  if (precision == Float32MatmulPrecision::HIGHEST) return std::nullopt;
  const MatrixEngine engine = matrix_engine(device);
  const bool amx = engine == MatrixEngine::kAmx;
  const int64_t parts = a == kHalf || b == kHalf || precision == Float32MatmulPrecision::HIGH ? 2 : 1;
  if (engine == MatrixEngine::kNone || (parts == 2 && !amx)) return std::nullopt;
  // AMX needs its panels in the first-level cache. For vector instructions, a panel of B may lie in the second-level
  // cache.
  if (amx) return EngineTile{32, 512, parts, "ENGINE_AMX"};
  return EngineTile{8, 2048, parts, "ENGINE_AVX512_BF16"};
}

}  // namespace netcl
