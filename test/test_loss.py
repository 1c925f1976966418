"""Negative log likelihood and the losses of torch.nn, against the CPU."""

import copy

import torch
import torch.nn.functional as F
from common import no_fallback
from torch import nn
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl  # noqa: F401

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class TestLoss(TestCase):
    def check(self, device, f, x, *rest, dtype=torch.float32, tolerance=None):
        """f(x, *rest) and the gradient of x, against float64 on the CPU."""
        leaf, ref = x.to(dtype).to(device).requires_grad_(), x.to(dtype).double().requires_grad_()
        wide = [r.double() if torch.is_tensor(r) and r.is_floating_point() else r for r in rest]
        mine = [r.to(device) if torch.is_tensor(r) else r for r in rest]
        y, expected = f(leaf, *mine), f(ref, *wide)
        # One rounding to the dtype of the result, and the input is rounded to it (log_softmax).
        eps = torch.finfo(dtype).eps
        tolerance = tolerance or {"rtol": max(2 * eps, 2e-6), "atol": max(4 * eps, 2e-6)}
        self.assertEqual(y.detach().cpu(), expected.detach().to(y.dtype), **tolerance)
        g = torch.randn_like(expected).to(y.dtype)
        y.backward(g.to(device))
        expected.backward(g.double())
        self.assertEqual(leaf.grad.cpu(), ref.grad.to(dtype), **tolerance)

    @dtypes(*FLOATS)
    def test_nll_loss(self, device, dtype):
        scores = {
            (40, 10): (40,),
            (3000, 7): (3000,),
            (6,): (),
            (3, 5, 7): (3, 7),
            (2, 4, 5, 6): (2, 5, 6),
            (2, 3, 2, 3, 4): (2, 2, 3, 4),
        }
        for shape, target_shape in scores.items():
            classes = shape[0] if len(shape) == 1 else shape[1]
            x = torch.randn(shape).log_softmax(0 if len(shape) == 1 else 1)
            target = torch.randint(classes, target_shape)
            weight = torch.rand(classes).to(dtype)
            if target.dim() > 0:
                target.view(-1)[::4] = 2
            for reduction in ("none", "mean", "sum"):
                with self.subTest(shape=shape, reduction=reduction):
                    self.check(
                        device,
                        lambda t, c, r=reduction: F.nll_loss(t, c, reduction=r),
                        x,
                        target,
                        dtype=dtype,
                    )
                    if target.dim() > 0:
                        self.check(
                            device,
                            lambda t, c, w, r=reduction: F.nll_loss(t, c, w, reduction=r, ignore_index=2),
                            x,
                            target,
                            weight,
                            dtype=dtype,
                        )

    def test_nll_loss_special_cases(self, device):
        x = torch.randn(4, 5).log_softmax(1)
        target = torch.full((4,), -100)
        for reduction in ("none", "mean", "sum"):
            got = F.nll_loss(x.to(device), target.to(device), reduction=reduction)
            self.assertEqual(
                got.cpu(), F.nll_loss(x, target, reduction=reduction)
            )  # the mean of nothing is NaN
        empty = torch.empty(0, 5)
        none = torch.empty(0, dtype=torch.long)
        for reduction in ("none", "mean", "sum"):
            got = F.nll_loss(empty.to(device), none.to(device), reduction=reduction)
            self.assertEqual(got.cpu(), F.nll_loss(empty, none, reduction=reduction))
        x[1, 2] = float("nan")
        target = torch.tensor([0, 2, 1, 1])
        self.assertEqual(F.nll_loss(x.to(device), target.to(device)).cpu(), F.nll_loss(x, target))
        bytes_ = target.to(torch.uint8)
        x[1, 2] = -1
        self.assertEqual(F.nll_loss(x.to(device), bytes_.to(device)).cpu(), F.nll_loss(x, bytes_))
        # strided scores and targets
        wide = torch.randn(5, 8).log_softmax(0)
        target = torch.randint(5, (16,))
        got = F.nll_loss(wide.to(device).t(), target.to(device)[::2])
        self.assertEqual(got.cpu(), F.nll_loss(wide.t(), target[::2]))

    def test_target_out_of_range(self, device):
        x = torch.randn(4, 5, device=device)
        for bad in (5, -1):
            with self.assertRaisesRegex(IndexError, "nll_loss"):
                F.nll_loss(x, torch.tensor([0, 1, bad, 2], device=device)).item()
        self.assertEqual(torch.ones(2, device=device).sum().item(), 2)  # and the device goes on

    def test_ctc_loss(self, device):
        """Both layouts of targets, repeated labels, empty and impossible ones, sequences of all lengths."""
        steps, batch, classes = 30, 5, 7
        log_probs = torch.randn(steps, batch, classes).log_softmax(2)
        inputs, lengths = [30, 17, 9, 4, 1], [12, 8, 0, 3, 2]  # the last does not fit
        padded = torch.randint(1, classes, (batch, 14))
        padded[0, 1:4] = padded[0, 0]
        joined = torch.cat([t[:n] for t, n in zip(padded, lengths, strict=True)])
        # Logarithms of up to 100 have an error of 100 * 2^-24 = 6e-6, and a gradient is the exp of a sum of three.
        near = {"rtol": 2e-5, "atol": 2e-5}
        for targets in (padded, joined):
            for reduction in ("none", "mean"):
                self.check(
                    device,
                    lambda x, t, r=reduction: F.ctc_loss(x, t, inputs, lengths, reduction=r, zero_infinity=True),
                    log_probs,
                    targets,
                    tolerance=near,
                )
        # Lengths as tensors, another blank, int32, and no batch; an impossible target gives an infinite loss.
        sizes = torch.tensor(inputs), torch.tensor(lengths)
        loss = F.ctc_loss(log_probs.to(device), padded.int().to(device), inputs, lengths, reduction="none")
        self.assertEqual(loss[-1].item(), float("inf"))
        self.check(device, lambda x, t: F.ctc_loss(x, t, [30], [12]), log_probs[:, 0], padded[0, :12], tolerance=near)
        with no_fallback():
            on_device = [s.to(device) for s in sizes]
            got = F.ctc_loss(log_probs.to(device), padded.to(device), *on_device, blank=6, zero_infinity=True)
        self.assertEqual(got.cpu(), F.ctc_loss(log_probs, padded, *sizes, blank=6, zero_infinity=True))

    def test_ctc_long_targets(self, device):
        """More states and classes than work-items, few and many classes, and labels that are the blank."""
        if not torch.netcl.get_device_properties().has_fp64:
            self.skipTest("no float64, and sums of 700 logarithms in float32 have errors of some percent")
        # 1,081 states are more than the local memory of a GPU keeps.
        for steps, batch, classes, labels in ((700, 2, 5, 540), (90, 3, 300, 40), (140, 2, 2, 70)):
            log_probs = torch.randn(steps, batch, classes).log_softmax(2)
            targets = torch.randint(1, classes, (batch, labels))
            targets[:, ::7] = 0
            targets[:, [labels // 2 - 1, labels - 1]] = 1  # the CPU's gradient is wrong if the last label is the blank
            inputs, lengths = [steps] * (batch - 1) + [steps - 20], [labels] + [labels // 2] * (batch - 1)
            self.check(
                device,
                lambda x, t, i=inputs, n=lengths: F.ctc_loss(x, t, i, n, reduction="none", zero_infinity=True),
                log_probs,
                targets,
                dtype=torch.float64,
                tolerance={"rtol": 1e-10, "atol": 1e-10},
            )

    def test_ctc_refusals(self, device):
        x, t = torch.zeros(4, 2, 3, device=device), torch.ones(2, 2, dtype=torch.int64, device=device)
        for call, error in (
            (lambda: F.ctc_loss(x, t, [4, 5], [2, 2]), "input_lengths"),
            (lambda: F.ctc_loss(x, t, [4, 4], [2, 3]), "target_lengths"),
            (lambda: F.ctc_loss(x, t, [4, 4], [2, 2], blank=3), "blank must be in label range"),
            (lambda: F.ctc_loss(x, t.view(-1), [4, 4], [2, 1]), "concatenated targets"),
            (lambda: F.ctc_loss(x.half(), t, [4, 4], [2, 2]), "float32 and float64"),
        ):
            with self.assertRaisesRegex(RuntimeError, error):
                call()
        with self.assertRaisesRegex(IndexError, "ctc_loss"):
            F.ctc_loss(x, t + 5, [4, 4], [2, 2]).item()

    def test_cross_entropy(self, device):
        x, target = torch.randn(6, 5), torch.randint(5, (6,))
        weight, soft = torch.rand(5), torch.rand(6, 5).softmax(1)
        self.check(device, F.cross_entropy, x, target)
        self.check(device, lambda t, c, w: F.cross_entropy(t, c, w, label_smoothing=0.2), x, target, weight)
        self.check(device, lambda t, c, w: F.cross_entropy(t, c, w, reduction="none"), x, target, weight)
        self.check(device, lambda t, p, w: F.cross_entropy(t, p, w, label_smoothing=0.1), x, soft, weight)
        images, labels = torch.randn(2, 5, 3, 4), torch.randint(5, (2, 3, 4))
        self.check(device, lambda t, c: F.cross_entropy(t, c, label_smoothing=0.1), images, labels)

    def test_binary_cross_entropy_of_other_layouts(self, device):
        p, t = torch.rand(3, 20, 5, 7), torch.rand(3, 20, 5, 7)
        views = [
            lambda x: x.contiguous(memory_format=torch.channels_last),
            lambda x: x[:, ::2],
            lambda x: x[:1].expand(4, 20, 5, 7),
        ]
        for view in views:
            a, b = view(p), view(t)
            for c in (b, b.contiguous()):
                y = F.binary_cross_entropy(view(p.to(device)), c.to(device), reduction="none")
                self.assertEqual(y.cpu(), F.binary_cross_entropy(a, c, reduction="none"))
        empty = torch.empty(0, 3, device=device)
        self.assertEqual(F.binary_cross_entropy(empty, empty, reduction="sum").item(), 0)
        with self.assertRaisesRegex(RuntimeError, "Found dtype"):
            F.binary_cross_entropy(p.to(device), t.to(device).half())

    @dtypes(*FLOATS)
    def test_binary_cross_entropy(self, device, dtype):
        p, t = torch.rand(5, 7), torch.rand(5, 7)
        p[0, :3] = torch.tensor([0.0, 1.0, 1e-6])
        t[0, :3] = torch.tensor([1.0, 0.0, 0.5])
        weight = torch.rand(7).to(dtype)
        p, t = p.to(dtype), t.to(dtype)
        for reduction in ("none", "mean", "sum"):
            for w in (None, weight):
                a, b = p.to(device).requires_grad_(), p.float().clone().requires_grad_()
                wide = None if w is None else w.float()
                y = F.binary_cross_entropy(
                    a, t.to(device), None if w is None else w.to(device), reduction=reduction
                )
                ref = F.binary_cross_entropy(b, t.float(), wide, reduction=reduction)
                # A result, its product with the weight and the sum are each rounded to the dtype once.
                eps = torch.finfo(dtype).eps
                self.assertEqual(y.dtype, dtype)
                self.assertEqual(y.detach().cpu().float(), ref.detach(), rtol=max(2e-6, 4 * eps), atol=1e-6)
                if reduction == "none":
                    y, ref = y.sum(), ref.sum()
                y.backward()
                ref.backward()
                # The corners have gradients of 1e6 and more, which half cannot hold.
                self.assertEqual(a.grad.cpu().float()[1:], b.grad[1:], rtol=max(1e-5, 8 * eps), atol=1e-6)

    @dtypes(torch.float32, torch.float16)
    def test_margin_losses(self, device, dtype):
        x, klass = torch.randn(6, 5), torch.randint(5, (6,))
        labels = torch.tensor(
            [[0, 3, -1, 1, 1], [2, -1, 0, 0, 0], [-1, 1, 1, 1, 1], [4, 0, 1, 2, 3], [1] * 5, [0] * 5]
        )
        weight = torch.rand(5).to(dtype)
        for reduction in ("none", "mean", "sum"):
            for p in (1, 2):

                def f(t, c, w=None, p=p, r=reduction):
                    return F.multi_margin_loss(t, c, p, 0.7, w, reduction=r)

                self.check(device, f, x, klass, dtype=dtype)
                self.check(device, f, x, klass, weight, dtype=dtype)
                self.check(device, f, x[0], klass[0], dtype=dtype)
            self.check(
                device,
                lambda t, c, r=reduction: F.multilabel_margin_loss(t, c, reduction=r),
                x,
                labels,
                dtype=dtype,
            )
            self.check(
                device, lambda t, c, r=reduction: F.multilabel_margin_loss(t, c, reduction=r), x[0], labels[0]
            )

    def test_margin_losses_into_out(self, device):
        """The out= forms give what the functional ones do, whatever the out= tensors held."""
        x, klass, labels = torch.randn(6, 5), torch.randint(5, (6,)), torch.randint(-1, 5, (6, 5))
        ops, grad = torch.ops.aten, torch.tensor(0.7)
        _, is_target = ops.multilabel_margin_loss_forward(x, labels, 1)
        for op, names, args in (
            (ops.multi_margin_loss, ("out",), (x, klass, 1, 0.7)),
            (ops.multi_margin_loss_backward, ("grad_input",), (grad, x, klass, 1, 0.7)),
            (ops.multilabel_margin_loss_forward, ("output", "is_target"), (x, labels, 1)),
            (ops.multilabel_margin_loss_backward, ("grad_input",), (grad, x, labels, 1, is_target)),
        ):
            want = op(*args)
            out = {n: torch.empty(0, device=device) for n in names}
            with no_fallback():
                op(*(a.to(device) if torch.is_tensor(a) else a for a in args), **out)
            for got, w in zip(out.values(), want if isinstance(want, tuple) else (want,), strict=True):
                self.assertEqual(got.cpu(), w)

    def test_losses_of_nn(self, device):
        """Each loss module agrees with the CPU, and none runs on the CPU."""
        torch.netcl.reset_cpu_fallback_ops()
        x, y = torch.randn(6, 5), torch.randn(6, 5)
        p, q = torch.rand(6, 5).clamp(0.05, 0.95), torch.rand(6, 5).clamp(0.05, 0.95)
        sign, signs = torch.randn(6).sign(), torch.randn(6, 5).sign()
        klass = torch.randint(5, (6,))
        cases = [
            (nn.MSELoss(), x, y),
            (nn.L1Loss(), x, y),
            (nn.SmoothL1Loss(beta=0.5), x, y),
            (nn.HuberLoss(delta=0.7), x, y),
            (nn.BCELoss(), p, q),
            (nn.BCEWithLogitsLoss(pos_weight=torch.rand(5)), x, q),
            (nn.KLDivLoss(reduction="batchmean"), x.log_softmax(1), q.softmax(1)),
            (nn.KLDivLoss(reduction="sum", log_target=True), x.log_softmax(1), q.log_softmax(1)),
            (nn.SoftMarginLoss(), x, signs),
            (nn.HingeEmbeddingLoss(), x, signs),
            (nn.PoissonNLLLoss(full=True), x, p * 3),
            (nn.GaussianNLLLoss(), x, y, p),
            (nn.MarginRankingLoss(margin=0.1), x, y, signs),
            (nn.CosineEmbeddingLoss(), x, y, sign),
            (nn.TripletMarginLoss(), x, y, p),
            (nn.MultiLabelSoftMarginLoss(), x, (q > 0.5).float()),
            (nn.MultiMarginLoss(), x, klass),
            (nn.NLLLoss(), x.log_softmax(1), klass),
            (nn.CrossEntropyLoss(), x, klass),
        ]
        for module, *args in cases:
            with self.subTest(module=module):
                mine = copy.deepcopy(module).to(device)
                ref_args = [a.clone() for a in args]
                my_args = [a.to(device) for a in args]
                ref_args[0].requires_grad_(), my_args[0].requires_grad_()
                ref, out = module(*ref_args), mine(*my_args)
                self.assertEqual(out.detach().cpu(), ref.detach(), atol=2e-6, rtol=2e-6)
                ref.backward()
                out.backward()
                self.assertEqual(my_args[0].grad.cpu(), ref_args[0].grad, atol=2e-6, rtol=2e-6)
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    def test_weight_of_another_dtype(self, device):
        for size in ((4, 3), (4, 3, 2, 2)):
            target = torch.zeros((4, *size[2:]), dtype=torch.long)
            for dev in ("cpu", device):
                x = torch.randn(size, device=dev)
                with self.assertRaisesRegex(RuntimeError, "Double"):
                    F.nll_loss(x, target.to(dev), torch.ones(3, dtype=torch.float64, device=dev))

    def test_margin_losses_of_nothing(self, device):
        """They are 0; the CPU leaves them uninitialised."""
        x, y = torch.empty(0, 4, device=device), torch.empty(0, dtype=torch.long, device=device)
        for reduction, want in (("mean", torch.tensor(0.0)), ("sum", torch.tensor(0.0)), ("none", torch.empty(0))):
            self.assertEqual(F.multi_margin_loss(x, y, reduction=reduction).cpu(), want)
            self.assertEqual(F.multilabel_margin_loss(x, x.long(), reduction=reduction).cpu(), want)

    @dtypes(torch.float64)
    def test_margin_in_double(self, device, dtype):
        x, y = torch.randn(5, 4, dtype=dtype), torch.tensor([0, 1, 2, 3, 0])
        self.check(device, lambda x, y: F.multi_margin_loss(x, y, margin=1 / 3), x, y, dtype=dtype,
                   tolerance={"atol": 1e-12, "rtol": 1e-12})



instantiate_device_type_tests(TestLoss, globals(), only_for="netcl")

if __name__ == "__main__":
    run_tests()
