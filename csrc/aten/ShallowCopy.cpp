// `parameter.data = tensor` from one device to another.
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "aten/support/Library.h"

namespace netcl {
namespace {

bool dense_here_or_on_cpu(const at::Tensor& t) {
  const c10::DispatchKeySet keys = t.key_set();
  return keys.has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) &&
         keys.has_any(c10::DispatchKeySet({c10::BackendComponent::CPUBit, c10::BackendComponent::PrivateUse1Bit}));
}

// nn.Module.to() asks this. By default the answer is no between the CPU and PrivateUse1; then it would replace each
// Parameter by a new one: tied weights would no longer be tied, and an optimizer created before would keep updating the
// old ones.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  return (dense_here_or_on_cpu(self) && dense_here_or_on_cpu(from)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

}  // namespace

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}
// A composite implicit operator with a kernel for a backend needs one for its autograd key too.
NETCL_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

}  // namespace netcl
