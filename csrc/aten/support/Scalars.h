// Host scalars as kernel arguments of a compute type.
#pragma once

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "args/scalar.h"

namespace netcl {

// The number as an operator's argument of that dtype: rounded to it, and an error beyond its range.
c10::Scalar in_dtype(const c10::Scalar& s, c10::ScalarType type);

// The number as an element that is converted to that dtype: rounded to it, and infinity beyond its range.
c10::Scalar as_element(const c10::Scalar& s, c10::ScalarType type);

// The bits of a scalar as `type` (a compute type): the first `size` bytes of `words`.
struct PackedScalar {
  std::array<uint64_t, 2> words{};
  size_t size = 0;
  template <class T>
  void put(T value, size_t at = 0) {
    std::memcpy(reinterpret_cast<char*>(words.data()) + at, &value, sizeof(T));
    size = at + sizeof(T);
  }
  Bits bits() const { return {words[0], words[1]}; }
};

inline PackedScalar pack_scalar(const c10::Scalar& s, c10::ScalarType type) {
  using c10::ScalarType;
  PackedScalar p;
  switch (type) {
    case ScalarType::Float:
      p.put(s.to<float>());
      break;
    case ScalarType::Double:
      p.put(s.to<double>());
      break;
    case ScalarType::ComplexFloat: {
      const auto z = s.to<c10::complex<double>>();
      p.put(static_cast<float>(z.real()));
      p.put(static_cast<float>(z.imag()), 4);
      break;
    }
    case ScalarType::ComplexDouble: {
      const auto z = s.to<c10::complex<double>>();
      p.put(z.real());
      p.put(z.imag(), 8);
      break;
    }
    case ScalarType::Bool:
      p.put(static_cast<uint8_t>(s.to<bool>()));
      break;
    default: {
      // Integers: the low bytes of the two's complement. Every OpenCL host here is little-endian.
      const int64_t v = s.isFloatingPoint()          ? static_cast<int64_t>(s.to<double>())
                        : type == ScalarType::UInt64 ? static_cast<int64_t>(s.to<uint64_t>())
                                                     : s.to<int64_t>();
      p.put(v);
      p.size = c10::elementSize(type);
      break;
    }
  }
  return p;
}

}  // namespace netcl
