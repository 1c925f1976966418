// softmax and log_softmax over any dimension, and their derivatives.
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_meta.h>
#include <ATen/ops/softmax.h>

#include <limits>

#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Structured.h"
#include "aten/support/Walk.h"

namespace netcl {
namespace {

using at::Tensor;

// How a tensor's rows along dimension `dim` are visited.
Walk softmax_walk(const Tensor& t, int64_t dim, c10::ScalarType compute, std::initializer_list<Tensor> tensors) {
  int64_t outer = 1, n = 1, inner = 1;
  if (t.dim() > 0) {
    dim = at::maybe_wrap_dim(dim, t.dim());
    for (int64_t d = 0; d < dim; d++) outer *= t.size(d);
    n = t.size(dim);
    for (int64_t d = dim + 1; d < t.dim(); d++) inner *= t.size(d);
  }
  const Device& dev = netcl::device_of(t);
  return inner == 1 ? choose_walk(dev, compute, outer, n, tensors) : walk_columns(dev, compute, outer, n, inner);
}

// The local memory for a row's exponentials, which a CPU keeps in the cache; 0 if they do not fit.
size_t kept_bytes(const Device& dev, c10::ScalarType compute, int64_t n) {
  const auto bytes = size_t(round_up(n, row_vec(dev, n))) * c10::elementSize(compute);
  const auto most = static_cast<size_t>(tuning(dev).kept_bytes);
  return bytes <= std::min<size_t>(dev.info().local_mem_size / 2, most) ? bytes : 0;
}

Defs& softmax_defs(Defs& d, bool log, c10::ScalarType in, c10::ScalarType out) {
  return d.set("OP", log ? "log_softmax" : "softmax").set("IN", dtype_tag(in)).set("OUT", dtype_tag(out));
}

void forward(const char* op, bool log, const Tensor& input, int64_t dim, const Tensor& out) {
  if (out.numel() == 0) return;
  Device& dev = netcl::device_of(out);
  check_floating(dev, input.scalar_type(), op);
  const Tensor x = input.contiguous();
  const DenseOut y(out);
  const c10::ScalarType compute = compute_type(x.scalar_type());
  Walk walk = softmax_walk(x, dim, compute, {x, y.get()});
  Defs& d = softmax_defs(walk.defs, log, x.scalar_type(), out.scalar_type());
  const int64_t n = walk.params.n;
  const auto launch = [&](const auto&... kept) {
    kernel(dev, "softmax.cl", "softmax", d)
        .launch(op, queue_of(out), walk.global, walk.local, buf(y.get()), buf(x), kept..., walk.params);
  };
  // An exponential is needed twice, except for a logarithm.
  const size_t bytes = log || walk.kind != Walk::kRows ? 0 : kept_bytes(dev, compute, n);
  if (bytes) d.set("KEEP_IN", 1);
  if (walk.kind == Walk::kRows && (log || bytes)) {
    past_cache(d, dev, y.get(), n, row_vec(dev, n), {x});
  } else if (walk.kind == Walk::kRows && out.scalar_type() == compute) {
    d.set("KEEP_IN", 2);  // non-temporal stores would evict what waits in the output
  }
  bytes ? launch(Local{bytes}) : launch();
  y.finish();
}

void backward(const char* op, bool log, const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& out) {
  check_sizes(op, "grad_output", grad, output.sizes());
  if (out.numel() == 0) return;
  Device& dev = netcl::device_of(out);
  check_floating(dev, grad.scalar_type(), op);
  const c10::ScalarType type =
      grad.scalar_type() == output.scalar_type() ? output.scalar_type() : compute_type(output.scalar_type());
  const Tensor g = grad.to(type).contiguous(), y = output.to(type).contiguous();
  const DenseOut gin(out);
  Walk walk = softmax_walk(y, dim, compute_type(y.scalar_type()), {gin.get(), g, y});
  Defs& d = softmax_defs(walk.defs, log, type, out.scalar_type());
  const int64_t n = walk.params.n;
  if (walk.kind == Walk::kRows) past_cache(d, dev, gin.get(), n, row_vec(dev, n), {g, y});
  kernel(dev, "softmax.cl", "softmax_backward", d)
      .launch(op, queue_of(out), walk.global, walk.local, buf(gin.get()), buf(g), buf(y), walk.params);
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
