// Registers a structured operator in one line: its out, in-place and functional forms, with ATen's own meta()
// (broadcasting, promotion, checks, error texts). impl() is either ATen's (one class shared by CPU and CUDA, which
// calls a DispatchStub) or ours (a class that derives from at::meta::structured_X and defines impl).
//
//   structured<at::native::structured_sigmoid_out>(m, "sigmoid", "sigmoid_", "sigmoid.out");
//
// Pass nullptr for a form that does not exist.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <array>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "aten/TorchCompat.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "runtime/OpName.h"

namespace netcl {
namespace structured_detail {

// The type that the dispatcher passes for a parameter of meta(), and its conversion to that parameter.
template <class M>
struct Param {
  using schema = M;
  static decltype(auto) meta(const std::remove_reference_t<M>& x) { return x; }
};
template <>
struct Param<at::OptionalScalarRef> {
  using schema = const std::optional<at::Scalar>&;
  static at::OptionalScalarRef meta(const std::optional<at::Scalar>& x) {
    return x.has_value() ? at::OptionalScalarRef(&*x) : at::OptionalScalarRef();
  }
};
template <>
struct Param<at::OptionalTensorRef> {
  using schema = const std::optional<at::Tensor>&;
  static at::OptionalTensorRef meta(const std::optional<at::Tensor>& x) {
    return x.has_value() && x->defined() ? at::OptionalTensorRef(*x) : at::OptionalTensorRef();
  }
};

enum class Form { kFunctional, kInplace, kOut };

// Allocates, checks or resizes an output, as the form demands. `proxy` becomes a tensor to write instead if the
// operator needs exactly these strides and the output has others.
void set_output(Form form, at::Tensor& output, at::Tensor& proxy, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions& options, bool exact_strides);
void copy_proxies(c10::ArrayRef<at::Tensor> outputs, c10::ArrayRef<at::Tensor> proxies);

// Null if it is no tensor, or none is given.
inline const at::Tensor* as_input(const at::Tensor& t) { return &t; }
inline const at::Tensor* as_input(const at::OptionalTensorRef& t) { return t.has_value() ? &*t : nullptr; }
template <class T>
const at::Tensor* as_input(const T&) {
  return nullptr;
}
// Gives an output that is also an input, or may be, a proxy, since kernels read while they write. An operator with an
// in-place form may write its first input.
void keep_apart(Form form, bool has_inplace, c10::ArrayRef<at::Tensor> outputs, std::span<at::Tensor> proxies,
                c10::ArrayRef<const at::Tensor*> inputs);

// Compiled once per operator, so what does not depend on the operator is outside, and the form is no parameter.
template <class Base, size_t N>
struct Op final : public Base {
  explicit Op(Form form) : form(form) {}
  void set_output_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options NETCL_NAMES_PARAM) override {
    set(i, sizes, strides, options, /*exact_strides=*/true NETCL_NAMES_ARG);
  }
  void set_output_raw_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options NETCL_NAMES_PARAM) override {
    set(i, sizes, strides, options, /*exact_strides=*/false NETCL_NAMES_ARG);
  }
  const at::Tensor& maybe_get_output(int64_t i) override { return proxies[i].defined() ? proxies[i] : outputs[i]; }
  void copy_back() { copy_proxies(outputs, proxies); }

  const Form form;
  std::array<at::Tensor, N> outputs, proxies;

 private:
  [[gnu::noinline]] void set(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                             const at::TensorOptions& options, bool exact_strides NETCL_NAMES_PARAM) {
    set_output(form, outputs[i], proxies[i], sizes, strides, options, exact_strides);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Base>) {
      at::TensorIteratorBase::set_output_raw_strided(i, sizes, strides, options NETCL_NAMES_ARG);
    }
  }
};

template <class Base, class MetaFn, class ImplFn>
struct Forms;

// meta(M...) is that of the at::meta class; impl(M..., const Tensor& out...) is that of Base.
template <class Base, class MetaClass, class... M, class ImplClass, class... A>
struct Forms<Base, void (MetaClass::*)(M...), void (ImplClass::*)(A...)> {
  static constexpr size_t N = sizeof...(A) - sizeof...(M);
  using Seq = std::make_index_sequence<N>;
  using Outputs = std::array<at::Tensor, N>;
  static inline bool has_inplace = false;

  template <size_t... I>
  static Outputs run(std::index_sequence<I...>, Form form, Outputs outputs, const M&... args) {
    Op<Base, N> op(form);
    op.outputs = std::move(outputs);
    op.meta(args...);
    if constexpr (!std::is_base_of_v<at::TensorIteratorBase, Base>) {  // TensorIterator looks itself
      const std::array<const at::Tensor*, sizeof...(M)> inputs{as_input(args)...};
      check_one_device(inputs);
      if (form != Form::kFunctional) keep_apart(form, has_inplace, op.outputs, op.proxies, inputs);
    }
    op.impl(args..., op.maybe_get_output(I)...);
    op.copy_back();
    return std::move(op.outputs);
  }
  [[gnu::noinline]] static Outputs call(Form form, Outputs outputs, const M&... args) {
    return run(Seq{}, form, std::move(outputs), args...);
  }

  template <size_t>
  using Out = at::Tensor&;
  template <class S>
  struct Multi;
  template <size_t... I>
  struct Multi<std::index_sequence<I...>> {
    using Tensors = std::tuple<std::conditional_t<(I >= 0), at::Tensor, void>...>;
    using Refs = std::tuple<Out<I>...>;
    static Tensors functional(typename Param<M>::schema... args) {
      Outputs outputs = call(Form::kFunctional, {}, Param<M>::meta(args)...);
      return Tensors(std::move(outputs[I])...);
    }
    static Refs out(typename Param<M>::schema... args, Out<I>... outs) {
      call(Form::kOut, {outs...}, Param<M>::meta(args)...);
      return Refs(outs...);
    }
  };

  static at::Tensor functional(typename Param<M>::schema... args) {
    return std::move(call(Form::kFunctional, {}, Param<M>::meta(args)...)[0]);
  }
  static at::Tensor& out(typename Param<M>::schema... args, at::Tensor& result) {
    call(Form::kOut, {result}, Param<M>::meta(args)...);
    return result;
  }
};

// The in-place form takes `Tensor& self`, the functional one `const Tensor& self`.
template <class F>
struct Inplace {
  static constexpr bool exists = false;
};
template <class Base, class MetaClass, class... M, class ImplFn>
struct Inplace<Forms<Base, void (MetaClass::*)(const at::Tensor&, M...), ImplFn>> {
  static constexpr bool exists = true;
  using All = Forms<Base, void (MetaClass::*)(const at::Tensor&, M...), ImplFn>;
  static at::Tensor& call(at::Tensor& self, typename Param<M>::schema... args) {
    All::call(Form::kInplace, {self}, self, Param<M>::meta(args)...);
    return self;
  }
};

// The types of the three forms; void if there is none.
template <class F, bool single = F::N == 1, bool inplace = single && Inplace<F>::exists>
struct Types {
  using X = typename F::template Multi<typename F::Seq>;
  using Functional = decltype(X::functional);
  using Out = decltype(X::out);
  using Inplace = void();
};
template <class F>
struct Types<F, true, false> {
  using Functional = decltype(F::functional);
  using Out = decltype(F::out);
  using Inplace = void();
};
template <class F>
struct Types<F, true, true> : Types<F, true, false> {
  using Inplace = decltype(structured_detail::Inplace<F>::call);
};

template <class Base>
using FormsOf = Forms<Base, decltype(&Base::meta), decltype(&Base::impl)>;

}  // namespace structured_detail

// m.impl() gets function pointers, here and elsewhere, not TORCH_FN: the dispatcher's wrappers are then compiled once
// per signature instead of once per function. This saves a sixth of the build's time and costs one indirect call.
template <class Base, class F = structured_detail::FormsOf<Base>, class T = structured_detail::Types<F>>
void structured(AtenLibrary& m, NameFor<typename T::Functional> functional, NameFor<typename T::Inplace> inplace,
                NameFor<typename T::Out> out) {
  if constexpr (F::N == 1) {
    if (functional.text) m.impl(functional, &F::functional);
    if (out.text) m.impl(out, &F::out);
    if constexpr (structured_detail::Inplace<F>::exists) {
      if (inplace.text) m.impl(inplace, &structured_detail::Inplace<F>::call);
      F::has_inplace = inplace.text != nullptr;
    }
  } else {
    using X = typename F::template Multi<typename F::Seq>;
    if (functional.text) m.impl(functional, &X::functional);
    if (out.text) m.impl(out, &X::out);
  }
}

}  // namespace netcl
