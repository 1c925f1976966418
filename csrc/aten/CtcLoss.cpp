// Connectionist temporal classification: _ctc_loss and its derivative, in log space (Graves et al., ICML 2006, section
// 4).
#include <ATen/ops/_ctc_loss_backward_native.h>
#include <ATen/ops/_ctc_loss_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <array>
#include <bit>

#include "args/ctc.h"
#include "aten/support/Launch.h"
#include "aten/support/Library.h"
#include "aten/support/Plan.h"
#include "aten/support/Rows.h"
#include "runtime/Assertions.h"

namespace netcl {
namespace {

using at::IntArrayRef;
using at::Tensor;

struct Ctc {
  const char* op;
  Device& dev;
  Tensor log_probs, targets;
  // (3, batch) on the device: the lengths of input and target, and where the target begins.
  Tensor spans;
  int64_t steps, batch, classes, blank, states;
  Defs defs;

  Ctc(const char* op, const Tensor& log_probs_, const Tensor& targets_, IntArrayRef input_lengths,
      IntArrayRef target_lengths, int64_t blank)
      : op(op),
        dev(netcl::device_of(log_probs_)),
        log_probs(log_probs_.contiguous()),
        targets(targets_.to(at::kLong).contiguous()),
        steps(log_probs_.size(0)),
        batch(log_probs_.size(1)),
        classes(log_probs_.size(2)),
        blank(blank) {
    const auto type = log_probs.scalar_type();
    TORCH_CHECK_NOT_IMPLEMENTED(type == at::kFloat || type == at::kDouble, "\"ctc_loss\" not implemented for '", type,
                                "' on netcl: it takes float32 and float64");
    check_dtype(dev, type, op);
    TORCH_CHECK(targets_.scalar_type() == at::kLong || targets_.scalar_type() == at::kInt,
                "ctc_loss: expected targets of dtype int64 or int32, got ", targets_.scalar_type());
    TORCH_CHECK(log_probs.dim() == 3 && (targets.dim() == 1 || targets.dim() == 2),
                "ctc_loss: expected log_probs of 3 and targets of 1 or 2 dimensions, got ", log_probs.dim(), " and ",
                targets.dim());
    TORCH_CHECK(blank >= 0 && blank < classes, "blank must be in label range");
    TORCH_CHECK(int64_t(input_lengths.size()) == batch, "input_lengths must be of size batch_size");
    TORCH_CHECK(int64_t(target_lengths.size()) == batch, "target_lengths must be of size batch_size");
    const bool joined = targets.dim() == 1;
    TORCH_CHECK(joined || targets.size(0) == batch, "ctc_loss: expected targets of ", batch, " rows, got ",
                targets.size(0));
    std::vector<int64_t> values(3 * batch);
    int64_t longest = joined ? 0 : targets.size(1), end = 0;
    for (int64_t b = 0; b < batch; b++) {
      const int64_t input = input_lengths[b], target = target_lengths[b];
      TORCH_CHECK(input >= 0 && input <= steps, "ctc_loss: expected input_lengths to have value at most ", steps,
                  ", but got value ", input);
      TORCH_CHECK(target >= 0 && (joined || target <= longest),
                  "ctc_loss: expected target_lengths to have value at most ", longest, ", but got value ", target);
      values[b] = input;
      values[batch + b] = target;
      values[2 * batch + b] = joined ? end : b * targets.size(1);
      end += target;
      if (joined) longest = std::max(longest, target);
    }
    TORCH_CHECK(!joined || end == targets.size(0), "ctc_loss: expected ", end, " concatenated targets, got ",
                targets.size(0));
    states = 2 * longest + 1;
    spans = at::tensor(values, at::kLong).to(log_probs.device());
    defs.set("ACC", dtype_tag(type)).set("VEC", std::min(kRowVec, tuning(dev).lanes));
  }

  // The forward variables from the start, or the backward variables from the end, with one work-group per sequence.
  // Local memory keeps up to 4 KiB of states.
  Tensor scan(bool reverse, const Tensor& nll) const {
    const Tensor log_alpha = at::empty({batch, steps, states}, log_probs.options());
    if (batch == 0) return log_alpha;
    const size_t wide = std::bit_ceil(size_t(states)), local = group_of(dev, std::clamp<size_t>(wide, 64, 256));
    const bool kept = wide * log_probs.itemsize() <= 4096;
    Defs d = defs;
    d.set("GROUP", int64_t(local));
    if (kept) d.set("KEPT", int64_t(std::max<size_t>(wide, 64)));
    CtcParams p = params();
    p.reverse = reverse;
    kernel(dev, "ctc_loss.cl", "ctc_scan", d)
        .launch(op, queue_of(log_probs), {size_t(batch) * local}, {local}, buf(log_alpha), buf_or_null(nll),
                buf(log_probs), buf(targets), buf(spans), Buf{assert_buffer(dev)}, p);
    return log_alpha;
  }

  CtcParams params() const { return {steps, batch, classes, states, blank, assert_code(dev, op)}; }
};

// The gradient of the input, from the forward and the backward variables.
struct CtcGradient {
  const char* op;
  const Ctc& ctc;
  Tensor out, grad, alpha, beta, nll;
  bool zero_infinity;

  // A work-group per step and sequence.
  template <class... More>
  void launch(const char* name, const Defs& defs, const Range& group, const More&... more) const {
    const std::array all{buf(out), buf(grad),          buf(alpha),       buf(beta),
                         buf(nll), buf(ctc.log_probs), buf(ctc.targets), buf(ctc.spans)};
    CtcParams p = ctc.params();
    p.zero_infinity = zero_infinity;
    kernel(ctc.dev, "ctc_loss.cl", name, defs)
        .launch(op, queue_of(out), {size_t(ctc.steps) * group.x, size_t(ctc.batch)}, group, c10::ArrayRef<Buf>(all), p,
                more...);
  }
};

std::optional<Range> plan_gradient(const CtcGradient& g) { return element_group(g.ctc.dev); }
void run_alone(const CtcGradient& g, const Range& group) { g.launch("ctc_gradient", g.ctc.defs, group); }
// The work-items of a group divide the states, so each must know where its label comes next.
void run_in_groups(const CtcGradient& g, const Range& group) {
  const Ctc& ctc = g.ctc;
  Defs d = ctc.defs;
  d.set("GROUP", int64_t(group.x));
  const Tensor next = at::empty({ctc.batch, ctc.states / 2}, ctc.log_probs.options().dtype(at::kInt));
  if (next.numel() > 0) {
    kernel(ctc.dev, "ctc_loss.cl", "ctc_repeats", d)
        .launch(g.op, queue_of(g.out), {size_t(next.numel())}, group, buf(next), buf(ctc.targets), buf(ctc.spans),
                ctc.params());
  }
  g.launch("ctc_gradient_group", d, group, buf(next));
}

constexpr Way<CtcGradient> kCtcGradient[] = {
    {"alone", take<&plan_gradient, &run_alone>, Serves::kCpu},
    {"in groups", take<&plan_gradient, &run_in_groups>, Serves::kGpu},
};

std::tuple<Tensor, Tensor> ctc_loss(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                                    IntArrayRef target_lengths, int64_t blank, bool) {
  const Ctc ctc("aten::_ctc_loss", log_probs, targets, input_lengths, target_lengths, blank);
  const Tensor nll = at::empty({ctc.batch}, log_probs.options());
  return {nll, ctc.scan(false, nll)};
}

Tensor ctc_loss_backward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                         IntArrayRef target_lengths, const Tensor& nll, const Tensor& log_alpha, int64_t blank,
                         bool zero_infinity) {
  const Ctc ctc("aten::_ctc_loss_backward", log_probs, targets, input_lengths, target_lengths, blank);
  const Tensor log_beta = ctc.scan(true, Tensor());
  const Tensor out = at::empty_like(ctc.log_probs);
  if (out.numel() == 0) return out;
  run_first(kCtcGradient, ctc.dev,
            CtcGradient{ctc.op, ctc, out, grad.contiguous(), log_alpha.contiguous(), log_beta, nll.contiguous(),
                        zero_infinity});
  return out;
}

NETCL_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_ctc_loss", &ctc_loss);
  m.impl("_ctc_loss_backward", &ctc_loss_backward);
  // The lengths are tensors: ATen reads them and calls the overloads above.
  m.impl("_ctc_loss.Tensor", &at::native::ctc_loss_tensor);
  m.impl("_ctc_loss_backward.Tensor", &at::native::ctc_loss_backward_tensor);
}

}  // namespace
}  // namespace netcl
