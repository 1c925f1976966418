// The registration of operators, as PyTorch's TORCH_LIBRARY macros do it, but for two things.
//
// It happens in netcl_register(), which torch_netcl calls, not while the file is loaded: an exception in a static
// initialiser would end the process, and torch_netcl is loaded by `import torch`.
//
// With NETCL_CHECK_KERNELS (setup.py's NETCL_BUILD_CHECK_KERNELS=1), a kernel of an aten operator does not compile
// unless its C++ type is the operator's. The check takes twice as long as the rest of the build. Without it, the
// dispatcher compares the types in netcl_register(), but only with those of other kernels.
#pragma once

#include <torch/library.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#ifdef NETCL_CHECK_KERNELS
#include "aten/support/Schemas.h"
#endif

namespace netcl {

#ifdef NETCL_CHECK_KERNELS
// Not defined: in a constant expression a call is an error, which shows the name.
void there_is_no_such_operator();
void kernel_does_not_have_the_type_of_its_operator();

// Does not compile unless F is the type of the operator `name`.
template <class F>
consteval void check_type_of(std::string_view name) {
  size_t first = 0, end = std::size(kSchemas);
  while (first < end) {
    const size_t middle = (first + end) / 2;
    if (kSchemas[middle].name < name) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  if (first == std::size(kSchemas) || kSchemas[first].name != name) there_is_no_such_operator();
  // A kernel takes each size as SymInt, or none.
  if (kSchemas[first].type != &type_id<F> && kSchemas[first].plain_type != &type_id<F>) {
    kernel_does_not_have_the_type_of_its_operator();
  }
}
#else
template <class F>
consteval void check_type_of(std::string_view /*name*/) {}
#endif

// The name of an operator that a function of type F can implement, or nullptr.
template <class F>
struct NameFor {
  // NOLINTNEXTLINE(google-explicit-constructor)
  consteval NameFor(const char* name) : text(name) { check_type_of<F>(name); }
  consteval NameFor(std::nullptr_t) : text(nullptr) {}  // NOLINT(google-explicit-constructor)

  const char* text;
};

// torch::Library for the namespace aten.
class AtenLibrary {
 public:
  AtenLibrary(torch::Library::Kind kind, std::string ns, std::optional<c10::DispatchKey> key, const char* file,
              uint32_t line)
      : library_(kind, std::move(ns), key, file, line) {}
  template <class F>
  void impl(NameFor<std::type_identity_t<F>> name, F* kernel) {
    library_.impl(name.text, kernel);
  }
  // Boxed kernels, which suit every operator.
  void impl(const char* name, torch::CppFunction&& kernel) { library_.impl(name, std::move(kernel)); }
  // Those of ATen/autocast_mode.h, which takes the types from the operators.
  template <class F>
  void impl(torch::detail::SelectiveStr<true> name, F* kernel) {
    library_.impl(name, kernel);
  }

 private:
  torch::Library library_;
};

// What netcl_register() is to do, in the order of construction. The object that `run` returns is kept.
struct Registration {
  explicit Registration(std::shared_ptr<void> (*run)());
};

template <bool aten>
using LibraryFor = std::conditional_t<aten, AtenLibrary, torch::Library>;

}  // namespace netcl

#define NETCL_LIBRARY(ns, m) NETCL_REGISTRATION(DEF, ns, std::nullopt, m, C10_UID)
#define NETCL_LIBRARY_FRAGMENT(ns, m) NETCL_REGISTRATION(FRAGMENT, ns, std::nullopt, m, C10_UID)
#define NETCL_LIBRARY_IMPL(ns, key, m) NETCL_REGISTRATION(IMPL, ns, c10::DispatchKey::key, m, C10_UID)

#define NETCL_REGISTRATION(kind, ns, key, m, uid) NETCL_REGISTRATION_(kind, ns, key, m, uid)
#define NETCL_REGISTRATION_(kind, ns, key, m, uid)                                                           \
  static void netcl_fill_##uid(netcl::LibraryFor<std::string_view(#ns) == "aten">&);                         \
  [[maybe_unused]] static const netcl::Registration netcl_registration_##uid([]() -> std::shared_ptr<void> { \
    using Library = netcl::LibraryFor<std::string_view(#ns) == "aten">;                                      \
    const auto library = std::make_shared<Library>(torch::Library::kind, #ns, key, __FILE__, __LINE__);      \
    netcl_fill_##uid(*library);                                                                              \
    return library;                                                                                          \
  });                                                                                                        \
  void netcl_fill_##uid(netcl::LibraryFor<std::string_view(#ns) == "aten">& m)
