"""Programs at several shapes under torch.compile, with automatic dynamic shapes and with dynamic=True, against eager
mode: what depends on sizes alone (1 / n, 0.999 ** step, scales of images) is computed when a kernel is launched.

The quick tier runs every sixth program; test_every_program runs all of them, at five shapes.
"""

import math

import pytest
import sympy
import torch
import torch.nn.functional as F
import torch.utils._sympy.functions as sizes
from common import DEVICE
from torch import nn


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def images(n):
    return torch.randn(2 + n % 3, 4, 6 + n, 9 + 2 * n, device=DEVICE)


def rows(n):
    return torch.randn(3 + n, 8 + 2 * n, device=DEVICE)


def batches(n):
    return torch.randn(3 + 2 * n, 8, device=DEVICE)


def sequences(n):
    return torch.randn(2 + n % 2, 5 + 3 * n, 8, device=DEVICE)


def target(x):
    return torch.arange(len(x), device=x.device) % x.shape[1]


def step(x, n):
    return x * math.sqrt(1 - 0.999**n) / (1 - 0.9**n)


#: name -> (inputs, function of one input)
PROGRAMS = {
    # sizes with a fraction
    "mean_by_hand": (rows, lambda x: x * (1 / x.shape[0])),
    "scaled": (rows, lambda x: x / x.shape[1] ** 0.5 + math.sqrt(x.shape[0])),
    "bias_correction": (rows, lambda x: step(x, x.shape[0])),
    "power": (rows, lambda x: x.abs().sqrt() * 0.999 ** x.shape[0]),
    "warmup": (rows, lambda x: x * min(1.0, x.shape[0] / 5)),
    "cosine": (rows, lambda x: x * 0.5 * (1 + math.cos(x.shape[0] / 10))),
    "half_of_the_rows": (rows, lambda x: x[: int(x.shape[0] * 0.5)] + 1),
    "rounded": (rows, lambda x: x[: round(x.shape[0] * 0.6)] * 2),
    "ceiling": (rows, lambda x: x[: math.ceil(x.shape[0] / 2)] * 2),
    "is_even": (rows, lambda x: x * torch.sym_not(x.shape[0] % 2 == 0)),
    "clamped_size": (rows, lambda x: x[: max(2, min(x.shape[0] - 1, 4))].sum(0)),
    "shifted_size": (rows, lambda x: x + (x.shape[0] << 1) + (x.shape[1] >> 1)),
    # reductions and norms
    "std": (rows, lambda x: x.std(0) + x.std()),
    "var_mean": (rows, lambda x: torch.var_mean(x, 1, correction=0)),
    "softmax": (rows, lambda x: x.softmax(1) + x.log_softmax(0)),
    "logsumexp": (rows, lambda x: x.logsumexp(1)),
    "argmax": (rows, lambda x: (x.t().argmax(), x.argmin(1), x.max(0))),
    "normalize": (rows, lambda x: F.normalize(x, dim=1)),
    "standardised": (rows, lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5)),
    "covariance": (rows, lambda x: torch.cov(x)),
    "layer_norm": (rows, lambda x: F.layer_norm(x, x.shape[1:])),
    "rms_norm": (rows, lambda x: F.rms_norm(x, x.shape[1:])),
    "batch_norm": (batches, nn.BatchNorm1d(8).to(DEVICE)),
    "batch_norm_2d": (images, nn.BatchNorm2d(4).to(DEVICE)),
    "instance_norm": (images, lambda x: F.instance_norm(x)),
    "group_norm": (images, lambda x: F.group_norm(x, 2)),
    "quantile": (rows, lambda x: x.sort(1).values[:, x.shape[1] // 2]),
    "cumsum": (rows, lambda x: x.cumsum(0) / x.shape[0]),
    # losses
    "mse": (rows, lambda x: F.mse_loss(x, x.flip(0))),
    "smooth_l1": (rows, lambda x: F.smooth_l1_loss(x, x.flip(0))),
    "cross_entropy": (rows, lambda x: F.cross_entropy(x, target(x))),
    "label_smoothing": (rows, lambda x: F.cross_entropy(x, target(x), label_smoothing=0.1)),
    "nll": (rows, lambda x: F.nll_loss(x.log_softmax(1), target(x))),
    "kl": (rows, lambda x: F.kl_div(x.log_softmax(1), x.flip(0).softmax(1), reduction="batchmean")),
    "bce": (rows, lambda x: F.binary_cross_entropy_with_logits(x, (x > 0).float())),
    "cosine_similarity": (rows, lambda x: F.cosine_similarity(x, x.flip(0))),
    "contrastive": (batches, lambda x: F.cross_entropy(F.normalize(x) @ F.normalize(x.flip(0)).t() / 0.07,
                                                       torch.arange(len(x), device=x.device))),
    "huber_mean_of_top": (rows, lambda x: F.huber_loss(x, x * 0.5, reduction="none").mean(1).topk(2).values),
    # images
    "bilinear": (images, lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear")),
    "nearest": (images, lambda x: F.interpolate(x, scale_factor=2) * 2),
    "nearest_size": (images, lambda x: F.interpolate(x, size=(7, 5))),
    "bicubic": (images, lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic")),
    "avg_pool": (images, lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True)),
    "max_pool": (images, lambda x: F.max_pool2d(x, 3, 2, 1)),
    "adaptive_pool": (images, lambda x: F.adaptive_avg_pool2d(x, 1)),
    "reflection": (images, lambda x: F.pad(x, (1, 2, 3, 1), mode="reflect")),
    "crop": (images, lambda x: x[..., x.shape[2] // 4 : x.shape[2] // 2, :] + 1),
    "patches": (images, lambda x: F.unfold(x, 3).transpose(1, 2) + 1),
    "convolution": (images, nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.ReLU()).to(DEVICE)),
    "residual": (images, nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU()).to(DEVICE)),
    "grid": (images, lambda x: x * torch.linspace(0, 1, x.shape[3], device=x.device)),
    "flipped": (images, lambda x: torch.cat([x, x.flip(3)], 3).mean((2, 3))),
    # sequences
    "attention": (sequences, lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)),
    "attention_by_hand": (sequences, lambda x: (x @ x.transpose(1, 2) / x.shape[2] ** 0.5).softmax(2) @ x),
    "encoder": (sequences, nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).to(DEVICE)),
    "mlp": (sequences, nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)).to(DEVICE)),
    "positions": (sequences, lambda x: x + torch.arange(x.shape[1], device=x.device)[:, None] / x.shape[1]),
    "causal_mask": (sequences, lambda x: (x @ x.mT).masked_fill(
        torch.ones(x.shape[1], x.shape[1], device=x.device, dtype=torch.bool).triu(1), -1e9).softmax(2)),
    "mean_of_halves": (sequences, lambda x: x[:, : x.shape[1] // 2].mean(1) - x[:, x.shape[1] // 2 :].mean(1)),
    "moving_average": (sequences, lambda x: x.unfold(1, 3, 1).mean(3)),
}  # fmt: skip
SHAPES = (1, 3, 2, 5, 4)


def compare(name, dynamic, shapes):
    inputs, function = PROGRAMS[name]
    compiled = torch.compile(function, dynamic=dynamic)
    for n in shapes:
        x = inputs(n)
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        result, expected = compiled(mine), function(theirs)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
        for r in (result, expected):
            r = r[0] if isinstance(r, tuple) else r
            if r.requires_grad:
                r.square().sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dynamic", [None, True], ids=["automatic", "dynamic"])
@pytest.mark.parametrize("name", [name for i, name in enumerate(PROGRAMS) if i % 6 == 2])
def test_program(name, dynamic):
    compare(name, dynamic, SHAPES[:3])


@pytest.mark.parametrize("dynamic", [None, True], ids=["automatic", "dynamic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program(name, dynamic):
    compare(name, dynamic, SHAPES)


def test_a_step_that_becomes_symbolic():
    @torch.compile(dynamic=True)
    def update(p, g, mean, square, n):
        mean = mean.lerp(g, 0.1)
        square = square * 0.999 + g * g * 0.001
        return p - 0.01 / (1 - 0.9**n) * mean / ((square / (1 - 0.999**n)).sqrt() + 1e-8), mean, square

    mine = theirs = tuple(torch.rand(4, 9, device=DEVICE))[:3]
    g = torch.randn(9, device=DEVICE)
    for n in range(1, 6):
        mine = update(*mine[:1], g, *mine[1:], n)
        theirs = update._torchdynamo_orig_callable(*theirs[:1], g, *theirs[1:], n)
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def expressions(s, n):
    """Of each function of sizes that Inductor's printers know, one."""
    half = sizes.FloatTrueDiv(sizes.ToFloat(s), sympy.Float(2.5))
    unary = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "atan", "exp", "log", "asinh", "log2")
    return [
        half, sizes.IntTrueDiv(s, n), sizes.TruncToInt(half), sizes.RoundToInt(half), sizes.RoundDecimal(half, 1),
        sizes.FloorToInt(half), sizes.CeilToInt(half), sizes.TruncToFloat(half), sizes.FloatPow(half, sympy.Float(0.5)),
        sizes.Min(s, n), sizes.Max(s, n + 1), sizes.Max(half, sympy.Float(1.5)), sizes.Mod(s, n), sizes.PythonMod(s, n),
        sizes.FloorDiv(s, n), sizes.CeilDiv(s, n), sizes.ModularIndexing(s, 2, 3), sizes.PowByNatural(n, 3),
        sizes.PowByNatural(2, n), sizes.LShift(s, 2), sizes.RShift(s, 1), sizes.Where(sympy.Lt(s, n), s, 2 * n),
        sympy.Piecewise((s, sympy.Lt(s, n)), (n, True)), sizes.BitwiseFn_bitwise_and(s, n),
        sizes.BitwiseFn_bitwise_or(s, n), sympy.Abs(n - s), s**2 + 3 * half, sizes.Identity(s),
        *(getattr(sizes, f"OpaqueUnaryFn_{name}")(half) for name in unary),
    ]  # fmt: skip


def test_expressions_of_sizes():
    from torch_netcl.inductor.printer import HostPrinter, IndexPrinter, hoisted, is_known_at_launch, is_real

    s, n = sympy.symbols("s0 s1", integer=True, positive=True)
    x = sympy.Symbol("x0", integer=True, nonnegative=True)
    values = {s: sympy.Integer(11), n: sympy.Integer(4)}
    for e in expressions(s, n):
        assert is_known_at_launch(e)
        text = HostPrinter().doprint(e)
        result = eval(text, {"math": math, "torch": torch, "s0": 11, "s1": 4})
        assert result == pytest.approx(float(e.xreplace(values))), (e, text)
        assert is_real(e) == isinstance(result, float), e
    for type in ("long", "longs"):  # with an index that only the kernel knows
        for e in expressions(x + 1, n):
            assert IndexPrinter(type, str).doprint(e)
    assert hoisted(x * sizes.TruncToInt(s * 1.5) + n, lambda e: sympy.Symbol("ks9")) == x * sympy.Symbol("ks9") + n


def test_numbers_of_the_host_are_those_of_ieee():
    from torch_netcl.inductor import host

    assert host.truediv(1, 0) == math.inf and math.isnan(host.pow(-8.0, 1 / 3)) and host.exp(1e4) == math.inf
    assert host.float32(1e300) == math.inf and host.float32(0.1) == torch.tensor(0.1).item()
    assert host.bits32(1.0) == 0x3F800000 and host.bits64(-0.0) == -(1 << 63)
