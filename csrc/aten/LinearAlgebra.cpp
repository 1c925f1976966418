// mm, addmm, bmm, baddbmm, addmv, dot and related operators, which call gemm().
#include <ATen/ExpandUtils.h>
#include <ATen/NativeFunctions.h>
#include <ATen/ops/_addmm_activation_meta.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm_meta.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/view_as_real.h>

#include "aten/gemm/Gemm.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Scalars.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::Scalar;
using at::Tensor;

// Integers of 8 and 16 bits are multiplied as int32, which wraps to the same bits; they need no kernels of their own.
bool narrow_integral(c10::ScalarType type) { return type == c10::kByte || type == c10::kChar || type == c10::kShort; }

// Lazy conjugation and negation reach these operators unresolved.
Tensor plain(const Tensor& t, c10::ScalarType type) { return t.resolve_conj().resolve_neg().to(type); }

// A factor of an integer product is truncated, and must not be beyond the dtype, as on the CPU.
Scalar in_type(const Scalar& factor, c10::ScalarType type) {
  return c10::isIntegralType(type, /*includeBool=*/true) ? in_dtype(factor, type) : factor;
}

void multiply(const char* op, const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& given_beta,
              const Scalar& given_alpha, const Tensor& out);

// For a complex product as a real one of twice the columns and twice the depth, whose kernels have the vectors: in the
// rows of A and C each number's parts are neighbours, and behind each row of B stands the row times i.
Tensor real_rows(const Tensor& t) { return at::view_as_real(t.contiguous()).flatten(-2); }
Tensor with_rows_times_i(const Tensor& b) {
  const Tensor t = at::view_as_real(b), times_i = at::stack({t.select(-1, 1).neg(), t.select(-1, 0)}, -1);
  return at::stack({t, times_i}, b.dim() - 1).flatten(-2).flatten(-3, -2);
}

// out = alpha * A B + beta * self for matrices or batches of them; `self` is broadcast and may be undefined.
void multiply(const char* op, const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& given_beta,
              const Scalar& given_alpha, const Tensor& out) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), op,
              ": expected both matrices to have the same dtype, but got: ", a.scalar_type(), " != ", b.scalar_type());
  TORCH_CHECK(out.scalar_type() == a.scalar_type() && (!self.defined() || self.scalar_type() == a.scalar_type()), op,
              ": expected self, the matrices and the result to have the same dtype");
  for (const Tensor& t : {a, b, self})
    TORCH_CHECK(!t.defined() || t.device() == out.device(), op,
                ": expected all tensors to be on the same device, but found at least two, ", out.device(), " and ",
                t.device());
  if (out.numel() == 0) return;
  const Scalar beta = in_type(given_beta, a.scalar_type()), alpha = in_type(given_alpha, a.scalar_type());
  const auto type = narrow_integral(out.scalar_type()) ? c10::kInt : out.scalar_type();
  const Tensor x = plain(a, type), y = plain(b, type);
  const bool direct = !out.is_conj() && !out.is_neg() && type == out.scalar_type();
  const Tensor result = direct ? out : at::empty(out.sizes(), out.options().dtype(type));
  Tensor addend;
  if (self.defined() && !beta.equal(0)) addend = plain(self, type).expand(out.sizes());
  const int64_t work = out.numel() * x.size(-1);
  if (x.is_complex() && type == compute_type(type) && !alpha.equal(0) &&
      work >= tuning(netcl::device_of(out)).real_products) {
    const bool in_place = direct && out.is_contiguous() && !addend.defined();
    const Tensor r = in_place ? out : at::empty(out.sizes(), out.options());
    multiply(op, {}, real_rows(x), with_rows_times_i(alpha.equal(1) ? y : y * alpha), 0, 1, real_rows(r));
    if (addend.defined()) r.add_(addend, beta);
    if (!in_place) out.copy_(r);
    return;
  }
  GemmArgs g;
  g.m = x.size(-2);
  g.n = y.size(-1);
  g.k = x.size(-1);
  if (x.dim() == 3) g.batch[1] = x.size(0);
  g.a = gemm_matrix(x);
  g.b = gemm_matrix(y);
  g.c = gemm_matrix(result);
  if (addend.defined()) g.d = gemm_matrix(addend);
  g.alpha = alpha;
  g.beta = beta;
  gemm(op, queue_of(out), g);
  if (!result.is_same(out)) out.copy_(result);
}

struct Mm : at::meta::structured_mm {
  void impl(const Tensor& self, const Tensor& mat2, const Tensor& out) { multiply("mm", {}, self, mat2, 0, 1, out); }
};
struct Addmm : at::meta::structured_addmm {
  void impl(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha,
            const Tensor& out) {
    multiply("addmm", self, a, b, beta, alpha, out);
  }
};
struct AddmmActivation : at::meta::structured__addmm_activation {
  void impl(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha, bool gelu,
            const Tensor& out) {
    multiply("_addmm_activation", self, a, b, beta, alpha, out);
    if (gelu) {
      out.copy_(at::gelu(out, "tanh"));
    } else {
      at::relu_(const_cast<Tensor&>(out));
    }
  }
};
struct Bmm : at::meta::structured_bmm {
  void impl(const Tensor& self, const Tensor& mat2, const Tensor& out) { multiply("bmm", {}, self, mat2, 0, 1, out); }
};
// The meta function of baddbmm copies self to the output, which may be one of the matrices.
struct Baddbmm : at::meta::structured_bmm {
  void meta(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar&, const Scalar&) {
    at::meta::structured_bmm::meta(a, b);
    expand_size(self, {a.size(0), a.size(1), b.size(2)}, "baddbmm");
  }
  void impl(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha,
            const Tensor& out) {
    multiply("baddbmm", self, a, b, beta, alpha, out);
  }
};
struct Addmv : at::meta::structured_addmv {
  void impl(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta, const Scalar& alpha,
            const Tensor& out) {
    const Tensor addend = self.defined() ? self.expand({mat.size(0)}).unsqueeze(1) : Tensor();
    multiply("addmv", addend, mat, vec.unsqueeze(1), beta, alpha, out.unsqueeze(1));
  }
};

Tensor product(const char* op, const Tensor& x, const Tensor& y) {
  TORCH_CHECK(x.dim() == 1 && y.dim() == 1, "1D tensors expected, but got ", x.dim(), "D and ", y.dim(), "D tensors");
  TORCH_CHECK(x.scalar_type() == y.scalar_type(), "dot : expected both vectors to have same dtype, but found ",
              x.scalar_type(), " and ", y.scalar_type());
  TORCH_CHECK(x.numel() == y.numel(), "inconsistent tensor size, expected tensor [", x.numel(), "] and src [",
              y.numel(), "] to have the same number of elements, but got ", x.numel(), " and ", y.numel(),
              " elements respectively");
  Tensor out = at::empty({}, x.options());
  multiply(op, {}, x.unsqueeze(0), y.unsqueeze(1), 0, 1, out.view({1, 1}));
  return out;
}
Tensor dot(const Tensor& x, const Tensor& y) { return product("dot", x, y); }
Tensor vdot(const Tensor& x, const Tensor& y) { return product("vdot", x.conj(), y); }

// The result is written once per pair of matrices.
Tensor& addbmm_out(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha,
                   Tensor& out) {
  return at::native::addbmm_out(self, apart_from(a, {out}), apart_from(b, {out}), beta, alpha, out);
}
Tensor& addbmm_(Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  return at::native::addbmm_(self, apart_from(a, {self}), apart_from(b, {self}), beta, alpha);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<Mm>(m, "mm", nullptr, "mm.out");
  structured<Addmm>(m, "addmm", "addmm_", "addmm.out");
  structured<AddmmActivation>(m, "_addmm_activation", nullptr, "_addmm_activation.out");
  structured<Bmm>(m, "bmm", nullptr, "bmm.out");
  structured<Baddbmm>(m, "baddbmm", "baddbmm_", "baddbmm.out");
  structured<Addmv>(m, "addmv", "addmv_", "addmv.out");
  m.impl("dot", &dot);
  m.impl("vdot", &vdot);
  m.impl("addbmm", &at::native::addbmm);
  m.impl("addbmm_", &addbmm_);
  m.impl("addbmm.out", &addbmm_out);
}

}  // namespace
}  // namespace netcl
