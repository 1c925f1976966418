// Random fills and dropout, by counter: the numbers depend only on seed and offset, not on how the work is split.
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/bernoulli_native.h>
#include <ATen/ops/cauchy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exponential_native.h>
#include <ATen/ops/geometric_native.h>
#include <ATen/ops/log_normal_native.h>
#include <ATen/ops/multinomial_native.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/random_native.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/uniform_native.h>

#include <bit>

#include "args/random.h"
#include "aten/support/Generator.h"
#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Pointwise.h"
#include "aten/support/Scalars.h"
#include "runtime/Assertions.h"

namespace netcl {

namespace {

using at::Tensor;
using at::TensorBase;
using at::TensorIteratorBase;
using Generator = std::optional<at::Generator>;

// How groups of 64 (or 32 wide) values are divided among work-items.
struct Groups {
  int64_t per_item;
  size_t items;
  uint64_t blocks;  // Philox blocks drawn in total
};
Groups groups_for(const Device& device, int64_t n, int64_t values) {
  const int64_t total = ceil_div(n, values);
  const Tuning& t = tuning(device);
  const int64_t per_item = std::clamp(even_part(device, total), t.least_draws, t.most_draws);
  const auto items = static_cast<size_t>(ceil_div(total, per_item) * t.draw_items);
  return {per_item, items, static_cast<uint64_t>(total) * 16};
}

// What elements are drawn from.
struct Distribution {
  const char *op, *name;     // the operator; OP of kernels/random.cl
  c10::Scalar a = 0, b = 0;  // its parameters
  bool integers = false;     // whether it is computed in int64
  bool wide = false;         // whether an element takes 64 random bits
  Tensor probabilities{};    // one per element, contiguous and float, for what takes them
};

void fill_contiguous(const Distribution& dist, const Tensor& out, const Generator& generator) {
  const auto& [op, name, a, b, integers, wide, probabilities] = dist;
  Device& device = netcl::device_of(out);
  const auto acc = integers ? c10::kLong : wide ? c10::kDouble : c10::kFloat;
  check_dtype(device, acc, op);
  check_dtype(device, out.scalar_type(), op);
  const Groups g = groups_for(device, out.numel(), wide ? 32 : 64);
  const Philox philox = philox_state(generator, device.index(), g.blocks);
  Defs defs;
  defs.set("OP", name).set("OUT", dtype_tag(out.scalar_type())).set("ACC", dtype_tag(acc));
  if (wide) defs.set("WIDE", "1");
  const bool asserts = probabilities.defined();
  const Buf err{asserts ? assert_buffer(device) : nullptr};
  const int code = asserts ? assert_message_code(device, "Expected 0 <= p <= 1 for every probability p") : 0;
  kernel(device, "random.cl", "fill", defs)
      .launch(op, queue_of(out), {g.items}, element_group(device), buf(out), buf_or_null(probabilities), err, philox,
              RandomParams{out.numel(), g.per_item, code, pack_scalar(a, acc).bits(), pack_scalar(b, acc).bits()});
}

void fill(const Distribution& dist, const Tensor& self, const Generator& generator) {
  if (self.numel() == 0) return;
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), dist.op, " is not implemented for ", self.scalar_type());
  if (self.is_contiguous()) {
    fill_contiguous(dist, self, generator);
  } else {
    const Tensor dense = at::empty(self.sizes(), self.options());
    fill_contiguous(dist, dense, generator);
    self.copy_(dense);
  }
}

// Fills with a distribution of two parameters that is computed in floats; only doubles take wide words.
void fill_parametric(const char* op, const char* dist, const Tensor& out, double a, double b, const Generator& gen) {
  fill({.op = op, .name = dist, .a = a, .b = b, .wide = out.scalar_type() == c10::kDouble}, out, gen);
}
// The same for a distribution over real numbers.
void fill_real(const char* op, const char* dist, const TensorBase& self, double a, double b, const Generator& gen) {
  const Tensor out(self);
  TORCH_CHECK_NOT_IMPLEMENTED(out.is_floating_point(), op, " is not implemented for ", out.scalar_type());
  fill_parametric(op, dist, out, a, b, gen);
}

void uniform_kernel(TensorIteratorBase& iter, double from, double to, Generator gen) {
  fill_real("aten::uniform_", "uniform", iter.tensor(0), from, to, gen);
}
void normal_kernel(const TensorBase& self, double mean, double std, Generator gen) {
  fill_real("aten::normal_", "normal", self, mean, std, gen);
}
void log_normal_kernel(TensorIteratorBase& iter, double mean, double std, Generator gen) {
  fill_real("aten::log_normal_", "log_normal", iter.tensor(0), mean, std, gen);
}
void exponential_kernel(TensorIteratorBase& iter, double lambda, Generator gen) {
  fill_real("aten::exponential_", "exponential", iter.tensor(0), lambda, 0, gen);
}
void cauchy_kernel(TensorIteratorBase& iter, double median, double sigma, Generator gen) {
  fill_real("aten::cauchy_", "cauchy", iter.tensor(0), median, sigma, gen);
}
void geometric_kernel(TensorIteratorBase& iter, double p, Generator gen) {
  const Tensor out = iter.tensor(0);
  TORCH_CHECK_NOT_IMPLEMENTED(out.scalar_type() != c10::kBool, "aten::geometric_ is not implemented for Bool");
  fill_parametric("aten::geometric_", "geometric", out, p, 0, gen);
}
void bernoulli_scalar_kernel(const TensorBase& self, double p, Generator gen) {
  fill_parametric("aten::bernoulli_", "bernoulli", Tensor(self), p, 0, gen);
}
void bernoulli_tensor_kernel(const TensorBase& self, const TensorBase& p, Generator gen) {
  const Tensor out(self);
  const Tensor probabilities = Tensor(p).to(at::TensorOptions().device(out.device()).dtype(at::kFloat));
  fill({.op = "aten::bernoulli_",
        .name = "bernoulli_tensor",
        .probabilities = probabilities.expand(out.sizes()).contiguous()},
       out, gen);
}

// Integers base + [0, range); range 0 means all 64 bits. From 2^28 on, as on CUDA, a range takes wide words: the
// remainder of 32 bits would visibly favour small numbers, unless the range is a power of two.
void fill_integers(const Tensor& self, int64_t base, uint64_t range, const Generator& gen) {
  const bool wide = range == 0 || range > 0xffffffffULL || (range >= 1ULL << 28 && !std::has_single_bit(range));
  fill({.op = "aten::random_",
        .name = "integers",
        .a = base,
        .b = static_cast<int64_t>(range),
        .integers = true,
        .wide = wide},
       self, gen);
}
void random_from_to_kernel(TensorIteratorBase& iter, uint64_t range, int64_t base, Generator gen) {
  fill_integers(iter.tensor(0), base, range, gen);
}
void random_full_kernel(TensorIteratorBase& iter, Generator gen) { fill_integers(iter.tensor(0), 0, 0, gen); }
// random_() without bounds: [0, 2^digits] for floats, [0, max] for integers, as on CPU and CUDA.
void random_kernel(TensorIteratorBase& iter, Generator gen) {
  uint64_t range = 0;
  switch (iter.dtype(0)) {
    case c10::kDouble:
      range = (uint64_t{1} << 53) + 1;
      break;
    case c10::kFloat:
      range = (uint64_t{1} << 24) + 1;
      break;
    case c10::kHalf:
      range = (uint64_t{1} << 11) + 1;
      break;
    case c10::kBFloat16:
      range = (uint64_t{1} << 8) + 1;
      break;
    case c10::kBool:
      range = 2;
      break;
    case c10::kByte:
      range = 256;
      break;
    case c10::kLong:
      range = uint64_t{1} << 63;
      break;
    default:
      range = uint64_t{1} << (8 * c10::elementSize(iter.dtype(0)) - 1);
  }
  fill_integers(iter.tensor(0), 0, range, gen);
}

// Evaluates the inverse of the cumulative distribution at uniform points.
void multinomial_kernel(Tensor& result, const Tensor& self, int64_t samples, Generator gen) {
  const char* op = "aten::multinomial";
  const bool rows = self.dim() == 2;
  if (result.numel() == 0) return;
  TORCH_CHECK(self.size(-1) > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
  const auto acc = self.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat;
  const Tensor weights = (rows ? self : self.unsqueeze(0)).to(acc).contiguous();
  const Tensor cumulative = weights.cumsum(-1);
  const Tensor points = at::empty({weights.size(0), samples}, cumulative.options()).uniform_(0, 1, gen);
  Tensor found = at::empty(points.sizes(), points.options().dtype(at::kLong));
  Device& device = netcl::device_of(self);
  Defs defs;
  defs.set("ACC", dtype_tag(acc));
  const Buf err{assert_buffer(device)};
  const Split all = split(device, weights.numel(), 1), each = split(device, points.numel(), 1);
  kernel(device, "multinomial.cl", "check_weights", defs)
      .launch(op, queue_of(self), {all.items}, {all.local}, buf(weights), weights.numel(), all.chunk, err,
              assert_message_code(device, "probability tensor contains either `inf`, `nan` or element < 0"));
  kernel(device, "multinomial.cl", "pick", defs)
      .launch(op, queue_of(self), {each.items}, {each.local}, buf(found), buf(points), buf(cumulative), buf(weights),
              err,
              PickParams{points.numel(), each.chunk, samples, weights.size(1),
                         assert_message_code(device, "invalid multinomial distribution (sum of probabilities <= 0)")});
  result.copy_(rows ? found : found.squeeze(0));
}

// Fewer numbers have too few bits for the network of randperm.cl.
constexpr int64_t kPermuted = 1 << 16;

void permute(const Tensor& out, const Generator& generator) {
  const char* op = "aten::randperm";
  Device& device = netcl::device_of(out);
  const int64_t n = out.numel(), bits = std::bit_width(static_cast<uint64_t>(n));
  const int64_t per = units_per_item(device, n, 1, tuning(device).least_chunk);
  kernel(device, "randperm.cl", "randperm", Defs())
      .launch(op, queue_of(out), {static_cast<size_t>(ceil_div(n, per))}, element_group(device), buf(out),
              philox_state(generator, device.index(), 1),
              PermutationParams{n, per, static_cast<int32_t>(bits / 2), static_cast<int32_t>(bits - bits / 2)});
}

Tensor& randperm_out(int64_t n, Generator generator, Tensor& result) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  // The check runs on a CPU tensor, whose scalar_tensor raises on overflow.
  at::native::check_supported_max_int_with_precision(n, at::empty({0}, at::dtype(result.scalar_type())));
  at::native::resize_output(result, {n});
  if (n < 2) return result.zero_();
  const bool direct = result.scalar_type() == at::kLong && result.is_contiguous();
  Tensor order = direct ? result : at::empty({n}, result.options().dtype(at::kLong));
  if (n >= kPermuted) {
    permute(order, generator);
  } else {  // the order of random keys
    Tensor keys = at::empty_like(order), sorted = at::empty_like(order);
    fill_integers(keys, 0, uint64_t{1} << 62, generator);
    at::sort_outf(keys, /*stable=*/true, 0, /*descending=*/false, sorted, order);
  }
  return direct ? result : result.copy_(order);
}

std::tuple<Tensor, Tensor> native_dropout(const Tensor& self, double p, std::optional<bool> train) {
  if (!train.value_or(true) || p == 0 || self.numel() == 0) {
    return {self.clone(), at::ones_like(self, self.options().dtype(at::kBool))};
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!at::isIntegralType(self.scalar_type(), true), "\"native_dropout\" not implemented for '",
                              c10::toString(self.scalar_type()), "'");
  if (self.is_complex()) {
    const Tensor mask = at::empty_like(self, self.options().dtype(at::kBool)).bernoulli_(1 - p);
    return {(self * mask).mul_(p == 1 ? 0.0 : 1.0 / (1.0 - p)), mask};
  }
  // Works in memory order, so that the strides are kept.
  const Tensor in = self.is_non_overlapping_and_dense() ? self : self.clone();
  Tensor out = at::empty_like(in), mask = at::empty_like(in, in.options().dtype(at::kBool));
  Device& device = netcl::device_of(in);
  check_dtype(device, in.scalar_type(), "aten::native_dropout");
  const auto acc = compute_type(in.scalar_type());
  const Groups g = groups_for(device, in.numel(), 64);
  const Philox philox = philox_state(std::nullopt, device.index(), g.blocks);
  Defs defs;
  defs.set("IO", dtype_tag(in.scalar_type())).set("ACC", dtype_tag(acc));
  const Bits keep = pack_scalar(static_cast<float>(1.0 - p), acc).bits();
  const Bits scale = pack_scalar(p == 1 ? 0.0 : 1.0 / (1.0 - p), acc).bits();
  kernel(device, "dropout.cl", "dropout", defs)
      .launch("aten::native_dropout", queue_of(in), {g.items}, element_group(device), buf(out), buf(mask), buf(in),
              philox, RandomParams{in.numel(), g.per_item, 0, keep, scale});
  return {out, mask};
}

Tensor native_dropout_backward(const Tensor& grad, const Tensor& mask, double scale) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be Bool Scalar Type, but got ", mask.scalar_type());
  Tensor out = at::empty_like(grad);
  auto iter = at::TensorIteratorConfig()
                  .add_output(out)
                  .add_const_input(grad)
                  .add_const_input(mask)
                  .check_all_same_dtype(false)
                  .build();
  pointwise(iter, "binary.cl", "masked_scale", at::Scalar(scale), grad.scalar_type());
  return out;
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", &at::native::uniform_);
  m.impl("normal_", &at::native::normal_);
  m.impl("normal.Tensor_float", static_cast<Tensor (*)(const Tensor&, double, Generator)>(at::native::normal));
  m.impl("normal.float_Tensor", static_cast<Tensor (*)(double, const Tensor&, Generator)>(at::native::normal));
  m.impl("normal.Tensor_Tensor", static_cast<Tensor (*)(const Tensor&, const Tensor&, Generator)>(at::native::normal));
  m.impl("normal.Tensor_float_out",
         static_cast<Tensor& (*)(const Tensor&, double, Generator, Tensor&)>(at::native::normal_out));
  m.impl("normal.float_Tensor_out",
         static_cast<Tensor& (*)(double, const Tensor&, Generator, Tensor&)>(at::native::normal_out));
  m.impl("normal.Tensor_Tensor_out",
         static_cast<Tensor& (*)(const Tensor&, const Tensor&, Generator, Tensor&)>(at::native::normal_out));
  m.impl("log_normal_", &at::native::log_normal_);
  m.impl("exponential_", &at::native::exponential_);
  m.impl("cauchy_", &at::native::cauchy_);
  m.impl("geometric_", &at::native::geometric_);
  m.impl("bernoulli_.float", static_cast<Tensor& (*)(Tensor&, double, Generator)>(at::native::bernoulli_));
  m.impl("bernoulli_.Tensor", static_cast<Tensor& (*)(Tensor&, const Tensor&, Generator)>(at::native::bernoulli_));
  m.impl("bernoulli.out", &at::native::bernoulli_out);
  m.impl("random_", static_cast<Tensor& (*)(Tensor&, Generator)>(at::native::random_));
  m.impl("random_.to", static_cast<Tensor& (*)(Tensor&, int64_t, Generator)>(at::native::random_));
  m.impl("random_.from",
         static_cast<Tensor& (*)(Tensor&, int64_t, std::optional<int64_t>, Generator)>(at::native::random_));
  m.impl("multinomial", &at::native::multinomial);
  m.impl("multinomial.out", &at::native::multinomial_out);
  m.impl("randperm.generator_out", &randperm_out);
  m.impl("native_dropout", &native_dropout);
  m.impl("native_dropout_backward", &native_dropout_backward);
}

}  // namespace

}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(uniform_stub, &netcl::uniform_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(normal_stub, &netcl::normal_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(log_normal_stub, &netcl::log_normal_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(exponential_stub, &netcl::exponential_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(cauchy_stub, &netcl::cauchy_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(geometric_stub, &netcl::geometric_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(bernoulli_scalar_stub, &netcl::bernoulli_scalar_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(bernoulli_tensor_stub, &netcl::bernoulli_tensor_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(random_from_to_stub, &netcl::random_from_to_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(random_full_64_bits_range_stub, &netcl::random_full_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(random_stub, &netcl::random_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(multinomial_with_replacement_stub, &netcl::multinomial_kernel)
}  // namespace at::native
