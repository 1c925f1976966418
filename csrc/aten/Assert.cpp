// torch._assert_async: asserts a value that stays on the device.
#include <ATen/ops/ne.h>

#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

using at::Tensor;

// Does not wait: the kernel reports a 0 in the same way as an index out of range.
void assert_async_msg(const Tensor& self, c10::string_view message) {
  TORCH_CHECK(self.numel() == 1, "Boolean value of Tensor with ",
              self.numel() == 0 ? "no values" : "more than one value", " is ambiguous");
  const Tensor truth = self.scalar_type() == at::kBool ? self : self.ne(0);
  Device& dev = netcl::device_of(self);
  const int32_t code = assert_message_code(dev, std::string(message));
  kernel(dev, "assert.cl", "assert_nonzero", {})
      .launch("aten::_assert_async", queue_of(self), {1}, {1}, buf(truth), Buf{assert_buffer(dev)}, code);
}
void assert_async(const Tensor& self) {
  assert_async_msg(self, "Expected Tensor with single nonzero value, but got zero");
}
Tensor functional_assert_async_msg(const Tensor& self, c10::string_view message, const Tensor& token) {
  assert_async_msg(self, message);
  return token.clone();
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_assert_async", &assert_async);
  m.impl("_assert_async.msg", &assert_async_msg);
  m.impl("_functional_assert_async.msg", &functional_assert_async_msg);
}

}  // namespace
}  // namespace netcl
