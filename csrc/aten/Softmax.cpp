// softmax and log_softmax over any dimension, and their derivatives.
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_meta.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/softmax.h>

#include <limits>

#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/PastCache.h"
#include "aten/support/ShortRows.h"
#include "aten/support/Structured.h"

namespace netcl {
namespace {

using at::Tensor;

// A tensor as (outer, n, inner) around dimension `dim`.
struct Shape {
  int64_t outer = 1, n = 1, inner = 1;
  int64_t adjacent() const { return inner == 1 ? n : inner; }
  Shape(const Tensor& t, int64_t dim) {
    if (t.dim() == 0) return;
    dim = at::maybe_wrap_dim(dim, t.dim());
    for (int64_t d = 0; d < dim; d++) outer *= t.size(d);
    n = t.size(dim);
    for (int64_t d = dim + 1; d < t.dim(); d++) inner *= t.size(d);
  }
};

template <class... Args>
void launch(const char* op, const char* rows, const char* cols, const Defs& d, const Tensor& out, const Shape& s,
            const Args&... args) {
  Device& dev = netcl::device_of(out);
  if (s.inner == 1) {
    const RowSplit split = row_split(dev, s.outer, s.n);
    const size_t local = row_group(dev);
    kernel(dev, "softmax.cl", rows, d)
        .launch(op, queue_of(out), {split.groups * local}, {local}, buf(out), args..., s.outer, split.rows_per, s.n);
  } else {
    const size_t columns = size_t(ceil_div(s.inner, row_vec(dev, s.inner)));
    const size_t local = dev.is_cpu() ? 1 : 64;
    kernel(dev, "softmax.cl", cols, d)
        .launch(op, queue_of(out), {columns, size_t(s.outer)}, {local, 1}, buf(out), args..., s.outer, s.n, s.inner);
  }
}

// Runs the kernel for short rows, which a GPU keeps in registers; false if it does not apply.
template <class... Inputs>
bool launch_short(const char* op, const char* name, bool log, Defs d, const Tensor& out, const Shape& s,
                  const Inputs&... in) {
  Device& dev = netcl::device_of(out);
  const auto rows = s.inner == 1 ? short_rows(dev, s.n, {out, in...}) : std::nullopt;
  if (!rows) return false;
  d.set("ACC", compute_tag(out.scalar_type()));
  if (log) d.set("LOG", 1);
  kernel(dev, "softmax_short.cl", name, rows->set(d))
      .launch(op, queue_of(out), rows->items(s.outer), rows->local(), buf(out), buf(in)..., s.outer, s.n);
  return true;
}

// Runs the kernel that transposes rows of few vectors on a CPU; false if it does not apply.
template <class... Inputs>
bool launch_tiles(const char* op, const char* name, bool log, Defs d, const Tensor& out, const Shape& s,
                  const Inputs&... in) {
  constexpr int64_t kVec = 16, kLongest = 32;
  Device& dev = netcl::device_of(out);
  if (!dev.is_cpu() || s.inner != 1 || s.n > kLongest || s.outer < kVec ||
      compute_type(out.scalar_type()) != at::kFloat)
    return false;
  d.set("ACC", "f32").set("VEC", kVec).set("LONGEST", kLongest);
  if (log) d.set("LOG", 1);
  const int64_t rows_per = round_up(row_split(dev, s.outer, s.n).rows_per, kVec);
  kernel(dev, "softmax_tiles.cl", name, d)
      .launch(op, queue_of(out), {size_t(ceil_div(s.outer, rows_per))}, {1}, buf(out), buf(in)..., s.outer, rows_per,
              s.n);
  return true;
}

// The local memory for a row's exponentials on a CPU, which keeps it in the cache; 0 if they do not fit.
size_t kept_bytes(const Device& dev, c10::ScalarType compute, int64_t n) {
  const auto bytes = size_t(round_up(n, row_vec(dev, n))) * c10::elementSize(compute);
  return dev.is_cpu() && bytes <= std::min<size_t>(dev.info().local_mem_size / 2, 128 << 10) ? bytes : 0;
}

void forward(const char* op, bool log, const Tensor& input, int64_t dim, const Tensor& out) {
  if (out.numel() == 0) return;
  check_floating(netcl::device_of(out), input.scalar_type(), op);
  const Tensor x = input.contiguous();
  const DenseOut y(out);
  Device& dev = netcl::device_of(out);
  const c10::ScalarType compute = compute_type(x.scalar_type());
  Defs d;
  d.set("IN", dtype_tag(x.scalar_type())).set("OUT", dtype_tag(out.scalar_type()));
  const Shape shape(x, dim);
  if (!dev.is_cpu() && launch_short(op, "softmax_short", log, d, y.get(), shape, x)) return y.finish();
  if (launch_tiles(op, "softmax_tiles", log, d, y.get(), shape, x)) return y.finish();
  row_defs(d, dev, compute, shape.adjacent());
  const char *rows = "softmax_rows", *cols = "softmax_cols";
  if (log || shape.inner != 1) {  // no exponential is needed twice, or a row is not contiguous
    if (log) d.set("LOG", 1);
    if (shape.inner == 1) past_cache(d, dev, y.get(), shape.n, row_vec(dev, shape.n), {x});
    launch(op, rows, cols, d, y.get(), shape, buf(x));
  } else if (const size_t bytes = kept_bytes(dev, compute, shape.n)) {
    d.set("KEEP_LOCAL", 1);
    past_cache(d, dev, y.get(), shape.n, row_vec(dev, shape.n), {x});
    launch(op, rows, cols, d, y.get(), shape, buf(x), Local{bytes});
  } else {  // non-temporal stores would evict what waits in the output
    if (out.scalar_type() == compute) d.set("KEEP_EXP", 1);
    launch(op, rows, cols, d, y.get(), shape, buf(x));
  }
  y.finish();
}

void backward(const char* op, bool log, const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& out) {
  check_sizes(op, "grad_output", grad, output.sizes());
  if (out.numel() == 0) return;
  check_floating(netcl::device_of(out), grad.scalar_type(), op);
  const Tensor g = grad.contiguous(), y = output.contiguous();
  const DenseOut gin(out);
  Device& dev = netcl::device_of(out);
  Defs d;
  d.set("GRAD", dtype_tag(g.scalar_type())).set("OUTPUT", dtype_tag(y.scalar_type()));
  d.set("GIN", dtype_tag(out.scalar_type()));
  const Shape shape(y, dim);
  if (!dev.is_cpu() && launch_short(op, "softmax_short_grad", log, d, gin.get(), shape, g, y)) return gin.finish();
  if (launch_tiles(op, "softmax_tiles_backward", log, d, gin.get(), shape, g, y)) return gin.finish();
  row_defs(d, dev, compute_type(y.scalar_type()), shape.adjacent());
  if (log) d.set("LOG", 1);
  if (shape.inner == 1) past_cache(d, dev, gin.get(), shape.n, row_vec(dev, shape.n), {g, y});
  launch(op, "softmax_backward_rows", "softmax_backward_cols", d, gin.get(), shape, buf(g), buf(y));
  gin.finish();
}

struct Softmax : at::meta::structured__softmax {
  void impl(const Tensor& input, int64_t dim, bool half_to_float, const Tensor& out) {
    forward("aten::_softmax", false, input, dim, out);
  }
};
struct LogSoftmax : at::meta::structured__log_softmax {
  void impl(const Tensor& input, int64_t dim, bool half_to_float, const Tensor& out) {
    forward("aten::_log_softmax", true, input, dim, out);
  }
};
struct SoftmaxBackward : at::meta::structured__softmax_backward_data {
  void impl(const Tensor& grad, const Tensor& output, int64_t dim, at::ScalarType input_dtype, const Tensor& out) {
    backward("aten::_softmax_backward_data", false, grad, output, dim, out);
  }
};
struct LogSoftmaxBackward : at::meta::structured__log_softmax_backward_data {
  void impl(const Tensor& grad, const Tensor& output, int64_t dim, at::ScalarType input_dtype, const Tensor& out) {
    backward("aten::_log_softmax_backward_data", true, grad, output, dim, out);
  }
};

// An attention mask (true: left out), broadcast to the scores (batch, heads, length, length). Its type is ATen's: 0 is
// (length, length), 1 is (batch, length) over the keys, 2 or none is the scores' shape, which the others may have too.
Tensor expand_mask(const Tensor& x, const Tensor& mask, std::optional<int64_t> type) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be a boolean tensor");
  TORCH_CHECK(type.value_or(2) >= 0 && type.value_or(2) <= 2,
              "Mask Type should be 0 (src_mask), 1 (src_key_padding_mask), "
              "or 2 (default_mask)");
  if (type.value_or(2) == 2 || mask.sizes() == x.sizes()) {
    TORCH_CHECK(mask.sizes() == x.sizes(), "Mask shape should match input. mask: ", mask.sizes(),
                " input: ", x.sizes());
    return mask;
  }
  TORCH_CHECK(
      x.dim() == 4 && mask.dim() == 2 && mask.size(0) == x.size(*type == 0 ? 2 : 0) && mask.size(1) == x.size(3),
      "_masked_softmax: a mask of type ", *type, " for scores ", x.sizes(), " cannot be ", mask.sizes());
  return (*type == 0 ? mask : mask.view({mask.size(0), 1, 1, mask.size(1)})).expand(x.sizes());
}

Tensor masked_softmax(const Tensor& x, const Tensor& mask, std::optional<int64_t> dim, std::optional<int64_t> type) {
  const Tensor left_out = expand_mask(x, mask, type);
  return at::softmax(x.masked_fill(left_out, -std::numeric_limits<double>::infinity()), dim.value_or(x.dim() - 1));
}

// The derivative of softmax, in which masked elements do not count towards the sum.
Tensor masked_softmax_backward(const Tensor& grad, const Tensor& y, const Tensor& mask, std::optional<int64_t> dim) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be a boolean tensor");
  TORCH_CHECK(grad.sizes() == mask.sizes(), "Mask shape should match grad shape");
  const Tensor weighted = (grad * y).masked_fill_(mask, 0);
  return (weighted - y * weighted.sum(dim.value_or(y.dim() - 1), true)).masked_fill_(mask, 0);
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<Softmax>(m, "_softmax", nullptr, "_softmax.out");
  structured<LogSoftmax>(m, "_log_softmax", nullptr, "_log_softmax.out");
  structured<SoftmaxBackward>(m, "_softmax_backward_data", nullptr, "_softmax_backward_data.out");
  structured<LogSoftmaxBackward>(m, "_log_softmax_backward_data", nullptr, "_log_softmax_backward_data.out");
  m.impl("_masked_softmax", &masked_softmax);
  m.impl("_masked_softmax_backward", &masked_softmax_backward);
}

}  // namespace netcl
