// _fft_c2c, _fft_r2c, _fft_c2r: one dimension after another. Lengths with small prime factors use Stockham's algorithm,
// others Bluestein's (kernels/fft.cl; kernels/fft_lines.cl on CPUs).
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/SpectralOpsUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/real.h>
#include <ATen/ops/zeros.h>

#include <bit>
#include <cmath>
#include <string>

#include "args/fft.h"
#include "aten/support/Launch.h"
#include "aten/support/Library.h"

namespace netcl {
namespace {

using at::IntArrayRef;
using at::ScalarType;
using at::Tensor;
using Norm = at::native::fft_norm_mode;

constexpr size_t kFftGroup = 64;

// The factor that the last pass multiplies by: elements ** (0, -1/2, -1).
struct Scale {
  Norm mode = Norm::none;
  int64_t elements = 1;
  double value() const {
    const auto n = static_cast<double>(elements);
    return mode == Norm::none ? 1 : mode == Norm::by_root_n ? 1 / std::sqrt(n) : 1 / n;
  }
};

// One transform along dimension `dim`: the input holds `in_n` of n elements (symmetry gives the rest), the result
// `out_n`.
struct Plan {
  const char* op;
  int64_t dim, n, out_n;
  bool inverse, real_result;
  Scale scale;
};

// The radices of the passes; empty if a prime factor is too large for a butterfly.
c10::SmallVector<int64_t, 8> radices(int64_t n) {
  c10::SmallVector<int64_t, 8> found;
  if (n == 1) found.push_back(1);
  for (const int64_t r : {8, 4, 2, 3, 5, 7, 11, 13}) {
    for (; n % r == 0; n /= r) found.push_back(r);
  }
  if (n > 1) found.clear();
  return found;
}

// The n-th roots of unity, or the weights of Bluestein's algorithm.
Tensor table(const Plan& plan, bool chirp, int64_t n, const at::TensorOptions& options) {
  Tensor out = at::empty({n}, options);
  Device& device = netcl::device_of(out);
  Defs defs;
  defs.set("ACC", dtype_tag(out.scalar_type()));
  kernel(device, "fft.cl", "roots", defs)
      .launch(plan.op, queue_of(out), {static_cast<size_t>(n)}, {kFftGroup}, buf(out), n, int32_t(plan.inverse),
              int32_t(chirp));
  return out;
}

// On CPUs, lines that fit into the cache: all passes in one launch. Returns false if there are few lines or they are
// long.
bool in_lanes(const Plan& plan, const Tensor& x, const Tensor& out) {
  const Device& device = netcl::device_of(x);
  const int64_t vec = c10::toRealValueType(out.scalar_type()) == at::kFloat ? 16 : 8, n = plan.n, d = plan.dim;
  const int64_t lines = x.numel() / x.size(d), inner = c10::multiply_integers(x.sizes().slice(d + 1));
  if (n > tuning(device).fft_length || 2 * lines <= vec) return false;
  FftLinesParams p{lines, inner, n, n, x.size(d), plan.out_n, !x.is_complex(), plan.real_result, plan.inverse};
  if ((p.real_in || p.real_out) && n % 2 == 0) p.length = n / 2;
  p.normalization = static_cast<int64_t>(plan.scale.mode);
  p.normalized = plan.scale.elements;
  p.rows = 2 * (n + 1);
  for (const int64_t radix : radices(p.length))
    if (radix > 1) p.radices[p.passes++] = radix;
  const Tensor root = table(plan, /*chirp=*/false, n, x.options().dtype(c10::toComplexType(x.scalar_type())));
  const int64_t items = std::min(ceil_div(lines, vec), enough_items(device, 2));
  const auto real = c10::toRealValueType(root.scalar_type());
  const Tensor scratch = at::empty({items * 2 * p.rows * vec}, x.options().dtype(real));
  Defs defs;
  defs.set("ACC", dtype_tag(real)).set("VEC", vec);
  kernel(netcl::device_of(x), "fft_lines.cl", "fft_lines", defs)
      .launch(plan.op, queue_of(x), {static_cast<size_t>(items)}, {1}, buf(out), buf(x), buf(root), buf(scratch), p);
  return true;
}

Tensor passes(const Plan& plan, const Tensor& x, IntArrayRef factors) {
  const ScalarType acc = c10::toComplexType(x.scalar_type());
  const int64_t d = plan.dim, n = plan.n, in_n = x.size(d);
  const int64_t inner = c10::multiply_integers(x.sizes().slice(d + 1));
  const int64_t lines = c10::multiply_integers(x.sizes().slice(0, d));
  TORCH_CHECK_NOT_IMPLEMENTED(n * inner <= std::numeric_limits<int32_t>::max(), plan.op, ": dimension ", d,
                              " and those after it have more than 2^31 elements; transform parts of the tensor");
  Device& device = netcl::device_of(x);
  c10::DimVector sizes(x.sizes());
  sizes[d] = plan.out_n;
  const Tensor out = at::empty(sizes, x.options().dtype(plan.real_result ? c10::toRealValueType(acc) : acc));
  if (in_lanes(plan, x, out)) return out;
  const Tensor root = table(plan, /*chirp=*/false, n, x.options().dtype(acc));
  Tensor from = x, to, spare;
  int64_t done = 1;
  for (size_t k = 0; k < factors.size(); k++) {
    const bool last = k + 1 == factors.size();
    const int64_t radix = factors[k], from_n = k == 0 ? in_n : n;
    sizes[d] = last ? plan.out_n : n;
    const auto type = last && plan.real_result ? c10::toRealValueType(acc) : acc;
    to = last ? out : spare.defined() ? spare : at::empty(sizes, x.options().dtype(type));
    Defs defs;
    defs.set("RADIX", radix).set("IN", dtype_tag(from.scalar_type())).set("OUT", dtype_tag(type));
    defs.set("ACC", dtype_tag(acc));
    const int64_t butterflies = n / radix * inner;
    const Scale scale = last ? plan.scale : Scale{};
    const size_t width = std::min<size_t>(kFftGroup, std::bit_ceil(static_cast<size_t>(butterflies)));
    kernel(device, "fft.cl", "pass", defs)
        .launch(plan.op, queue_of(x), {static_cast<size_t>(butterflies), static_cast<size_t>(lines)},
                {width, kFftGroup / width}, buf(to), buf(from), buf(root),
                FftPassParams{butterflies, lines, inner, n, done, from_n, sizes[d], static_cast<int64_t>(scale.mode),
                              scale.elements});
    spare = k == 0 ? Tensor() : from;
    from = to;
    done *= radix;
  }
  return to;
}

// Computes a transform of any length as a convolution whose length is a power of 2: with w(k) = e^(-pi i k^2 / n), X(k)
// = w(k) * sum over j of (x(j) w(j)) conj(w(k - j)), because 2 j k = j^2 + k^2 - (k - j)^2.
Tensor bluestein(const Plan& plan, const Tensor& x) {
  const int64_t d = plan.dim, n = plan.n;
  const auto m = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(2 * n - 1)));
  const auto options = x.options().dtype(c10::toComplexType(x.scalar_type()));
  const Tensor w = table(plan, /*chirp=*/true, n, options);
  c10::DimVector along(x.dim(), 1), sizes(x.sizes());
  along[d] = n;
  const Tensor weights = w.view(along);
  sizes[d] = along[d] = m;
  Tensor a = at::zeros(sizes, options), b = at::zeros(along, options);
  const int64_t given = x.size(d), mirrored = n - given;
  a.narrow(d, 0, given).copy_(x);
  if (mirrored > 0) a.narrow(d, given, mirrored).copy_(x.narrow(d, 1, mirrored).flip(d).conj());
  a.narrow(d, 0, n).mul_(weights);
  b.narrow(d, 0, n).copy_(weights.conj());
  b.narrow(d, m - n + 1, n - 1).copy_(weights.narrow(d, 1, n - 1).flip(d).conj());
  const auto factors = radices(m);
  const Plan there{plan.op, d, m, m, false, false, {}}, back{plan.op, d, m, m, true, false, {Norm::by_n, m}};
  a = passes(there, a, factors).mul_(passes(there, b, factors));
  a = passes(back, a, factors).narrow(d, 0, plan.out_n);
  a = at::mul(a, weights.narrow(d, 0, plan.out_n));
  if (plan.scale.mode != Norm::none) a.mul_(plan.scale.value());
  return plan.real_result ? at::real(a).contiguous() : a;
}

Tensor transform(const Plan& plan, const Tensor& self) {
  const Tensor x = self.resolve_conj().resolve_neg().contiguous();
  if (x.numel() == 0) {
    c10::DimVector sizes(x.sizes());
    sizes[plan.dim] = plan.out_n;
    const ScalarType type = c10::toComplexType(x.scalar_type());
    return at::empty(sizes, x.options().dtype(plan.real_result ? c10::toRealValueType(type) : type));
  }
  const auto factors = radices(plan.n);
  return factors.empty() ? bluestein(plan, x) : passes(plan, x, factors);
}

// Wraps the dimensions, and checks that they exist and are not empty.
c10::DimVector check(const char* op, const Tensor& self, IntArrayRef dims, bool may_be_none = false) {
  const ScalarType type = self.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(
      type == at::kFloat || type == at::kDouble || type == at::kHalf || c10::isComplexType(type), op,
      ": netcl transforms float16, float32, float64 and their complex numbers, got ", type);
  check_dtype(netcl::device_of(self), type, op);
  TORCH_CHECK(may_be_none || !dims.empty(), op, ": must transform at least one axis");
  c10::DimVector wrapped(dims);
  at::maybe_wrap_dims(wrapped, self.dim());
  for (const int64_t d : wrapped) TORCH_CHECK(self.size(d) > 0, "Invalid number of data points (0) specified");
  return wrapped;
}

int64_t elements(const Tensor& t, IntArrayRef dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= t.size(d);
  return n;
}

Tensor c2c(const char* op, Tensor x, IntArrayRef dims, bool forward, Scale scale) {
  for (size_t k = 0; k < dims.size(); k++) {
    const int64_t n = x.size(dims[k]);
    x = transform({op, dims[k], n, n, !forward, false, k + 1 == dims.size() ? scale : Scale{}}, x);
  }
  return x;
}

// Half precision is transformed in float32 and rounded once.
Tensor widened(const Tensor& t) { return t.to(compute_type(t.scalar_type())); }

Tensor fft_c2c(const Tensor& self, IntArrayRef dim, int64_t normalization, bool forward) {
  TORCH_CHECK(self.is_complex(), "_fft_c2c: expected a complex tensor, got ", self.scalar_type());
  const c10::DimVector dims = check("aten::_fft_c2c", self, dim, true);
  if (dims.empty()) return self.clone();
  const Scale scale{static_cast<Norm>(normalization), elements(self, dims)};
  return c2c("aten::_fft_c2c", widened(self), dims, forward, scale).to(self.scalar_type());
}

Tensor fft_r2c(const Tensor& self, IntArrayRef dim, int64_t normalization, bool onesided) {
  TORCH_CHECK(self.is_floating_point(), "_fft_r2c: expected a floating point tensor, got ", self.scalar_type());
  const c10::DimVector dims = check("aten::_fft_r2c", self, dim);
  const Scale scale{static_cast<Norm>(normalization), elements(self, dims)};
  const int64_t last = dims.back(), n = self.size(last);
  const IntArrayRef rest = IntArrayRef(dims).slice(0, dims.size() - 1);
  const Tensor x =
      transform({"aten::_fft_r2c", last, n, onesided ? n / 2 + 1 : n, false, false, rest.empty() ? scale : Scale{}},
                widened(self));
  return c2c("aten::_fft_r2c", x, rest, true, scale).to(c10::toComplexType(self.scalar_type()));
}

Tensor fft_c2r(const Tensor& self, IntArrayRef dim, int64_t normalization, int64_t last_size) {
  TORCH_CHECK(self.is_complex(), "_fft_c2r: expected a complex tensor, got ", self.scalar_type());
  const c10::DimVector dims = check("aten::_fft_c2r", self, dim);
  const int64_t last = dims.back(), half = last_size / 2 + 1;
  TORCH_CHECK(last_size >= 1 && self.size(last) >= half, "_fft_c2r: dimension ", last, " has ", self.size(last),
              " elements, and ", last_size, " real ones need ", half);
  const IntArrayRef rest = IntArrayRef(dims).slice(0, dims.size() - 1);
  const Scale scale{static_cast<Norm>(normalization), elements(self, rest) * last_size};
  const Tensor x = c2c("aten::_fft_c2r", widened(self.narrow(last, 0, half)), rest, false, {});
  return transform({"aten::_fft_c2r", last, last_size, last_size, true, true, scale}, x)
      .to(c10::toRealValueType(self.scalar_type()));
}

Tensor& into(Tensor& out, const Tensor& result) {
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}
Tensor& fft_c2c_out(const Tensor& self, IntArrayRef dims, int64_t normalization, bool forward, Tensor& out) {
  return into(out, fft_c2c(self, dims, normalization, forward));
}
Tensor& fft_r2c_out(const Tensor& self, IntArrayRef dims, int64_t normalization, bool onesided, Tensor& out) {
  return into(out, fft_r2c(self, dims, normalization, onesided));
}
Tensor& fft_c2r_out(const Tensor& self, IntArrayRef dims, int64_t normalization, int64_t last_size, Tensor& out) {
  return into(out, fft_c2r(self, dims, normalization, last_size));
}

// ATen lets only other devices transform half. Here the operators' input is widened, and their result narrowed as CUDA
// does: complex numbers of half, or half. In between runs ATen's function, which the table of any other device holds.
void fft_of_half(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t arguments = op.schema().arguments().size();
  c10::IValue& self = (*stack)[stack->size() - arguments];
  const ScalarType type = self.toTensor().scalar_type();
  const bool narrow = type == at::kHalf || type == at::kComplexHalf;
  if (narrow) self = self.toTensor().to(compute_type(type));
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  if (!narrow) return;
  const Tensor result = stack->back().toTensor();
  stack->back() = result.to(result.is_complex() ? at::kComplexHalf : at::kHalf);
}
void fft_of_half_for_all(AtenLibrary& m) {
  for (const char* dims : {"", "2", "n"}) {
    for (const char* kind : {"fft", "ifft", "rfft", "irfft", "hfft", "ihfft"}) {
      m.impl((std::string("fft_") + kind + dims).c_str(), torch::CppFunction::makeFromBoxedFunction<&fft_of_half>());
    }
  }
}
NETCL_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { fft_of_half_for_all(m); }

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  fft_of_half_for_all(m);
  m.impl("_fft_c2c", &fft_c2c);
  m.impl("_fft_c2c.out", &fft_c2c_out);
  m.impl("_fft_r2c", &fft_r2c);
  m.impl("_fft_r2c.out", &fft_r2c_out);
  m.impl("_fft_c2r", &fft_c2r);
  m.impl("_fft_c2r.out", &fft_c2r_out);
}

}  // namespace
}  // namespace netcl
