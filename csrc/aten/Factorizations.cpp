// Cholesky and LU factorisations, solvers that use them, and triangular solves. kernels/linalg.cl (on GPUs
// kernels/linalg_gpu.cl) factors blocks of kBlock columns, and matrix products update the rest. ATen's shared functions
// call the stubs below.
#include <ATen/TensorOperators.h>
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TransposeType.h>
#include <ATen/ops/_linalg_det_native.h>
#include <ATen/ops/_linalg_slogdet_native.h>
#include <ATen/ops/_linalg_solve_ex_native.h>
#include <ATen/ops/cholesky_inverse_native.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/linalg_cholesky_ex_native.h>
#include <ATen/ops/linalg_inv_ex_native.h>
#include <ATen/ops/linalg_lu_factor_ex.h>
#include <ATen/ops/linalg_lu_factor_ex_native.h>
#include <ATen/ops/linalg_lu_native.h>
#include <ATen/ops/linalg_lu_solve.h>
#include <ATen/ops/linalg_lu_solve_native.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/lu_unpack_native.h>
#include <ATen/ops/triangular_solve_native.h>

#include <bit>

#include "args/linalg.h"
#include "aten/linalg/Matrices.h"
#include "aten/support/Library.h"
#include "aten/support/Structured.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

using at::Tensor;
using at::native::TransposeType;

constexpr int64_t kBlock = 32;
constexpr size_t kGroup = 32;

Kernel& linalg_kernel(const char* file, const Tensor& t, const char* name, Defs defs) {
  const c10::ScalarType type = t.scalar_type();
  Device& device = netcl::device_of(t);
  const bool exchanges = std::string_view(name) == "exchange_rows";
  check_matrix_dtype(device, type, name, exchanges);
  return kernel(device, file, name, defs);
}
Kernel& linalg_kernel(const Tensor& t, const char* name) {
  return linalg_kernel("linalg.cl", t, name, matrix_defs(t.scalar_type()).set("BLOCK", kBlock));
}

bool on_cpu(const Tensor& t) { return netcl::device_of(t).is_cpu(); }

// A kernel of kernels/linalg_gpu.cl and its work-groups: for blocks of up to `side` rows and columns, or, if that is 0,
// for panels.
struct GroupKernel {
  GroupKernel(const Tensor& t, const char* name, int64_t rows, bool panel = false) {
    const Device& device = netcl::device_of(t);
    const auto most = std::bit_floor(device.info().max_work_group_size);
    side = std::max<int64_t>(8, std::bit_ceil(count(std::min(rows, kBlock))));
    group = std::min(most, panel ? std::clamp<size_t>(std::bit_ceil(count(rows)), 64, 256) : size_t{128});
    Defs defs = matrix_defs(t.scalar_type());
    defs.set("GROUP", int64_t(group));
    if (!panel) defs.set("SIDE", side);
    found = &linalg_kernel("linalg_gpu.cl", t, name, defs);
  }
  // A work-group holds so many blocks, or a column of B for each `side` of its work-items.
  int64_t blocks() const { return 1024 / (side * side); }
  int64_t columns() const { return int64_t(group) / side; }
  template <class... Args>
  void launch(const char* op, const Tensor& t, int64_t groups, const Args&... args) const {
    found->launch(op, queue_of(t), {count(groups) * group}, {group}, args...);
  }

 private:
  Kernel* found;
  int64_t side;
  size_t group;
};

// Solves A X = B in place of B. Only one triangle of A is read; its diagonal counts as 1 if `unit`.
void solve(const char* op, const Tensor& a, const Tensor& b, bool upper, bool unit) {
  const int64_t n = a.size(1), columns = b.size(2);
  if (b.numel() == 0) return;
  for (int64_t done = 0; done < n; done += kBlock) {
    const int64_t size = std::min(kBlock, n - done), at = upper ? n - done - size : done;
    const Tensor diagonal = block(a, at, size, at, size), x = b.narrow(1, at, size);
    if (on_cpu(b)) {
      linalg_kernel(b, "solve_block")
          .launch(op, queue_of(b), {count(columns), count(b.size(0))}, {1}, buf(diagonal), diagonal.strides(), buf(x),
                  x.strides(), size, columns, int32_t(upper), int32_t(unit));
    } else {
      const GroupKernel solve_block(b, "solve_block", size);
      solve_block.launch(op, b, ceil_div(columns * b.size(0), solve_block.columns()), buf(diagonal), diagonal.strides(),
                         buf(x), x.strides(), b.size(0), int32_t(size), columns, int32_t(upper), int32_t(unit));
    }
    const int64_t rest = upper ? 0 : at + size, rows = n - done - size;
    if (rows > 0) b.narrow(1, rest, rows).baddbmm_(block(a, rest, rows, at, size), x, 1, -1);
  }
}

// If a pivot is not a row, `message` is raised at the next synchronising call; pivots computed here need no message.
void exchange_rows(const char* op, const Tensor& a, const Tensor& pivots, int64_t begin, int64_t end, bool down,
                   const char* message = nullptr) {
  if (a.numel() == 0) return;
  Device& device = netcl::device_of(a);
  linalg_kernel(a, "exchange_rows")
      .launch(
          op, queue_of(a), {count(a.size(2)), count(a.size(0))}, {kGroup}, buf(a), a.strides(), buf(pivots),
          pivots.stride(0), Buf{message ? assert_buffer(device) : nullptr},
          ExchangeParams{begin, end, a.size(1), a.size(2), down, message ? assert_message_code(device, message) : 0});
}

void triangular_solve_kernel(const Tensor& a, const Tensor& b, bool left, bool upper, TransposeType transpose,
                             bool unit) {
  const bool turned = transpose != TransposeType::NoTranspose, flip = turned != !left;
  if (b.numel() > 0 && host_is_faster(b, a.size(-1) * a.size(-1), &Tuning::host_factor)) {
    return on_host("aten::triangular_solve", 1, std::array{b, a}, [&](auto& t) {
      const Tensor factor = transpose == TransposeType::ConjTranspose ? t[1].mH() : turned ? t[1].mT() : t[1];
      at::linalg_solve_triangular_out(t[0], factor, t[0], upper != turned, left, unit);
    });
  }
  const Batch x(b);
  Tensor factor = batch_like(a, b);
  if (transpose == TransposeType::ConjTranspose) factor = factor.conj().resolve_conj();
  // X A = B is A^T X^T = B^T.
  if (flip) factor = factor.mT();
  solve("aten::triangular_solve", factor, left ? x.get() : x.get().mT(), upper != flip, unit);
  x.finish();
}

void cholesky_kernel(const Tensor& input, const Tensor& info, bool upper) {
  if (host_is_faster(input, input.size(-1) * input.size(-1), &Tuning::host_factor)) {
    return on_host("aten::linalg_cholesky_ex", 2, std::array{input, info},
                   [&](auto& t) { at::linalg_cholesky_ex_out(t[0], t[1], t[0], upper); });
  }
  info.zero_();
  const Batch whole(input);
  // The upper triangle of a Hermitian A is the lower triangle of A^T = conj(A); if A's factor is U^H, that of A^T is
  // U^T.
  const Tensor a = upper ? whole.get().mT() : whole.get();
  const int64_t n = a.size(1);
  if (a.numel() == 0) return;
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t size = std::min(kBlock, n - at), rest = at + size, rows = n - rest;
    const Tensor diagonal = block(a, at, size, at, size);
    if (on_cpu(a)) {
      linalg_kernel(a, "cholesky_block")
          .launch("aten::cholesky", queue_of(a), {count(a.size(0))}, {1}, buf(diagonal), diagonal.strides(), buf(info),
                  a.size(0), size, at);
    } else {
      const GroupKernel factor(a, "cholesky_block", size);
      factor.launch("aten::cholesky", a, ceil_div(a.size(0), factor.blocks()), buf(diagonal), diagonal.strides(),
                    buf(info), a.size(0), int32_t(size), int32_t(at));
    }
    if (rows == 0) break;
    const Tensor panel = block(a, rest, rows, at, size);
    // panel L^H = A is solved as conj(L) panel^T = A^T.
    solve("aten::cholesky", diagonal.conj().resolve_conj(), panel.mT(), false, false);
    block(a, rest, rows, rest, rows).baddbmm_(panel, panel.mH(), 1, -1);
  }
  a.tril_();  // the products also wrote above the diagonal
  whole.finish();
}

// P A = L U of the columns `panel`, whose first row is row `at` of the matrix.
void factor_panel(const Tensor& panel, const Tensor& pivots, const Tensor& info, int64_t at, bool exchange) {
  constexpr const char* op = "aten::linalg_lu_factor";
  const PanelParams p{panel.size(0), panel.size(1), panel.size(2), at, exchange};
  if (on_cpu(panel)) {
    linalg_kernel(panel, "lu_panel")
        .launch(op, queue_of(panel), {count(p.batches)}, {1}, buf(panel), panel.strides(), buf(pivots),
                pivots.stride(0), buf(info), p);
    return;
  }
  const bool one_block = p.rows <= kBlock;
  const GroupKernel factor(panel, one_block ? "lu_block" : "lu_panel", std::max(p.rows, p.columns), !one_block);
  factor.launch(op, panel, one_block ? ceil_div(p.batches, factor.blocks()) : p.batches, buf(panel), panel.strides(),
                buf(pivots), pivots.stride(0), buf(info), p);
}

void lu_factor_kernel(const Tensor& input, const Tensor& pivots, const Tensor& info, bool exchange) {
  if (exchange && host_is_faster(input, input.size(-2) * input.size(-1), &Tuning::host_factor)) {
    return on_host("aten::linalg_lu_factor_ex", 3, std::array{input, pivots, info},
                   [](auto& t) { at::linalg_lu_factor_ex_out(t[0], t[1], t[2], t[0]); });
  }
  info.zero_();
  if (input.numel() == 0) return;
  const Batch whole(input);
  const Tensor& a = whole.get();
  const Tensor rows_of = pivots.view({a.size(0), -1});
  const int64_t m = a.size(1), n = a.size(2);
  for (int64_t at = 0; at < std::min(m, n); at += kBlock) {
    const int64_t size = std::min(kBlock, std::min(m, n) - at), rest = at + size;
    const Tensor panel = block(a, at, m - at, at, size), chosen = rows_of.narrow(1, at, size);
    factor_panel(panel, chosen, info, at, exchange);
    if (exchange) {
      exchange_rows("aten::linalg_lu_factor", a.narrow(2, 0, at), rows_of, at, rest, false);
      exchange_rows("aten::linalg_lu_factor", a.narrow(2, rest, n - rest), rows_of, at, rest, false);
    }
    if (rest == n) break;
    const Tensor right = block(a, at, size, rest, n - rest);
    solve("aten::linalg_lu_factor", block(a, at, size, at, size), right, false, true);
    if (rest < m) {
      block(a, rest, m - rest, rest, n - rest).baddbmm_(block(a, rest, m - rest, at, size), right, 1, -1);
    }
  }
  whole.finish();
}

void lu_solve_kernel(const Tensor& lu, const Tensor& pivots, const Tensor& b, TransposeType transpose) {
  const char* op = "aten::linalg_lu_solve";
  constexpr const char* kPivots = "pivots passed to lu_solve must be between 1 and LU.size(-2) inclusive";
  const bool straight = transpose == TransposeType::NoTranspose, adjoint = transpose == TransposeType::ConjTranspose;
  if ((straight || adjoint || !b.is_complex()) && b.numel() > 0 &&
      host_is_faster(b, lu.size(-1) * lu.size(-1), &Tuning::host_factor)) {
    return on_host(op, 1, std::array{b, lu, pivots},
                   [&](auto& t) { at::linalg_lu_solve_out(t[0], t[1], t[2], t[0], true, !straight); });
  }
  const Batch x(b);
  Tensor factor = batch_like(lu, b);
  const Tensor rows = batch_like(pivots.unsqueeze(-1), b).squeeze(-1).contiguous();
  if (transpose == TransposeType::NoTranspose) {
    exchange_rows(op, x.get(), rows, 0, rows.size(1), false, kPivots);
    solve(op, factor, x.get(), false, true);
    solve(op, factor, x.get(), true, false);
  } else {
    if (adjoint) factor = factor.conj().resolve_conj();
    solve(op, factor.mT(), x.get(), false, false);
    solve(op, factor.mT(), x.get(), true, true);
    exchange_rows(op, x.get(), rows, 0, rows.size(1), true, kPivots);
  }
  x.finish();
}

// `iter` holds permutations of `size` rows; applies the exchanges of `exchanges` pivots to them.
void unpack_pivots_kernel(at::TensorIterator& iter, int64_t exchanges, int64_t size) {
  const Tensor permutation = iter.tensor(0), pivots = iter.tensor(1);
  if (permutation.numel() == 0 || exchanges == 0) return;
  TORCH_CHECK(pivots.numel() == permutation.numel() / size * exchanges, "lu_unpack: expected ", exchanges,
              " pivots per matrix, got pivots of size ", pivots.sizes());
  exchange_rows("aten::lu_unpack", permutation.view({-1, size, 1}), pivots.view({-1, exchanges}), 0, exchanges, false,
                "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive");
}

// B = (A A^H)^-1 B, or (A^H A)^-1 B if A is upper, by two triangular solves in place of B.
void cholesky_solve_inplace(const Tensor& b, const Tensor& factor, bool upper) {
  const auto turned = TransposeType::ConjTranspose, straight = TransposeType::NoTranspose;
  triangular_solve_kernel(factor, b, true, upper, upper ? turned : straight, false);
  triangular_solve_kernel(factor, b, true, upper, upper ? straight : turned, false);
}
Tensor cholesky_solve_helper(const Tensor& self, const Tensor& factor, bool upper) {
  Tensor x = at::native::cloneBatchedColumnMajor(self);
  cholesky_solve_inplace(x, factor, upper);
  return x;
}
Tensor& cholesky_inverse_kernel(Tensor& result, Tensor& info, bool upper) {
  info.zero_();
  const Tensor factor = result.clone();
  result.zero_().diagonal(0, -2, -1).fill_(1);
  cholesky_solve_inplace(result, factor, upper);
  return result;
}

Tensor solve_triangular(const Tensor& self, const Tensor& b, bool upper, bool left, bool unit) {
  at::native::checkInputsSolver(self, b, left, "linalg.solve_triangular");
  const auto [wide_b, wide_a] = at::native::_linalg_broadcast_batch_dims(b, self, nullptr);
  Tensor x = at::native::cloneBatchedColumnMajor(wide_b);
  triangular_solve_kernel(wide_a, x, left, upper, TransposeType::NoTranspose, unit);
  return x;
}
Tensor& solve_triangular_out(const Tensor& self, const Tensor& b, bool upper, bool left, bool unit, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "linalg.solve_triangular: expected out to have dtype ",
              self.scalar_type(), ", but got ", out.scalar_type());
  const Tensor x = solve_triangular(self, b, upper, left, unit);
  at::native::resize_output(out, x.sizes());
  return out.copy_(x);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace at::native;
  structured<structured_linalg_cholesky_ex_out>(m, "linalg_cholesky_ex", nullptr, "linalg_cholesky_ex.L");
  structured<structured_linalg_lu_factor_ex_out>(m, "linalg_lu_factor_ex", nullptr, "linalg_lu_factor_ex.out");
  structured<structured_linalg_lu_out>(m, "linalg_lu", nullptr, "linalg_lu.out");
  structured<structured_linalg_lu_solve_out>(m, "linalg_lu_solve", nullptr, "linalg_lu_solve.out");
  structured<structured_lu_unpack_out>(m, "lu_unpack", nullptr, "lu_unpack.out");
  structured<structured__linalg_solve_ex_out>(m, "_linalg_solve_ex", nullptr, "_linalg_solve_ex.result");
  structured<structured_linalg_inv_ex_out>(m, "linalg_inv_ex", nullptr, "linalg_inv_ex.inverse");
  structured<structured__linalg_det_out>(m, "_linalg_det", nullptr, "_linalg_det.result");
  structured<structured__linalg_slogdet_out>(m, "_linalg_slogdet", nullptr, "_linalg_slogdet.sign");
  structured<structured_triangular_solve_out>(m, "triangular_solve", nullptr, "triangular_solve.X");
  m.impl("linalg_solve_triangular", &solve_triangular);
  m.impl("linalg_solve_triangular.out", &solve_triangular_out);
  NETCL_IMPL_CHOLESKY(m)
  m.impl("cholesky_inverse", &at::native::cholesky_inverse);
  m.impl("cholesky_inverse.out", &at::native::cholesky_inverse_out);
  m.impl("_cholesky_solve_helper", &cholesky_solve_helper);
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(cholesky_stub, &netcl::cholesky_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(cholesky_inverse_stub, &netcl::cholesky_inverse_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(lu_factor_stub, &netcl::lu_factor_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(lu_solve_stub, &netcl::lu_solve_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(triangular_solve_stub, &netcl::triangular_solve_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(unpack_pivots_stub, &netcl::unpack_pivots_kernel)
}  // namespace at::native
