// Singular values and the eigenvalues of Hermitian matrices, by the one-sided Jacobi method (kernels/linalg/jacobi.cl).
// One kernel does all of a small matrix; for a large one a launch rotates the columns of blocks in pairs. On CPU
// devices LAPACK, whose work is mostly matrix products, is faster for a large matrix, so it takes them.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/_linalg_eigh.h>
#include <ATen/ops/_linalg_eigh_native.h>
#include <ATen/ops/_linalg_svd.h>
#include <ATen/ops/_linalg_svd_native.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "args/linalg.h"
#include "aten/linalg/Householder.h"
#include "aten/linalg/Matrices.h"
#include "aten/support/Library.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::Tensor;

constexpr const char* kJacobiFile = "linalg/jacobi.cl";
constexpr int64_t kSweeps = 20;  // 10 are typical

// Whether one work-group takes all columns of a matrix.
bool takes_whole(const Tensor& a, int64_t columns) { return columns <= tuning(netcl::device_of(a)).whole_columns; }

// A = L S R^H for matrices of at least as many rows as columns. `conjugate` has the bits of svd_small.
struct Svd {
  Tensor a, l, s, r, info;
  int conjugate;
  bool vectors;
};

// Room for a matrix of `rows` x `columns` with contiguous columns.
Tensor column_major(const Tensor& like, int64_t batches, int64_t rows, int64_t columns) {
  return at::empty({batches, columns, rows}, like.options()).mT();
}

void svd_small(const Svd& j) {
  const int64_t batches = j.a.size(0), rows = j.a.size(1), columns = j.a.size(2);
  const Tensor work = column_major(j.a, batches, rows, columns);
  const Tensor right = column_major(j.a, j.vectors ? batches : 0, columns, columns);
  const Tensor values = at::empty({batches, columns}, j.s.options());
  const Tensor order = at::empty({batches, columns}, j.s.options().dtype(at::kInt));
  const Tensor &l = j.vectors ? j.l : work, &r = j.vectors ? j.r : work;
  column_kernel(j.a, kJacobiFile, "svd_small")
      .launch("aten::_linalg_svd", queue_of(j.a), {count(batches) * group_items(j.a)}, {group_items(j.a)}, buf(j.a),
              j.a.strides(), buf(l), l.strides(), buf(r), r.strides(), buf(j.s), buf(j.info), buf(work), buf(right),
              buf(values), buf(order), JacobiParams{rows, columns, j.conjugate, 0, j.vectors});
}

// Rotates the columns of `work` until they are orthogonal, and those of `right` if it is defined. 1 in the result: they
// are not.
Tensor rotate_columns(const char* op, const Tensor& work, const Tensor& right) {
  const int64_t batches = work.size(0), columns = work.size(2), teams = 4;
  JacobiRoundParams p{};
  p.rows = work.size(1);
  p.columns = columns;
  p.block = std::max<int64_t>(4, ceil_div(columns, int64_t{64}));
  p.blocks = round_up(ceil_div(columns, p.block), int64_t{2});
  p.sweeps = kSweeps;
  const Tensor flags = at::zeros({batches, kSweeps}, work.options().dtype(at::kInt));
  Kernel& kernel = column_kernel(work, kJacobiFile, "jacobi_round", teams);
  for (p.sweep = 0; p.sweep < kSweeps; p.sweep++) {
    for (p.round = 0; p.round < p.blocks - 1; p.round++) {
      kernel.launch(op, queue_of(work), {count(p.blocks / 2) * group_items(work, teams), count(batches)},
                    {group_items(work, teams)}, buf(work), buf_or_null(right), buf(flags), p);
    }
  }
  return flags.select(1, kSweeps - 1);
}

// Numbers up to about 1 by a factor per matrix, which is returned, and info for NaN.
Tensor scale_work(const Tensor& work, const Tensor& info, int64_t code) {
  const Tensor most = at::linalg_vector_norm(work, INFINITY, {1, 2}, true);
  info.masked_fill_(most.isnan().view(info.sizes()), code);
  const Tensor scale = at::where(most > 0, most.clamp_min(std::numeric_limits<float>::min()), 1);
  work.div_(scale);
  return scale;
}

// Unit vectors in place of columns without length, which come last: those of Q in W = Q R.
Tensor complete_columns(const Tensor& unit, const Tensor& lengths) {
  const Tensor q = unit.mT().clone(at::MemoryFormat::Contiguous).mT();
  const Tensor tau = at::empty({unit.size(0), unit.size(2)}, unit.options());
  qr_factor(q, tau);
  form_q(q, tau);
  return at::where(lengths > 0, unit, q);
}

void svd_large(const Svd& j) {
  const int64_t batches = j.a.size(0), rows = j.a.size(1), columns = j.a.size(2);
  const Tensor work = column_major(j.a, batches, rows, columns);
  work.copy_(j.conjugate & 1 ? j.a.conj() : j.a);
  const Tensor scale = scale_work(work, j.info, -4);
  Tensor right;
  if (j.vectors) {
    right = column_major(j.a, batches, columns, columns);
    right.copy_(at::eye(columns, right.options()).expand(right.sizes()));
  }
  j.info.add_(rotate_columns("aten::_linalg_svd", work, right).view(j.info.sizes()));
  const Tensor lengths = at::linalg_vector_norm(work, 2, {1}, true);
  const auto [sorted, order] = lengths.sort(std::optional<bool>(true), 2, true);
  j.s.copy_((sorted * scale).squeeze(1));
  if (!j.vectors) return;
  const Tensor unit = (work.gather(2, order.expand(work.sizes())) / at::where(sorted > 0, sorted, 1));
  const Tensor left = complete_columns(unit, sorted), v = right.gather(2, order.expand(right.sizes()));
  j.l.copy_(j.conjugate & 2 ? left.conj() : left);
  j.r.copy_(j.conjugate & 4 ? v.conj() : v);
}

void svd_direct(const Svd& j) {
  if (takes_whole(j.a, j.a.size(2))) {
    svd_small(j);
  } else {
    svd_large(j);
  }
}

// The singular values of a tall matrix are those of R in A = Q R; L = Q [L of R, and zeros]. If L has as many columns
// as rows, the last ones are those of Q.
void svd_by_qr(const Svd& j) {
  const int64_t batches = j.a.size(0), rows = j.a.size(1), columns = j.a.size(2);
  const Tensor qr = column_major(j.a, batches, rows, columns);
  qr.copy_(j.conjugate & 1 ? j.a.conj() : j.a);
  const Tensor tau = at::empty({batches, columns}, j.a.options());
  qr_factor(qr, tau);
  Svd inner = j;
  inner.a = qr.narrow(1, 0, columns).triu();
  inner.conjugate = j.conjugate & 4;  // L is conjugated at the end
  if (!j.vectors) return svd_direct(inner);
  const Tensor left = column_major(j.a, batches, rows, j.l.size(2)).zero_();
  left.diagonal(0, 1, 2).fill_(1);
  inner.l = block(left, 0, columns, 0, columns);
  svd_direct(inner);
  apply_q(qr, tau, left, false);
  j.l.copy_(j.conjugate & 2 ? left.conj() : left);
}

void svd_kernel(const Tensor& a, bool full, bool vectors, const std::optional<std::string_view>&, const Tensor& u,
                const Tensor& s, const Tensor& vh, const Tensor& info) {
  const bool wide = a.size(-2) < a.size(-1);
  const int64_t rows = std::max(a.size(-2), a.size(-1)), columns = std::min(a.size(-2), a.size(-1));
  if (host_is_faster(a, columns * columns)) {
    return on_host("aten::_linalg_svd", vectors ? 3 : 1, std::array{s, vectors ? u : s, vectors ? vh : s, a},
                   [&](const auto& t) {
                     const auto [host_u, host_s, host_vh] = at::_linalg_svd(t[3], full, vectors);
                     t[0].copy_(host_s);
                     if (!vectors) return;
                     t[1].copy_(host_u);
                     t[2].copy_(host_vh);
                   });
  }
  const Batch matrices(a.resolve_conj());
  const Tensor values = s.view({-1, s.size(-1)}).contiguous();
  Svd j{wide ? matrices.get().mT() : matrices.get(), {}, values, {}, info, wide && a.is_complex(), vectors};
  // A^H = L S R^H has U = R and V^H = L^H. Conjugation is left to the kernel.
  if (!vectors) {
    (rows > 2 * columns && rows * columns > 64 * 64) ? svd_by_qr(j) : svd_direct(j);
  } else {
    const Batch left(wide ? vh.mT() : u), right(wide ? u : vh.mT());
    j.l = left.get();
    j.r = right.get();
    if (a.is_complex()) j.conjugate |= wide ? 2 : 4;
    const bool by_qr = j.l.size(2) > columns || (rows > 2 * columns && rows * columns > 64 * 64);
    by_qr ? svd_by_qr(j) : svd_direct(j);
    left.finish();
    right.finish();
  }
  if (!values.is_alias_of(s)) s.copy_(values.view(s.sizes()));
}

void eigh_small(const Tensor& a, const Tensor& values, const Tensor& info, bool upper, bool vectors) {
  const int64_t batches = a.size(0), n = a.size(2);
  const Tensor work = at::empty({batches, n, n}, a.options()), right = at::empty_like(work);
  const Tensor unsorted = at::empty_like(values), order = at::empty({batches, n}, values.options().dtype(at::kInt));
  column_kernel(a, kJacobiFile, "eigh_small")
      .launch("aten::_linalg_eigh", queue_of(a), {count(batches) * group_items(a)}, {group_items(a)}, buf(a),
              a.strides(), buf(values), buf(info), buf(work), buf(right), buf(unsorted), buf(order),
              JacobiParams{n, n, 0, upper, vectors});
}

void eigh_large(const Tensor& a, const Tensor& values, const Tensor& info, bool upper, bool vectors) {
  const int64_t batches = a.size(0), n = a.size(2);
  Tensor h = upper ? a.triu() : a.tril();
  h = h + (upper ? a.triu(1) : a.tril(-1)).mH();
  if (h.is_complex()) at::imag(h.diagonal(0, 1, 2)).zero_();
  const Tensor scale = scale_work(h, info, n - 1);
  const Tensor work = column_major(a, batches, n, n);
  work.copy_(h);
  work.diagonal(0, 1, 2).add_(1.5 * at::linalg_vector_norm(h, 2, {1, 2}).unsqueeze(1));
  info.add_(rotate_columns("aten::_linalg_eigh", work, {}).view(info.sizes()));
  const Tensor lengths = at::linalg_vector_norm(work, 2, {1}, true);
  const Tensor unit = at::where(lengths > 0, work / lengths, at::eye(n, work.options()));
  Tensor quotients = (unit.conj() * at::bmm(h, unit)).sum({1}, true);
  if (quotients.is_complex()) quotients = at::real(quotients);
  const auto [sorted, order] = quotients.sort(std::optional<bool>(true), 2, false);
  values.copy_((sorted * scale).squeeze(1));
  if (vectors) a.copy_(unit.gather(2, order.expand(unit.sizes())));
}

void eigh_kernel(const Tensor& values, const Tensor& vectors, const Tensor& info, bool upper, bool compute_vectors) {
  const int64_t n = vectors.size(-1);
  if (host_is_faster(vectors, n * n)) {
    return on_host("aten::_linalg_eigh", 2, std::array{vectors, values}, [&](const auto& t) {
      const auto [host_values, host_vectors] = at::_linalg_eigh(t[0], upper ? "U" : "L", compute_vectors);
      t[1].copy_(host_values);
      if (compute_vectors) t[0].copy_(host_vectors);
    });
  }
  const Batch a(vectors);
  const Tensor flat = values.view({-1, n}).contiguous();
  if (takes_whole(vectors, n)) {
    eigh_small(a.get(), flat, info, upper, compute_vectors);
  } else {
    eigh_large(a.get(), flat, info, upper, compute_vectors);
  }
  if (compute_vectors) a.finish();
  if (!flat.is_alias_of(values)) values.copy_(flat.view(values.sizes()));
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace at::native;
  structured<structured__linalg_svd_out>(m, "_linalg_svd", nullptr, "_linalg_svd.U");
  structured<structured__linalg_eigh_out>(m, "_linalg_eigh", nullptr, "_linalg_eigh.eigenvalues");
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(svd_stub, &netcl::svd_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(linalg_eigh_stub, &netcl::eigh_kernel)
}  // namespace at::native
