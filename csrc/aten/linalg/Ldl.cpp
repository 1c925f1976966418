// ldl_factor and ldl_solve: A = L D L^T or L D L^H with the pivots of Bunch and Kaufman, as LAPACK's sytf2 and hetf2
// choose them.
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/ops/linalg_ldl_factor_ex_native.h>
#include <ATen/ops/linalg_ldl_solve_native.h>

#include "aten/linalg/Matrices.h"
#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Structured.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

using at::Tensor;

constexpr const char* kLdlFile = "linalg/ldl.cl";

void ldl_factor_kernel(const Tensor& input, const Tensor& pivots, const Tensor& info, bool upper, bool hermitian) {
  TORCH_CHECK_NOT_IMPLEMENTED(!upper, "linalg_ldl_factor: netcl has no kernel for the upper triangle");
  info.zero_();
  if (input.numel() == 0) return;
  const ColumnBatch whole(input);
  const Tensor& a = whole.get();
  const Tensor chosen = pivots.view({-1, a.size(1)}).contiguous();
  column_kernel(a, kLdlFile, "ldl_factor")
      .launch("aten::linalg_ldl_factor_ex", queue_of(a), {count(a.size(0)) * group_items(a)}, {group_items(a)}, buf(a),
              a.strides(), buf(chosen), buf(info), LdlParams{a.size(1), hermitian, 0, 0});
  whole.finish();
  if (!chosen.is_alias_of(pivots)) pivots.copy_(chosen.view(pivots.sizes()));
}

void ldl_solve_kernel(const Tensor& ld, const Tensor& pivots, const Tensor& b, bool upper, bool hermitian) {
  TORCH_CHECK_NOT_IMPLEMENTED(!upper, "linalg_ldl_solve: netcl has no kernel for the upper triangle");
  if (b.numel() == 0) return;
  const Batch x(b);
  const Tensor factor = batch_like(ld, b), rows = batch_like(pivots.unsqueeze(-1), b).squeeze(-1).contiguous();
  Device& device = netcl::device_of(b);
  const int64_t n = x.get().size(1), columns = x.get().size(2);
  column_kernel(b, kLdlFile, "ldl_solve")
      .launch("aten::linalg_ldl_solve", queue_of(b), {count(columns), count(x.get().size(0))}, element_group(device),
              buf(factor), factor.strides(), buf(rows), rows.stride(0), buf(x.get()), x.get().strides(),
              Buf{assert_buffer(device)},
              LdlParams{n, hermitian, columns,
                        assert_message_code(device, "pivots passed to ldl_solve must be rows of LD")});
  x.finish();
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace at::native;
  structured<structured_linalg_ldl_factor_ex_out>(m, "linalg_ldl_factor_ex", nullptr, "linalg_ldl_factor_ex.out");
  structured<structured_linalg_ldl_solve_out>(m, "linalg_ldl_solve", nullptr, "linalg_ldl_solve.out");
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(ldl_factor_stub, &netcl::ldl_factor_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(ldl_solve_stub, &netcl::ldl_solve_kernel)
}  // namespace at::native
