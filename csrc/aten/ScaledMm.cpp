// Products of float8 matrices: _scaled_mm and _scaled_mm_v2 with one scale a tensor, one a row or one a block of 128
// elements. bfloat16 holds every float8 number, so the operands are converted to it and ordinary kernels follow; the
// sums stay in float32 until they are scaled. With blocks, the operands are scaled, in float32.
#include <ATen/BlasBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include "aten/TorchCompat.h"
#include "aten/gemm/Gemm.h"
#include "aten/support/Library.h"

namespace netcl {
namespace {

using at::IntArrayRef;
using at::Tensor;
using at::blas::ScalingType;
using OptTensor = const std::optional<Tensor>&;
using OptType = std::optional<c10::ScalarType>;

// Whether there is one scale, or one for each of `count` rows (dimension 0) or columns (1).
bool scales_rows(const Tensor& scale, int64_t dim, int64_t count) {
  return scale.numel() == 1 || (scale.dim() == 2 && scale.size(dim) == count && scale.size(1 - dim) == 1);
}
// Such scales in a shape that broadcasts over the product.
Tensor broadcast_scale(const Tensor& scale, int64_t dim, int64_t count, const char* name) {
  TORCH_CHECK(scale.scalar_type() == at::kFloat, "_scaled_mm: ", name, " must be float32, got ", scale.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(scales_rows(scale, dim, count), "_scaled_mm: netcl takes one ", name,
                              " for the tensor, one for each ", dim == 0 ? "row" : "column", " (", count,
                              "), or one for each block of 128 elements or 128 x 128, got ", scale.sizes());
  return scale.numel() == 1 ? scale.reshape({1, 1}) : scale;
}

constexpr int64_t kScaleBlock = 128;

// Whether there is a scale for each 128 columns of `x`, in each row or for each 128 rows.
bool scales_blocks(const Tensor& x, const Tensor& scale) {
  return scale.dim() == 2 && scale.size(1) == ceil_div(x.size(1), kScaleBlock) &&
         (scale.size(0) == x.size(0) || scale.size(0) == ceil_div(x.size(0), kScaleBlock));
}
Tensor scale_blocks(const Tensor& x, const Tensor& scale) {
  TORCH_CHECK(scale.scalar_type() == at::kFloat, "_scaled_mm: scales of blocks must be float32");
  const Tensor rows = scale.size(0) == x.size(0) ? scale : scale.repeat_interleave(kScaleBlock, 0);
  return x.to(at::kFloat) * rows.repeat_interleave(kScaleBlock, 1).slice(0, 0, x.size(0)).slice(1, 0, x.size(1));
}

void check(const Tensor& a, const Tensor& b, OptTensor bias) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2, "_scaled_mm: expected matrices, got ", a.dim(), " and ", b.dim(),
              " dimensions");
  TORCH_CHECK(a.size(1) == b.size(0), "_scaled_mm: mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x",
              a.size(1), " and ", b.size(0), "x", b.size(1), ")");
  TORCH_CHECK(c10::isFloat8Type(a.scalar_type()) && c10::isFloat8Type(b.scalar_type()),
              "_scaled_mm: expected float8 matrices, got ", a.scalar_type(), " and ", b.scalar_type());
  if (bias) {
    TORCH_CHECK(bias->dim() == 1 && bias->size(0) == b.size(1), "_scaled_mm: expected a bias of ", b.size(1),
                " elements, got ", bias->sizes());
  }
}

Tensor& scaled_mm_out(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b, OptTensor bias,
                      OptTensor scale_result, OptType out_dtype, bool /*use_fast_accum*/, Tensor& out) {
  check(a, b, bias);
  TORCH_CHECK(!out_dtype || *out_dtype == out.scalar_type(), "_scaled_mm: out_dtype must match output matrix type");
  const int64_t m = a.size(0), n = b.size(1), k = a.size(1);
  const bool blocks = scale_b.dim() == 2 && scales_blocks(a, scale_a) && scales_blocks(b.t(), scale_b.t()) &&
                      !(scales_rows(scale_a, 0, m) && scales_rows(scale_b, 1, n));
  Tensor rows, columns;
  if (!blocks) {
    rows = broadcast_scale(scale_a, 0, m, "scale_a");
    columns = broadcast_scale(scale_b, 1, n, "scale_b");
  }
  at::native::resize_output(out, {m, n});
  if (m * n == 0) return out;
  const Tensor x = blocks ? scale_blocks(a, scale_a) : a.to(at::kBFloat16),
               w = blocks ? scale_blocks(b.t(), scale_b.t()).t() : b.to(at::kBFloat16),
               sums = at::empty({m, n}, a.options().dtype(at::kFloat));
  GemmArgs args;
  args.m = m;
  args.n = n;
  args.k = k;
  args.a = gemm_matrix(x);
  args.b = gemm_matrix(w);
  args.c = gemm_matrix(sums);
  args.may_round_float = false;
  gemm("aten::_scaled_mm", queue_of(a), args);
  if (!blocks) sums.mul_(rows).mul_(columns);
  if (bias) sums.add_(*bias);
  if (scale_result && c10::isFloat8Type(out.scalar_type())) sums.mul_(*scale_result);
  return out.copy_(sums);
}

Tensor scaled_mm(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b, OptTensor bias,
                 OptTensor scale_result, OptType out_dtype, bool fast) {
  Tensor out = at::empty({0}, a.options().dtype(out_dtype.value_or(a.scalar_type())));
  return scaled_mm_out(a, b, scale_a, scale_b, bias, scale_result, out_dtype, fast, out);
}

struct Recipe {
  const at::ITensorListRef& scales;
  IntArrayRef kinds, swizzles;

  // The scale as (rows, columns); `k` is the length of a row.
  Tensor scale(const char* name, int64_t k) const {
    const auto is = [&](ScalingType kind) { return kinds.size() == 1 && kinds[0] == static_cast<int64_t>(kind); };
    const bool blocks = is(ScalingType::BlockWise1x128), squares = is(ScalingType::BlockWise128x128);
    const bool plain = swizzles.empty() || (swizzles.size() == 1 && swizzles[0] == 0);
    TORCH_CHECK_NOT_IMPLEMENTED(
        scales.size() == 1 && plain && (is(ScalingType::TensorWise) || is(ScalingType::RowWise) || blocks || squares),
        "_scaled_mm_v2: netcl takes one scale for ", name,
        ", tensor-wise, row-wise or of blocks of 1x128 or 128x128, not swizzled");
    // Those of 128 x 128 have a column for 128 rows, filled up to a multiple of four elements.
    return squares ? scales.front().slice(0, 0, ceil_div(k, kScaleBlock)).t() : scales.front();
  }
};

Tensor& scaled_mm_v2_out(const Tensor& a, const Tensor& b, ScaleList scale_a, IntArrayRef recipe_a,
                         IntArrayRef swizzle_a, ScaleList scale_b, IntArrayRef recipe_b, IntArrayRef swizzle_b,
                         OptTensor bias, OptType out_dtype, IntArrayRef /*contraction_dim*/, bool fast, Tensor& out) {
  check(a, b, bias);
  const Tensor of_a = Recipe{scale_a, recipe_a, swizzle_a}.scale("a", a.size(1));
  Tensor of_b = Recipe{scale_b, recipe_b, swizzle_b}.scale("b", a.size(1));
  // A scale for each column may also have the shape of rows; those of blocks have one row for each column of b.
  const bool by_row = recipe_b[0] == static_cast<int64_t>(ScalingType::RowWise);
  if (of_b.numel() > 1) of_b = by_row ? of_b.reshape({1, -1}) : of_b.t();
  return scaled_mm_out(a, b, of_a, of_b, bias, std::nullopt, out_dtype, fast, out);
}

Tensor scaled_mm_v2(const Tensor& a, const Tensor& b, ScaleList scale_a, IntArrayRef recipe_a, IntArrayRef swizzle_a,
                    ScaleList scale_b, IntArrayRef recipe_b, IntArrayRef swizzle_b, OptTensor bias, OptType out_dtype,
                    IntArrayRef contraction_dim, bool fast) {
  Tensor out = at::empty({0}, a.options().dtype(out_dtype.value_or(a.scalar_type())));
  return scaled_mm_v2_out(a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias, out_dtype,
                          contraction_dim, fast, out);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_mm", &scaled_mm);
  m.impl("_scaled_mm.out", &scaled_mm_out);
  m.impl("_scaled_mm_v2", &scaled_mm_v2);
  m.impl("_scaled_mm_v2.out", &scaled_mm_v2_out);
}

}  // namespace
}  // namespace netcl
