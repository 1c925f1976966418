#include "aten/support/SoftDouble.h"

#include "aten/support/Launch.h"

namespace netcl {

bool soft_double(at::TensorIteratorBase& iter, std::string_view op) {
  if (iter.ntensors() != 2 || iter.ninputs() != 1 || !iter.is_contiguous() || iter.is_cpu_scalar(1)) return false;
  const auto to = iter.dtype(0), from = iter.dtype(1);
  const char* name = nullptr;
  if (op == "copy" && from == at::kFloat && to == at::kDouble) {
    name = "widen";
  } else if (op == "copy" && from == at::kDouble && to == at::kFloat) {
    name = "narrow";
  } else if (op == "reciprocal" && from == at::kDouble && to == at::kDouble) {
    name = "reciprocal";
  } else {
    return false;
  }
  Device& device = netcl::device(iter.device(0).index());
  const auto bits = [](c10::ScalarType type) { return type == at::kDouble ? "u64" : "u32"; };
  Defs defs;
  defs.set("OP", name).set("IN", bits(from)).set("OUT", bits(to));
  kernel(device, "soft_double.cl", "soft_double", defs)
      .launch(name, current_queue(device.index()), {static_cast<size_t>(iter.numel())}, {64}, Buf{iter.data_ptr(0)},
              Buf{iter.data_ptr(1)}, iter.numel());
  return true;
}

}  // namespace netcl
