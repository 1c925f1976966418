// The operators that are reductions, in one line each behind ATen's front half.
#include <ATen/native/ReduceAllOps.h>
#include <ATen/native/ReduceOps.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/TensorCompare.h>
#include <ATen/ops/_aminmax_native.h>
#include <ATen/ops/all_native.h>
#include <ATen/ops/amax_native.h>
#include <ATen/ops/amin_native.h>
#include <ATen/ops/aminmax_native.h>
#include <ATen/ops/any_native.h>
#include <ATen/ops/argmax_native.h>
#include <ATen/ops/argmin_native.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/hash_tensor_meta.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/linalg_vector_norm_native.h>
#include <ATen/ops/max_native.h>
#include <ATen/ops/mean_native.h>
#include <ATen/ops/min_native.h>
#include <ATen/ops/nansum_native.h>
#include <ATen/ops/norm_native.h>
#include <ATen/ops/prod_native.h>
#include <ATen/ops/real.h>
#include <ATen/ops/renorm_native.h>
#include <ATen/ops/sum_native.h>

#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/OwnInput.h"
#include "aten/support/Reduce.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::OptionalIntArrayRef;
using at::ScalarType;
using at::Tensor;
using at::TensorIterator;

// --- sum, mean, prod: inputs of other dtypes are converted as they are read
void sum_kernel(TensorIterator& it) { reduce(it, {"aten::sum", "sum", sum_type(it.dtype(0))}); }
void nansum_kernel(TensorIterator& it) {
  const bool nans = at::isFloatingType(it.dtype(0)) || at::isComplexType(it.dtype(0));
  TORCH_CHECK_NOT_IMPLEMENTED(nans, "nansum is not implemented for a result of dtype ", it.dtype(0));
  reduce(it, {"aten::nansum", "nansum", sum_type(it.dtype(0))});
}
void prod_kernel(TensorIterator& it) { reduce(it, {"aten::prod", "prod", sum_type(it.dtype(0))}); }
void mean_kernel(TensorIterator& it) {
  const double n =
      static_cast<double>(it.numel()) / static_cast<double>(std::max<int64_t>(it.num_output_elements(), 1));
  reduce(it, {"aten::mean", "mean", sum_type(it.dtype(0)), ReduceOp::kSimple, nullptr, n});
}

void accumulate(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, const Tensor& result,
                void (*stub)(TensorIterator&), const c10::Scalar& of_nothing) {
  const ScalarType out = result.scalar_type(), in = self.scalar_type();
  auto iter = at::meta::make_reduction(self, result, dim, keepdim, widens(in, out) ? in : out);
  if (iter.numel() == 0) {
    result.fill_(of_nothing);
  } else {
    stub(iter);
  }
}

struct Sum : at::meta::structured_sum_dim_IntList {
  void impl(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, std::optional<ScalarType>, const Tensor& out) {
    accumulate(self, dim, keepdim, out, &sum_kernel, 0);
  }
};
struct Mean : at::meta::structured_mean_dim {
  void impl(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, std::optional<ScalarType>, const Tensor& out) {
    const ScalarType type = out.scalar_type();
    TORCH_CHECK(at::isFloatingType(type) || at::isComplexType(type), "result type ",
                c10::typeMetaToScalarType(c10::get_default_dtype()), " can't be cast to the desired output type ",
                type);
    accumulate(self, dim, keepdim, out, &mean_kernel, std::numeric_limits<double>::quiet_NaN());
  }
};
struct Prod : at::meta::structured_prod_dim_int {
  void impl(const Tensor& self, int64_t dim, bool keepdim, std::optional<ScalarType>, const Tensor& out) {
    accumulate(self, dim, keepdim, out, &prod_kernel, 1);
  }
};

// --- any, all
void any_kernel(TensorIterator& it) { reduce(it, {"aten::any", "any_of", value_type(it.input_dtype())}); }
void all_kernel(TensorIterator& it) { reduce(it, {"aten::all", "all_of", value_type(it.input_dtype())}); }

void any_or_all(const Tensor& self, OptionalIntArrayRef dim, bool keepdim, const Tensor& result, bool any) {
  if (self.numel() == 0) {
    result.fill_(!any);
  } else if (dim.has_value() && dim->empty()) {  // for any.dims and all.dims, an empty list reduces no dimension
    result.copy_(self.to(at::kBool));
  } else {
    auto iter = at::meta::make_reduction(self, result, dim, keepdim, self.scalar_type());
    (any ? any_kernel : all_kernel)(iter);
  }
}

struct Any : at::meta::structured_any {
  void impl(const Tensor& self, const Tensor& out) { any_or_all(self, std::nullopt, false, out, true); }
};
struct All : at::meta::structured_all {
  void impl(const Tensor& self, const Tensor& out) { any_or_all(self, std::nullopt, false, out, false); }
};
template <class Meta, class Dim, bool kAny>
struct AnyOrAll : Meta {
  void impl(const Tensor& self, Dim dim, bool keepdim, const Tensor& out) { any_or_all(self, dim, keepdim, out, kAny); }
};
using AnyDim = AnyOrAll<at::meta::structured_any_dim, int64_t, true>;
using AllDim = AnyOrAll<at::meta::structured_all_dim, int64_t, false>;
using AnyDims = AnyOrAll<at::meta::structured_any_dims, OptionalIntArrayRef, true>;
using AllDims = AnyOrAll<at::meta::structured_all_dims, OptionalIntArrayRef, false>;

// --- extreme values and their positions
ReduceOp extreme(const char* aten, const char* name, ScalarType in, bool position = false) {
  return {aten, name, ordered_type(in, aten), position ? ReduceOp::kArg : ReduceOp::kSimple,
          position && std::string_view(name) == "argmin" ? "ARG_MIN" : nullptr};
}
void max_values_kernel(TensorIterator& it) { reduce(it, extreme("aten::amax", "amax", it.input_dtype())); }
void min_values_kernel(TensorIterator& it) { reduce(it, extreme("aten::amin", "amin", it.input_dtype())); }
void argmax_kernel(TensorIterator& it) { reduce(it, extreme("aten::argmax", "argmax", it.input_dtype(), true)); }
void argmin_kernel(TensorIterator& it) { reduce(it, extreme("aten::argmin", "argmin", it.input_dtype(), true)); }
void max_all_kernel(Tensor& result, const Tensor& self) {
  reduce(self, ~std::bitset<64>(), false, result, Tensor(), extreme("aten::max", "amax", self.scalar_type()));
}
void min_all_kernel(Tensor& result, const Tensor& self) {
  reduce(self, ~std::bitset<64>(), false, result, Tensor(), extreme("aten::min", "amin", self.scalar_type()));
}
std::bitset<64> one_dim(const Tensor& self, int64_t dim) {
  return self.dim() > 0 ? uint64_t{1} << at::maybe_wrap_dim(dim, self.dim()) : 0;
}
void max_kernel(const Tensor& values, const Tensor& indices, const Tensor& self, int64_t dim, bool keepdim) {
  const ReduceOp op = extreme("aten::max", "argmax", self.scalar_type(), true);
  reduce(self, one_dim(self, dim), keepdim, values, indices, op);
}
void min_kernel(const Tensor& values, const Tensor& indices, const Tensor& self, int64_t dim, bool keepdim) {
  const ReduceOp op = extreme("aten::min", "argmin", self.scalar_type(), true);
  reduce(self, one_dim(self, dim), keepdim, values, indices, op);
}
void aminmax_kernel(const Tensor& self, int64_t dim, bool keepdim, Tensor& min, Tensor& max) {
  reduce(self, one_dim(self, dim), keepdim, min, Tensor(), extreme("aten::aminmax", "amin", self.scalar_type()));
  reduce(self, one_dim(self, dim), keepdim, max, Tensor(), extreme("aten::aminmax", "amax", self.scalar_type()));
}
void aminmax_all_kernel(const Tensor& self, Tensor& min, Tensor& max) {
  min_all_kernel(min, self);
  max_all_kernel(max, self);
}

// Their meta() returns the wrapped dimension for impl(), which wraps it itself.
template <class Meta, auto Kernel>
struct ExtremeDim : Meta {
  void meta(const Tensor& self, int64_t dim, bool keepdim) { Meta::meta(self, dim, keepdim); }
  void impl(const Tensor& self, int64_t dim, bool keepdim, const Tensor& values, const Tensor& indices) {
    Kernel(values, indices, self, dim, keepdim);
  }
};
using MaxDim = ExtremeDim<at::meta::structured_max_dim, &max_kernel>;
using MinDim = ExtremeDim<at::meta::structured_min_dim, &min_kernel>;

// Combines the bits of all elements, as int64 or float64, by exclusive or; the result is uint64.
struct HashTensor : at::meta::structured_hash_tensor {
  void impl(const Tensor& self, at::IntArrayRef dim, bool keepdim, int64_t mode, const Tensor& out) {
    TORCH_CHECK(mode == 0, "hash_tensor: unknown mode ", mode, "; netcl has 0, exclusive or");
    const Tensor bits = self.to(self.is_floating_point() ? at::kDouble : at::kLong).view(at::kLong);
    const Tensor result = out.view(at::kLong);
    if (bits.numel() == 0) {
      result.zero_();
    } else {
      auto iter = at::meta::make_reduction(bits, result, dim, keepdim, at::kLong);
      reduce(iter, {"aten::hash_tensor", "bitxor", at::kLong});
    }
  }
};

// --- norms
ScalarType norm_type(TensorIterator& it) {
  return compute_type(c10::promoteTypes(c10::toRealValueType(it.input_dtype()), c10::toRealValueType(it.dtype(0))));
}
void norm_kernel(TensorIterator& it, const c10::Scalar& ord) {
  const double p = ord.toDouble();
  if (it.numel() == 0) {  // ATen leaves this case to the stub
    it.tensor(0).fill_(p < 0 ? std::numeric_limits<double>::infinity() : 0.0);
    return;
  }
  const char* name = p == 0          ? "count"
                     : p == 1        ? "norm1"
                     : p == 2        ? "norm2"
                     : std::isinf(p) ? (p > 0 ? "norminf" : "normneginf")
                                     : "normp";
  reduce(it, {"aten::linalg_vector_norm", name, norm_type(it), ReduceOp::kSimple, nullptr, p});
}

// --- variance
void std_var_kernel(TensorIterator& it, double correction, bool take_sqrt) {
  const double n =
      static_cast<double>(it.numel()) / static_cast<double>(std::max<int64_t>(it.num_output_elements(), 1));
  reduce(it, {take_sqrt ? "aten::std" : "aten::var", take_sqrt ? "std" : "var", norm_type(it), ReduceOp::kVar,
              take_sqrt ? "TAKE_SQRT" : nullptr, std::max(n - correction, 0.0)});
}

// ATen's own front half of std and var refuses devices that it does not know by name.
using Correction = std::optional<c10::Scalar>;
struct StdVar {
  const char* name;  // the operator, for errors
  OptionalIntArrayRef dim;
  const Correction& correction;
  bool keepdim, take_sqrt;
};
void std_var(const StdVar& op, const Tensor& self, Tensor& out, Tensor* mean) {
  const auto& [name, dim, correction, keepdim, take_sqrt] = op;
  TORCH_CHECK(self.layout() == at::kStrided, name, " only supports strided layout, got: ", self.layout());
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()), name,
              " only support floating point and complex dtypes");
  TORCH_CHECK(at::canCast(c10::toRealValueType(self.scalar_type()), out.scalar_type()), "result type ",
              self.scalar_type(), " can't be cast to the desired output type ", out.scalar_type());
  if (at::isComplexType(self.scalar_type())) {
    const auto options = out.options().dtype(c10::toRealValueType(self.scalar_type()));
    const auto empty = [&] { return at::empty({0}, options); };
    Tensor re = empty(), im = empty(), re_mean = empty(), im_mean = empty();
    const StdVar var{name, dim, correction, keepdim, /*take_sqrt=*/false};
    std_var(var, at::real(self), re, mean ? &re_mean : nullptr);
    std_var(var, at::imag(self), im, mean ? &im_mean : nullptr);
    at::native::resize_output(out, re.sizes());
    re.add_(im);
    out.copy_(take_sqrt ? re.sqrt_() : re);
    if (mean) {
      at::native::resize_output(*mean, re.sizes());
      mean->copy_(at::complex(re_mean, im_mean));
    }
    return;
  }
  const auto mask = at::native::make_dim_mask(dim, self.dim());
  const auto shape = at::native::shape_from_dim_mask(self, mask, keepdim);
  at::native::resize_output(out, shape);
  if (mean) at::native::resize_output(*mean, shape);
  const int64_t outputs = c10::multiply_integers(shape);
  const double n = static_cast<double>(self.numel()) / static_cast<double>(std::max<int64_t>(outputs, 1));
  const double c = correction.value_or(1).toDouble();
  if (outputs > 0 && n - c <= 0) {
    TORCH_WARN(name,
               "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor "
               "(input numel divided by output numel).");
  }
  if (self.numel() == 0) {
    out.fill_(std::numeric_limits<double>::quiet_NaN());
    if (mean) mean->fill_(std::numeric_limits<double>::quiet_NaN());
    return;
  }
  reduce(self, mask, keepdim, out, mean ? *mean : Tensor(),
         {take_sqrt ? "aten::std" : "aten::var", take_sqrt ? "std" : "var", compute_type(self.scalar_type()),
          ReduceOp::kVar, take_sqrt ? "TAKE_SQRT" : nullptr, std::max(0.0, n - c)});  // in this order, 0 for NaN
}

at::TensorOptions real_options(const Tensor& self) {
  return self.options().dtype(c10::toRealValueType(self.scalar_type()));
}
template <bool kSqrt>
Tensor& spread_out(const Tensor& self, OptionalIntArrayRef dim, const Correction& correction, bool keepdim,
                   Tensor& out) {
  std_var({kSqrt ? "std" : "var", dim, correction, keepdim, kSqrt}, self, out, nullptr);
  return out;
}
template <bool kSqrt>
Tensor spread(const Tensor& self, OptionalIntArrayRef dim, const Correction& correction, bool keepdim) {
  Tensor out = at::empty({0}, real_options(self));
  return spread_out<kSqrt>(self, dim, correction, keepdim, out);
}
template <bool kSqrt>
std::tuple<Tensor, Tensor> spread_mean(const Tensor& self, OptionalIntArrayRef dim, const Correction& correction,
                                       bool keepdim) {
  Tensor out = at::empty({0}, real_options(self)), mean = at::empty({0}, self.options());
  std_var({kSqrt ? "std_mean" : "var_mean", dim, correction, keepdim, kSqrt}, self, out, &mean);
  return {out, mean};
}

Tensor count_nonzero(const Tensor& self, at::IntArrayRef dim) { return self.ne(0).sum(dim); }

// The result is a host bool, so this waits.
bool equal(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(),
              " and ", other.device());
  if (self.sizes() != other.sizes()) return false;
  return self.numel() == 0 || self.eq(other).all().item<bool>();
}

struct Renorm : at::meta::structured_renorm {
  void impl(const Tensor& self, const at::Scalar& p, int64_t dim, const at::Scalar& maxnorm, const Tensor& out) {
    at::DimVector others;
    for (int64_t d = 0; d < self.dim(); d++) {
      if (d != at::maybe_wrap_dim(dim, self.dim())) others.push_back(d);
    }
    const bool low = self.scalar_type() == at::kHalf || self.scalar_type() == at::kBFloat16;
    const Tensor norm =
        at::linalg_vector_norm(self, p, others, /*keepdim=*/true, low ? std::optional(at::kFloat) : std::nullopt);
    const Tensor shrink = norm.add(1e-7).reciprocal_().mul_(maxnorm);
    out.copy_(self.mul(at::where(norm.gt(maxnorm), shrink, at::ones_like(shrink))));
  }
};

// torch 2.11 overloads it, so its address alone is ambiguous.
Tensor prod_all(const Tensor& self, std::optional<at::ScalarType> dtype) { return at::native::prod(self, dtype); }

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured_reduction<Sum>(m, "sum.dim_IntList", "sum.IntList_out");
  structured_reduction<Mean>(m, "mean.dim", "mean.out");
  structured_reduction<Prod>(m, "prod.dim_int", "prod.int_out");
  m.impl("prod", &prod_all);
  m.impl("nansum", &at::native::nansum);
  m.impl("nansum.out", &OwnInput<&at::native::nansum_out>::call);
  structured_reduction<Any>(m, "any", "any.all_out");
  structured_reduction<AnyDim>(m, "any.dim", "any.out");
  structured_reduction<AnyDims>(m, "any.dims", "any.dims_out");
  structured_reduction<All>(m, "all", "all.all_out");
  structured_reduction<AllDim>(m, "all.dim", "all.out");
  structured_reduction<AllDims>(m, "all.dims", "all.dims_out");
  structured_reduction<at::native::structured_amax_out>(m, "amax", "amax.out");
  structured_reduction<at::native::structured_amin_out>(m, "amin", "amin.out");
  structured_reduction<at::native::structured_aminmax_out>(m, "aminmax", "aminmax.out");
  m.impl("_aminmax", &at::native::_aminmax_all);
  m.impl("_aminmax.dim", &at::native::_aminmax);
  structured_reduction<HashTensor>(m, "hash_tensor", "hash_tensor.out");
  structured_reduction<at::native::structured_argmax_out>(m, "argmax", "argmax.out");
  structured_reduction<at::native::structured_argmin_out>(m, "argmin", "argmin.out");
  structured_reduction<MaxDim>(m, "max.dim", "max.dim_max");
  structured_reduction<MinDim>(m, "min.dim", "min.dim_min");
  m.impl("max", static_cast<Tensor (*)(const Tensor&)>(at::native::max));
  m.impl("min", static_cast<Tensor (*)(const Tensor&)>(at::native::min));
  m.impl("max.unary_out", &OwnInput<&at::native::max_unary_out>::call);
  m.impl("min.unary_out", &OwnInput<&at::native::min_unary_out>::call);
  structured_reduction<at::native::structured_norm_out>(m, "norm.ScalarOpt_dim", "norm.out");
  structured_reduction<at::native::structured_norm_dtype_out>(m, "norm.ScalarOpt_dim_dtype", "norm.dtype_out");
  structured_reduction<at::native::structured_linalg_vector_norm_out>(m, "linalg_vector_norm",
                                                                      "linalg_vector_norm.out");
  m.impl("std.correction", &spread<true>);
  m.impl("var.correction", &spread<false>);
  m.impl("std.correction_out", &OwnInput<&spread_out<true>>::call);
  m.impl("var.correction_out", &OwnInput<&spread_out<false>>::call);
  m.impl("std_mean.correction", &spread_mean<true>);
  m.impl("var_mean.correction", &spread_mean<false>);
  m.impl("count_nonzero.dim_IntList", &count_nonzero);
  m.impl("equal", &equal);
  structured<Renorm>(m, "renorm", "renorm_", "renorm.out");
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(sum_stub, &netcl::sum_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(nansum_stub, &netcl::nansum_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(prod_stub, &netcl::prod_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(mean_stub, &netcl::mean_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(or_stub, &netcl::any_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(and_stub, &netcl::all_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(max_values_stub, &netcl::max_values_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(min_values_stub, &netcl::min_values_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(argmax_stub, &netcl::argmax_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(argmin_stub, &netcl::argmin_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(max_stub, &netcl::max_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(min_stub, &netcl::min_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(max_all_stub, &netcl::max_all_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(min_all_stub, &netcl::min_all_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(aminmax_stub, &netcl::aminmax_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(aminmax_allreduce_stub, &netcl::aminmax_all_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(norm_stub, &netcl::norm_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(std_var_stub, &netcl::std_var_kernel)
}  // namespace at::native
