// Products with quantised weights: _int_mm, _weight_int8pack_mm, and int4 with the operators of CUDA, whose packed
// layout is the device's own.
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "args/quantized.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Rows.h"

namespace netcl {
namespace {

using at::Tensor;

// Beyond this many rows, a product computes more than it reads: the weight is converted, and ordinary kernels follow.
constexpr int64_t kFewRows = 16;

// One product of a few rows. Only an int4 weight has a `group`.
struct Dots {
  Device& dev;
  Defs defs;
  QuantizedParams p{};
  c10::ScalarType acc;
  bool panels;
  const char* int4;  // the kernel for an int4 weight

  Dots(const Tensor& x, int64_t n, int64_t group, c10::ScalarType out)
      : dev(netcl::device_of(x)), acc(out == at::kInt ? at::kInt : at::kFloat) {
    const bool cpu = dev.is_cpu(), wide = dev.info().native_floats >= 16;
    // A step of int4 is 8 vectors of one group.
    const int64_t most = wide ? 16 : 8, vec = cpu ? (group ? std::min(most, group / 8) : most) : 1;
    p.m = x.size(0);
    p.n = n;
    p.k = x.size(1);
    p.group = group;
    // As many sums as registers hold, beside the factors; those of int4 are kept twice.
    const int64_t rows = p.m == 1 ? 1 : p.m == 2 || (!wide && !group) ? 2 : 4;
    const int64_t cols = !cpu                 ? 1
                         : group && rows == 1 ? (wide ? 8 : 4)
                         : group || rows == 1 ? (rows == 4 ? 2 : 4)
                         : wide               ? 4
                                              : 2;
    p.per = cpu ? round_up(even_part(dev, n), cols) : cols;
    panels = cpu && (group || x.scalar_type() != acc);
    int4 = cpu ? "dots_int4" : "dots_int4_words";
    p.x_row = round_up<int64_t>(p.k + (group ? p.k / group : 0), 16);
    defs.set("IN", dtype_tag(x.scalar_type())).set("OUT", dtype_tag(out));
    defs.set("ACC", dtype_tag(acc)).set("VEC", vec).set("GROUP", int64_t(row_group(dev)));
    defs.set("ROWS", rows).set("COLS", cols);
  }
  template <class... Args>
  void run(const char* op, const char* name, const Tensor& out, const Args&... args) {
    const size_t groups = size_t(ceil_div(p.n, p.per)), local = row_group(dev);
    Kernel& k = kernel(dev, "quantized.cl", name, defs);
    const Tensor scratch = panels ? at::empty({int64_t(groups) * p.m * p.x_row}, out.options().dtype(acc)) : Tensor();
    k.launch(op, queue_of(out), {groups * local}, {local}, buf(out), args..., buf_or_null(scratch), p);
  }
  // Writes the weight's numbers in the dtype of `out`.
  void unpack(const char* op, const Tensor& out, const Tensor& weight, const Tensor& pairs) {
    const int64_t words = out.numel() / 8;
    p.per = tuning(dev).unpacked;
    kernel(dev, "quantized.cl", "int4_unpack", defs)
        .launch(op, queue_of(out), {size_t(ceil_div(words, p.per))}, element_group(dev), buf(out), buf(weight),
                buf(pairs), p);
  }
};

void check_int_mm(const Tensor& self, const Tensor& mat2) {
  TORCH_CHECK(self.dim() == 2, "Expected self to be of dimension 2 but got ", self.dim());
  TORCH_CHECK(mat2.dim() == 2, "Expected mat2 to be of dimension 2 but got ", mat2.dim());
  TORCH_CHECK(self.size(1) == mat2.size(0), "self.size(1) needs to match mat2.size(0) but got ", self.size(1), " and ",
              mat2.size(0));
  TORCH_CHECK(self.scalar_type() == at::kChar, "Expected self dtype to be of type int8 but got ", self.scalar_type());
  TORCH_CHECK(mat2.scalar_type() == at::kChar, "Expected mat2 dtype to be of type int8 but got ", mat2.scalar_type());
}

Tensor& int_mm_out(const Tensor& self, const Tensor& mat2, Tensor& result) {
  check_int_mm(self, mat2);
  const int64_t m = self.size(0), n = mat2.size(1), k = self.size(1);
  TORCH_CHECK(result.scalar_type() == at::kInt, "Expected result dtype to be of type kInt but got ",
              result.scalar_type());
  TORCH_CHECK(result.dim() == 2 && result.size(0) == m && result.size(1) == n, "Expected result of shape (", m, ", ", n,
              ") but got ", result.sizes());
  if (m * n == 0) return result;
  if (m > kFewRows || k == 0) return at::mm_out(result, self.to(at::kInt), mat2.to(at::kInt));
  const Tensor x = self.contiguous(), w = mat2.t().contiguous();
  const DenseOut dense(result);
  Dots dots(x, n, 0, at::kInt);
  dots.run("aten::_int_mm", "dots_int8", dense.get(), buf(x), buf(w), Buf{nullptr});
  dense.finish();
  return result;
}

Tensor int_mm(const Tensor& self, const Tensor& mat2) {
  check_int_mm(self, mat2);
  Tensor result = at::empty({self.size(0), mat2.size(1)}, self.options().dtype(at::kInt));
  return int_mm_out(self, mat2, result);
}

void check_rows(const Tensor& x, const char* op) {
  TORCH_CHECK(x.dim() == 2, op, ": expected A to be 2D tensor, got ", x.dim());
  const auto type = x.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kHalf || type == at::kBFloat16, op,
              ": expected A to be either 32-bit or 16-bit float tensor, got ", type);
}

Tensor weight_int8pack_mm(const Tensor& x_, const Tensor& weight, const Tensor& scales) {
  const char* op = "_weight_int8pack_mm";
  check_rows(x_, op);
  const int64_t m = x_.size(0), k = x_.size(1), n = weight.size(0);
  TORCH_CHECK(weight.dim() == 2 && weight.scalar_type() == at::kChar && weight.is_contiguous(), op,
              ": expected B to be a contiguous int8 tensor of 2 dimensions");
  TORCH_CHECK(weight.size(1) == k, op, ": expected B.size(1) == ", k, ", got ", weight.size(1));
  TORCH_CHECK(scales.dim() == 1 && scales.size(0) == n, op, ": expected scales to be 1d tensor with size ", n);
  TORCH_CHECK(scales.scalar_type() == x_.scalar_type(), op, ": expected scales of dtype ", x_.scalar_type(), ", got ",
              scales.scalar_type());
  if (m > kFewRows || m * n * k == 0) return at::mm(x_, weight.to(x_.scalar_type()).t()).mul_(scales);
  const Tensor x = x_.contiguous(), factors = scales.contiguous(), out = at::empty({m, n}, x_.options());
  Dots dots(x, n, 0, x.scalar_type());
  dots.run("aten::_weight_int8pack_mm", "dots_int8", out, buf(x), buf(weight), buf(factors));
  return out;
}

// The result's shape is CUDA's, which PyTorch's shape functions know; each row of the weight stays contiguous.
Tensor convert_weight_to_int4pack(const Tensor& weight_, int64_t inner_k_tiles) {
  const char* op = "_convert_weight_to_int4pack";
  TORCH_CHECK(weight_.dim() == 2 && weight_.scalar_type() == at::kByte, op,
              ": expected a uint8 weight of 2 dimensions, got ", weight_.scalar_type(), " of ", weight_.dim());
  TORCH_CHECK(inner_k_tiles == 2 || inner_k_tiles == 4 || inner_k_tiles == 8, op,
              ": expected innerKTiles of 2, 4 or 8, got ", inner_k_tiles);
  const int64_t n = weight_.size(0), k = weight_.size(1) * 2;
  TORCH_CHECK(n % 8 == 0 && k % (inner_k_tiles * 16) == 0, op, ": expected n % 8 == 0 and k % ", inner_k_tiles * 16,
              " == 0, got a weight of ", n, " x ", k);
  Device& dev = netcl::device_of(weight_);
  const Tensor weight = weight_.contiguous();
  const Tensor out =
      at::empty({n / 8, k / (inner_k_tiles * 16), 32, inner_k_tiles / 2}, weight.options().dtype(at::kInt));
  const int64_t words = out.numel(), per = tuning(dev).packed;
  if (words == 0) return out;
  Defs defs;
  defs.set("IN", "f32").set("OUT", "f32").set("ACC", "f32");
  defs.set("VEC", 1).set("GROUP", 1).set("ROWS", 1).set("COLS", 1);
  kernel(dev, "quantized.cl", "int4_pack", defs)
      .launch("aten::_convert_weight_to_int4pack", queue_of(weight), {size_t(ceil_div(words, per))}, element_group(dev),
              buf(out), buf(weight), words, per);
  return out;
}

Tensor weight_int4pack_mm(const Tensor& x_, const Tensor& weight_, int64_t group, const Tensor& scales_and_zeros) {
  const char* op = "_weight_int4pack_mm";
  check_rows(x_, op);
  TORCH_CHECK(weight_.dim() == 4 && weight_.scalar_type() == at::kInt, op,
              ": expected B to be an int32 tensor of 4 dimensions, of _convert_weight_to_int4pack");
  TORCH_CHECK(group == 32 || group == 64 || group == 128 || group == 256, op,
              ": expected qGroupSize to be 32, 64, 128 or 256, got ", group);
  const int64_t m = x_.size(0), k = x_.size(1), n = weight_.size(0) * 8;
  TORCH_CHECK(weight_.numel() * 8 == n * k, op, ": a weight of shape ", weight_.sizes(), " does not fit ", k,
              " columns of A");
  TORCH_CHECK(scales_and_zeros.dim() == 3 && k % group == 0 && scales_and_zeros.size(0) == k / group &&
                  scales_and_zeros.size(1) == n && scales_and_zeros.size(2) == 2,
              op, ": expected qScaleAndZeros of shape [", k / group, ", ", n, ", 2], got ", scales_and_zeros.sizes());
  TORCH_CHECK(scales_and_zeros.scalar_type() == x_.scalar_type(), op, ": expected qScaleAndZeros of dtype ",
              x_.scalar_type(), ", got ", scales_and_zeros.scalar_type());
  const Tensor weight = weight_.contiguous(), pairs = scales_and_zeros.contiguous();
  if (m * n * k == 0) return at::zeros({m, n}, x_.options());
  const char* name = "aten::_weight_int4pack_mm";
  const Tensor x = x_.contiguous();
  Dots dots(x, n, group, x.scalar_type());
  if (m <= kFewRows) {
    const Tensor out = at::empty({m, n}, x.options());
    dots.run(name, dots.int4, out, buf(x), buf(weight), buf(pairs));
    return out;
  }
  const Tensor numbers = at::empty({n, k}, x.options());
  dots.unpack(name, numbers, weight, pairs);
  return at::mm(x, numbers.t());
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_int_mm", &int_mm);
  m.impl("_int_mm.out", &int_mm_out);
  m.impl("_weight_int8pack_mm", &weight_int8pack_mm);
  m.impl("_convert_weight_to_int4pack", &convert_weight_to_int4pack);
  m.impl("_weight_int4pack_mm", &weight_int4pack_mm);
}

}  // namespace netcl
