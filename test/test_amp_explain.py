"""detect_overflow names the operator that overflows first; explain tells what autocast does to each module."""

import math
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import torch
from common import allow_fp16
from torch import nn
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401
from torch_netcl.amp import detect_overflow, explain

DEV = "netcl"


def low_dtype(dev):
    return torch.float16 if dev == "cpu" or torch.float16 in torch.netcl.amp.autocast_dtypes() else torch.bfloat16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


def make_model(dev):
    torch.manual_seed(0)
    return nn.Sequential(Block(), nn.LayerNorm(8), Block(), nn.Linear(8, 2)).to(dev)


class Poison(torch.autograd.Function):
    """Passes its input through; its backward divides by zero."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad / torch.zeros((), device=grad.device)


class Poisoned(nn.Module):
    def forward(self, x):
        return Poison.apply(x)


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestDetectOverflow(TestCase):
    def run_step(self, model, x, dev, dtype=torch.bfloat16):
        model.zero_grad()
        waits = torch.netcl.host_sync_count()
        with detect_overflow(model) as found:
            with torch.autocast(dev, dtype=dtype):
                loss = model(x).square().mean()
            loss.backward()
            waits = torch.netcl.host_sync_count() - waits
        self.assertEqual(waits, 0)
        return found

    @parametrize("dev", ["cpu", DEV])
    def test_each_module_forward_and_backward(self, dev):
        """Makes every leaf module overflow in turn, forward and backward: it is named, and nothing in a clean step is.
        """
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1)).to(dev)
        model = make_model(dev)
        self.assertIsNone(self.run_step(model, x, dev).first)
        for name, leaf in list(model.named_modules()):
            if isinstance(leaf, nn.Linear):
                with torch.no_grad():
                    weight = leaf.weight.clone()
                    leaf.weight.fill_(3e38)
                first = self.run_step(model, x.abs() + 1 if name == "0.up" else x, dev).first
                with torch.no_grad():
                    leaf.weight.copy_(weight)
                # 3e38 is finite, also in bfloat16, but its products with the module's input are not.
                self.assertEqual((first.module, first.phase), (name, "forward"))
                self.assertRegex(first.operator, "mm|linear")
            parent = model.get_submodule(name.rpartition(".")[0])
            if name and not list(leaf.children()):
                setattr(parent, name.rpartition(".")[2], nn.Sequential(leaf, Poisoned()))
                first = self.run_step(model, x, dev).first
                setattr(parent, name.rpartition(".")[2], leaf)
                self.assertEqual((first.module, first.phase), (f"{name}.1", "backward"), msg=str(first))

    @parametrize("dev", ["cpu", DEV])
    def test_what_comes_from_outside(self, dev):
        model = make_model(dev)
        x = torch.ones(4, 8, device=dev)
        found = self.run_step(model, x * math.nan, dev)
        self.assertEqual(str(found.first), "NaN came with input (float32 [4, 8])")
        self.assertEqual(len(found.overflows), 1)
        with torch.no_grad():
            model[2].up.bias[3] = -math.inf
        self.assertEqual(str(self.run_step(model, x, dev).first), "Inf came with parameter 2.up.bias (float32 [16])")

    def test_cast_to_float16(self):
        allow_fp16(self)
        model = make_model(DEV)
        with torch.no_grad():
            model[2].down.weight[1, 1] = 1e5
        first = self.run_step(model, torch.ones(4, 8, device=DEV), DEV, torch.float16).first
        self.assertEqual((first.module, first.operator, first.kind), ("2.down", "aten._to_copy.default", "Inf"))

    @parametrize("dev", ["cpu", DEV])
    def test_infs_that_were_asked_for(self, dev):
        scores = torch.randn(4, 4, device=dev, requires_grad=True)
        mask = torch.ones(4, 4, device=dev).triu(1).bool()
        with detect_overflow(nn.Identity()) as found:
            scores.masked_fill(mask, -math.inf).softmax(-1).sum().backward()
            (scores + torch.full((4, 4), -math.inf, device=dev).triu(1)).exp()
        self.assertIsNone(found.first)
        with detect_overflow(nn.Identity()) as found:
            scores.masked_fill(mask.bool() | True, -math.inf).softmax(-1)
        self.assertEqual((found.first.operator, found.first.kind), ("aten._softmax.default", "NaN"))

    def test_more_operators_than_a_page_of_flags(self):
        x = torch.ones(2, device=DEV)
        with detect_overflow(nn.Identity()) as found:
            for _ in range(4100):
                x = x * 1.0
            x / 0.0
        self.assertEqual((found.first.operator, found.first.number), ("aten.div.Tensor", 4100))

    def test_hooks_go_and_it_can_be_used_again(self):
        model = make_model(DEV)
        found = detect_overflow(model)
        for bad in (True, False):
            with self.assertRaises(KeyError), found:
                model(torch.full((1, 8), math.inf if bad else 1.0, device=DEV))
                raise KeyError
            self.assertEqual(found.first is not None, bad)
        self.assertFalse(any(m._forward_hooks or m._forward_pre_hooks for m in model.modules()))
        with self.assertRaisesRegex(RuntimeError, "open already"), found, found:
            pass


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestExplain(TestCase):
    @parametrize("dev", ["cpu", DEV])
    def test_table(self, dev):
        dtype = low_dtype(dev)
        model = make_model(dev)
        model.append(nn.Dropout(0.5)).append(nn.BatchNorm1d(2)).to(dev)
        before = [b.clone() for b in model.buffers()]
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1)).to(dev)
        state = torch.get_rng_state()
        got = explain(model, x, dtype=dtype, loss_fn=lambda y: y.float().square().mean() * 1e-9)
        leaves = [n for n, m in model.named_modules() if n and not list(m.children())]
        self.assertEqual([m.name for m in got.modules], leaves)
        by_name = {m.name: m for m in got.modules}
        up = by_name["0.up"]
        # The module's input, weight and bias are cast: 4 * 8, 16 * 8 and 16 values of two bytes.
        self.assertEqual((up.dtype, up.casts, up.cast_bytes), (dtype, 3, 2 * (32 + 128 + 16)))
        for m in got.modules:
            self.assertLess(m.error, 0.05)
            self.assertGreater(min(m.seconds, m.seconds_fp32), 0)
            self.assertEqual(m.saturate, dict.fromkeys(m.saturate, 0.0))
        self.assertEqual(got.keep_in_fp32, [])
        # Gradients of 1e-9 and less are zero in float16 (its smallest number is 2^-24), but not in bfloat16.
        self.assertGreater(by_name["3"].gradient_underflow[torch.float16], 0.9)
        self.assertLess(by_name["3"].gradient_underflow[torch.bfloat16], 0.1)
        for a, b in zip(model.buffers(), before, strict=True):
            self.assertTrue(torch.equal(a, b))
        self.assertTrue(torch.equal(torch.get_rng_state(), state))
        self.assertTrue(all(p.grad is None for p in model.parameters()))
        text = str(got).splitlines()
        self.assertEqual(len(text), len(leaves) + 2)
        self.assertIn("keep in float32: none", text[-1])

    @parametrize("dev", ["cpu", DEV])
    def test_advice(self, dev):
        dtype = low_dtype(dev)
        model = make_model(dev)
        with torch.no_grad():
            big = 1e6 if dtype == torch.float16 else 3.4e38  # beyond the dtype
            model[2].up.weight[0] = big
        model[2].act = nn.Tanh()
        got = explain(model, torch.ones(4, 8, device=dev), dtype=dtype)
        self.assertEqual(got.keep_in_fp32[0], "2.up")
        (up,) = [m for m in got.modules if m.name == "2.up"]
        self.assertGreater(up.saturate[dtype], 0)
        self.assertIn("beyond", up.advice)
        try:
            from matplotlib import pyplot
        except ModuleNotFoundError:
            self.skipTest("matplotlib is not installed")
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(pyplot, "close"):
            got.plot(Path(folder) / "explain.png")
            self.assertEqual((Path(folder) / "explain.png").read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        legends = [[text.get_text() for text in axis.get_legend().get_texts()] for axis in pyplot.gcf().axes]
        pyplot.close()
        self.assertEqual(legends[0][0], "keep in float32")
        self.assertEqual(legends[1:], [["float16", "bfloat16"], ["float32", "autocast"]])

    def test_arguments(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(2, 2)

            def forward(self, a, b=None):
                return {"out": self.layer(a) + b}

        model = Two().to(DEV)
        a = torch.ones(1, 2, device=DEV)
        for batch in ((a, a), {"a": a, "b": a}):
            (m,) = explain(model, batch, dtype=torch.bfloat16).modules
            self.assertEqual((m.name, m.kind, m.dtype), ("layer", "Linear", torch.bfloat16))
        with self.assertRaisesRegex(ValueError, "dtype must be"):
            explain(model, (a, a), dtype=torch.int8)
        with self.assertRaisesRegex(ValueError, "on one device"):
            explain(nn.ReLU(), a)


instantiate_parametrized_tests(TestDetectOverflow)
instantiate_parametrized_tests(TestExplain)

if __name__ == "__main__":
    run_tests()
