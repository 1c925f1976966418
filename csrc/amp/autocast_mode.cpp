// Autocast for netcl: which operators run in the lower precision, which in fp32, and which in the widest of their
// inputs. The lists are those of the installed ATen/autocast_mode.h, so netcl's policies are CUDA's, whatever the
// torch version it was built against.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace netcl {
namespace {

// binary_cross_entropy needs log(1 - p) of a p that half precision cannot tell from 1: refused, as on CUDA.
at::Tensor binary_cross_entropy_banned(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                       int64_t) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
              "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
              "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
              "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
              "safe to autocast.");
}

// Operators on no list keep the dtypes they are given.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define NETCL_LOWER_PRECISION_FP(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(NETCL_LOWER_PRECISION_FP)
#undef NETCL_LOWER_PRECISION_FP

#define NETCL_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(NETCL_FP32)
#undef NETCL_FP32

#define NETCL_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(NETCL_FP32_SET_OPT_DTYPE)
#undef NETCL_FP32_SET_OPT_DTYPE

  // The list's signatures are written as inside namespace at.
  using namespace at;
  // norm appends a dtype to its arguments and goes to the overload that takes one.
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)

#define NETCL_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(NETCL_PROMOTE)
#undef NETCL_PROMOTE

  // On no list: CUDA casts where cuDNN is called. Here the whole layer is the operator (csrc/aten/rnn/RnnLayers.h).
  KERNEL_PRIVATEUSEONE(lstm, input, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(gru, input, lower_precision_fp)

  m.impl("binary_cross_entropy", &binary_cross_entropy_banned);
}

}  // namespace
}  // namespace netcl
