// linalg_lstsq. The drivers are LAPACK's: "gels" takes a matrix of full rank and uses QR; the others, which find a
// rank, use the singular values.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_lstsq_native.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>

#include "aten/linalg/Householder.h"
#include "aten/linalg/Matrices.h"
#include "aten/support/Library.h"

namespace netcl {
namespace {

using at::Tensor;

Tensor with_contiguous_columns(const Tensor& t) { return t.mT().clone(at::MemoryFormat::Contiguous).mT(); }

// The solution replaces the first rows of `b`; if A has more rows than columns, the others have the residuals' length.
// Returns which matrices are singular.
Tensor solve_full_rank(const Tensor& a, const Tensor& b) {
  const int64_t m = a.size(1), n = a.size(2), k = std::min(m, n);
  const Tensor qr = with_contiguous_columns(m >= n ? a : a.mH().resolve_conj());
  const Tensor tau = at::empty({a.size(0), k}, a.options());
  qr_factor(qr, tau);
  const Tensor r = qr.narrow(1, 0, k).triu();
  if (m >= n) {
    const Tensor c = with_contiguous_columns(b.narrow(1, 0, m));
    apply_q(qr, tau, c, true);
    c.narrow(1, 0, n).copy_(at::linalg_solve_triangular(r, c.narrow(1, 0, n), true));
    b.narrow(1, 0, m).copy_(c);
  } else {  // the shortest solution: A^H = Q R, x = Q (R^H)^-1 b
    const Tensor c = with_contiguous_columns(b.narrow(1, 0, n)).zero_();
    c.narrow(1, 0, m).copy_(at::linalg_solve_triangular(r.mH(), b.narrow(1, 0, m), false));
    apply_q(qr, tau, c, false);
    b.narrow(1, 0, n).copy_(c);
  }
  return (r.diagonal(0, 1, 2) == 0).any(1);
}

// x = V S^-1 U^H b over the singular values above `rcond` times the largest. Returns their number, the rank.
Tensor solve_by_svd(const Tensor& a, const Tensor& b, double rcond) {
  const int64_t m = a.size(1), n = a.size(2);
  const auto [u, s, vh] = at::linalg_svd(a, false);
  const double tolerance = rcond < 0 ? at::native::_get_epsilon(c10::toRealValueType(a.scalar_type())) : rcond;
  const Tensor kept = s > s.slice(1, 0, 1) * tolerance;  // there is no first one if A is empty
  const Tensor inverse = at::where(kept, s.reciprocal(), 0).unsqueeze(-1);
  b.narrow(1, 0, n).copy_(at::bmm(vh.mH(), at::bmm(u.mH(), b.narrow(1, 0, m)) * inverse));
  return kept.sum(1);
}

// torch names "gelsy" on devices other than CUDA if no driver is given, and lets no other but "gels" pass.
void lstsq_kernel(const Tensor& a, Tensor& b, Tensor& rank, Tensor&, Tensor& info, double rcond, std::string driver) {
  if (b.numel() == 0) return void(rank.zero_());  // LAPACK's answer
  const Tensor matrices = batch_like(a, b);
  const Batch right(b);
  const bool full = driver == "gels";
  Tensor found = full ? solve_full_rank(matrices, right.get()) : solve_by_svd(matrices, right.get(), rcond);
  right.finish();
  found = found.view(b.sizes().slice(0, b.dim() - 2));
  found = found.as_strided(a.sizes().slice(0, a.dim() - 2), found.strides());  // one of equal ones, if A was expanded
  const Tensor& out = full ? info : rank;
  out.copy_(found.reshape(out.sizes()));
}

// What "gelss" and "gelsd" return besides: singular values, and residuals if all matrices have full rank.
using Results = std::tuple<Tensor, Tensor, Tensor, Tensor>;
Results with_singular_values(const Tensor& a, const Tensor& b, Results results) {
  auto& [x, residuals, rank, singular_values] = results;
  singular_values = at::linalg_svdvals(a);
  const int64_t m = a.size(-2), n = a.size(-1);
  if (m > n && (rank == n).all().item().toBool()) {
    const bool vectors = at::native::linalg_solve_is_vector_rhs(a, b);
    const Tensor product = at::matmul(a, vectors ? x.unsqueeze(-1) : x);
    residuals = (product - (vectors ? b.unsqueeze(-1) : b)).abs().square().sum(-2);
  }
  return results;
}

Results lstsq(const Tensor& a, const Tensor& b, std::optional<double> rcond, std::optional<std::string_view> driver) {
  if (!driver || *driver == "gels") return at::native::linalg_lstsq(a, b, rcond, driver);
  TORCH_CHECK(*driver == "gelsy" || *driver == "gelsd" || *driver == "gelss",
              "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  Results results = at::native::linalg_lstsq(a, b, rcond, std::nullopt);
  return *driver == "gelsy" ? results : with_singular_values(a, b, std::move(results));
}

std::tuple<Tensor&, Tensor&, Tensor&, Tensor&> lstsq_out(const Tensor& a, const Tensor& b, std::optional<double> rcond,
                                                         std::optional<std::string_view> driver, Tensor& solution,
                                                         Tensor& residuals, Tensor& rank, Tensor& singular_values) {
  if (!driver || *driver == "gels") {
    return at::native::linalg_lstsq_out(a, b, rcond, driver, solution, residuals, rank, singular_values);
  }
  const auto [x, r, k, s] = lstsq(a, b, rcond, driver);
  for (auto [out, value] : {std::pair(&solution, &x), {&residuals, &r}, {&rank, &k}, {&singular_values, &s}}) {
    at::native::checkSameDevice("torch.linalg.lstsq", *out, a);
    at::native::checkLinalgCompatibleDtype("torch.linalg.lstsq", out->scalar_type(), value->scalar_type());
    at::native::resize_output(*out, value->sizes());
    out->copy_(*value);
  }
  return {solution, residuals, rank, singular_values};
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("linalg_lstsq", &lstsq);
  m.impl("linalg_lstsq.out", &lstsq_out);
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(lstsq_stub, &netcl::lstsq_kernel)
}  // namespace at::native
