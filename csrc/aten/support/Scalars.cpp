#include "aten/support/Scalars.h"

#include <ATen/Dispatch_v2.h>

namespace netcl {

c10::Scalar in_dtype(const c10::Scalar& s, c10::ScalarType type) {
  return AT_DISPATCH_V2(type, "in_dtype", AT_WRAP([&] { return c10::Scalar(s.to<scalar_t>()); }),
                        AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                        AT_EXPAND(AT_FLOAT8_TYPES), at::kHalf, at::kBFloat16, at::kBool, at::kComplexHalf);
}

c10::Scalar as_element(const c10::Scalar& s, c10::ScalarType type) {
  const auto rounded = [](double x) { return static_cast<double>(c10::Half(static_cast<float>(x))); };
  switch (type) {
    case c10::kFloat:
      return static_cast<float>(s.toDouble());
    case c10::kHalf:
      return rounded(s.toDouble());
    case c10::kBFloat16:
      return static_cast<double>(c10::BFloat16(static_cast<float>(s.toDouble())));
    case c10::kComplexHalf: {
      const auto z = s.toComplexDouble();
      return c10::complex<double>(rounded(z.real()), rounded(z.imag()));
    }
    default:
      return s;
  }
}

}  // namespace netcl
