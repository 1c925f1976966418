"""Fake quantisation and quantisation-aware training, against the CPU."""

import copy
import unittest

import torch
from common import DEVICE, no_fallback, to_device
from torch import nn
from torch.ao.quantization import (
    FakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
)
from torch.ao.quantization._learnable_fake_quantize import _LearnableFakeQuantize
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

import torch_netcl  # noqa: F401

FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def numbers(dtype):
    """Numbers inside and outside the range of the tests' quantisers, ends and NaN. (The CPU makes the smallest integer
    of +inf, by the conversion of x86.)"""
    x = torch.linspace(-9, 9, 15 * 7).to(dtype).view(7, 15).clone()
    x[0, :3] = torch.tensor([torch.nan, -torch.inf, 0.0])
    return x


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestFakeQuantize(TestCase):
    def check(self, f, *args):
        """f's results and the gradients of the first and of all float leaves among the rest."""
        got_args = [to_device(a, DEVICE) if torch.is_tensor(a) else a for a in args]
        with no_fallback():
            got = f(*got_args)
        want = f(*args)
        got, want = (t if isinstance(t, tuple) else (t,) for t in (got, want))
        for a, b in zip(got, want, strict=True):
            # The CPU multiplies by the scale in float, also for float64.
            rtol = 1e-7 if b.dtype == torch.float64 else 0
            self.assertEqual(a.detach().cpu(), b.detach(), atol=0, rtol=rtol, equal_nan=True)
        leaves = [i for i, a in enumerate(args) if torch.is_tensor(a) and a.requires_grad]
        if leaves:
            g = torch.randn(want[0].shape, generator=torch.Generator().manual_seed(1)).to(want[0].dtype)
            with no_fallback():
                mine = torch.autograd.grad(got[0], [got_args[i] for i in leaves], g.to(DEVICE))
            for a, b in zip(mine, torch.autograd.grad(want[0], [args[i] for i in leaves], g), strict=True):
                # The gradients of scale and zero point are sums over the input, in another order.
                self.assertEqual(a.cpu(), b, atol=1e-5, rtol=1e-5, equal_nan=True)

    @parametrize("dtype", FLOATS)
    def test_per_tensor(self, dtype):
        for x in (numbers(dtype), numbers(dtype).t(), numbers(dtype)[:0], numbers(dtype)[3, 4]):
            x = x.detach().requires_grad_()
            for scale, zero, low, high in ((0.1, 5, 0, 255), (0.25, -3, -128, 127), (1.5, 0, -1, 1)):
                self.check(lambda x, *p: torch.fake_quantize_per_tensor_affine(x, *p), x, scale, zero, low, high)
                self.check(
                    lambda x, *p: torch.fake_quantize_per_tensor_affine(x, *p),
                    x, torch.tensor([scale]), torch.tensor([zero], dtype=torch.int32), low, high,
                )  # fmt: skip
        for on in (0, 1):
            self.check(
                torch._fake_quantize_per_tensor_affine_cachemask_tensor_qparams,
                numbers(dtype), torch.tensor(0.1), torch.tensor(3, dtype=torch.int32), torch.tensor([on]), 0, 15,
            )  # fmt: skip

    def test_infinity_becomes_the_largest_number(self):
        x = torch.tensor([torch.inf, -torch.inf], device=DEVICE)
        self.assertEqual(torch.fake_quantize_per_tensor_affine(x, 0.5, 0, -4, 3).cpu(), torch.tensor([1.5, -2.0]))

    @parametrize("dtype", FLOATS)
    def test_per_channel(self, dtype):
        for axis, zero_dtype in ((0, torch.int32), (1, torch.int32), (-1, torch.float32)):
            x = numbers(dtype).requires_grad_()
            channels = x.shape[axis]
            scale = torch.rand(channels, generator=torch.Generator().manual_seed(0)) + 0.01
            zero = torch.arange(channels).sub(3).to(zero_dtype)
            if zero_dtype.is_floating_point and dtype == torch.float64:
                continue  # the sum before the rounding may be contracted, which moves ties
            self.check(
                lambda x, s, z, axis=axis: torch.fake_quantize_per_channel_affine(x, s, z, axis % 2, -8, 15),
                x, scale, zero,
            )  # fmt: skip

    def test_bad_arguments(self):
        x = torch.ones(3, 4, device=DEVICE)
        ones, zeros = torch.ones(3, device=DEVICE), torch.zeros(3, dtype=torch.int32, device=DEVICE)
        with self.assertRaisesRegex(RuntimeError, "less than or"):
            torch.fake_quantize_per_tensor_affine(x, 1.0, 0, 3, 2)
        with self.assertRaisesRegex(RuntimeError, "same dim"):
            torch.fake_quantize_per_channel_affine(x, ones, zeros[:2], 0, 0, 3)
        with self.assertRaises(RuntimeError):
            torch.fake_quantize_per_tensor_affine(x.int(), 1.0, 0, 0, 3)

    def test_learnable(self):
        x = torch.linspace(-3, 3, 7 * 15).view(7, 15).requires_grad_()
        for factor in (1.0, 0.3):
            scale, zero = torch.tensor([0.1], requires_grad=True), torch.tensor([2.0], requires_grad=True)
            self.check(torch._fake_quantize_learnable_per_tensor_affine, x, scale, zero, 0, 31, factor)
            scale = (torch.rand(15, generator=torch.Generator().manual_seed(0)) + 0.01).requires_grad_()
            zero = torch.arange(15.0).requires_grad_()
            self.check(torch._fake_quantize_learnable_per_channel_affine, x, scale, zero, 1, 0, 31, factor)

    @parametrize("per_row", [False, True])
    @parametrize("symmetric", [False, True])
    def test_fused_observer(self, per_row, symmetric):
        """Several steps: running ends, scales, zero points, results and masks; one-sided, tiny and empty ranges."""
        for shift, spread in ((0.0, 1.0), (4.0, 1.0), (-4.0, 1.0), (0.0, 1e-7), (0.0, 0.0)):
            states = []
            for device in ("cpu", DEVICE):
                generator = torch.Generator().manual_seed(0)
                state = [torch.ones(1, dtype=torch.int64), torch.ones(1, dtype=torch.int64)]
                if per_row:
                    state += [torch.empty(0), torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.int32)]
                else:
                    state += [torch.tensor([torch.inf]), torch.tensor([-torch.inf]), torch.tensor([1.0])]
                    state += [torch.tensor([0], dtype=torch.int32)]
                state = [t.to(device) for t in state]
                results = []
                for step, flags in enumerate(((1, 1), (1, 1), (1, 0), (0, 1), (0, 0))):
                    state[0].fill_(flags[0]), state[1].fill_(flags[1])
                    x = torch.randn(4, 3, 5, generator=generator).mul_(spread * (step + 1)).add_(shift)
                    with no_fallback():
                        results += torch._fused_moving_avg_obs_fq_helper(
                            x.to(device), *state, 0.1, -8, 7, 0 if per_row else -1, per_row, symmetric
                        )
                    results += [t.clone() for t in state[2:]]
                states.append([t.cpu() for t in results])
            # Scales are computed in float here, in double on the CPU: an epsilon of the numbers themselves.
            for got, want in zip(*states[::-1], strict=True):
                self.assertEqual(got, want, atol=1e-6, rtol=1e-6)

    def test_training(self):
        """A model with fake quantisers of all kinds trains as on the CPU, without a host operator."""
        quantisers = [
            FakeQuantize(MovingAverageMinMaxObserver, quant_min=0, quant_max=255),
            FakeQuantize(
                MovingAveragePerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=torch.qint8,
                qscheme=torch.per_channel_symmetric, ch_axis=0,
            ),
            FusedMovingAvgObsFakeQuantize(MovingAverageMinMaxObserver, quant_min=0, quant_max=255),
            _LearnableFakeQuantize(MovingAverageMinMaxObserver, quant_min=0, quant_max=255),
        ]  # fmt: skip
        torch.manual_seed(0)
        layers = [m for q in quantisers for m in (nn.Linear(8, 8), q, nn.ReLU())]
        cpu = nn.Sequential(*layers)
        mine = copy.deepcopy(cpu).to(DEVICE)
        data = [torch.randn(16, 8) for _ in range(4)]
        for model in (cpu, mine):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            with no_fallback() if model is mine else torch.enable_grad():
                for x in data:
                    x = x.to(next(model.parameters()).device)
                    (model(x) - x).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
        # A sum in another order moves an activation across a boundary now and then: by one step of 1/255 of its range.
        for a, b in zip(mine.state_dict().values(), cpu.state_dict().values(), strict=True):
            self.assertEqual(a.cpu(), b, atol=2e-3, rtol=1e-3)


instantiate_parametrized_tests(TestFakeQuantize)

if __name__ == "__main__":
    run_tests()
