// softmax and log_softmax over any dimension, and their derivatives.
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_meta.h>
#include <ATen/ops/empty_like.h>

#include "aten/Rows.h"
#include "aten/Structured.h"

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

template <class... Tensors>
void launch(const char* op, const char* rows, const char* cols, Defs& d, const Tensor& out, const Shape& s,
            const Tensors&... in) {
  Device& dev = netcl::device_of(out);
  if (s.inner == 1) {
    const RowSplit split = row_split(dev, s.outer, s.n);
    const size_t local = row_group(dev);
    kernel(dev, "softmax.cl", rows, d)
        .launch(op, queue_of(out), {split.groups * local}, {local}, buf(out), buf(in)..., s.outer, split.rows_per, s.n);
  } else {
    const size_t columns = size_t(ceil_div(s.inner, row_vec(dev, s.inner)));
    const size_t local = dev.is_cpu() ? 1 : 64;
    kernel(dev, "softmax.cl", cols, d)
        .launch(op, queue_of(out), {columns, size_t(s.outer)}, {local, 1}, buf(out), buf(in)..., s.outer, s.n, s.inner);
  }
}

void forward(const char* op, bool log, const Tensor& input, int64_t dim, const Tensor& out) {
  if (out.numel() == 0) return;
  check_floating(netcl::device_of(out), input.scalar_type(), op);
  const Tensor x = input.contiguous();
  const DenseOut y(out);
  const c10::ScalarType compute = compute_type(x.scalar_type());
  Defs d;
  d.set("IN", dtype_tag(x.scalar_type())).set("OUT", dtype_tag(out.scalar_type()));
  const Shape shape(x, dim);
  row_defs(d, netcl::device_of(out), compute, shape.adjacent());
  if (log) d.set("LOG", 1);
  if (out.scalar_type() == compute) d.set("KEEP_EXP", 1);
  launch(op, "softmax_rows", "softmax_cols", d, y.get(), shape, x);
  y.finish();
}

void backward(const char* op, bool log, const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& out) {
  if (out.numel() == 0) return;
  check_floating(netcl::device_of(out), grad.scalar_type(), op);
  const Tensor g = grad.contiguous(), y = output.contiguous();
  const DenseOut gin(out);
  Defs d;
  d.set("GRAD", dtype_tag(g.scalar_type())).set("OUTPUT", dtype_tag(y.scalar_type()));
  d.set("GIN", dtype_tag(out.scalar_type()));
  const Shape shape(y, dim);
  row_defs(d, netcl::device_of(out), compute_type(y.scalar_type()), shape.adjacent());
  if (log) d.set("LOG", 1);
  launch(op, "softmax_backward_rows", "softmax_backward_cols", d, gin.get(), shape, g, y);
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

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<Softmax>(m, "_softmax", nullptr, "_softmax.out");
  structured<LogSoftmax>(m, "_log_softmax", nullptr, "_log_softmax.out");
  structured<SoftmaxBackward>(m, "_softmax_backward_data", nullptr, "_softmax_backward_data.out");
  structured<LogSoftmaxBackward>(m, "_log_softmax_backward_data", nullptr, "_log_softmax_backward_data.out");
}

}  // namespace netcl
