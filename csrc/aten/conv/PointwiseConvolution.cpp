// Kernels of one element (most layers of ResNet-50 and MobileNet): a matrix product for each image and group.
#include "aten/conv/Convolution.h"
#include "aten/gemm/Gemm.h"
#include "aten/support/Launch.h"

namespace netcl {
namespace {

constexpr int64_t kPointwisePixels = 128;
constexpr int64_t kGatheredColumns = 192;

// A product with y as its left operand would write both x and y into panels. The implicit one packs only y, and copies
// x in blocks that stay in the cache; with more columns it copies x too often. Measured for float with AVX2.
bool gathers_weight(const ConvCall& call) {
  const ConvGeometry& g = call.g;
  const Device& device = netcl::device_of(call.w);
  return call.channels_last && call.direction == ConvDirection::kWeightGradient && device.is_cpu() && g.groups == 1 &&
         call.x.scalar_type() == c10::kFloat && g.c_out <= kGatheredColumns &&
         g.c_in % register_tile(device, c10::kFloat).vec == 0;
}

}  // namespace

bool serves_pointwise(const ConvCall& call) {
  const ConvGeometry& g = call.g;
  if (volume(g.kernel) != 1 || g.stride != ConvDims{1, 1, 1} || g.padding != ConvDims{}) return false;
  if (gathers_weight(call)) return false;
  if (call.channels_last) return g.groups == 1 || !serves_direct(call);
  if (call.direction == ConvDirection::kWeightGradient) return false;
  // Images of few pixels would leave the last panel of columns half empty; then the pixels of all images are used
  // together.
  return volume(g.in) >= kPointwisePixels && !serves_direct(call);
}

namespace {

// The gradient of w is y^T * x for each group; x and y are (pixels x channels).
void run_weight_channels_last(const ConvCall& call) {
  const ConvGeometry& g = call.g;
  GemmArgs a;
  a.may_round_float = false;
  a.m = g.c_out;
  a.n = g.c_in;
  a.k = g.images * volume(g.in);
  a.batch = {1, g.groups};
  a.a = {call.y.const_data_ptr(), call.y.scalar_type(), 1, g.groups * g.c_out, {0, g.c_out}};
  a.b = {call.x.const_data_ptr(), call.x.scalar_type(), g.groups * g.c_in, 1, {0, g.c_in}};
  a.c = {call.w.const_data_ptr(), call.w.scalar_type(), g.c_in, 1, {0, g.c_out * g.c_in}};
  gemm(call.op, queue_of(call.w), a);
}

// result (pixels x channels) = source (pixels x channels) * w^T for each group; the gradient of the input takes w.
void run_channels_last(const ConvCall& call) {
  if (call.direction == ConvDirection::kWeightGradient) return run_weight_channels_last(call);
  const ConvGeometry& g = call.g;
  const at::Tensor &w = call.w, &source = call.source(), &result = call.result();
  GemmArgs a;
  a.may_round_float = false;
  a.m = g.images * volume(g.in);
  a.n = call.result_channels();
  a.k = call.forward() ? g.c_in : g.c_out;
  a.batch = {1, g.groups};
  a.a = {source.const_data_ptr(), source.scalar_type(), g.groups * a.k, 1, {0, a.k}};
  a.b = {w.const_data_ptr(), w.scalar_type(), g.c_in, 1, {0, g.c_out * g.c_in}};
  if (call.forward()) a.b = transposed(a.b);
  a.c = {result.const_data_ptr(), result.scalar_type(), g.groups * a.n, 1, {0, a.n}};
  if (call.bias.defined()) {
    a.d = {call.bias.const_data_ptr(), call.bias.scalar_type(), 0, 1, {0, a.n}};
    a.beta = 1;
  }
  gemm(call.op, queue_of(result), a);
}

}  // namespace

// result[image][group] (channels x pixels) = w[group] * source[image][group]; the gradient of the input takes w^T.
void run_pointwise(const ConvCall& call) {
  if (call.channels_last) return run_channels_last(call);
  const ConvGeometry& g = call.g;
  const at::Tensor &w = call.w, &source = call.source(), &result = call.result();
  const int64_t pixels = volume(g.in);
  GemmArgs a;
  a.may_round_float = false;
  a.m = call.forward() ? g.c_out : g.c_in;
  a.n = pixels;
  a.k = call.forward() ? g.c_in : g.c_out;
  a.batch = {g.images, g.groups};
  a.a = {w.const_data_ptr(), w.scalar_type(), g.c_in, 1, {0, g.c_out * g.c_in}};
  if (!call.forward()) a.a = transposed(a.a);
  a.b = {source.const_data_ptr(), source.scalar_type(), pixels, 1, {g.groups * a.k * pixels, a.k * pixels}};
  a.c = {result.const_data_ptr(), result.scalar_type(), pixels, 1, {g.groups * a.m * pixels, a.m * pixels}};
  if (call.bias.defined()) {
    a.d = {call.bias.const_data_ptr(), call.bias.scalar_type(), 1, 0, {0, a.m}};
    a.beta = 1;
  }
  gemm(call.op, queue_of(result), a);
}

}  // namespace netcl
