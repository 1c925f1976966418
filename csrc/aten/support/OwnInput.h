// For operators whose result has another size than their input, which may be their output too (`torch.sum(x, 0,
// out=x)`).
#pragma once

#include "aten/support/Structured.h"

namespace netcl {

// `&OwnInput<&f>::call` is f with a copy of the first tensor if one of the outputs is the same tensor: to resize that
// output would give the input other sizes and elements.
template <auto Function>
struct OwnInput;
template <class R, class... A, R (*Function)(const at::Tensor&, A...)>
struct OwnInput<Function> {
  static R call(const at::Tensor& self, A... args) {
    const bool own = (same(self, args) || ...);
    return Function(own ? self.clone() : self, std::forward<A>(args)...);
  }
  static bool same(const at::Tensor& self, at::Tensor& out) { return out.is_same(self); }
  template <class T>
  static bool same(const at::Tensor& /*self*/, const T& /*no output*/) {
    return false;
  }
};

// As structured().
template <class Base, class F = structured_detail::FormsOf<Base>, class T = structured_detail::Types<F>>
void structured_reduction(AtenLibrary& m, NameFor<typename T::Functional> functional, NameFor<typename T::Out> out) {
  structured<Base>(m, functional, nullptr, nullptr);
  if constexpr (F::N == 1) {
    m.impl(out, &OwnInput<&F::out>::call);
  } else {
    m.impl(out, &OwnInput<&F::template Multi<typename F::Seq>::out>::call);
  }
}

}  // namespace netcl
