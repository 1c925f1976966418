// cdist and pdist. Checks, broadcasting and the matrix form of large Euclidean distances are ATen's.
#include <ATen/native/Distance.h>
#include <ATen/ops/_cdist_backward_native.h>
#include <ATen/ops/_cdist_forward_native.h>
#include <ATen/ops/_pdist_backward_native.h>
#include <ATen/ops/_pdist_forward_native.h>

#include <cmath>

#include "args/distance.h"
#include "aten/support/Library.h"
#include "aten/support/Outputs.h"
#include "aten/support/Rows.h"

namespace netcl {
namespace {

using at::Tensor;

// Launches a kernel of distance.cl over `items` work-items.
template <class... Bufs>
void distance(const char* op, const char* name, const Tensor& x, double p, const DistanceParams& params, int64_t items,
              Bufs... bufs) {
  Device& dev = netcl::device_of(x);
  const auto type = x.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kDouble, "\"", op, "\" not implemented for '", type,
              "' on netcl: it takes float32 and float64");
  check_dtype(dev, type, op);
  Defs defs;
  defs.set("ACC", dtype_tag(type));
  defs.set("OP", p == 0 ? "l0" : p == 1 ? "l1" : p == 2 ? "l2" : std::isinf(p) ? "linf" : "lp");
  Kernel& k = kernel(dev, "distance.cl", name, defs);
  const Range global{size_t(items)}, local = element_group(dev);
  if (type == at::kFloat) {
    k.launch(op, queue_of(x), global, local, bufs..., float(p), params);
  } else {
    k.launch(op, queue_of(x), global, local, bufs..., p, params);
  }
}

void cdist_kernel(Tensor& out, const Tensor& x, const Tensor& y, double p) {
  const int64_t rows = x.size(-2), columns = y.size(-2), m = x.size(-1);
  distance("aten::_cdist_forward", "distance_forward", x, p, {x.size(0), rows, columns, m, false}, out.numel(),
           buf(out), buf(x), buf(y));
}
void cdist_backward_kernel(Tensor& gx, const Tensor& grad, const Tensor& x, const Tensor& y, double p,
                           const Tensor& dist) {
  if (p == 0) {
    gx.zero_();
    return;
  }
  const Tensor g = grad.contiguous(), d = dist.contiguous();
  const int64_t batch = x.dim() == 2 ? 1 : x.size(0);
  distance("aten::_cdist_backward", "distance_backward", x, p, {batch, x.size(-2), y.size(-2), x.size(-1), false},
           x.numel(), buf(gx), buf(g), buf(x), buf(y), buf(d));
}
void pdist_kernel(Tensor& out, const Tensor& x, double p) {
  const int64_t n = x.size(0);
  distance("aten::_pdist_forward", "distance_forward", x, p, {1, n, n, x.size(1), true}, n * n, buf(out), buf(x),
           buf(x));
}
void pdist_backward_kernel(Tensor& gx, const Tensor& grad, const Tensor& x, double p, const Tensor& dist) {
  const int64_t n = x.size(0), pairs = n * (n - 1) / 2;
  check_sizes("aten::_pdist_backward", "grad", grad, {pairs});
  check_sizes("aten::_pdist_backward", "pdist", dist, {pairs});
  if (p == 0) {
    gx.zero_();
    return;
  }
  const Tensor g = grad.contiguous(), d = dist.contiguous();
  distance("aten::_pdist_backward", "distance_backward", x, p, {1, n, n, x.size(1), true}, x.numel(), buf(gx), buf(g),
           buf(x), buf(x), buf(d));
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
