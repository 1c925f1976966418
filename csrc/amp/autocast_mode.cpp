// Autocast for netcl: which operators run in the lower precision, in fp32, or in the widest of their input dtypes. The
// lists are those of the installed ATen/autocast_mode.h, so netcl's policies are CUDA's in every torch version, but for
// the few operators that are named below.
#include <ATen/autocast_mode.h>

#include <atomic>
#include <cstdlib>

#include "aten/support/Library.h"
#include "runtime/Device.h"

namespace netcl {
namespace {

// Whether autocast takes float16 on every device: kernels store halves and compute them in float, which needs no
// extension. NETCL_FP16=storage sets the first value; Device.cpp refuses other words.
std::atomic<bool>& fp16_storage() {
  static std::atomic<bool> on{[] {
    const char* value = std::getenv("NETCL_FP16");
    return value && *value;
  }()};
  return on;
}

bool lacks_fp16(c10::DeviceIndex index) { return !device(index).info().has_fp16; }

// Whether some devices have cl_khr_fp16 and others do not.
bool fp16_differs() {
  static const bool differs = [] {
    int lacking = 0;
    for (c10::DeviceIndex i = 0; i < device_count(); i++) lacking += lacks_fp16(i) ? 1 : 0;
    return lacking > 0 && lacking < device_count();
  }();
  return differs;
}

// The index of an argument's device; -1 if it is no netcl tensor.
template <class T>
int device_index_of(const T&) {
  return -1;
}
int device_index_of(const at::Tensor& t) { return t.defined() && t.is_privateuseone() ? t.device().index() : -1; }
int device_index_of(const std::optional<at::Tensor>& t) { return t ? device_index_of(*t) : -1; }
int device_index_of(const at::ITensorListRef& list) {
  for (const at::Tensor& t : list) {
    if (const int index = device_index_of(t); index >= 0) return index;
  }
  return -1;
}
int device_index_of(const at::TensorList& list) { return device_index_of(at::ITensorListRef(list)); }

// If only some devices have cl_khr_fp16, autocast to float16 means bfloat16 on the others, unless halves as storage
// suffice. This sets the dtype by the device of the tensors, whichever device is current.
class DtypeOfDevice {
 public:
  template <class... Args>
  explicit DtypeOfDevice(const Args&... args) {
    if (at::autocast::get_autocast_dtype(at::kPrivateUse1) != at::kHalf || !fp16_differs() || fp16_storage()) return;
    int index = -1;
    ((index = index < 0 ? device_index_of(args) : index), ...);
    changed_ = index >= 0 && lacks_fp16(static_cast<c10::DeviceIndex>(index));
    if (changed_) at::autocast::set_autocast_dtype(at::kPrivateUse1, at::kBFloat16);
  }
  ~DtypeOfDevice() {
    if (changed_) at::autocast::set_autocast_dtype(at::kPrivateUse1, at::kHalf);
  }
  DtypeOfDevice(const DtypeOfDevice&) = delete;
  DtypeOfDevice& operator=(const DtypeOfDevice&) = delete;

 private:
  bool changed_ = false;
};

}  // namespace
}  // namespace netcl

// The two policies that use the autocast dtype: ATen's own, with the dtype of the tensors' device.
namespace at::autocast {

template <class Redispatch, Redispatch* F, class Ret, class... Args>
struct WrapFunction_<CastPolicy::lower_precision_fp, at::kPrivateUse1, Redispatch, F, Ret,
                     guts::typelist::typelist<Args...>> {
  static Ret call(Args... args) {
    const netcl::DtypeOfDevice dtype(args...);
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
    return (*F)(cached_cast(get_autocast_dtype(at::kPrivateUse1), args, at::kPrivateUse1)...);
  }
};

template <class Redispatch, Redispatch* F, class Ret, class... Args>
struct WrapFunction_<CastPolicy::promote, at::kPrivateUse1, Redispatch, F, Ret, guts::typelist::typelist<Args...>> {
  static Ret call(Args... args) {
    const netcl::DtypeOfDevice dtype(args...);
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
    const auto to_type = promote_type(get_autocast_dtype(at::kPrivateUse1), at::kPrivateUse1, args...);
    return (*F)(cached_cast(to_type, args, at::kPrivateUse1)...);
  }
};

}  // namespace at::autocast

namespace netcl {
namespace {

// binary_cross_entropy needs log(1 - p), and half precision rounds some p to 1. It raises, as on CUDA.
at::Tensor binary_cross_entropy_banned(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                       int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
              "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
              "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
              "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
              "safe to autocast.");
}

// Operators on no list keep the dtypes of their arguments.
NETCL_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

NETCL_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define NETCL_LOWER_PRECISION_FP(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(NETCL_LOWER_PRECISION_FP)
#undef NETCL_LOWER_PRECISION_FP

#define NETCL_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(NETCL_FP32)
#undef NETCL_FP32

#define NETCL_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(NETCL_FP32_SET_OPT_DTYPE)
#undef NETCL_FP32_SET_OPT_DTYPE

  // The lists' signatures are written for namespace at.
  using namespace at;
  // norm appends a dtype to its arguments and calls the overload that takes one.
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)

#define NETCL_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(NETCL_PROMOTE)
#undef NETCL_PROMOTE

  // Alone on no list of CUDA's, but in fp32 on CPUs and XLA: it asks log_softmax for its input's dtype, which would
  // round the logarithms to 16 bits although nll_loss, in fp32, returns floats.
  KERNEL_PRIVATEUSEONE(cross_entropy_loss, fp32)

  // These are on no list, since CUDA casts when it calls cuDNN. Here the whole layer is one operator
  // (csrc/aten/rnn/Rnn.h).
  KERNEL_PRIVATEUSEONE(lstm, input, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(gru, input, lower_precision_fp)

  m.impl("binary_cross_entropy", &binary_cross_entropy_banned);
}

NETCL_LIBRARY_FRAGMENT(netcl, m) {
  m.def("fp16_storage() -> bool", [] { return fp16_storage().load(); });
  m.def("set_fp16_storage(bool enabled) -> ()", [](bool enabled) { fp16_storage() = enabled; });
}

}  // namespace
}  // namespace netcl
