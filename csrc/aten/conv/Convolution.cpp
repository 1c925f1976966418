// Convolution and its gradients, 1d to 3d: the ways to compute them, and the functions that ATen calls.

#include <ATen/Functions.h>
#include <ATen/ops/convolution_backward_native.h>

#include "aten/conv/ConvWays.h"
#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Plan.h"

namespace netcl {
namespace {

using at::IntArrayRef;
using at::Tensor;

// Runs a plan on copies of the tensors in another memory format.
template <class Plan>
void run_in(at::MemoryFormat format, const ConvCall& call, const Plan& plan,
            void (*run)(const ConvCall&, const Plan&)) {
  ConvCall c = call;
  c.channels_last = format != at::MemoryFormat::Contiguous;
  for (Tensor* t : {&c.x, &c.w, &c.y}) {
    const bool written = t->is_same(call.result());
    *t = written ? at::empty(t->sizes(), t->options(), format) : t->contiguous(format);
  }
  run(c, plan);
  call.result().copy_(c.result());
}

// Vectors lie along rows of pixels, so channels_last tensors are copied.
template <class Plan, void (*run)(const ConvCall&, const Plan&)>
void by_rows(const ConvCall& call, const Plan& plan) {
  if (!call.channels_last) return run(call, plan);
  run_in(at::MemoryFormat::Contiguous, call, plan, run);
}

void by_channels(const ConvCall& call, const ConvContext& c) {
  if (!c.by_channels) return run_product(call, c);
  run_in(call.x.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast, call, c, &run_product);
}

constexpr Way<ConvCall> kConvWays[] = {
    {"patches", take<&plan_patches, &run_patches>},
    {"pointwise", take<&plan_pointwise, &run_pointwise>},
    {"channels", take<&plan_channels, &run_channels>, Serves::kCpu},
    {"few outputs", take<&plan_few_outputs, &run_few_outputs>, Serves::kCpu},
    {"flat", take<&plan_flat, &run_flat>, Serves::kCpu},
    {"few pointwise", take<&plan_few_pointwise, &run_pointwise>},
    {"depthwise", take<&plan_depthwise, &by_rows<Depthwise, &run_depthwise>>, Serves::kCpu},
    {"direct", take<&plan_direct, &by_rows<ConvContext, &run_direct>>},
    {"product", take<&plan_product, &by_channels>},
};

void run(const ConvCall& call) {
  if (call.result().numel() == 0) return;
  if (call.direction == ConvDirection::kWeightGradient && (call.x.numel() == 0 || call.y.numel() == 0)) {
    call.w.zero_();
    return;
  }
  run_first(kConvWays, netcl::device_of(call.result()), call);
}

// As in ATen: one number per dimension, or one for all.
struct ConvOptions {
  IntArrayRef stride, padding, dilation;
  bool transposed;
  IntArrayRef output_padding;
  int64_t groups;
};

ConvDims spatial(IntArrayRef values, int64_t dim, int64_t fill) {
  ConvDims d{fill, fill, fill};
  for (int64_t i = 0; i < dim; i++) d[3 - dim + i] = values.size() == 1 ? values[0] : values[i];
  return d;
}

// The plain convolution from x to y for any call; a transposed one exchanges its input and output.
ConvGeometry geometry(IntArrayRef x_sizes, IntArrayRef y_sizes, IntArrayRef w_sizes, const ConvOptions& options) {
  const int64_t dim = x_sizes.size() - 2;
  ConvGeometry g;
  g.images = x_sizes[0];
  g.groups = options.groups;
  g.c_in = x_sizes[1] / options.groups;
  g.c_out = y_sizes[1] / options.groups;
  g.in = spatial(x_sizes.slice(2), dim, 1);
  g.out = spatial(y_sizes.slice(2), dim, 1);
  g.kernel = spatial(w_sizes.slice(2), dim, 1);
  g.stride = spatial(options.stride, dim, 1);
  g.padding = spatial(options.padding, dim, 0);
  g.dilation = spatial(options.dilation, dim, 1);
  return g;
}

void check_tensors(const char* op, const Tensor& input, const Tensor& weight) {
  const auto dtype = input.scalar_type();
  TORCH_CHECK(input.dim() >= 3 && input.dim() <= 5, op, ": expected a 3, 4 or 5 dimensional input, got ", input.dim());
  TORCH_CHECK(input.dim() == weight.dim(), op, ": expected input and weight of as many dimensions, got ", input.dim(),
              " and ", weight.dim());
  TORCH_CHECK(at::isFloatingType(dtype), "\"", op, "\" not implemented for '", dtype, "'");
  TORCH_CHECK(dtype == weight.scalar_type(), "Input type (", dtype, ") and weight type (", weight.scalar_type(),
              ") should be the same");
  TORCH_CHECK(input.device() == weight.device(), op, ": expected input and weight on one device, got ", input.device(),
              " and ", weight.device());
  check_dtype(netcl::device_of(input), dtype, op);
}

// ATen checks these too, but not for those who call the overrideable functions.
void check_options(const char* op, const Tensor& input, const Tensor& weight, const ConvOptions& o) {
  const auto check = [&](const char* name, IntArrayRef values, int64_t least) {
    TORCH_CHECK(values.size() == 1 || static_cast<int64_t>(values.size()) == input.dim() - 2, op, ": expected 1 or ",
                input.dim() - 2, " numbers as ", name, ", got ", values);
    for (int64_t v : values)
      TORCH_CHECK(v >= least && v <= INT32_MAX, op, ": ", name, " must be from ", least, " to ", INT32_MAX, ", got ",
                  v);
  };
  check("stride", o.stride, 1);
  check("padding", o.padding, 0);
  check("dilation", o.dilation, 1);
  if (o.transposed) check("output_padding", o.output_padding, 0);
  TORCH_CHECK(o.groups > 0 && weight.size(0) % o.groups == 0 && input.size(1) % o.groups == 0 &&
                  (o.transposed ? input.size(1) == weight.size(0) : input.size(1) == weight.size(1) * o.groups),
              op, ": an input of size ", input.sizes(), " does not fit a weight of size ", weight.sizes(), " in ",
              o.groups, " groups");
}

// The memory format of the results: as on CUDA, channels_last if the input or the weight is.
at::MemoryFormat result_format(const Tensor& input, const Tensor& weight) {
  const auto format = input.suggest_memory_format();
  return format == at::MemoryFormat::Contiguous ? weight.suggest_memory_format() : format;
}

at::DimVector output_sizes(const char* op, const Tensor& input, const Tensor& weight, const ConvOptions& options) {
  at::DimVector sizes{input.size(0), options.transposed ? weight.size(1) * options.groups : weight.size(0)};
  for (int64_t i = 0; i < input.dim() - 2; i++) {
    const auto at = [&](IntArrayRef v) { return v.size() == 1 ? v[0] : v[i]; };
    const int64_t stride = at(options.stride), padding = at(options.padding);
    const int64_t span = at(options.dilation) * (weight.size(2 + i) - 1) + 1;
    const int64_t room = input.size(2 + i) + 2 * padding - span, forward = room < 0 ? -1 : room / stride + 1;
    sizes.push_back(options.transposed
                        ? (input.size(2 + i) - 1) * stride - 2 * padding + span + at(options.output_padding)
                        : forward);
    TORCH_CHECK(sizes.back() >= 0, op, ": the output would have a negative size (input ", input.sizes(), ", weight ",
                weight.sizes(), ")");
  }
  return sizes;
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                   int64_t groups) {
  const char* op = "aten::convolution";
  const ConvOptions options{stride, padding, dilation, transposed, output_padding, groups};
  check_tensors(op, input, weight);
  check_options(op, input, weight, options);
  const c10::DeviceGuard guard(input.device());
  const at::DimVector sizes = output_sizes(op, input, weight, options);
  TORCH_CHECK(!bias.has_value() || !bias->defined() || (bias->dim() == 1 && bias->size(0) == sizes[1]), op,
              ": expected a bias of ", sizes[1], " elements, got one of size ", bias.value_or(Tensor()).sizes());
  const auto format = result_format(input, weight);
  const bool last = format != at::MemoryFormat::Contiguous;
  const Tensor out = at::empty(sizes, input.options().memory_format(format));
  const Tensor in = input.contiguous(format), w = weight.contiguous(format), b = bias.value_or(Tensor());
  if (transposed)
    run({op, ConvDirection::kInputGradient, geometry(sizes, in.sizes(), w.sizes(), options), out, w, in, b, last});
  else
    run({op, ConvDirection::kForward, geometry(in.sizes(), sizes, w.sizes(), options), in, w, out, b, last});
  return out;
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad_output, const Tensor& input,
                                                        const Tensor& weight, IntArrayRef stride, IntArrayRef padding,
                                                        IntArrayRef dilation, bool transposed,
                                                        IntArrayRef output_padding, int64_t groups,
                                                        std::array<bool, 3> mask) {
  const char* op = "aten::convolution_backward";
  const ConvOptions options{stride, padding, dilation, transposed, output_padding, groups};
  check_tensors(op, input, weight);
  check_tensors(op, grad_output, weight);
  check_options(op, input, weight, options);
  check_sizes(op, "grad_output", grad_output, output_sizes(op, input, weight, options));
  const c10::DeviceGuard guard(input.device());
  const auto format = result_format(input, weight);
  // Images and kernels of one channel lie alike in both formats; then that of the gradient saves a copy.
  const bool either = format == at::MemoryFormat::Contiguous && input.size(1) == 1 && weight.size(1) == 1;
  const auto grad_format = either ? grad_output.suggest_memory_format() : format;
  const bool last = grad_format != at::MemoryFormat::Contiguous;
  const Tensor in = input.contiguous(format), w = weight.contiguous(format), grad = grad_output.contiguous(grad_format);
  const ConvGeometry g =
      geometry((transposed ? grad : in).sizes(), (transposed ? in : grad).sizes(), w.sizes(), options);
  Tensor grad_in, grad_w, grad_b;
  if (mask[0]) {
    grad_in = at::empty(in.sizes(), in.options().memory_format(format));
    if (grad.numel() == 0)
      grad_in.zero_();
    else if (transposed)
      run({op, ConvDirection::kForward, g, grad, w, grad_in, {}, last});
    else
      run({op, ConvDirection::kInputGradient, g, grad_in, w, grad, {}, last});
  }
  if (mask[1]) {
    grad_w = at::empty(w.sizes(), w.options().memory_format(format));
    run({op, ConvDirection::kWeightGradient, g, transposed ? grad : in, grad_w, transposed ? in : grad, {}, last});
  }
  if (mask[2]) {
    at::DimVector others{0};
    for (int64_t d = 2; d < grad.dim(); d++) others.push_back(d);
    grad_b = grad.sum(others);
  }
  return {grad_in, grad_w, grad_b};
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
  m.impl("convolution_backward", &OnOneDevice<&at::native::convolution_backward>::call);
}

}  // namespace netcl
