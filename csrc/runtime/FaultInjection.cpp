#include "runtime/FaultInjection.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <tuple>
#include <type_traits>

namespace netcl {

namespace {

#define NETCL_ENTRY_INDEX(name) k_##name,
enum Entry { NETCL_CL_FUNCTIONS(NETCL_ENTRY_INDEX) kEntries };
#undef NETCL_ENTRY_INDEX

#define NETCL_ENTRY_NAME(name) #name,
constexpr std::array<const char*, kEntries> kNames{NETCL_CL_FUNCTIONS(NETCL_ENTRY_NAME)};
#undef NETCL_ENTRY_NAME

// These are never destroyed, since the driver's threads may be in a call when the process ends.
Api driver;
std::atomic<bool> under_way{false};
int armed = kEntries;
cl_int armed_code = CL_SUCCESS;
int64_t armed_after = 0, armed_end = 0;
std::array<std::atomic<int64_t>, kEntries> calls{};

template <Entry E, auto Member, class F>
struct Wrapped;
template <Entry E, auto Member, class R, class... A>
struct Wrapped<E, Member, R (*)(A...)> {
  static R call(A... args) {
    const int64_t number = calls[E].fetch_add(1);
    if (E != armed || number < armed_after || number >= armed_end) return (driver.*Member)(args...);
    if constexpr (std::is_same_v<R, cl_int>) {
      return armed_code;
    } else {  // functions that create something report errors through their last parameter
      cl_int* code = std::get<sizeof...(A) - 1>(std::tie(args...));
      if (code) *code = armed_code;
      return nullptr;
    }
  }
};

}  // namespace

bool injecting() { return under_way.load(std::memory_order_relaxed); }

void inject_error(const std::string& function, cl_int code, int64_t after, int64_t times) {
  TORCH_CHECK_VALUE(!injecting(), "an injection is already under way");
  armed = kEntries;
  for (int i = 0; i < kEntries; i++) {
    if (function == kNames[i]) armed = i;
    calls[i] = 0;
  }
  TORCH_CHECK_VALUE(function.empty() || armed < kEntries, "netcl uses no OpenCL function ", function);
  armed_code = code;
  armed_after = after;
  armed_end = after + times;
  cl();  // raises if there is no loader
  driver = mutable_api();
#define NETCL_WRAP(name) mutable_api().name = &Wrapped<k_##name, &Api::name, decltype(Api::name)>::call;
  NETCL_CL_FUNCTIONS(NETCL_WRAP)
#undef NETCL_WRAP
  under_way.store(true);
}

std::vector<std::pair<std::string, int64_t>> end_injection() {
  std::vector<std::pair<std::string, int64_t>> counted;
  if (!injecting()) return counted;
  mutable_api() = driver;
  under_way.store(false);
  for (int i = 0; i < kEntries; i++) counted.emplace_back(kNames[i], calls[i].load());
  return counted;
}

}  // namespace netcl
