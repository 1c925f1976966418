"""Numbers as arguments: those that the tensor's dtype rounds, which decides comparisons (half(0.1) == 0.1), and those
beyond the dtype, which CPU and CUDA refuse."""

import os
import unittest
import warnings

import torch
import torch.nn.functional as F
from common import DEVICE, to_device
from opinfo import is_tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import torch_netcl  # noqa: F401

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.uint8, torch.int64, torch.bool)
RANDOM = ("random", "uniform", "normal", "exponential", "geometric", "cauchy", "bernoulli", "rrelu", "dropout", "empty")
NUMBERS = (0.1, 2.5, -1, 300, 1e9, -1e9, 2**40, float("inf"), float("nan"), True, 1 + 1j)
# Where CUDA, which netcl follows, differs from the CPU: operator, name of the argument, dtypes (None: all).
LIKE_CUDA = {
    # There it is composed of other operators, which check other things.
    ("aten.addr.default", "beta", None),
    ("aten.addr.default", "alpha", None),
    # Numbers are multiplied in float and not rounded to half first.
    ("aten.addmv.default", "beta", torch.float16),
    ("aten.addmv.default", "alpha", torch.float16),
    ("aten.mul_.Scalar", "other", torch.float16),
    # The CPU's short cut for one element does not check.
    ("aten.full_like.default", "fill_value", torch.float16),
    ("aten.new_full.default", "fill_value", torch.float16),
    # The CPU has no arithmetic of complex halves.
    ("aten.div.Scalar", "other", torch.float16),
    # A product with infinity: the CPU's BLAS multiplies an operand first, others the sum.
    ("aten.addmm.default", "alpha", torch.float32),
    # The CPU multiplies the number by the tensor's, and CUDA the tensor by the number.
    ("aten.add.Scalar", "alpha", torch.float16),
    # NaN is passed on.
    ("aten.multi_margin_loss.default", "margin", torch.float32),
    # The empty pattern of the sample has no element whose dtype could be wrong.
    ("aten.sparse_sampled_addmm.default", "beta", torch.float32),
}
# Sums of up to ten products: each addition rounds once, and the CPU rounds to 16 bits between.
TOLERANCE = {dtype: 10 * torch.finfo(dtype).eps for dtype in DTYPES if dtype.is_floating_point}

# Sums of products may cancel. The error of one in float32 is that of its terms, which are about as large as the largest
# result.
PRODUCTS = {"addbmm", "baddbmm", "addmm", "addmv"}


def tolerances(name, dtype, want):
    """The relative and the absolute tolerance of an operator's first result."""
    relative = absolute = TOLERANCE.get(dtype, 1e-5)
    if name in PRODUCTS and dtype is torch.float32:
        finite = want[want.isfinite()].abs()
        absolute *= max(1, finite.max().item()) if finite.numel() else 1
    return relative, absolute


class Recorder(TorchDispatchMode):
    """Keeps two calls of each operator that takes a number."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        names = [a.name for a in func._schema.arguments if str(a.type) in ("number", "Optional[number]")]
        known = self.calls.setdefault(func, [])
        if names and len(known) < 2 and not any(is_tensor(t) and t.numel() > 5000 for t in args):
            kept = tree_map(lambda x: x.detach().clone() if is_tensor(x) else x, (args, kwargs))
            known.append((names, kept))
        return func(*args, **kwargs)


def recorded(dtype):
    recorder = Recorder()
    for op in op_db:
        if dtype not in op.dtypes:
            continue
        try:
            for k, sample in enumerate(op.sample_inputs("cpu", dtype)):
                if k == 3:
                    break
                with recorder:
                    op(sample.input, *sample.args, **sample.kwargs)
        except (RuntimeError, TypeError, ValueError, AssertionError, IndexError):
            continue  # what the CPU does not run is no reference
    return recorder.calls


def outcome(func, args, kwargs, name, number, device):
    """The results on the CPU, or the error."""
    args, kwargs = to_device((tuple(args), dict(kwargs)), device)
    at = [a.name for a in func._schema.arguments].index(name)
    if at < len(args):
        args = (*args[:at], number, *args[at + 1 :])
    else:
        kwargs[name] = number
    try:
        with torch.no_grad():
            made = func(*args, **kwargs)
            listed = [made] if is_tensor(made) else list(made) if isinstance(made, (list, tuple)) else []
            return [t.cpu() for t in listed if is_tensor(t)]
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError) as error:
        return error


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestScalars(TestCase):
    def test_named(self):
        for dtype in (torch.float16, torch.bfloat16):
            x, number = torch.tensor([0.1, 0.7], dtype=dtype, device=DEVICE), torch.tensor(0.1, dtype=torch.float64)
            for other in (0.1, number):
                self.assertEqual((x == other).tolist(), [True, False])
                self.assertEqual((x != other).tolist(), [False, True])
                self.assertEqual(((x < other) | (x > other)).tolist(), [False, True])
                self.assertEqual(((x <= other) & (x >= other)).tolist(), [True, False])
                self.assertEqual((x % other)[0].item(), 0)
                self.assertEqual(torch.fmod(x, other)[0].item(), 0)
            self.assertEqual(torch.isin(x, 0.1).tolist(), [True, False])
            self.assertEqual(F.hardshrink(x, 0.1)[0].item(), 0)
            for shrink in (F.hardshrink, F.softshrink):
                mine, host = (t.detach().requires_grad_() for t in (x, x.cpu()))
                for t in (mine, host):
                    shrink(t, 0.1).sum().backward()
                self.assertEqual(shrink(mine, 0.1).cpu(), shrink(host, 0.1), rtol=0, atol=0)
                self.assertEqual(mine.grad.tolist(), host.grad.tolist())
                self.assertEqual(mine.grad[0].item(), 0)
            y = x.clone().requires_grad_()
            y.clamp(0.1, 0.7).sum().backward()
            self.assertEqual(y.grad.tolist(), [1, 1])

    def test_overflow_named(self):
        half, byte = torch.ones(3, dtype=torch.half, device=DEVICE), torch.ones(3, dtype=torch.int8, device=DEVICE)
        mask = half > 0
        calls = {
            "fill_": lambda: half.fill_(-1e9),
            "full": lambda: torch.full((2,), 300, dtype=torch.int8, device=DEVICE),
            "full_like": lambda: torch.full_like(half, 1e9),
            "new_full": lambda: half.new_full((2,), 1e9),
            "setitem": lambda: half.__setitem__(0, 1e9),
            "setitem of a mask": lambda: half.__setitem__(mask, 1e9),
            "masked_fill": lambda: half.masked_fill(mask, -1e9),
            "where": lambda: torch.where(mask, byte, 300),
            "pad": lambda: F.pad(byte, (1, 1), value=300),
            "fill_diagonal_": lambda: half.new_zeros(2, 2).fill_diagonal_(1e9),
            "index_fill": lambda: half.index_fill(0, torch.tensor([0], device=DEVICE), 1e9),
            "threshold": lambda: F.threshold(half, 0.5, 1e9),
            "addcmul": lambda: torch.addcmul(byte, byte, byte, value=300),
            "pow": lambda: byte.pow(300),
            "linspace": lambda: torch.linspace(0, 300, 3, dtype=torch.int8, device=DEVICE),
            "linspace of half": lambda: torch.linspace(-1e9, 0, 3, dtype=torch.half, device=DEVICE),
            "logspace": lambda: torch.logspace(0, 300, 3, dtype=torch.int8, device=DEVICE),
        }
        for name, function in calls.items():
            with self.subTest(name=name), self.assertRaisesRegex(RuntimeError, "without overflow"):
                function()
        self.assertEqual(half.fill_(float("-inf")).tolist(), [float("-inf")] * 3)

    @parametrize("dtype", DTYPES)
    def test_table(self, dtype):
        """Every operator of OpInfo's samples, with each number in each place, has the CPU's result or raises."""
        if dtype not in (torch.float16, torch.int8) and not FULL:
            self.skipTest("the table of this dtype belongs to make test-full")
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        checked, problems = 0, []
        for func, calls in recorded(dtype).items():
            key = str(func)
            base = key.split(".")[1].rstrip("_")
            if any(word in key for word in RANDOM):
                continue
            ranges = any(word in key for word in ("linspace", "logspace", "range"))  # numbers are sizes there
            for names, (args, kwargs) in calls:
                for name in names:
                    if {(key, name, dtype), (key, name, None)} & LIKE_CUDA:
                        continue
                    for number in NUMBERS[:4] if ranges else NUMBERS:
                        # The CPU multiplies each product by alpha, so it gives Inf - Inf; here alpha times the sum.
                        if (base, name, number) == ("addbmm", "alpha", float("inf")):
                            continue
                        want, got = (outcome(func, args, kwargs, name, number, d) for d in ("cpu", DEVICE))
                        checked += 1
                        failed = [isinstance(r, Exception) for r in (want, got)]
                        try:
                            self.assertEqual(failed[1], failed[0])
                            if not any(failed):
                                rtol, atol = tolerances(base, dtype, want[0]) if want else (0, 0)
                                self.assertEqual(got, want, rtol=rtol, atol=atol)
                        except AssertionError:
                            problems.append(f"{key} {name}={number}: {str(got)[:80]}, on the CPU {str(want)[:80]}")
        self.assertEqual(problems, [], "\n".join(problems))
        self.assertGreater(checked, 300)


instantiate_parametrized_tests(TestScalars)


if __name__ == "__main__":
    run_tests()
