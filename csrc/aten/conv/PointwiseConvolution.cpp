// Kernels of one element (most layers of ResNet-50 and MobileNet): a matrix product for each image and group.
#include "aten/conv/ConvWays.h"

namespace netcl {
namespace {

constexpr int64_t kPointwisePixels = 128;
constexpr int64_t kGatheredColumns = 192;

// A product with y as its left operand would write both x and y into panels. The implicit one packs only y, and copies
// x in blocks that stay in the cache; with more columns it copies x too often. Measured for float with AVX2.
bool gathers_weight(const ConvCall& call) {
  const ConvGeometry& g = call.g;
  const Device& device = netcl::device_of(call.w);
  return call.channels_last && call.direction == ConvDirection::kWeightGradient && tuning(device).gathers_channels &&
         g.groups == 1 && call.x.scalar_type() == c10::kFloat && g.c_out <= kGatheredColumns &&
         g.c_in % register_tile(device, c10::kFloat).vec == 0;
}

bool is_pointwise(const ConvCall& call) {
  const ConvGeometry& g = call.g;
  if (volume(g.kernel) != 1 || g.stride != ConvDims{1, 1, 1} || g.padding != ConvDims{}) return false;
  if (gathers_weight(call)) return false;
  if (call.channels_last) return g.groups == 1 || !has_few_results(call);
  if (call.direction == ConvDirection::kWeightGradient) return false;
  // Images of few pixels would leave the last panel of columns half empty; then the pixels of all images are used
  // together.
  return volume(g.in) >= kPointwisePixels && !has_few_results(call);
}

// A sum of so few channels is mostly loads and stores, which a matrix product would add to; with so few results, its
// tiles would be mostly empty.
bool has_few_channels(const ConvCall& call) {
  constexpr int64_t kFew = 4;
  return call.direction != ConvDirection::kWeightGradient &&
         std::min(call.summed_channels(), call.result_channels()) <= kFew;
}

// The gradient of w is y^T * x for each group; x and y are (pixels x channels).
GemmArgs weight_channels_last(const ConvCall& call) {
  const ConvGeometry& g = call.g;
  GemmArgs a;
  a.m = g.c_out;
  a.n = g.c_in;
  a.k = g.images * volume(g.in);
  a.batch = {1, g.groups};
  a.a = {call.y.const_data_ptr(), call.y.scalar_type(), 1, g.groups * g.c_out, {0, g.c_out}};
  a.b = {call.x.const_data_ptr(), call.x.scalar_type(), g.groups * g.c_in, 1, {0, g.c_in}};
  a.c = {call.w.const_data_ptr(), call.w.scalar_type(), g.c_in, 1, {0, g.c_out * g.c_in}};
  return a;
}

// result (pixels x channels) = source (pixels x channels) * w^T for each group; the gradient of the input takes w.
GemmArgs channels_last(const ConvCall& call) {
  const ConvGeometry& g = call.g;
  const at::Tensor &w = call.w, &source = call.source(), &result = call.result();
  GemmArgs a;
  a.m = g.images * volume(g.in);
  a.n = call.result_channels();
  a.k = call.summed_channels();
  a.batch = {1, g.groups};
  a.a = {source.const_data_ptr(), source.scalar_type(), g.groups * a.k, 1, {0, a.k}};
  a.b = {w.const_data_ptr(), w.scalar_type(), g.c_in, 1, {0, g.c_out * g.c_in}};
  if (call.forward()) a.b = transposed(a.b);
  a.c = {result.const_data_ptr(), result.scalar_type(), g.groups * a.n, 1, {0, a.n}};
  return a;
}

// result[image][group] (channels x pixels) = w[group] * source[image][group]; the gradient of the input takes w^T.
GemmArgs per_image(const ConvCall& call) {
  const ConvGeometry& g = call.g;
  const at::Tensor &w = call.w, &source = call.source(), &result = call.result();
  const int64_t pixels = volume(g.in);
  GemmArgs a;
  a.m = call.result_channels();
  a.n = pixels;
  a.k = call.summed_channels();
  a.batch = {g.images, g.groups};
  a.a = {w.const_data_ptr(), w.scalar_type(), g.c_in, 1, {0, g.c_out * g.c_in}};
  if (!call.forward()) a.a = transposed(a.a);
  a.b = {source.const_data_ptr(), source.scalar_type(), pixels, 1, {g.groups * a.k * pixels, a.k * pixels}};
  a.c = {result.const_data_ptr(), result.scalar_type(), pixels, 1, {g.groups * a.m * pixels, a.m * pixels}};
  return a;
}

GemmArgs product(const ConvCall& call) {
  const bool weight = call.direction == ConvDirection::kWeightGradient, last = call.channels_last;
  GemmArgs a = !last ? per_image(call) : weight ? weight_channels_last(call) : channels_last(call);
  a.may_round_float = false;
  if (call.bias.defined()) {
    a.d = {call.bias.const_data_ptr(), call.bias.scalar_type(), !last, last, {0, call.result_channels()}};
    a.beta = 1;
  }
  return a;
}

}  // namespace

std::optional<GemmArgs> plan_pointwise(const ConvCall& call) {
  return !has_few_channels(call) && is_pointwise(call) ? std::optional(product(call)) : std::nullopt;
}
std::optional<GemmArgs> plan_few_pointwise(const ConvCall& call) {
  return has_few_channels(call) && is_pointwise(call) ? std::optional(product(call)) : std::nullopt;
}
void run_pointwise(const ConvCall& call, const GemmArgs& product) { gemm(call.op, queue_of(call.result()), product); }

}  // namespace netcl
