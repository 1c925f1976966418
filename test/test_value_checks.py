"""Invalid values for operators: a table of those that CPU or CUDA refuse. netcl refuses them by the next synchronising
call at the latest, and works on afterwards. Sizes that do not fit, which the CPU reads past the end for, are refused at
once; tools/oclgrind_misfits.py looks for such."""

import math

import torch
import torch.nn.functional as F
from torch.testing._internal.common_utils import TestCase, run_tests

D = torch.device("netcl", 0)
ATEN = torch.ops.aten

NAN, INF = math.nan, math.inf


def table(t):
    """name -> call with a bad value. `t` makes a tensor on the device."""
    x, rows, image = t([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]]), t([0.0, 1.0, 2.0]), t([[[[0.0, 1.0], [2.0, 3.0]]]])
    log_p, half = x.log(), t([0.5, 0.5])
    cases = {}
    for name, bad in (("negative", -1), ("past the end", 3)):
        cases |= {
            f"nll_loss {name}": lambda b=bad: F.nll_loss(log_p, t([0, b])),
            f"nll_loss none {name}": lambda b=bad: F.nll_loss(log_p, t([0, b]), reduction="none"),
            f"nll_loss weighted {name}": lambda b=bad: F.nll_loss(log_p, t([0, b]), weight=rows),
            f"nll_loss of one {name}": lambda b=bad: F.nll_loss(log_p[0], t(b)),
            f"nll_loss2d {name}": lambda b=bad: F.nll_loss(log_p[:, :, None, None], t([[[0]], [[b]]])),
            f"nll_loss2d none {name}": lambda b=bad: F.nll_loss(
                log_p[:, :, None, None], t([[[0]], [[b]]]), reduction="none"
            ),
            f"cross_entropy {name}": lambda b=bad: F.cross_entropy(x, t([0, b])),
            f"cross_entropy smoothed {name}": lambda b=bad: F.cross_entropy(x, t([0, b]), label_smoothing=0.1),
            f"multi_margin {name}": lambda b=bad: F.multi_margin_loss(x, t([0, b])),
            f"embedding {name}": lambda b=bad: F.embedding(t([0, b]), x.t()),
            f"embedding max_norm {name}": lambda b=bad: F.embedding(t([0, b]), x.t().contiguous(), max_norm=0.1),
            f"embedding_backward {name}": lambda b=bad: ATEN.embedding_dense_backward(x, t([0, b]), 3, 0, False),
            f"ctc_loss target {name}": lambda b=bad: F.ctc_loss(log_p[:, None], t([[b]]), t([2]), t([1])),
            f"embedding_bag {name}": lambda b=bad: F.embedding_bag(t([[0, b]]), x.t()),
            f"one_hot {name}": lambda b=bad: F.one_hot(t([0, b]), 3),
            f"segment_reduce lengths {name}": lambda b=bad: torch.segment_reduce(rows, "sum", lengths=t([1, b])),
        }
    for name, bad in (("below", -4), ("past the end", 3)):
        cases |= {
            f"index {name}": lambda b=bad: rows[t([0, b])],
            f"index_put {name}": lambda b=bad: rows.index_put((t([0, b]),), t(1.0)),
            f"index_put accumulate {name}": lambda b=bad: rows.index_put((t([0, b]),), t(1.0), accumulate=True),
            f"take {name}": lambda b=bad: rows.take(t([0, b])),
            f"put {name}": lambda b=bad: rows.put(t([0, b]), half),
            f"put accumulate {name}": lambda b=bad: rows.put(t([0, b]), half, accumulate=True),
            f"gather {name}": lambda b=bad: rows.gather(0, t([0, b])),
            f"scatter {name}": lambda b=bad: rows.scatter(0, t([0, b]), half),
            f"scatter value {name}": lambda b=bad: rows.scatter(0, t([0, b]), 1.0),
            f"scatter_add {name}": lambda b=bad: rows.scatter_add(0, t([0, b]), half),
            f"scatter_reduce {name}": lambda b=bad: rows.scatter_reduce(0, t([0, b]), half, "amax"),
            f"index_select {name}": lambda b=bad: rows.index_select(0, t([0, b])),
            f"index_add {name}": lambda b=bad: rows.index_add(0, t([0, b]), half),
            f"index_copy {name}": lambda b=bad: rows.index_copy(0, t([0, b]), half),
            f"index_fill {name}": lambda b=bad: rows.index_fill(0, t([0, b]), 2.0),
            f"index_reduce {name}": lambda b=bad: rows.index_reduce(0, t([0, b]), half, "prod"),
        }
    for name, bad in (("nan", NAN), ("below 0", -0.1), ("above 1", 1.1)):
        for reduction in ("mean", "none"):
            cases |= {
                f"bce {reduction} {name}": lambda b=bad, r=reduction: F.binary_cross_entropy(
                    t([0.5, b]), half, reduction=r
                ),
                f"bce target {reduction} {name}": lambda b=bad, r=reduction: F.binary_cross_entropy(
                    half, t([0.5, b]), reduction=r
                ),
            }
        cases[f"bernoulli {name}"] = lambda b=bad: torch.bernoulli(t([0.5, b]))
        cases[f"bernoulli_ {name}"] = lambda b=bad: torch.empty_like(half).bernoulli_(t([0.5, b]))
    for name, bad in (("nan", NAN), ("negative", -1.0), ("infinite", INF)):
        for n, replacement in ((1, False), (2, True), (2, False)):
            cases[f"multinomial {n} {replacement} {name}"] = lambda b=bad, n=n, r=replacement: torch.multinomial(
                t([0.5, 0.5, b]), n, r
            )
        for limit in ("min", "max"):
            cases[f"histc {limit} {name}"] = lambda b=bad, k=limit: torch.histc(
                rows, 3, **{"min": 0, "max": 1, k: b if b != -1.0 or k == "max" else 2}
            )
    cases |= {
        "multinomial of zeros": lambda: torch.multinomial(t([0.0, 0.0]), 2, True),
        "poisson": lambda: torch.poisson(t([1.0, -1.0])),
        "normal std": lambda: torch.normal(half, t([1.0, -1.0])),
        "multilabel_margin below": lambda: F.multilabel_margin_loss(rows, t([0, -2, 1])),
        "multilabel_margin past the end": lambda: F.multilabel_margin_loss(rows, t([0, 3, -1])),
        "one_hot without classes": lambda: F.one_hot(t([0, -1])),
        "bincount": lambda: torch.bincount(t([1, -1])),
        "repeat_interleave": lambda: torch.repeat_interleave(t([1, -1])),
        "repeat_interleave of a tensor": lambda: rows.repeat_interleave(t([1, -1, 1])),
        "repeat_interleave output_size": lambda: rows.repeat_interleave(t([1, 1, 1]), output_size=2),
        "histc of nan": lambda: torch.histc(t([0.0, NAN])),
        "histc of infinity": lambda: torch.histc(t([0.0, INF])),
        "assert_async": lambda: torch._assert_async(t(0)),
        "ctc_loss input length": lambda: F.ctc_loss(log_p[:, None], t([[1]]), t([3]), t([1])),
        "ctc_loss target length": lambda: F.ctc_loss(log_p[:, None], t([[1]]), t([2]), t([2])),
        "max_unpool2d": lambda: F.max_unpool2d(image, t([[[[0, 1], [2, 16]]]]), 2),
        "max_unpool2d negative": lambda: F.max_unpool2d(image, t([[[[0, 1], [2, -1]]]]), 2),
        "max_unpool1d": lambda: F.max_unpool1d(image[0], t([[[0, 9], [1, 2]]]), 2),
        "segment_reduce total": lambda: torch.segment_reduce(rows, "sum", lengths=t([1, 1])),
        "segment_reduce nan": lambda: torch.segment_reduce(rows, "sum", lengths=t([4, -1])),
        "tensor_split": lambda: torch.tensor_split(rows, t([[1]])),
        "linalg.inv": lambda: torch.linalg.inv(t([[1.0, 1.0], [1.0, 1.0]])),
        "linalg.solve": lambda: torch.linalg.solve(t([[0.0, 1.0], [0.0, 1.0]]), half),
        "linalg.cholesky": lambda: torch.linalg.cholesky(t([[-1.0, 0.0], [0.0, 1.0]])),
        "lu_unpack": lambda: torch.lu_unpack(t([[1.0, 0.0], [0.0, 1.0]]), t([1, 5]).int()),
        "searchsorted sorter": lambda: torch.searchsorted(rows, half, sorter=t([0, 1, 3])),
        "masked_scatter": lambda: rows.masked_scatter(t([True, True, True]), half),
        "quantile": lambda: torch.quantile(rows, t([0.5, 1.5])),
        "max_unpool3d": lambda: F.max_unpool3d(image, t([[[[0, 1], [2, 32]]]]), 2),
        "fractional_max_pool2d_backward": lambda: ATEN.fractional_max_pool2d_backward(
            image[..., :1, :1], image, [2, 2], [1, 1], t([[[[4]]]])
        ),
        "sparse indices": lambda: torch.sparse_coo_tensor(t([[0, 3]]), half, (3,), check_invariants=True),
        "item of bool": lambda: bool(rows),
        "integer power": lambda: t([2]) ** -1,
        "arange": lambda: torch.arange(0, INF, device=rows.device),
    }
    return cases


def misfits(t):
    """name -> call of an operator that autograd or a composite one calls, with sizes that do not fit."""
    n, two, three = [True] * 3, t(2), t(3)
    stats, x, image = t(3), t(2, 3, 4), t(2, 3, 4, 4)
    ints = lambda *v: torch.tensor(v, device=x.device)  # noqa: E731
    attend = ATEN._scaled_dot_product_fused_attention_overrideable
    attend_backward = ATEN._scaled_dot_product_fused_attention_overrideable_backward
    conv = lambda *a: ATEN.convolution_overrideable(*a)  # noqa: E731
    one = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)

    def attention_gradient(grad, q, k, v, lse):
        return attend_backward(
            grad, q, k, v, None, [True, True, True, False], q, lse, None, None, 4, 4, 0.0, False, None, None
        )

    def bag(mode, bags, sample=None):
        return ATEN._embedding_bag_dense_backward(
            t(2, 3), ints(0, 1), bags, ints(1, 1), ints(), 4, False, mode, sample
        )

    return {
        "convolution stride": lambda: conv(image, t(2, 3, 2, 2), None, [0, 1], *one[1:]),
        "convolution padding": lambda: conv(image, t(2, 3, 2, 2), None, [1, 1], [-1, 0], *one[2:]),
        "convolution numbers": lambda: conv(image, t(2, 3, 2, 2), None, [1, 1], [0] * 5, *one[2:]),
        "convolution dilation": lambda: conv(image, t(2, 3, 2, 2), None, [1, 1], [0, 0], [], *one[3:]),
        "convolution dimensions": lambda: conv(image, t(2, 3, 2), None, *one),
        "convolution channels": lambda: conv(image, t(2, 4, 2, 2), None, *one),
        "convolution groups": lambda: conv(image, t(2, 3, 2, 2), None, *one[:5], 0),
        "convolution bias": lambda: conv(image, t(2, 3, 2, 2), three, *one),
        "convolution gradient": lambda: ATEN.convolution_backward_overrideable(
            t(2, 2, 3, 2), image, t(2, 3, 2, 2), *one, n
        ),
        "reflection_pad1d": lambda: ATEN.reflection_pad1d_backward(t(3), t(3), [1, 1]),
        "reflection_pad2d dimensions": lambda: ATEN.reflection_pad2d_backward(t(), t(), [5, -2, 5, -1]),
        "reflection_pad2d too far": lambda: ATEN.reflection_pad2d_backward(t(1, 2, 12), t(1, 2, 2), [5, 5, 0, 0]),
        "replication_pad2d": lambda: ATEN.replication_pad2d_backward(t(), t(), [-1, 1, -2, 1]),
        "replication_pad3d": lambda: ATEN.replication_pad3d_backward(t(4), t(4), [0] * 6),
        "unfold": lambda: ATEN.unfold_backward(t(3, 3), [1, 12], 1, 2**31, 2),
        "unfold gradient": lambda: ATEN.unfold_backward(t(2, 2), [12], 0, 3, 2),
        "log_softmax": lambda: ATEN._log_softmax_backward_data(t(1, 3), t(2, 3), 1, torch.float32),
        "softmax": lambda: ATEN._softmax_backward_data(t(2, 3), t(4, 6), 1, torch.float32),
        "pdist": lambda: ATEN._pdist_backward(t(1), t(10, 2), 2.0, t(1)),
        "segment_reduce gradient": lambda: ATEN._segment_reduce_backward(t(), t(2), t(3), "max", lengths=ints(2, 1)),
        "segment_reduce output": lambda: ATEN._segment_reduce_backward(two, t(1), t(3), "max", lengths=ints(2, 1)),
        "segment_reduce lengths": lambda: ATEN._segment_reduce_backward(
            two, two, t(3), "max", lengths=torch.tensor(3, device=x.device)
        ),
        "grid_sample gradient": lambda: ATEN.grid_sampler_2d_backward(
            t(2, 3, 1, 1), image, t(2, 4, 4, 2), 0, 0, True, [True] * 2
        ),
        "grid_sample mode": lambda: ATEN.grid_sampler_2d(image, t(2, 4, 4, 2), 7, 0, True),
        "batch_norm gradient": lambda: ATEN.native_batch_norm_backward(
            t(2, 3, 1), x, stats, stats, stats, stats, stats, True, 1e-5, n
        ),
        "batch_norm statistics": lambda: ATEN.native_batch_norm_backward(
            x, x, stats, stats, stats, t(1), stats, True, 1e-5, n
        ),
        "batch_norm none": lambda: ATEN.native_batch_norm_backward(x, x, stats, None, None, None, None, False, 1e-5, n),
        "layer_norm gradient": lambda: ATEN.native_layer_norm_backward(t(2), x, [4], t(2, 3), t(2, 3), None, None, n),
        "layer_norm statistics": lambda: ATEN.native_layer_norm_backward(x, x, [4], t(1), t(2, 3), None, None, n),
        "rms_norm": lambda: ATEN._fused_rms_norm_backward(t(2, 3, 3), x, [4], t(2, 3, 1), None, [True] * 2),
        "group_norm": lambda: ATEN.native_group_norm_backward(x, x, t(2, 3), t(1), None, 2, 3, 4, 3, n),
        "group_norm weight": lambda: ATEN.native_group_norm_backward(x, x, t(2, 3), t(2, 3), t(), 2, 3, 4, 3, n),
        "multilabel_margin": lambda: ATEN.multilabel_margin_loss_backward(t(), t(4), ints(0, 1, -1, 0), 1, t(1)),
        "lu_unpack": lambda: torch.lu_unpack(t(3, 3), torch.empty(0, dtype=torch.int32, device=x.device)),
        "attention keys": lambda: attend(t(2, 4, 3, 8), t(2, 4, 3, 7), t(2, 4, 3, 8)),
        "attention values": lambda: attend(t(2, 4, 3, 8), t(2, 4, 3, 8), t(2, 4, 2, 8)),
        "attention heads": lambda: attend(t(2, 4, 3, 8), t(2, 3, 3, 8), t(2, 3, 3, 8)),
        "attention gradient": lambda: attention_gradient(t(2, 4, 3, 7), *[t(2, 4, 3, 8)] * 3, t(2, 4, 3)),
        "attention logsumexp": lambda: attention_gradient(t(2, 4, 3, 8), *[t(2, 4, 3, 8)] * 3, t(2, 4)),
        "embedding_bag mode": lambda: bag(7, ints(0, 1)),
        "embedding_bag bags": lambda: bag(0, ints(0)),
        "embedding_bag weights": lambda: bag(0, ints(0, 1), t(5)),
    }


class TestValueChecks(TestCase):
    def outcome(self, call, sync):
        try:
            call()
            sync()
        except (RuntimeError, IndexError, ValueError) as e:
            return e
        return None

    def test_what_cpu_or_cuda_refuse(self):
        # The CPU reads or writes beyond the end.
        silent_on_cpu = {
            "embedding_backward negative",
            "embedding_backward past the end",
            "ctc_loss target negative",
            "ctc_loss target past the end",
        }
        here, there = table(lambda v: torch.tensor(v)), table(lambda v: torch.tensor(v, device=D))
        wrong = []
        for name in here:
            refused = self.outcome(here[name], lambda: None)
            got = self.outcome(there[name], torch.netcl.synchronize)
            if refused is None and name not in silent_on_cpu:
                wrong.append(f"{name}: the CPU takes it (netcl: {got})")
            elif got is None:
                wrong.append(f"{name}: netcl takes it; the CPU: {refused}")
        torch.netcl.synchronize()
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_sets_of_tensors_that_do_not_fit(self):
        """What torch.compile calls for optimizers."""
        ops = torch.ops.netcl
        kernel = ops.compile_generated(0, "__kernel void for_no_set(__global float* x) {}", "for_no_set", 0, False, [])
        for tensors, sets in (([], 2), ([torch.ones(2, device=D)], 2), ([torch.ones(2, device=D)], 0)):
            with self.assertRaisesRegex(RuntimeError, "tensors are no . rows of arguments"):
                ops.launch_generated_many(kernel, tensors, [1, 1, 1], sets)

    def test_sizes_that_do_not_fit(self):
        calls = misfits(lambda *sizes: torch.ones(sizes, device=D))
        taken = [name for name, call in calls.items() if self.outcome(call, lambda: None) is None]
        torch.netcl.synchronize()
        self.assertEqual(taken, [])


if __name__ == "__main__":
    run_tests()
