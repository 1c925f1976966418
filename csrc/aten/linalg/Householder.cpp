// QR: geqrf, linalg_qr, linalg_householder_product, ormqr. One kernel does all of a small matrix. A large one is done
// in panels of kPanel columns, whose reflectors are applied to the rest as I - V T V^H by matrix products.
#include "aten/linalg/Householder.h"

#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/geqrf.h>
#include <ATen/ops/geqrf_native.h>
#include <ATen/ops/linalg_householder_product.h>
#include <ATen/ops/linalg_householder_product_native.h>
#include <ATen/ops/linalg_qr_native.h>
#include <ATen/ops/ormqr.h>
#include <ATen/ops/ormqr_native.h>

#include "aten/linalg/Matrices.h"
#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::Tensor;

constexpr const char* kHouseholderFile = "linalg/householder.cl";
constexpr int64_t kPanel = 32;
// Products with `columns` reflectors of so much work are faster in one kernel than in panels.
bool is_small(int64_t rows, int64_t columns, int64_t reflectors) {
  return std::max(columns, reflectors) <= kPanel || rows * columns * reflectors <= 64 * 64 * 64;
}

void factor_panel(const Tensor& a, const Tensor& tau) {
  column_kernel(a, kHouseholderFile, "qr_panel")
      .launch("aten::geqrf", queue_of(a), {count(a.size(0)) * group_items(a)}, {group_items(a)}, buf(a), a.stride(0),
              a.stride(2), buf(tau), tau.stride(0), a.size(1), a.size(2));
}

// V with its ones and zeros, and T, of the reflectors that `panel` holds.
struct CompactWy {
  CompactWy(const Tensor& panel, const Tensor& tau) {
    const int64_t n = panel.size(2);
    v = panel.tril(-1);
    v.diagonal(0, 1, 2).fill_(1);
    const Tensor gram = at::bmm(v.mH(), v);
    t = at::empty_like(gram);
    column_kernel(panel, kHouseholderFile, "compact_wy", 4)
        .launch("aten::geqrf", queue_of(panel), {count(n), count(panel.size(0))}, {group_items(panel, 4)}, buf(gram),
                gram.strides(), buf(tau), tau.stride(0), buf(t), t.strides(), n);
  }
  // C = Q C or Q^H C.
  void apply(const Tensor& c, bool adjoint) const {
    c.baddbmm_(v, at::bmm(adjoint ? t.mH() : t, at::bmm(v.mH(), c)), 1, -1);
  }
  Tensor v, t;
};

// The reflectors of one panel act on the rows from its first on.
CompactWy panel_of(const Tensor& reflectors, const Tensor& tau, int64_t at) {
  const int64_t size = std::min(kPanel, tau.size(1) - at), rows = reflectors.size(1);
  return {block(reflectors, at, rows - at, at, size), tau.narrow(1, at, size)};
}

Tensor flat_tau(const Tensor& tau) { return (tau.dim() == 1 ? tau.unsqueeze(0) : tau.flatten(0, -2)).contiguous(); }

void geqrf_kernel(const Tensor& input, const Tensor& tau) {
  if (tau.numel() == 0) return;
  const ColumnBatch a(input);
  const Tensor flat = flat_tau(tau);
  qr_factor(a.get(), flat);
  a.finish();
  if (!flat.is_alias_of(tau)) tau.copy_(flat.view(tau.sizes()));
}

Tensor& orgqr_kernel(Tensor& result, const Tensor& tau) {
  if (result.numel() == 0) return result;
  const ColumnBatch whole(result);
  form_q(whole.get(), flat_tau(tau));
  whole.finish();
  return result;
}

void ormqr_kernel(const Tensor& input, const Tensor& tau, const Tensor& other, bool left, bool transpose) {
  if (other.numel() == 0 || tau.numel() == 0) return;
  const ColumnBatch a(input);
  const Tensor t = flat_tau(tau);
  if (left) {
    const ColumnBatch c(other);
    apply_q(a.get(), t, c.get(), transpose);
    c.finish();
  } else {  // C Q = (Q^H C^H)^H
    const Batch c(other);
    const Tensor turned = c.get().transpose(1, 2).conj().resolve_conj().mT().contiguous().mT();
    apply_q(a.get(), t, turned, !transpose);
    other.copy_(turned.mH().view(other.sizes()));
  }
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace at::native;
  m.impl("geqrf", &at::native::geqrf);
  m.impl("geqrf.a", &at::native::geqrf_out);
  structured<structured_linalg_qr_out>(m, "linalg_qr", nullptr, "linalg_qr.out");
  m.impl("linalg_householder_product", &at::native::linalg_householder_product);
  m.impl("linalg_householder_product.out", &at::native::linalg_householder_product_out);
  m.impl("ormqr", &at::native::ormqr);
  m.impl("ormqr.out", &at::native::ormqr_out);
}

}  // namespace

void qr_factor(const Tensor& a, const Tensor& tau) {
  const int64_t m = a.size(1), n = a.size(2), k = std::min(m, n);
  if (host_is_faster(a, m * n)) {
    return on_host("aten::geqrf", 2, std::array{a, tau}, [](auto& t) { at::geqrf_out(t[0], t[1], t[0]); });
  }
  if (is_small(m, n, k)) return factor_panel(a, tau);
  for (int64_t at = 0; at < k; at += kPanel) {
    const int64_t size = std::min(kPanel, k - at), rest = at + size;
    factor_panel(block(a, at, m - at, at, size), tau.narrow(1, at, size));
    if (rest < n) panel_of(a, tau, at).apply(block(a, at, m - at, rest, n - rest), true);
  }
}

void form_q(const Tensor& a, const Tensor& tau) {
  const int64_t m = a.size(1), n = a.size(2), k = tau.size(1);
  if (host_is_faster(a, m * n)) {
    return on_host("aten::linalg_householder_product", 1, std::array{a, tau},
                   [](auto& t) { at::linalg_householder_product_out(t[0], t[0], t[1]); });
  }
  if (is_small(m, n, k)) {
    column_kernel(a, kHouseholderFile, "form_q")
        .launch("aten::linalg_householder_product", queue_of(a), {count(a.size(0)) * group_items(a)}, {group_items(a)},
                buf(a), a.stride(0), a.stride(2), buf(tau), tau.stride(0), m, n, k);
    return;
  }
  const Tensor reflectors = a.narrow(2, 0, k).clone();
  a.zero_();
  a.diagonal(0, 1, 2).fill_(1);
  for (int64_t at = (k - 1) / kPanel * kPanel; at >= 0; at -= kPanel) {
    panel_of(reflectors, tau, at).apply(block(a, at, m - at, at, n - at), false);
  }
}

void apply_q(const Tensor& reflectors, const Tensor& tau, const Tensor& c, bool adjoint) {
  const int64_t m = c.size(1), n = c.size(2), k = tau.size(1);
  if (host_is_faster(c, m * k)) {
    return on_host("aten::ormqr", 1, std::array{c, reflectors, tau},
                   [&](auto& t) { at::ormqr_out(t[0], t[1], t[2], t[0], true, adjoint); });
  }
  if (is_small(m, n, k)) {
    column_kernel(c, kHouseholderFile, "apply_q")
        .launch("aten::ormqr", queue_of(c), {count(ceil_div(n, teams_of(c))) * group_items(c), count(c.size(0))},
                {group_items(c)}, buf(reflectors), reflectors.stride(0), reflectors.stride(2), buf(tau), tau.stride(0),
                buf(c), c.stride(0), c.stride(2), m, n, k, int32_t(adjoint));
    return;
  }
  const int64_t last = (k - 1) / kPanel * kPanel;
  for (int64_t s = 0; s <= last; s += kPanel) {
    const int64_t at = adjoint ? s : last - s;
    panel_of(reflectors, tau, at).apply(c.narrow(1, at, m - at), adjoint);
  }
}

}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(geqrf_stub, &netcl::geqrf_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(orgqr_stub, &netcl::orgqr_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(ormqr_stub, &netcl::ormqr_kernel)
}  // namespace at::native
