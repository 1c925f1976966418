// cdist and pdist. Checks, broadcasting and the matrix form of large Euclidean distances are ATen's.
#include <ATen/native/Distance.h>
#include <ATen/ops/_cdist_backward_native.h>
#include <ATen/ops/_cdist_forward_native.h>
#include <ATen/ops/_pdist_backward_native.h>
#include <ATen/ops/_pdist_forward_native.h>

#include <bit>
#include <cmath>

#include "args/distance.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Rows.h"

namespace netcl {
namespace {

using at::Tensor;

// Launches a kernel of distance.cl.
template <class... Bufs>
void distance(const char* op, bool backward, const Tensor& x, double p, DistanceParams params, Bufs... bufs) {
  Device& dev = netcl::device_of(x);
  const auto type = x.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kDouble, "\"", op, "\" not implemented for '", type,
              "' on netcl: it takes float32 and float64");
  check_dtype(dev, type, op);
  Defs defs;
  defs.set("ACC", dtype_tag(type));
  defs.set("OP", p == 0 ? "l0" : p == 1 ? "l1" : p == 2 ? "l2" : std::isinf(p) ? "linf" : "lp");
  const int64_t vec = std::bit_floor(uint64_t(std::min(params.m, row_vec(dev, params.m))));
  const int64_t width = backward ? ceil_div(params.m, vec) : params.columns, units = params.batch * params.rows * width;
  params.per = units_per_item(dev, units, backward ? params.columns * vec : params.m, 65536);
  Kernel& k = kernel(dev, "distance.cl", backward ? "distance_backward" : "distance_forward", defs.set("VEC", vec));
  const Range global{size_t(ceil_div(units, params.per))}, local = element_group(dev);
  if (type == at::kFloat) {
    k.launch(op, queue_of(x), global, local, bufs..., float(p), params);
  } else {
    k.launch(op, queue_of(x), global, local, bufs..., p, params);
  }
}

void cdist_kernel(Tensor& out, const Tensor& x, const Tensor& y, double p) {
  const int64_t rows = x.size(-2), columns = y.size(-2), m = x.size(-1);
  distance("aten::_cdist_forward", false, x, p, {x.size(0), rows, columns, m, false}, buf(out), buf(x), buf(y));
}
void gradient(Tensor& gx, const Tensor& grad, const Tensor& x, const Tensor& y, double p, const Tensor& dist,
              bool pairs) {
  if (p == 0 || x.numel() == 0) return void(gx.zero_());
  const Tensor g = grad.contiguous(), d = dist.contiguous();
  const int64_t rows = x.size(-2), m = x.size(-1);
  distance(pairs ? "aten::_pdist_backward" : "aten::_cdist_backward", true, x, p,
           {x.numel() / (rows * m), rows, y.size(-2), m, pairs}, buf(gx), buf(g), buf(x), buf(y), buf(d));
}
void cdist_backward_kernel(Tensor& gx, const Tensor& grad, const Tensor& x, const Tensor& y, double p,
                           const Tensor& dist) {
  gradient(gx, grad, x, y, p, dist, false);
}
void pdist_kernel(Tensor& out, const Tensor& x, double p) {
  const int64_t n = x.size(0);
  distance("aten::_pdist_forward", false, x, p, {1, n, n, x.size(1), true}, buf(out), buf(x), buf(x));
}
void pdist_backward_kernel(Tensor& gx, const Tensor& grad, const Tensor& x, double p, const Tensor& dist) {
  const int64_t pairs = x.size(0) * (x.size(0) - 1) / 2;
  check_sizes("aten::_pdist_backward", "grad", grad, {pairs});
  check_sizes("aten::_pdist_backward", "pdist", dist, {pairs});
  gradient(gx, grad, x, x, p, dist, true);
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_cdist_forward", &at::native::_cdist_forward);
  m.impl("_cdist_backward", &at::native::_cdist_backward);
  m.impl("_pdist_forward", &at::native::_pdist_forward);
  m.impl("_pdist_backward", &at::native::_pdist_backward);
}

}  // namespace
}  // namespace netcl

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(cdist_stub, &netcl::cdist_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(cdist_backward_stub, &netcl::cdist_backward_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(pdist_forward_stub, &netcl::pdist_kernel)
REGISTER_PRIVATEUSE1_DISPATCH(pdist_backward_stub, &netcl::pdist_backward_kernel)
}  // namespace at::native
