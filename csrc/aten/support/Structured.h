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
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "aten/TorchCompat.h"
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

at::Tensor create_out(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options);
void resize_out(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                const at::TensorOptions& options);
void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options);
// A tensor to write instead of `out` if the operator cannot write its strides; nullopt if they are as requested.
std::optional<at::Tensor> create_proxy(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                                       const at::TensorOptions& options);

enum class Form { kFunctional, kInplace, kOut };

template <class Base, Form F, size_t N>
struct Op final : public Base {
  void set_output_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                          at::TensorOptions options NETCL_NAMES_PARAM) override {
    set(i, sizes, strides, options, /*exact_strides=*/true NETCL_NAMES_ARG);
  }
  void set_output_raw_strided(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                              at::TensorOptions options NETCL_NAMES_PARAM) override {
    set(i, sizes, strides, options, /*exact_strides=*/false NETCL_NAMES_ARG);
  }
  const at::Tensor& maybe_get_output(int64_t i) override { return proxies[i] ? *proxies[i] : outputs[i]; }

  std::array<at::Tensor, N> outputs;
  std::array<std::optional<at::Tensor>, N> proxies;

 private:
  void set(int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides, at::TensorOptions options,
           bool exact_strides NETCL_NAMES_PARAM) {
    if constexpr (F == Form::kFunctional) {
      outputs[i] = create_out(sizes, strides, options);
    } else {
      if constexpr (F == Form::kInplace) {
        check_inplace(outputs[i], sizes, options);
      } else {
        resize_out(outputs[i], sizes, strides, options);
      }
      if (exact_strides) proxies[i] = create_proxy(outputs[i], sizes, strides, options);
    }
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Base>) {
      at::TensorIteratorBase::set_output_raw_strided(i, sizes, strides, options NETCL_NAMES_ARG);
    }
  }
};

template <class Base, Form F, class... M, size_t N, size_t... I>
void run(Op<Base, F, N>& op, std::index_sequence<I...>, const M&... args) {
  op.impl(args..., op.maybe_get_output(I)...);
  for (size_t i = 0; i < N; i++) {
    if (op.proxies[i]) op.outputs[i].copy_(*op.proxies[i]);
  }
}

template <class Base, class MetaFn, class ImplFn>
struct Forms;

// meta(M...) is that of the at::meta class; impl(M..., const Tensor& out...) is that of Base.
template <class Base, class MetaClass, class... M, class ImplClass, class... A>
struct Forms<Base, void (MetaClass::*)(M...), void (ImplClass::*)(A...)> {
  static constexpr size_t N = sizeof...(A) - sizeof...(M);
  using Seq = std::make_index_sequence<N>;

  template <size_t>
  using Out = at::Tensor&;
  template <class S>
  struct Multi;
  template <size_t... I>
  struct Multi<std::index_sequence<I...>> {
    using Tensors = std::tuple<std::conditional_t<(I >= 0), at::Tensor, void>...>;
    using Refs = std::tuple<Out<I>...>;
    static Tensors functional(typename Param<M>::schema... args) {
      Op<Base, Form::kFunctional, N> op;
      op.meta(Param<M>::meta(args)...);
      run(op, Seq{}, Param<M>::meta(args)...);
      return Tensors(std::move(op.outputs[I])...);
    }
    static Refs out(typename Param<M>::schema... args, Out<I>... outs) {
      Op<Base, Form::kOut, N> op;
      ((op.outputs[I] = outs), ...);
      op.meta(Param<M>::meta(args)...);
      run(op, Seq{}, Param<M>::meta(args)...);
      return Refs(outs...);
    }
  };

  static at::Tensor functional(typename Param<M>::schema... args) {
    Op<Base, Form::kFunctional, 1> op;
    op.meta(Param<M>::meta(args)...);
    run(op, Seq{}, Param<M>::meta(args)...);
    return std::move(op.outputs[0]);
  }
  static at::Tensor& out(typename Param<M>::schema... args, at::Tensor& result) {
    Op<Base, Form::kOut, 1> op;
    op.outputs[0] = result;
    op.meta(Param<M>::meta(args)...);
    run(op, Seq{}, Param<M>::meta(args)...);
    return result;
  }
  template <class... Rest>
  static at::Tensor& inplace_impl(at::Tensor& self, const Rest&... args) {
    Op<Base, Form::kInplace, 1> op;
    op.outputs[0] = self;
    op.meta(self, args...);
    run(op, Seq{}, self, args...);
    return self;
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
    return All::inplace_impl(self, Param<M>::meta(args)...);
  }
};

}  // namespace structured_detail

// m.impl() gets function pointers, here and elsewhere, not TORCH_FN: the dispatcher's wrappers are then compiled once
// per signature instead of once per function. This saves a sixth of the build's time and costs one indirect call.
template <class Base>
void structured(torch::Library& m, const char* functional, const char* inplace, const char* out) {
  using F = structured_detail::Forms<Base, decltype(&Base::meta), decltype(&Base::impl)>;
  if constexpr (F::N == 1) {
    if (functional) m.impl(functional, &F::functional);
    if (out) m.impl(out, &F::out);
    if constexpr (structured_detail::Inplace<F>::exists) {
      if (inplace) m.impl(inplace, &structured_detail::Inplace<F>::call);
    }
  } else {
    using X = typename F::template Multi<typename F::Seq>;
    if (functional) m.impl(functional, &X::functional);
    if (out) m.impl(out, &X::out);
  }
}

}  // namespace netcl
