"""Products of bfloat16 with a CPU's matrix engine (AMX, AVX512-BF16).

The sources are kernels/gemm/gemm_engine.h and csrc/aten/gemm/MatrixEngine.cpp. If the CPU lacks the instructions,
TestEmulated runs TestProducts again in a process that emulates them.
"""

import copy
import ctypes
import os
import subprocess
import sys
import tempfile
import unittest
import warnings
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from processes import python
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401

HERE = Path(__file__).resolve().parent
EMULATOR = os.environ.get("NETCL_TEST_EMULATOR")  # the library, in the process that has it
ENGINES = ("amx", "avx512_bf16")
PRODUCT, PAIRS = 4, 7  # executions() of matrix_engine_emulator.c

ops = torch.ops.netcl


@cache
def cpu_flags():
    try:
        return frozenset(Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split())
    except (OSError, IndexError):
        return frozenset()


def why_not(engine):
    """Why this CPU cannot run the engine's instructions, with or without emulation; empty if it can."""
    if "avx2" not in cpu_flags():
        return "no x86 CPU with AVX2"
    if engine == "avx512_bf16" and "avx512f" in cpu_flags() and "avx512_bf16" not in cpu_flags():
        return "with AVX-512 but without bfloat16 only a part of the instructions could be emulated"
    return ""


def is_native(engine):
    return {"amx": {"amx_bf16", "amx_tile"}, "avx512_bf16": {"avx512f", "avx512_bf16"}}[engine] <= cpu_flags()


@cache
def device():
    """A CPU device with CPU kernels, or None."""
    for i in range(torch.netcl.device_count()):
        properties = torch.netcl.get_device_properties(i)
        if properties.device_type == properties.device_class == "cpu":
            return torch.device("netcl", i)
    return None


NO_DEVICE = "no CPU device, or NETCL_DEVICE_CLASS=gpu"


def executions():
    """The number of products that the emulator computed: tiles of AMX and vectors of AVX512-BF16."""
    library = ctypes.CDLL(EMULATOR)
    library.executions.restype = ctypes.c_ulonglong
    return library.executions(PRODUCT) + library.executions(PAIRS)


def whole(shape, seed, dtype=torch.bfloat16, top=4):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(-top, top + 1, shape, generator=g).to(dtype)


def normal(shape, seed, dtype=torch.bfloat16):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def orders(t):
    """The matrix with contiguous columns, with contiguous rows, and with neither."""
    yield t
    yield t.mT.contiguous().mT
    sparse = torch.empty(*t.shape[:-2], t.shape[-2], t.shape[-1] * 2, dtype=t.dtype, device=t.device)
    sparse[..., ::2] = t
    yield sparse[..., ::2]


@unittest.skipIf(device() is None, NO_DEVICE)
class TestProducts(TestCase):
    """Runs on every available engine. Shapes are the smallest that use it: more than 2^19 multiply-adds."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(ops.set_matrix_engine, device().index, ops.matrix_engine(device().index))

    def use(self, engine):
        if not EMULATOR and not is_native(engine):
            self.skipTest(f"the CPU has no {engine}: TestEmulated runs this test")
        if why_not(engine):
            self.skipTest(why_not(engine))
        if ops.matrix_engine(device().index) != engine:  # setting one runs a check
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.assertEqual(ops.set_matrix_engine(device().index, engine), engine)
        self.made = executions() if EMULATOR else 0

    def assert_used(self, used=True):
        if EMULATOR:  # otherwise nothing counts
            self.assertEqual(executions() > self.made, used)

    def check(self, function, *tensors, **bounds):
        actual = function(*(t.to(device()) for t in tensors)).cpu()
        expected = function(*(t.float() if t.is_floating_point() else t for t in tensors))
        self.assertEqual(actual, expected.to(actual.dtype), **(bounds or dict(atol=0, rtol=0)))
        self.assert_used()

    @parametrize("engine", ENGINES)
    @parametrize(
        "shape",
        [(96, 64, 96), (100, 85, 67), (33, 300, 61), (20, 24, 2100), (270, 260, 250), (300, 290, 700), (1300, 20, 64)],
    )
    def test_whole_numbers_are_exact(self, engine, shape):
        # Sums stay below 2^24, so the only rounding is the one to bfloat16. (20, 24, 2100) is too deep and the next two
        # are too large for one launch, (300, 290, 700) keeps sums between blocks of k, the last one streams A.
        self.use(engine)
        m, n, k = shape
        xs, ys = list(orders(whole((m, k), 1))), list(orders(whole((k, n), 2)))
        for i, j in [(0, 1), (1, 0), (2, 2)]:
            self.check(torch.mm, xs[i], ys[j])

    @parametrize("engine", ENGINES)
    def test_few_rows(self, engine):
        # AMX reads the weight in place if its rows are whole blocks of 32; it packs the last of 150 and 1100.
        self.use(engine)
        for m, n, k in ((8, 150, 640), (20, 640, 96), (24, 1100, 512), (17, 70, 1024)):
            x, w, bias = whole((m, k), 1), whole((n, k), 2), whole((n,), 3)
            for weight in (w, w.t().contiguous().t(), F.pad(w, (32, 0))[:, 32:]):
                actual = F.linear(x.to(device()), weight.to(device()), bias.to(device())).cpu()
                self.assertEqual(actual, F.linear(x.float(), w.float(), bias.float()).to(actual.dtype), atol=0, rtol=0)

    @parametrize("engine", ENGINES)
    def test_whole_panels_are_read_in_place(self, engine):
        # AMX packs neither of (320, 288) if its rows begin at cache lines, but not where they lie 4 KiB apart.
        self.use(engine)
        m, k = 320, 288
        y = whole((k, 190), 2)
        for left, right in ((0, 0), (32, 0), (0, 1760), (8, 24), (0, 8)):
            x = F.pad(whole((m, k), 1), (left, right)).to(device())[:, left : left + k]
            for other in orders(y):
                actual, expected = torch.mm(x, other.to(device())), x.cpu().float() @ y.float()
                self.assertEqual(actual.cpu(), expected.bfloat16(), atol=0, rtol=0)
                self.assert_used()
        x = whole((3, m, k), 3)
        self.check(torch.bmm, x, whole((3, k, 190), 4))
        self.check(lambda x, y: torch.bmm(x.expand(3, m, k), y), x[:1], whole((3, k, 190), 4))
        self.check(lambda x, y: torch.matmul(x[1:], y), x, y)

    @parametrize("engine", ENGINES)
    def test_batches_and_addends(self, engine):
        self.use(engine)
        x, y = whole((2, 65, 97), 3), whole((2, 97, 90), 4)
        self.check(torch.bmm, x, y)
        self.check(torch.matmul, x, whole((97, 90), 5))
        self.check(lambda b, x, y: torch.baddbmm(b, x, y, beta=2, alpha=3), whole((2, 1, 90), 6), x, y)
        x, y = whole((2, 20, 2100), 3), whole((2, 2100, 24), 4)
        self.check(lambda b, x, y: torch.baddbmm(b, x, y, beta=2, alpha=3), whole((2, 20, 24), 6), x, y)
        self.check(F.linear, whole((2, 70, 97), 7), whole((80, 97), 8), whole((80,), 9))

    @parametrize("engine", ENGINES)
    def test_lstm_steps(self, engine):
        # AMX multiplies the states of a step by W_hh if a state has whole blocks of 32; other sizes use vectors.
        self.use(engine)
        for batch, hidden, steps in ((33, 64, 4), (5, 96, 3), (40, 40, 2)):
            torch.manual_seed(4)
            lstm = torch.nn.LSTM(160, hidden, bidirectional=True).to(torch.bfloat16)
            x, h, c = normal((steps, batch, 160), 1), normal((2, batch, hidden), 2), normal((2, batch, hidden), 3)
            mine, wanted = copy.deepcopy(lstm).to(device()), copy.deepcopy(lstm).double()
            given = [[t.to(to).requires_grad_() for t in (x, h, c)] for to in (device(), torch.float64)]
            y, z = (m(i, (a, b))[0] for m, (i, a, b) in zip((mine, wanted), given, strict=True))
            grad = normal(z.shape, 5)
            y.backward(grad.to(device()))
            z.backward(grad.double())
            # Each step rounds states and gates, of size 1 at most, to bfloat16.
            self.assertEqual(y.cpu().double(), z, atol=steps * 2.0**-8, rtol=2.0**-8)
            for a, b in zip((*given[0], *mine.parameters()), (*given[1], *wanted.parameters()), strict=True):
                worst = steps * 2.0**-7 * b.grad.abs().max().item()
                self.assertEqual(a.grad.cpu().double(), b.grad, atol=worst, rtol=2.0**-7)
            self.assert_used()

    @parametrize("engine", ENGINES)
    def test_random_numbers(self, engine):
        self.use(engine)
        x, y = normal((70, 600), 1), normal((600, 30), 2)
        # Products are exact; a sum of k in float differs by at most k * 2^-24 * sum |x y|, and is rounded once.
        worst = (600 * 2.0**-24 * (x.float().abs() @ y.float().abs())).max().item()
        self.check(torch.mm, x, y, atol=worst, rtol=2.0**-8)

    @parametrize("engine", ENGINES)
    def test_inf_and_nan(self, engine):
        self.use(engine)
        for dtype in (torch.bfloat16,) + (torch.float16,) * (engine == "amx"):
            x, y = normal((80, 90), 1, dtype), normal((90, 96), 2, dtype)
            x[3, 5] = float("inf")
            x[17, 40] = -float("inf")
            x[40, 2] = float("nan")
            y[5, 7] = 0  # Inf * 0
            y[5, 8:20] = torch.tensor([1, -2, 2.0**-14]).repeat(4)  # in two parts, the second is 0
            x[50, 60] = 1
            y[60, 50] = float("inf")
            expected, actual = x.float() @ y.float(), (x.to(device()) @ y.to(device())).cpu()
            self.assertEqual(actual.isnan(), expected.isnan())
            self.assertEqual(actual.isinf(), expected.isinf())
            self.assertEqual(actual[expected.isinf()].float(), expected[expected.isinf()])
            self.assertTrue(expected.isnan().any() and expected.isinf().any() and expected.isfinite().any())
        self.assert_used()

    def test_half_is_exact(self):
        # Every half is the sum of two bfloat16. Each column has one scale, so all sums have fewer than 24 bits.
        self.use("amx")
        x, y = whole((80, 70), 1, torch.float16, 2047), whole((70, 96), 2, torch.float16, 3)
        y[:, 1::3] *= 2.0**-14
        y[:, 2::3] *= 2.0**-24  # denormal ones
        self.check(torch.mm, x, y)
        # The result's rounding hides the product of the second parts, so subtract the rounded result.
        x = torch.diag(2 * whole((96,), 3, torch.float32, 511) + 1025).half()
        y = (2 * whole((96, 64), 4, torch.float32, 511) + 1025).half() * 2.0**-11
        self.check(torch.addmm, -(x.float() @ y.float()).half(), x, y)

    def test_half_is_not_for_avx512_bf16(self):
        self.use("avx512_bf16")
        x, y = whole((96, 96), 1, torch.float16), whole((96, 64), 2, torch.float16)
        self.assertEqual((x.to(device()) @ y.to(device())).cpu(), x @ y, atol=0, rtol=0)
        self.assert_used(False)

    @parametrize("engine", ENGINES)
    def test_precision_of_float(self, engine):
        self.use(engine)
        x, y = normal((90, 96), 1, torch.float32), normal((96, 64), 2, torch.float32)
        terms = x.abs().double() @ y.abs().double()
        exact = x.double() @ y.double()
        before = torch.get_float32_matmul_precision()
        self.addCleanup(torch.set_float32_matmul_precision, before)

        def worst(precision):
            torch.set_float32_matmul_precision(precision)
            made = executions() if EMULATOR else 0
            c = (x.to(device()) @ y.to(device())).cpu()
            used = bool(EMULATOR) and executions() > made
            return ((c - exact).abs() / terms).max().item(), used

        sums = 96 * 2.0**-24
        error, used = worst("highest")
        self.assertLess(error, sums)
        self.assertFalse(used)
        # The first of two parts is truncated to 8 bits, the second rounded to 8 more: 2^-16 of each operand is lost.
        error, used = worst("high")
        self.assertLess(error, sums + (2 * 2.0**-16 + 2.0**-32) * (engine == "amx"))
        self.assertEqual(used, bool(EMULATOR) and engine == "amx")
        # Rounded to bfloat16: 2^-9 of each.
        error, used = worst("medium")
        self.assertLess(error, sums + 2.0**-8 + 2.0**-18)
        self.assertGreater(error, sums)
        self.assertEqual(used, bool(EMULATOR))

    @parametrize("engine", ENGINES)
    @parametrize(
        "case",
        [
            "plain",
            "strided",
            "groups",
            "one_image",
            "rows_of_four",
            "few_pixels",
            "transposed",
            "3d",
            "blocks",
            "wide_blocks",
            "groups_of_blocks",
            "dilated_blocks",
            "small_planes",
            "few_images",
        ],
    )
    def test_convolution(self, engine, case):
        # The numbers are integers, so each direction is exact and rounded once.
        self.use(engine)
        x_shape, w_shape, options = {
            "plain": ((2, 18, 9, 11), (35, 18, 3, 3), dict(padding=1)),
            "strided": ((2, 17, 12, 9), (33, 17, 3, 2), dict(stride=3, padding=(1, 0))),
            "groups": ((1, 6, 10, 7), (40, 3, 3, 3), dict(padding=1, groups=2)),
            "one_image": ((1, 40, 8, 8), (20, 40, 3, 3), dict(dilation=2)),
            "rows_of_four": ((2, 16, 4, 4), (40, 16, 3, 3), dict(padding=1)),
            "few_pixels": ((1, 16, 4, 4), (130, 16, 3, 3), dict()),
            "transposed": ((1, 7, 6, 5), (7, 20, 3, 3), dict(stride=2, padding=1, output_padding=1)),
            "3d": ((1, 3, 5, 6, 7), (18, 3, 2, 3, 3), dict(padding=1)),
            "blocks": ((2, 32, 12, 13), (32, 32, 3, 3), dict(padding=1)),  # whole blocks of channels
            "wide_blocks": ((2, 32, 28, 29), (128, 32, 2, 3), dict(padding=1, stride=2)),
            "groups_of_blocks": ((3, 64, 8, 7), (64, 32, 3, 3), dict(padding=1, groups=2)),
            "dilated_blocks": ((2, 32, 14, 15), (64, 32, 3, 2), dict(padding=(2, 0), dilation=2)),
            "small_planes": ((33, 32, 4, 4), (64, 32, 3, 3), dict(padding=1)),
            "few_images": ((1, 32, 5, 6), (96, 32, 3, 3), dict(padding=2)),
        }[case]
        function = F.conv_transpose2d if case == "transposed" else (F.conv3d if case == "3d" else F.conv2d)
        halves = engine == "amx" and case not in ("strided", "groups", "one_image", "transposed", "3d")
        dtypes = [torch.bfloat16] + [torch.float16] * halves

        def run(x, w, b, where, dtype, memory_format):
            x, w = (t.to(where, dtype).contiguous(memory_format=memory_format).requires_grad_() for t in (x, w))
            b = b.to(where, dtype)
            y = function(x, w, b, **options)
            dy = whole(y.shape, 4, torch.float32).to(where, dtype)
            return y.detach(), *torch.autograd.grad(y, (x, w), dy)

        for dtype in dtypes:
            top = 4 if dtype == torch.bfloat16 else 300  # halves that no bfloat16 holds
            x, w = whole(x_shape, 1, torch.float32, top), whole(w_shape, 2, torch.float32)
            b = whole((w_shape[1] if case == "transposed" else w_shape[0],), 3, torch.float32)
            every = run(x, w, b, "cpu", torch.float32, torch.contiguous_format)
            last = torch.channels_last_3d if case == "3d" else torch.channels_last
            for memory_format in (torch.contiguous_format, last):
                for actual, expected in zip(run(x, w, b, device(), dtype, memory_format), every, strict=True):
                    self.assertEqual(actual.cpu(), expected.to(dtype), atol=0, rtol=0)
        self.assert_used()

    def test_convolution_of_infinite_halves_amx(self):
        # In two parts, Inf stays Inf and NaN stays NaN, and no other pixel changes.
        self.use("amx")
        x, w = whole((2, 32, 14, 14), 1, torch.float32, 300), whole((64, 32, 3, 3), 2, torch.float32)
        w[w == 0] = 1  # 0 times Inf is NaN
        x[0, 3, 4, 5], x[1, 30, 0, 13], x[1, 1, 9, 0] = float("inf"), float("-inf"), float("nan")

        def run(where, dtype):
            inputs = [t.to(where, dtype).requires_grad_() for t in (x, w)]
            y = F.conv2d(*inputs, padding=1)
            dy = whole(y.shape, 4, torch.float32).abs().add_(1).to(where, dtype)
            return y.detach(), *torch.autograd.grad(y, inputs, dy)

        for actual, expected in zip(run(device(), torch.float16), run("cpu", torch.float32), strict=True):
            self.assertEqual(actual.cpu(), expected.half(), atol=0, rtol=0)
        self.assert_used()

    @parametrize("engine", ENGINES)
    def test_training_step(self, engine):
        # The three products of a layer, under autocast.
        self.use(engine)
        x, w, dy = whole((90, 80), 1, torch.float32), whole((96, 80), 2, torch.float32), whole((90, 96), 3)

        def gradients(x, w, dy, kind):
            x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
            with torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "netcl"):
                y = F.linear(x, w)
            y.backward(dy.to(y.dtype))
            return y.float(), x.grad, w.grad

        expected = gradients(x, w, dy, "cpu")
        actual = gradients(x.to(device()), w.to(device()), dy.to(device()), "netcl")
        for a, e in zip(actual, expected, strict=True):
            self.assertEqual(a.cpu(), e.bfloat16().float(), atol=0, rtol=0)
        self.assert_used()

    @parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_attention_amx(self, dtype):
        # All five products use the engine: probabilities and their gradients have the dtype of query, key and value.
        self.use("amx")
        q, k, v, dy = (normal((1, 1, 128, 40), i, dtype) for i in range(4))

        def run(where, dtype):
            inputs = [t.to(where, dtype).requires_grad_() for t in (q, k, v)]
            y = F.scaled_dot_product_attention(*inputs)
            torch.netcl.synchronize(device())
            made = executions() if EMULATOR else 0
            return (y.detach(), *torch.autograd.grad(y, inputs, dy.to(where, dtype))), made

        (expected, _), (actual, forward) = run("cpu", torch.float64), run(device(), dtype)
        torch.netcl.synchronize(device())
        if EMULATOR:  # products of so many tiles: two forward, five backward
            tiles = 4 * 4 * 2 + 4 * 2 * 4, 2 * (4 * 4 * 2) + 3 * (4 * 2 * 4)
            each = 4 if dtype == torch.bfloat16 else 16
            self.assertEqual((forward - self.made, executions() - forward), tuple(each * t for t in tiles))
        eps = 2.0 ** (-9 if dtype == torch.bfloat16 else -12)  # of one rounding
        for a, e in zip(actual, expected, strict=True):
            # The roundings of an operand and of the result, for sums whose spread is that of the result.
            self.assertEqual(a.cpu().double(), e, atol=4 * eps * e.abs().max().item(), rtol=0)


@unittest.skipIf(device() is None, NO_DEVICE)
class TestChoice(TestCase):
    def test_what_the_cpu_has(self):
        engine = ops.matrix_engine(device().index)
        if os.environ.get("NETCL_MATRIX_ENGINE"):
            self.assertEqual(engine, os.environ["NETCL_MATRIX_ENGINE"])
        elif cpu_flags():
            self.assertEqual(engine, next((e for e in ENGINES if is_native(e)), "none"))

    def run_with(self, engine):
        code = (
            "import torch, torch_netcl; x = torch.ones(128, 128, dtype=torch.bfloat16, device='netcl'); "
            "print((x @ x).sum().item(), torch.ops.netcl.matrix_engine(0))"
        )
        return python(code, NETCL_MATRIX_ENGINE=engine)

    def test_none(self):
        done = self.run_with("none")
        self.assertEqual((done.returncode, done.stdout.split()), (0, [str(128.0**3), "none"]), done.stderr)

    def test_refused(self):
        done = self.run_with("fast")
        self.assertIn("NETCL_MATRIX_ENGINE: 'fast' is not one of none, avx512_bf16, amx", done.stderr)
        self.assertEqual(done.returncode, 1)
        if not is_native("amx"):
            done = self.run_with("amx")
            self.assertIn("NETCL_MATRIX_ENGINE: this CPU has no amx", done.stderr)
            self.assertEqual(done.returncode, 1)


@unittest.skipIf(device() is None, NO_DEVICE)
class TestEmulated(TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.library = str(Path(folder.name, "emulator.so"))
        compiler = os.environ.get("CC", "cc").split()
        source = str(HERE / "matrix_engine_emulator.c")
        subprocess.run([*compiler, "-O2", "-shared", "-fPIC", "-o", cls.library, source, "-lm", "-ldl"], check=True)

    def emulated(self, *arguments, **environment):
        env = dict(os.environ, LD_PRELOAD=self.library, NETCL_TEST_EMULATOR=self.library, **environment)
        return subprocess.run(
            [sys.executable, *arguments], env=env, cwd=HERE, capture_output=True, text=True, timeout=900
        )

    @parametrize("engine", ENGINES)
    def test_products(self, engine):
        if is_native(engine) or why_not(engine):
            self.skipTest(why_not(engine) or f"the CPU has {engine}: TestProducts runs on it")
        tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", f"{__file__}::TestProducts"]
        done = self.emulated(*tests, "-k", engine + (" or half_is_exact" if engine == "amx" else ""))
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-2000:])
        self.assertNotIn("skipped", done.stdout.splitlines()[-1])

    @parametrize("engine", ENGINES)
    def test_a_wrong_engine_is_not_used(self, engine):
        if is_native(engine) or why_not(engine):
            self.skipTest(why_not(engine) or f"the CPU has {engine}, which makes no mistake on demand")
        code = (
            "import torch, torch_netcl; i = torch.ops.netcl; "
            f"print(i.set_matrix_engine({device().index}, {engine!r}), i.matrix_engine({device().index}))"
        )
        done = self.emulated("-c", code, EMULATOR_MISTAKE="1")
        self.assertEqual(done.stdout.split(), ["none", "none"], done.stderr)
        self.assertIn(f"the matrix engine {engine} is not used on", done.stderr)
        self.assertIn("its results were wrong", done.stderr)


instantiate_parametrized_tests(TestProducts)
instantiate_parametrized_tests(TestEmulated)

if __name__ == "__main__":
    run_tests()
