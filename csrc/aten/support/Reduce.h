// The reduction (kernels/reduce) behind sum, mean, max, argmax, norm, var, …
#pragma once

#include <ATen/native/TensorIterator.h>
#include <c10/core/ScalarType.h>

namespace netcl {

struct ReduceOp {
  enum Kind { kSimple, kArg, kVar };
  const char* aten;     // for errors: "aten::sum"
  const char* name;     // the operator's name in kernels/reduce/operations.h
  c10::ScalarType acc;  // the type it is computed in
  Kind kind = kSimple;
  const char* flag = nullptr;  // an additional -D
  double p0 = 0;               // the operator's parameter
};

// Reduces the dimensions in which the outputs of `iter` have stride 0.
void reduce(at::TensorIteratorBase& iter, const ReduceOp& op);
// Reduces the masked dimensions of `self` into `out0` (and `out1`, if defined), which have the result's sizes.
void reduce(const at::Tensor& self, std::bitset<64> mask, bool keepdim, const at::Tensor& out0, const at::Tensor& out1,
            const ReduceOp& op);

// The type in which sums and products with this result are computed: float for half, bfloat16 and float; int64 for
// integers.
c10::ScalarType sum_type(c10::ScalarType result);
// The narrowest compute type that holds every value of `input`, for comparisons.
c10::ScalarType value_type(c10::ScalarType input);
// The same for operators that order their input; raises for complex numbers, naming `op`.
c10::ScalarType ordered_type(c10::ScalarType input, const char* op);

// Whether the operator reads a dtype `in` itself for a result of dtype `out`, rather than after a conversion to `out`.
// c10 has no promotion for the unsigned integers above 8 bits, whose sums are int64.
inline bool widens(c10::ScalarType in, c10::ScalarType out) {
  if (c10::isBarebonesUnsignedType(in) || c10::isBarebonesUnsignedType(out)) return in == out || out == c10::kLong;
  return c10::promoteTypes(in, out) == out;
}

}  // namespace netcl
