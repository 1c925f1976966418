"""Elementary functions and activations, and the latter's gradients, at the ends of the range, where they saturate, and
where a formula would cancel: compared with float64."""

import math
import unittest

import torch
import torch.nn.functional as F
from common import DEVICE
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

import torch_netcl  # noqa: F401

INF, NAN = math.inf, math.nan

ELEMENTARY = {
    name: getattr(torch, name)
    for name in (
        "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt "
        "reciprocal erf erfc frac round floor ceil trunc sign abs neg square logit"
    ).split()
}
ACTIVATIONS = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    **{
        name: getattr(F, name)
        for name in (
            "silu mish softplus logsigmoid elu selu celu hardswish hardsigmoid hardtanh relu relu6 leaky_relu "
            "hardshrink softshrink tanhshrink"
        ).split()
    },
}
# float64's own functions cancel for negative numbers.
REFERENCES = {
    "gelu": lambda x: x * torch.erfc(x * -math.sqrt(0.5)) / 2,
    "gelu_tanh": lambda x: x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)),
}
# Autograd passes the result, so where that rounds to 1 the gradient is only as good as 1 - y.
OF_RESULT = {"sigmoid", "tanh", "tanhshrink"}


def points(dtype):
    """Both signs of the ends, of numbers around 1, and of those where some function becomes 0, 1 or infinite."""
    f = torch.finfo(dtype)
    ends = [0.0, f.tiny, f.eps / 4, f.eps, 1 - f.eps / 2, 1.0, 1 + f.eps, f.max, INF]
    middle = [1e-3, 0.1, 0.5, 1.5, 2, 3, 5, 5.5, 7, 8.5, 9.02, 10, 12, 15, 17, 17.5, 19.1, 20, 25, 30, 37, 40, 44, 50]
    far = [66, 80, 87, 88.5, 88.8, 89.5, 90, 100, 103, 104.5, 128, 150, 500, 700, 746, 1000, 6e4, 1e10, 1e20, 1e38]
    positive = [x for x in ends + middle + far if x == INF or x <= f.max]
    return torch.tensor([*positive, *(-x for x in positive), NAN], dtype=dtype)


def gradient(function, x):
    x = x.detach().clone().requires_grad_()
    function(x).backward(torch.ones_like(x))
    return x.grad


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestLimits(TestCase):
    def check(self, name, x, got, want, cpu, scale=0.0):
        """At each point `got` is float64's `want`, or for infinite and NaN inputs what the CPU gives in this dtype.

        16 units in the last place (of `scale`, if that is larger), or the CPU's own error, suffice. But a number that
        float64 holds for saturated must be reached. Denormal numbers may be 0.
        """
        f = torch.finfo(x.dtype)
        for point, g, w, c in zip(x.tolist(), got.double().tolist(), want.tolist(), cpu.double().tolist(), strict=True):
            rounded = torch.tensor(w, dtype=x.dtype).item()
            if g == rounded or (math.isnan(g) and math.isnan(rounded)):
                continue
            if math.isnan(w) and math.isfinite(point):
                continue  # the reference overflowed
            if g == c or (not math.isfinite(point) and math.isnan(g) and math.isnan(c)):
                continue
            if abs(rounded) < f.tiny and abs(g) <= f.tiny:
                continue
            # float64's own result may be rounded to 1 a little early.
            saturated = rounded in (1, -1) and abs(w - rounded) < f.eps / 64 and (f.bits < 64 or abs(point) > 40)
            allowed = max(16 * f.eps * max(abs(rounded), scale), abs(c - rounded) if math.isfinite(c) else 0)
            near = math.isfinite(rounded) and abs(g - rounded) <= allowed
            self.assertTrue(near and (not saturated or scale), f"{name} of {point}: {g}, should be {rounded}; CPU {c}")

    def dtypes(self):
        double = [torch.float64] if torch.netcl.get_device_properties().has_fp64 else []
        return [torch.float32, torch.float16, torch.bfloat16, *double]

    @parametrize("name", ELEMENTARY | ACTIVATIONS)
    def test_values(self, name):
        function = (ELEMENTARY | ACTIVATIONS)[name]
        for dtype in self.dtypes():
            x = points(dtype)
            want = REFERENCES.get(name, function)(x.double())
            self.check(f"{name} {dtype}", x, function(x.to(DEVICE)).cpu(), want, function(x))

    @parametrize("name", ACTIVATIONS)
    def test_gradients(self, name):
        function = ACTIVATIONS[name]
        for dtype in self.dtypes():
            if name == "hardsigmoid" and dtype == torch.float64:
                continue  # the sixth of the CPU's formula is a float
            x = points(dtype)
            want, cpu = gradient(REFERENCES.get(name, function), x.double()), gradient(function, x)
            got = gradient(function, x.to(DEVICE)).cpu()
            self.check(f"gradient of {name} {dtype}", x, got, want, cpu, 1.0 if name in OF_RESULT else 0.0)

    def test_the_gradient_of_sinc_near_zero(self):
        """It is a difference of nearly equal sines and cosines, divided by x, so that an error of one ulp shows."""
        x = torch.logspace(-30, -4.5, 200)
        x = torch.cat([x, -x])
        y = x.to(DEVICE).requires_grad_()
        torch.sinc(y).sum().backward()
        self.assertEqual(y.grad.cpu(), -math.pi**2 / 3 * x, rtol=0, atol=1e-3)

    def test_named(self):
        """What was wrong: PoCL's tanh ends before 1, and 1 - 1 / (1 + e^x) is 0 for small e^x."""
        large = torch.tensor([50.0, 1000.0, 1e30], device=DEVICE)
        for dtype in self.dtypes():
            x = large.to(dtype)
            self.assertEqual(torch.tanh(x), torch.ones_like(x), rtol=0, atol=0)
            for function in (F.mish, ACTIVATIONS["gelu_tanh"]):
                slope = gradient(function, x[x.isfinite()])
                self.assertEqual(slope, torch.ones_like(slope), rtol=0, atol=0)
        slope = gradient(F.softplus, torch.tensor([-17.0], device=DEVICE))
        self.assertEqual(slope.item(), math.exp(-17) / (1 + math.exp(-17)), rtol=1e-6, atol=0)
        lstm = torch.nn.LSTM(1, 1).to(DEVICE)
        state = torch.zeros(1, 1, 1, device=DEVICE)
        with torch.no_grad():
            for p in lstm.parameters():
                p.fill_(50)
            out = lstm(torch.ones(30, 1, 1, device=DEVICE), (state, state))[0]
        self.assertEqual(out[-1].item(), 1.0, rtol=0, atol=0)


instantiate_parametrized_tests(TestLimits)

if __name__ == "__main__":
    run_tests()
