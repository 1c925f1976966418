// Rejection sampling from distributions with a parameter per element, and their reparameterised gradients.
#include <ATen/Dispatch.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>

#include <limits>

#include "args/random.h"
#include "aten/support/Generator.h"
#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Pointwise.h"
#include "runtime/Assertions.h"

namespace netcl {

namespace {

using at::Tensor;
using Generator = std::optional<at::Generator>;

// Draws one number for each element of `first`; `second` has its shape or is undefined. If the kernel meets an invalid
// parameter, the next synchronising call raises with `message`.
Tensor draw(const char* op, const char* dist, const Tensor& first, const Tensor& second, const Generator& generator,
            const char* message = nullptr) {
  TORCH_CHECK(at::isFloatingType(first.scalar_type()), op, ": expected floating point numbers, got ",
              first.scalar_type());
  const Tensor a = first.contiguous();
  Tensor out = at::empty_like(a);
  if (a.numel() == 0) return out;
  Device& device = netcl::device_of(a);
  check_dtype(device, a.scalar_type(), op);
  const auto acc = compute_type(a.scalar_type());
  const Philox philox = philox_state(generator, device.index(), static_cast<uint64_t>(a.numel()));
  const Split s = split(device, a.numel(), 1);
  Defs defs;
  defs.set("OP", dist).set("IO", dtype_tag(a.scalar_type())).set("ACC", dtype_tag(acc));
  kernel(device, "sampling.cl", "sample", defs)
      .launch(op, queue_of(a), {s.items}, {s.local}, buf(out), buf(a), buf_or_null(second),
              Buf{message ? assert_buffer(device) : nullptr}, philox,
              RandomParams{a.numel(), s.chunk, message ? assert_message_code(device, message) : 0, {}, {}});
  return out;
}

Tensor standard_gamma(const Tensor& alpha, Generator generator) {
  return draw("aten::_standard_gamma", "gamma", alpha, {}, generator);
}

Tensor poisson(const Tensor& rate, Generator generator) {
  return draw("aten::poisson", "poisson", rate, {}, generator,
              "invalid Poisson rate, expected rate to be non-negative");
}

Tensor binomial(const Tensor& count, const Tensor& prob, Generator generator) {
  TORCH_CHECK(count.scalar_type() == prob.scalar_type(), "binomial: expected count and prob of one dtype, got ",
              count.scalar_type(), " and ", prob.scalar_type());
  return draw("aten::binomial", "binomial", count, prob.expand(count.sizes()).contiguous(), generator);
}

// Gamma variates divided by their sum, kept inside the open interval as on CPU and CUDA.
Tensor sample_dirichlet(const Tensor& alpha, Generator generator) {
  const Tensor gammas = draw("aten::_sample_dirichlet", "gamma", alpha, {}, generator);
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, alpha.scalar_type(), "dirichlet", [&] {
    using limits = std::numeric_limits<scalar_t>;
    const double low = static_cast<double>(limits::min()), gap = static_cast<double>(limits::epsilon());
    return gammas.div(gammas.sum(-1, true)).clamp_(low, 1 - gap);
  });
}

Tensor standard_gamma_grad(const Tensor& alpha, const Tensor& drawn) {
  Tensor out;
  auto iter = at::TensorIterator::borrowing_binary_op(out, alpha, drawn);
  pointwise(iter, "special/gamma.cl", "standard_gamma_grad");
  return iter.output();
}

Tensor dirichlet_grad(const Tensor& x, const Tensor& alpha, const Tensor& total) {
  Tensor out;
  auto iter = at::TensorIteratorConfig()
                  .add_output(out)
                  .add_const_input(x)
                  .add_const_input(alpha)
                  .add_const_input(total)
                  .build();
  pointwise(iter, "special/gamma.cl", "dirichlet_grad");
  return iter.output();
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_standard_gamma", &standard_gamma);
  m.impl("poisson", &poisson);
  m.impl("binomial", &binomial);
  m.impl("_sample_dirichlet", &sample_dirichlet);
  m.impl("_standard_gamma_grad", &standard_gamma_grad);
  m.impl("_dirichlet_grad", &dirichlet_grad);
}

}  // namespace

}  // namespace netcl
