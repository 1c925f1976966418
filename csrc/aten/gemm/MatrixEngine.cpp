#include "aten/gemm/MatrixEngine.h"

#include <ATen/Context.h>
#include <ATen/cpu/Utils.h>
#include <c10/util/Exception.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "aten/support/Library.h"
#include "runtime/Drivers.h"

namespace netcl {
namespace {

constexpr std::array<const char*, 9> kNames{"none", "avx512_bf16", "amx",        "mma_sm75", "mma_sm80",
                                            "wmma", "mfma_cdna1",  "mfma_cdna2", "dpas"};
constexpr const char* kEmulated = "emulated_";  // before the name of a GPU's unit

bool is_unit(MatrixEngine engine) { return engine >= kFirstUnit; }

std::string name_of(const EngineChoice& c) {
  return std::string(c.emulated ? kEmulated : "") + kNames[static_cast<size_t>(c.engine)];
}

EngineChoice choice_of(const std::string& name) {
  for (size_t i = 0; i < kNames.size(); i++) {
    const auto engine = static_cast<MatrixEngine>(i);
    if (name == kNames[i]) return {engine};
    if (is_unit(engine) && name == std::string(kEmulated) + kNames[i]) return {engine, true};
  }
  TORCH_CHECK_VALUE(false, "netcl: '", name, "' is no matrix engine; those are ", c10::Join(", ", kNames),
                    ", and those of GPUs after ", kEmulated);
}

// The best engine that this CPU has.
MatrixEngine best_of_this_cpu() {
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

// The same, if it pays: on Intel's processors vdpbf16ps is no faster than products of float (gemm/1024, 2026-11-28: 210
// GFLOP/s beside 350).
MatrixEngine of_this_cpu() {
#if defined(__x86_64__)
  if (best_of_this_cpu() == MatrixEngine::kAvx512Bf16 && __builtin_cpu_is("intel")) return MatrixEngine::kNone;
#endif
  return best_of_this_cpu();
}

// The units that a GPU's driver tells of. kDpas must be asked for: its tile has only 4 matrix instructions between
// barriers, so it may be no faster than portable code.
MatrixEngine of_this_gpu(const DeviceInfo& d) {
  if (d.capability >= 80) return MatrixEngine::kMmaSm80;
  if (d.capability >= 75) return MatrixEngine::kMmaSm75;
  if (d.name.starts_with("gfx11")) return MatrixEngine::kWmma;
  if (d.name.starts_with("gfx908")) return MatrixEngine::kMfmaCdna1;
  if (d.name.starts_with("gfx90a") || d.name.starts_with("gfx94")) return MatrixEngine::kMfmaCdna2;
  return MatrixEngine::kNone;
}

const char* asked_for() {
  const char* v = std::getenv("NETCL_MATRIX_ENGINE");
  return v && *v ? v : nullptr;
}

EngineChoice wanted(const Device& device) {
  const char* v = asked_for();
  if (device.is_cpu()) {
    if (!(device.info().type & CL_DEVICE_TYPE_CPU)) return {};
    if (!v || is_unit(choice_of(v).engine))
      return {takes_matrix_instructions(device) ? of_this_cpu() : MatrixEngine::kNone};
    const MatrixEngine chosen = choice_of(v).engine, best = best_of_this_cpu();
    TORCH_CHECK(chosen <= best, "NETCL_MATRIX_ENGINE: this CPU has no ", v, " (", name_of({best}), ")");
    return {chosen};
  }
  if (v) {
    const EngineChoice chosen = choice_of(v);
    if (is_unit(chosen.engine) || chosen.engine == MatrixEngine::kNone) return chosen;
  }
  return {of_this_gpu(device.info())};
}

std::recursive_mutex mutex;
std::map<c10::DeviceIndex, EngineChoice>& engines() {
  static auto& all = *new std::map<c10::DeviceIndex, EngineChoice>;
  return all;
}
using UnitChecks = std::map<std::tuple<c10::DeviceIndex, c10::ScalarType, UnitCheck>, bool>;
UnitChecks& unit_checks() {
  static auto& all = *new UnitChecks;
  return all;
}

// Why what `check` computes with this type is wrong; empty if it is right.
std::string fault(const Device& device, c10::ScalarType type, UnitCheck check) {
  try {
    if (check(device, type)) return "";
  } catch (const c10::Error& e) {
    return e.what_without_backtrace();
  }
  return "its results were wrong";
}

EngineChoice checked(const Device& device, EngineChoice choice, bool warn) {
  auto& known = engines()[device.index()];
  known = choice;  // the check itself uses it
  std::string why;
  if (is_unit(choice.engine)) {
    auto& half = unit_checks()[{device.index(), c10::kHalf, engine_checks().units}];
    half = true;
    why = fault(device, c10::kHalf, engine_checks().units);
    half = why.empty();
  } else if (choice.engine != MatrixEngine::kNone) {
    why = fault(device, c10::kBFloat16, engine_checks().cpu);
  }
  if (why.empty()) return choice;
  if (warn) TORCH_WARN("netcl: the matrix engine ", name_of(choice), " is not used on ", device.info().name, ": ", why);
  return known = {};
}

NETCL_LIBRARY_FRAGMENT(netcl, m) {
  m.def("matrix_engine(int index) -> str",
        [](int64_t index) { return name_of(matrix_engine(device(static_cast<c10::DeviceIndex>(index)))); });
  // For tests, which may emulate the instructions: does not check whether the device has them.
  m.def("set_matrix_engine(int index, str name) -> str", [](int64_t index, const std::string& name) {
    const std::lock_guard<std::recursive_mutex> lock(mutex);
    unit_checks().clear();
    return name_of(checked(device(static_cast<c10::DeviceIndex>(index)), choice_of(name), true));
  });
}

}  // namespace

EngineChecks& engine_checks() {
  static EngineChecks checks;
  return checks;
}

EngineChoice matrix_engine(const Device& device) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const auto found = engines().find(device.index());
  if (found != engines().end()) return found->second;
  return checked(device, wanted(device), device.is_cpu() || asked_for());
}

bool units_multiply(const Device& device, c10::ScalarType type) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const MatrixEngine engine = matrix_engine(device).engine;
  const bool every = engine == MatrixEngine::kMmaSm80;
  if (!is_unit(engine) || (engine == MatrixEngine::kMmaSm75 && type != c10::kHalf)) return false;
  if (type != c10::kHalf && type != c10::kBFloat16 && !(every && type == c10::kFloat)) return false;
  return units_pass(device, type, engine_checks().units);
}

bool units_pass(const Device& device, c10::ScalarType type, UnitCheck check) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  const auto [known, is_new] = unit_checks().try_emplace({device.index(), type, check}, true);
  if (!is_new) return known->second;
  const std::string why = fault(device, type, check);
  const EngineChoice choice = matrix_engine(device);
  if (!why.empty() && (asked_for() || choice.emulated))
    TORCH_WARN("netcl: the matrix engine ", name_of(choice), " is not used for some operators in ", type, " on ",
               device.info().name, ": ", why);
  return known->second = why.empty();
}

std::optional<EngineTile> engine_tile(const Device& device, c10::ScalarType a, c10::ScalarType b) {
  using at::Float32MatmulPrecision;
  using c10::kBFloat16, c10::kFloat, c10::kHalf;
  if (!device.is_cpu()) return std::nullopt;
  const auto known = [](c10::ScalarType type) { return type == kBFloat16 || type == kHalf || type == kFloat; };
  if (!known(a) || !known(b)) return std::nullopt;
  auto precision = Float32MatmulPrecision::MEDIUM;
  if (a == kFloat || b == kFloat) precision = at::globalContext().float32MatmulPrecision();
  if (precision == Float32MatmulPrecision::HIGHEST) return std::nullopt;
  const MatrixEngine engine = matrix_engine(device).engine;
  const bool amx = engine == MatrixEngine::kAmx;
  const int64_t parts = a == kHalf || b == kHalf || precision == Float32MatmulPrecision::HIGH ? 2 : 1;
  if (engine == MatrixEngine::kNone || (parts == 2 && !amx)) return std::nullopt;
  // AMX needs its panels in the first-level cache. For vector instructions, a panel of B may lie in the second-level
  // cache.
  if (amx) return EngineTile{32, 256 / parts, parts, "ENGINE_AMX", parts == 1};
  return EngineTile{8, 2048, parts, "ENGINE_AVX512_BF16", false};
}

}  // namespace netcl
