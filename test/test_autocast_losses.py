"""Losses and other composite functions of 16-bit inputs under autocast, against float64: a result that says float32
must have been computed in float32. (Autocast's lists have holes: cross_entropy_loss is in fp32 on CPUs and XLA, but on
no list of CUDA's, whose log-softmax is rounded to 16 bits.)"""

import unittest
from unittest import mock

import torch
import torch.nn.functional as F
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

import torch_netcl  # noqa: F401

DEV = "netcl"

# Here the rounding is that of operators of 16-bit tensors (x - y, x * x, logsigmoid) before anything casts to float32.
# CUDA, CPU and XLA do the same.
ROUNDS = {"pairwise_distance", "triplet_margin_with_distance_loss", "gaussian_nll_loss", "local_response_norm"}
ROUNDS |= {"multilabel_soft_margin_loss"}


def gumbel_softmax(x):
    """With the same noise on every device."""
    with mock.patch.object(torch.Tensor, "exponential_", lambda t: t.fill_(0.5)):
        return F.gumbel_softmax(x, dim=1)


def table():
    """name -> (function, arguments). Floating tensors become 16-bit, and float64 for the reference."""
    g = torch.Generator().manual_seed(37)

    def randn(*size):
        return torch.randn(*size, generator=g).mul(3)

    x, y, image = randn(6, 10), randn(6, 10), randn(2, 5, 3, 3)
    index, pixels = torch.randint(10, (6,), generator=g), torch.randint(5, (2, 3, 3), generator=g)
    p, weight = randn(6, 10).softmax(1), torch.rand(10, generator=g) + 0.5
    sign, one = torch.rand(6, 10, generator=g).gt(0.5).mul(2).sub(1).float(), torch.ones(6)
    ce = F.cross_entropy
    return {
        "cross_entropy": (ce, x, index),
        "cross_entropy none": (lambda a, b: ce(a, b, reduction="none"), x, index),
        "cross_entropy sum": (lambda a, b: ce(a, b, reduction="sum"), x, index),
        "cross_entropy weighted": (lambda a, b, w: ce(a, b, w), x, index, weight),
        "cross_entropy smoothed": (lambda a, b: ce(a, b, label_smoothing=0.1), x, index),
        "cross_entropy smoothed none": (lambda a, b: ce(a, b, label_smoothing=0.1, reduction="none"), x, index),
        "cross_entropy ignores": (lambda a, b: ce(a, b, ignore_index=int(index[0])), x, index),
        "cross_entropy probabilities": (ce, x, p),
        "cross_entropy probabilities smoothed": (lambda a, b: ce(a, b, label_smoothing=0.2), x, p),
        "cross_entropy of images": (ce, image, pixels),
        "cross_entropy of one": (ce, x[0], index[0]),
        "nll_loss": (lambda a, b: F.nll_loss(F.log_softmax(a, 1), b), x, index),
        "nll_loss2d": (lambda a, b: F.nll_loss(F.log_softmax(a, 1), b), image, pixels),
        "kl_div": (lambda a, b: F.kl_div(F.log_softmax(a, 1), b, reduction="batchmean"), x, p),
        "kl_div log_target": (
            lambda a, b: F.kl_div(F.log_softmax(a, 1), F.log_softmax(b, 1), reduction="sum", log_target=True),
            x,
            y,
        ),
        "softmax": (lambda a: F.softmax(a, 1), x),
        "log_softmax": (lambda a: F.log_softmax(a, 1), x),
        "softmin": (lambda a: F.softmin(a, 1), x),
        "gumbel_softmax": (gumbel_softmax, x),
        "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, x, p),
        "mse_loss": (F.mse_loss, x, y),
        "l1_loss": (F.l1_loss, x, y),
        "smooth_l1_loss": (F.smooth_l1_loss, x, y),
        "huber_loss": (F.huber_loss, x, y),
        "poisson_nll_loss": (F.poisson_nll_loss, x, p),
        "gaussian_nll_loss": (F.gaussian_nll_loss, x, y, p + 0.5),
        "hinge_embedding_loss": (F.hinge_embedding_loss, x, sign),
        "margin_ranking_loss": (F.margin_ranking_loss, x, y, sign),
        "soft_margin_loss": (F.soft_margin_loss, x, sign),
        "multi_margin_loss": (F.multi_margin_loss, x, index),
        "multilabel_margin_loss": (F.multilabel_margin_loss, x, torch.argsort(y, 1)),
        "multilabel_soft_margin_loss": (F.multilabel_soft_margin_loss, x, p),
        "triplet_margin_loss": (F.triplet_margin_loss, x, y, p),
        "triplet_margin_with_distance_loss": (F.triplet_margin_with_distance_loss, x, y, p),
        "cosine_embedding_loss": (F.cosine_embedding_loss, x, y, one),
        "cosine_similarity": (F.cosine_similarity, x, y),
        "pairwise_distance": (F.pairwise_distance, x, y),
        "cdist": (torch.cdist, x, y),
        "pdist": (F.pdist, x),
        "dist": (torch.dist, x, y),
        "normalize": (F.normalize, x),
        "logsumexp": (lambda a: torch.logsumexp(a, 1), x),
        "norm": (torch.norm, x),
        "layer_norm": (lambda a: F.layer_norm(a, [10]), x),
        "group_norm": (lambda a: F.group_norm(a, 5), image),
        "rms_norm": (lambda a: F.rms_norm(a, [10]), x),
        "instance_norm": (F.instance_norm, image),
        "local_response_norm": (lambda a: F.local_response_norm(a, 3), image),
        "logcumsumexp": (lambda a: torch.logcumsumexp(a, 1), x),
        "var": (torch.var, x),
        "std": (torch.std, x),
        "var_mean": (torch.var_mean, x),
        "softplus": (F.softplus, x),
        "prod": (torch.prod, p),
        "sum": (torch.sum, x),
        "cumsum": (lambda a: torch.cumsum(a, 1), x),
        "renorm": (lambda a: torch.renorm(a, 2, 0, 1.0), x),
    }


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestLosses(TestCase):
    @parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_float32_is_float32(self, dtype):
        was = torch.netcl.amp.get_fp16_storage()
        self.addCleanup(torch.netcl.amp.set_fp16_storage, was)
        torch.netcl.amp.set_fp16_storage()
        checked = set()
        for name, (function, *arguments) in table().items():
            narrow = [a.to(dtype) if a.is_floating_point() else a for a in arguments]
            want = function(*[a.double() if a.is_floating_point() else a for a in narrow])
            with torch.autocast(DEV, dtype):
                got = function(*[a.to(DEV) for a in narrow])
            for g, w in zip(*[r if isinstance(r, tuple) else (r,) for r in (got, want)], strict=True):
                with self.subTest(name=name):
                    if g.dtype != torch.float32:
                        continue
                    checked.add(name)
                    # Sums of up to 90 floats of this size; a value that was rounded to 16 bits is off by 1e-3 or more.
                    tolerance = {"rtol": 0.1, "atol": 0.1} if name in ROUNDS else {"rtol": 2e-5, "atol": 2e-5}
                    self.assertEqual(g.cpu().double(), w, **tolerance)
        self.assertGreater(len(checked), 40)

    @parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_cross_entropy(self, dtype):
        """The result and the gradient, which has the input's dtype."""
        was = torch.netcl.amp.get_fp16_storage()
        self.addCleanup(torch.netcl.amp.set_fp16_storage, was)
        torch.netcl.amp.set_fp16_storage()
        x = torch.tensor([[0.3, 0.7, -8.0], [4.0, 0.0, 3.0]], dtype=dtype)
        a, b = x.to(DEV).requires_grad_(), x.double().requires_grad_()
        target = torch.tensor([1, 0])
        with torch.autocast(DEV, dtype):
            loss = F.cross_entropy(a, target.to(DEV))
        want = F.cross_entropy(b, target)
        loss.backward()
        want.backward()
        self.assertEqual((loss.dtype, a.grad.dtype), (torch.float32, dtype))
        self.assertEqual(loss.double().cpu(), want, rtol=1e-6, atol=0)
        self.assertEqual(a.grad.double().cpu(), b.grad, rtol=torch.finfo(dtype).eps, atol=0)


instantiate_parametrized_tests(TestLosses)

if __name__ == "__main__":
    run_tests()
