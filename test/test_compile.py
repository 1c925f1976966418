"""torch.compile with its default backend: generated OpenCL C against eager kernels.

NETCL_TEST_FULL=1 tests more combinations of cases, shapes and dtypes; every case stands in the quick tier once.
"""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from common import DEVICE
from processes import python
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.utils import run_and_get_code

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def without_double():
    if not torch.netcl.get_device_properties().has_fp64:
        pytest.skip("the device has no float64")


def randn(*sizes, dtype=torch.float32):
    return torch.randn(*sizes).to(DEVICE, dtype)


def check(function, *args, rtol=1e-5, atol=1e-5, backward=False, **options):
    """Compares the results of a compiled function, and its gradients, with eager mode."""
    args, mine = ([a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args] for _ in range(2))
    if backward:
        for group in (args, mine):
            for a in group:
                if isinstance(a, torch.Tensor) and a.is_floating_point():
                    a.requires_grad_()
    expected = function(*args)
    result = torch.compile(function, fullgraph=True, **options)(*mine)
    torch.testing.assert_close(result, expected, rtol=rtol, atol=atol, equal_nan=True)
    if backward:
        expected.float().square().sum().backward()
        result.float().square().sum().backward()
        for a, b in zip(args, mine, strict=True):
            if isinstance(a, torch.Tensor) and a.requires_grad:
                torch.testing.assert_close(b.grad, a.grad, rtol=10 * rtol, atol=10 * atol)


POINTWISE = {
    "chain": lambda a, b: (a * 2 + b).sin() * b,
    "gelu": lambda a, b: F.gelu(a) * torch.sigmoid(b),
    "comparison": lambda a, b: torch.where((a > b) & ~(a > 0.5), a, b) + (a == b) + torch.isnan(a / 0),
    "extremes": lambda a, b: torch.maximum(a, b) - torch.minimum(a, b.abs()) + a.clamp(-0.5, 0.5),
    "rounding": lambda a, b: a.floor() + b.ceil() + a.round() + b.trunc() + torch.sign(a),
    "power": lambda a, b: a.abs() ** 2.5 + b**2 + torch.float_power(a.abs(), 2).float(),
    "special": lambda a, b: torch.lgamma(a.abs()) + torch.special.i0(b) + torch.digamma(a.abs() + 1) + torch.erf(b),
    "polygamma": lambda a, b: sum(torch.special.polygamma(n, a.abs() + 0.1) for n in range(4)) + torch.special.ndtr(b),
    "ldexp": lambda a, b: torch.ldexp(a, (b * 3).to(torch.int32)),
    "frexp": lambda a, b: torch.frexp(a * 99)[0] + torch.frexp(b / 0)[1] + torch.frexp(a)[1],
    "cast": lambda a, b: (a * 100).to(torch.int8).float() + b.to(torch.int32) + (a > 0).to(torch.int64),
    "remainder": lambda a, b: torch.remainder(a, 0.3) + torch.fmod(b, 0.3) + torch.floor_divide(a, 0.3),
}


ODD, BROADCAST = ((37, 53), (37, 53)), ((64, 16), (16,))


@pytest.mark.parametrize(
    ("name", "shapes"),
    [(n, s) for n in POINTWISE for s in (ODD, BROADCAST) if FULL or s == ODD or n in ("chain", "cast")],
    ids=str,
)
def test_pointwise(name, shapes):
    if name == "power":
        without_double()
    check(POINTWISE[name], *(randn(*s) for s in shapes))


VIEWS = {
    "transpose": lambda a: a + a.t(),
    "slice": lambda a: a[3:, ::2] * a[:-3, 1::2],
    "flip": lambda a: a.flip(0, 1) + 1,
    "cat": lambda a: torch.cat([a, a[:, :3] * 2], 1) + 1,
    "stack": lambda a: torch.stack([a, -a], -1).flatten(),
    "pad": lambda a: F.pad(a, (1, 2, 3, 4)) * 2,
    "reflect": lambda a: F.pad(a[None], (2, 3), mode="reflect"),
    "roll": lambda a: a.roll((1, 2), (0, 1)) * 2,
    "expand": lambda a: a[:, :1].expand(-1, 9) * 3,
    "unfold": lambda a: a.unfold(1, 3, 2) * 2,
    "triangle": lambda a: a.tril() - a.triu(1),
    "permute": lambda a: (a.view(4, 8, 32).permute(2, 0, 1) * 2).contiguous(),
    "zoom": lambda a: F.interpolate(a[None, None], scale_factor=2, mode="bilinear"),
    "pool": lambda a: F.max_pool2d(a[None, None], 3, 2, 1) + F.avg_pool2d(a[None, None], 3, 2, 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name):
    check(VIEWS[name], randn(32, 32), backward=True)


REDUCTIONS = {
    "sum": lambda a, d: a.sum(d),
    "mean": lambda a, d: (a * 2).mean(d, keepdim=True) + a,
    "var": lambda a, d: a.var(d) + a.std(d, unbiased=False),
    "extremes": lambda a, d: a.amax(d) - a.amin(d),
    "prod": lambda a, d: (1 + a / 100).prod(d),
    "argmax": lambda a, d: a.argmax(d) - 2 * a.argmin(d),
    "any": lambda a, d: ((a > 3).any(d), (a < 3).all(d), (a > 0).sum(d)),
    "softmax": lambda a, d: a.softmax(d) + a.log_softmax(d),
    "norm": lambda a, d: a / a.norm(dim=d, keepdim=True),
    "logsumexp": lambda a, d: a.logsumexp(d),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dim", [0, 1])
def test_reductions(name, dim):
    check(REDUCTIONS[name], randn(37, 53), dim)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 255, 1025, 8192, 70000])
def test_reduction_sizes(n):
    a = randn(3, n)
    a[0, n // 2] = 9
    check(lambda a: (a.sum(1), a.amax(1), a.argmax(1), a.softmax(1), a.sum(), a.var(1, unbiased=False)), a, rtol=1e-4)


def test_reductions_with_nan():
    a = randn(5, 40)
    a[1, 3] = a[1, 7] = a[3, 39] = float("nan")
    check(lambda a: (a.amax(1), a.amin(0), a.argmax(1), a.argmin(0), a.sum(1), a.max(1)), a)


def test_several_dimensions():
    a = randn(4, 6, 5, 32)
    check(lambda a: (a.sum((1, 3)), a.sum((0, 2)), a.var((0, 2, 3)), a.amax((0, 1, 2))), a)


MODULES = {
    "layer_norm": lambda x: F.layer_norm(x, [48], torch.ones_like(x[0]), torch.zeros_like(x[0])),
    "add_norm_gelu": lambda x: F.gelu(F.layer_norm(x + x.flip(0), [48])),
    "rms_norm": lambda x: F.rms_norm(x, [48]),
    "group_norm": lambda x: F.group_norm(x.view(4, 8, 48), 4),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "product": lambda x: (x @ x.t()).relu() + 1,
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(len(x), device=x.device)),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(1, 4, 8, 48)] * 3, is_causal=True),
    "convolution": lambda x: F.relu(F.conv2d(x.view(2, 4, 8, 24), x[:12].view(4, 4, 6, 6))),
    "cumsum": lambda x: x.cumsum(1) * 2,
    "sort": lambda x: x.sort(1).values * 2,
}


IN_BFLOAT16 = MODULES if FULL else ("add_norm_gelu", "product", "cross_entropy")


@pytest.mark.parametrize(
    ("name", "dtype"), [(n, torch.float32) for n in MODULES] + [(n, torch.bfloat16) for n in IN_BFLOAT16], ids=str
)
def test_modules_backward(name, dtype):
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype is torch.float32 else {"rtol": 5e-2, "atol": 5e-2}
    check(MODULES[name], randn(32, 48, dtype=dtype), backward=True, **tolerance)


def test_integers():
    a, b = torch.randint(-99, 99, (99,), device=DEVICE), torch.randint(1, 9, (99,), device=DEVICE)
    for dtype in (torch.int64, torch.int32, torch.int8, torch.uint8):
        x, y = a.abs().to(dtype), b.to(dtype)
        check(lambda x, y: (x // y, x % y, x * y - 3, x & y, x | 1, x ^ y, x.sum(), x.amax(), x < y), x, y)
    check(lambda x, y: (x << y, x >> y, -x, x.abs(), torch.div(x, y, rounding_mode="trunc"), x / y), a, b)


def test_half_is_computed_in_float():
    check(lambda a, b: (a * b + a).exp().sum(1), randn(9, 40, dtype=torch.float16), randn(40, dtype=torch.float16),
          rtol=2e-3, atol=2e-3)  # fmt: skip


def test_double():
    without_double()
    check(lambda a: (a.exp() + a.sin()).sum(1), randn(9, 40, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_indexing():
    a, i = randn(37, 20), torch.randint(-37, 37, (11,), device=DEVICE)
    check(lambda a, i: a[i] + a[:, i % 20][:11, :1], a, i)
    check(lambda a, i: F.embedding(i % 37, a).sum(0), a, i, backward=True)
    check(lambda a, i: a.gather(0, (i % 37)[:, None].expand(-1, 20)), a, i, backward=True)
    check(lambda a, i: a.index_add(0, i % 37, a[:11]), a, i)
    check(lambda a, i: torch.zeros_like(a).index_put((i % 37,), a[:11], accumulate=True), a, i)


@pytest.mark.parametrize(("scale", "shape"), [(2, (8, 32, 2, 2)), (2, (3, 8, 4, 5)), (3, (2, 3, 4, 1))])
def test_sums_of_gathered_products(scale, shape):
    g = randn(*shape)
    x = randn(*shape[:2], shape[2] * scale, shape[3] * scale)
    check(lambda g, x: (F.interpolate(g, scale_factor=scale) * x).sum((0, 2, 3)), g, x, rtol=1e-4, atol=1e-4)


def test_positions_in_permuted_tensors():
    def f(a):
        return a.argmax(), (a * 2).argmin(), torch.argmax(a, keepdim=True), a.flip(0).argmax()

    for a in (
        randn(5, 7).t(),
        randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        randn(3, 4, 5).permute(2, 0, 1),
    ):
        check(f, a)
    check(lambda a: F.max_pool2d(a, 5, return_indices=True), randn(2, 3, 20, 30).transpose(2, 3))


@pytest.mark.parametrize("pool", ["avg_pool1d", "avg_pool2d", "avg_pool3d"])
def test_averages_of_windows_over_the_edge(pool):
    a = randn(2, 3, *(8, 9, 7)[: int(pool[8])])
    check(lambda a: getattr(F, pool)(a, 3, 2, ceil_mode=True, count_include_pad=False).sin(), a, backward=True)


def test_fractional_max_pool():
    a, samples = randn(2, 3, 9, 11), torch.rand(2, 3, 2).to(DEVICE)
    check(lambda a: F.fractional_max_pool2d(a, 3, output_size=(4, 5), _random_samples=samples), a)


def test_bits():
    n = torch.randint(0, 9000, (99,), device=DEVICE, dtype=torch.int16)
    check(lambda a, b: ((a * 1).view(torch.int16) + 1, (b + 0).view(torch.int16) ^ 3),
          randn(99, dtype=torch.float16), randn(99, dtype=torch.bfloat16))  # fmt: skip
    check(lambda n: ((n + 1).view(torch.float16) * 2, (n + 1).view(torch.bfloat16) * 2), n)
    check(lambda n: (n > 99).view(torch.uint8) + 1, n)


def test_atomic_sums_of_8_bytes():
    i, n = torch.randint(0, 5, (99,), device=DEVICE), torch.randint(0, 99, (99,), device=DEVICE)
    zeros = torch.zeros(5, dtype=torch.int64, device=DEVICE)
    check(lambda i, n: (zeros.index_put((i,), n, accumulate=True), zeros.scatter_add(0, i, n)), i, n)
    without_double()
    a = randn(99, dtype=torch.float64)
    check(lambda a, i: a[:5].index_put((i,), a, accumulate=True) + a[:5].scatter_add(0, i, a), a, i)


def test_functions_of_floats_and_of_doubles_in_one_kernel():
    without_double()
    check(lambda a, b: (a.exp() + b.double().exp().float(), a.double().tanh() * b.cos()), randn(5, 7), randn(5, 7))


def test_constants_of_the_cpu():
    check(lambda a: a + torch.ones(5).sum() + torch.arange(6.0).mean(), randn(5))
    check(lambda a: torch.nonzero_static(a > 0, size=7), randn(5, 4))


def test_fourier_transforms():
    a = randn(6, 10)
    check(lambda a: torch.fft.rfft(a, dim=0).abs() + 1, a, backward=True)
    check(lambda a: torch.fft.irfft(torch.fft.rfft(a, dim=0) * 2, n=6, dim=0) + a, a, backward=True)
    check(lambda a: torch.fft.fft(a, dim=0), a)


def test_a_bad_index_raises_as_in_eager_mode():
    a, i = randn(37, 20), torch.tensor([1, 2, 37], device=DEVICE)
    compiled = torch.compile(lambda a, i: a[i] + 1)
    with pytest.raises(IndexError, match="index 37 is out of bounds|out of range|37"):
        compiled(a, i).cpu()
    compiled(a, i - 1).cpu()


def test_dynamic_shapes():
    counter = CompileCounterWithBackend("inductor")

    def function(a, b):
        return (a + b).softmax(-1).sum(0), a.t() * 2, a[:, 1:].mean(1)

    f = torch.compile(function, backend=counter, dynamic=True)
    for rows, columns in ((20, 33), (7, 64), (5, 100)):
        a, b = randn(rows, columns), randn(columns)
        torch.testing.assert_close(f(a, b), function(a, b), rtol=1e-5, atol=1e-5)
    assert counter.frame_count == 1


def test_in_place_and_aliases():
    def update(a, b):
        a.add_(b).mul_(2)
        b[1:].sub_(a[1:])
        return a.view(-1), b

    a, b = randn(8, 8), randn(8, 8)
    c, d = a.clone(), b.clone()
    result, expected = torch.compile(update, fullgraph=True)(a, b), update(c, d)
    torch.testing.assert_close((a, b, *result), (c, d, *expected))
    assert result[0].data_ptr() == a.data_ptr()


def test_a_row_is_read_again_before_it_is_overwritten():
    def update(a):
        a.add_(1)
        return a.softmax(1), (a - a.mean(1, keepdim=True)).square().sum(1)

    a = randn(8, 40)
    b = a.clone()
    result, expected = torch.compile(update, fullgraph=True)(a), update(b)
    torch.testing.assert_close((a, *result), (b, *expected), rtol=1e-5, atol=1e-5)


def test_dropout_has_the_same_mask_backward():
    x = torch.ones(4096, device=DEVICE, requires_grad=True)
    f = torch.compile(lambda x: F.dropout(x, 0.25))
    torch.manual_seed(3)
    y = f(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())
    assert 0.2 < (y == 0).float().mean().item() < 0.3
    torch.manual_seed(3)
    torch.testing.assert_close(f(x), y)
    assert not torch.equal(f(x), y)


def test_random_numbers():
    def draw(x):
        return torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 5, 9)

    uniform, normal, whole = torch.compile(draw)(torch.empty(40000, device=DEVICE))
    assert 0 <= uniform.min().item() < uniform.max().item() < 1 and abs(uniform.mean().item() - 0.5) < 0.01
    assert abs(normal.mean().item()) < 0.03 and abs(normal.std().item() - 1) < 0.03
    assert (whole.min().item(), whole.max().item()) == (5, 8)


FLOAT8 = [getattr(torch, f"float8_{name}") for name in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")]


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8(dtype):
    x = torch.randn(70, 9) * 30
    x[0, :4] = torch.tensor([float("nan"), float("inf"), 1e30, -0.0])
    stored = x.to(dtype)
    mine = torch.compile(lambda x: x.to(dtype))(x.to(DEVICE)).cpu()
    assert torch.equal(mine.view(torch.uint8), stored.view(torch.uint8))
    check(lambda x: x.to(dtype).float() * 2, x[1:].to(DEVICE))  # rounded, though nothing is stored
    check(lambda x: x.to(dtype).to(torch.bfloat16), x[1:].to(DEVICE))
    for f in (lambda y: y.float().sum(1), lambda y: y.t().half(), lambda y: y[::2].float() + 1):
        torch.testing.assert_close(torch.compile(f)(stored[1:].to(DEVICE)).cpu(), f(stored[1:]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_random_numbers_of_16_bits_are_below_1(dtype):
    x = torch.compile(lambda x: torch.rand_like(x))(torch.empty(400_000, device=DEVICE, dtype=dtype))
    assert 0 < x.min().item() < 1e-4 and 1 - 2 * torch.finfo(dtype).eps < x.max().item() < 1
    noise = torch.compile(lambda x: x.clone().exponential_())(x)
    assert noise.min().item() > 0 and noise.max().item() < 40


def test_a_uniform_number_depends_on_its_place_alone():
    def of_rows(x):  # rows of 1000, of which every second begins within a vector of 16 places
        numbers = torch.rand_like(x)
        return numbers + 0 * numbers.sum(1, keepdim=True)

    drawn = []
    for f in (torch.rand_like, of_rows):
        torch.manual_seed(5)
        drawn.append(torch.compile(f)(torch.empty(19, 1000, device=DEVICE)))
    torch.testing.assert_close(*drawn, rtol=0, atol=0)
    # Of 19,000 numbers with 24 bits, 11 occur twice on average.
    assert len(drawn[0].unique()) > 19_000 - 40


def test_launches_of_one_kernel_become_one():
    def f(xs, ys, zs):
        for x, y in zip(xs, ys, strict=True):
            x.mul_(2).add_(y.sin())
        return [z.exp() + 1 for z in zs]

    xs, ys, zs = ([randn(67) for _ in range(7)] for _ in range(3))
    expected = [[x * 2 + y.sin() for x, y in zip(xs, ys, strict=True)], [z.exp() + 1 for z in zs]]
    result, (code,) = run_and_get_code(torch.compile(f), xs, ys, zs)
    torch.testing.assert_close([xs, result], expected)
    assert code.count("netcl_launch_many(") == 2 and "netcl_launch(" not in code


def test_launches_that_need_one_another_stay_apart():
    from torch._inductor.codegen.wrapper import KernelCallLine

    from torch_netcl.inductor.wrapper import Many, _Run

    def call(*buffers, kernel="k", sizes="[1]"):
        return KernelCallLine(None, kernel, ("", sizes), (), buffers, [], False, {}, None, None, "", "")

    many = {"k": Many("", written=[1])}
    run = _Run(call("a", "b"), many)
    assert run.takes(call("c", "reinterpret_tensor(d, (1,))"), many)
    for apart in (call("b", "e"), call("f", "a"), call("f", "d"), call("reinterpret_tensor(d, (1,))", "e")):
        assert not run.takes(apart, many)
    assert not run.takes(call("f", "g", kernel="l"), many) and not run.takes(call("f", "g", sizes="[2]"), many)
    assert run.takes(call("a", "g"), many)


def test_scalars_of_the_cpu():
    check(lambda a, s: s + a, randn(9), torch.tensor(2.0))
    check(lambda a, s: a * s.item(), randn(9), torch.tensor(2.0))


def test_graph_breaks():
    def f(a):
        b = a * 2
        torch._dynamo.graph_break()
        return b.relu() if b.sum() > 0 else b.exp()

    a = randn(33)
    torch.testing.assert_close(torch.compile(f)(a), f(a))


def test_gelu_does_not_cancel():
    """1 + erf(x) is one function in generated code: its digits are those of eager mode, not of a sum near 0."""
    x = torch.linspace(-4, 4, 2001)
    expected = F.gelu(x.double())
    actual = torch.compile(F.gelu)(x.to(DEVICE)).cpu()
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-30)  # the sum is off by 6e-3


def test_fused_nodes_make_one_kernel():
    f = torch.compile(lambda a, b: F.gelu(F.layer_norm(a + b, [64])))
    _, (code,) = run_and_get_code(f, randn(8, 64), randn(8, 64))
    assert code.count("= netcl_compile(") == 1 and "__kernel void compiled_fused_" in code


def _gpt():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
            self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    model = nn.Sequential(nn.Embedding(50, 32), Block(), nn.Linear(32, 50)).to(DEVICE)
    tokens = torch.randint(0, 50, (2, 16), device=DEVICE)
    return model, tokens, tokens.roll(1).flatten()


def _cnn():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 10)
    ).to(DEVICE)  # fmt: skip
    return model, randn(4, 3, 16, 16), torch.randint(0, 10, (4,), device=DEVICE)


TRAINED = [(_gpt, torch.float32), (_gpt, torch.bfloat16), (_cnn, torch.float32), (_cnn, torch.float16)]


@pytest.mark.parametrize(
    ("make", "dtype"),
    [*TRAINED, (_gpt, torch.float16), (_cnn, torch.bfloat16)] if FULL else TRAINED,
    ids=lambda x: getattr(x, "__name__", str(x)),
)
def test_training(make, dtype):
    if dtype not in torch.netcl.amp.autocast_dtypes() and dtype is not torch.float32:
        pytest.skip("the device has no autocast to it")
    model, x, target = make()
    losses = []
    for run, compiled in ((copy.deepcopy(model), False), (model, True)):
        optimizer = torch.optim.AdamW(run.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler(DEVICE, enabled=dtype is torch.float16)
        forward = torch.compile(run) if compiled else run
        losses.append([])
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast(DEVICE, dtype=dtype, enabled=dtype is not torch.float32):
                loss = F.cross_entropy(forward(x).flatten(0, -2).float(), target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses[-1].append(loss.item())
    # A rounding of bfloat16 is 2^-9, and a loss of 4 sums some of them.
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5 if dtype is torch.float32 else 2e-3, atol=1e-4)


SECOND = """
import torch
f = torch.compile(lambda a, b: (a * 2 + b).softmax(-1))
f(torch.ones(9, 33, device="netcl"), torch.ones(33, device="netcl")).cpu()
print(torch.netcl.kernel_cache_stats()["compiled"])
"""


def test_a_second_process_compiles_nothing(tmp_path):
    kernels, graphs = tmp_path / "kernels", tmp_path / "graphs"
    kernels.mkdir(mode=0o700)
    environment = os.environ | {"NETCL_CACHE_DIR": str(kernels), "TORCHINDUCTOR_CACHE_DIR": str(graphs)}
    runs = [
        subprocess.run([sys.executable, "-c", SECOND], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    counts = [int(r.stdout.split()[-1]) for r in runs]
    assert counts[0] > 0 and counts[1] == 0


def test_no_cpp_wrapper():
    with torch._inductor.config.patch(cpp_wrapper=True), pytest.raises(Exception, match="wrappers know no OpenCL"):
        torch.compile(lambda a: a + 1)(randn(3))


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_modes(mode):
    check(lambda a: (a @ a.t()).relu() + 1, randn(8, 8), mode=mode)


def test_the_page_is_right():
    text = (Path(__file__).parent.parent / "docs" / "compile.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(block, {})


def test_the_generator_knows_every_operator_of_inductor():
    from torch._inductor.ops_handler import OpsHandler

    from torch_netcl.inductor.overrides import OpenCLOverrides

    names = {name for name in dir(OpsHandler) if not name.startswith("_")}
    lacking = {n for n in names if getattr(OpenCLOverrides, n, None) in (None, getattr(OpsHandler, n))}
    # These belong to options of Inductor that are off for this device.
    assert lacking <= {"partial_accumulate", "rand_eager"}, lacking


def test_import_does_not_import_inductor():
    code = "import sys, torch; torch.ones(2, device='netcl').cpu(); print('torch._inductor' in sys.modules)"
    run = python(code)
    assert run.stdout.split()[-1] == "False"
