"""A vector's lanes give the same results whatever their neighbours hold: tiny, huge, denormal numbers, NaN, Inf."""

import math
import os
import warnings

import torch
import torch.nn.functional as F
from common import DEVICE, to_device
from opinfo import samples
from torch.testing._internal.common_methods_invocations import BinaryUfuncInfo, UnaryUfuncInfo, op_db
from torch.testing._internal.common_utils import TestCase, run_tests

FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
# Functions whose vector form may take another path for all lanes because of one lane.
QUICK = """sin cos tan sinc exp log log1p expm1 tanh sigmoid erf lgamma asinh atan special.bessel_j0 pow atan2 fmod
    hypot remainder nn.functional.silu nn.functional.elu nn.functional.softplus""".split()
# The same for operators whose samples have arguments of other kinds: name -> (number of columns, the function).
OTHERS = {
    "gelu": (1, F.gelu),
    "gelu_tanh": (1, lambda x: F.gelu(x, approximate="tanh")),
    "hardswish": (1, F.hardswish),
    "leaky_relu": (1, F.leaky_relu),
    "clamp": (1, lambda x: x.clamp(-1, 2)),
    "clamp_tensors": (2, lambda x, y: x.clamp(y, 2 * y)),
    "lerp": (2, lambda x, y: torch.lerp(x, y, 0.3)),
    "lerp_weights": (2, lambda x, y: torch.lerp(x, y, y)),
    "where": (2, lambda x, y: torch.where(x > y, x, y)),
    "addcmul": (2, lambda x, y: torch.addcmul(x, x, y, value=0.5)),
}
# Random, or loops of as many steps as the argument says, which is 1e10 here.
EXCLUDED = {"nn.functional.rrelu", "special.laguerre_polynomial_l", "special.legendre_polynomial_p"}
LANES = 16
VALUES = [0.0, 1e-45, 1e-40, 1.2e-38, 1e-28, 1e-10, 1e-4, 0.1, 0.5, 0.9999, 1.0, 1.5, 2.0, math.pi / 2, math.pi, 5.0,
          10.0, 20.5, 88.0, 100.0, 128.0, 1e3, 39000.0, 1e5, 1e7, 1e10, 1e20, 1e30, 3.4e38, math.inf]
VALUES = [s * v for v in VALUES for s in (1, -1)] + [math.nan]
FEW = [0.0, -0.0, 1e-40, -1e-28, 0.5, -1.0, 3.0, -20.5, 1e3, 1e10, -1e20, 3.4e38, math.inf, -math.inf, math.nan]
# What float64 has besides.
DOUBLES = [s * v for v in (5e-324, 1e-310, 2.3e-308, 1e-200, 709.0, 745.0, 1e100, 1.7e308) for s in (1, -1)]
MODERATE = [s * v for v in (1e-5, 0.5, 1.0, 1.5, 2.0, 3.0, 10.0, 20.5, 1e5) for s in (1, -1)]
FEW_DOUBLES = [5e-324, -1e-310, 1e-200, 709.0, -1e100, 1.7e308]


def ulps(x):
    """Floating-point numbers as integers in the same order. A difference that overflows is still far from 0."""
    if x.dtype == torch.float64:
        bits = x.view(torch.int64)
        return torch.where(bits < 0, -(2**63) - bits, bits)
    bits = x.view(torch.int32).long()
    return torch.where(bits < 0, -(2**31) - bits, bits)


def pairs(values):
    """Two columns: every value beside every value."""
    return [[a for a in values for _ in values], [b for _ in values for b in values]]


def differ(x, y):
    """Where two results differ; a NaN equals a NaN only."""
    # OpenCL C allows sin and cos an error of 4 units in the last place, and a function may have two algorithms.
    far = (ulps(x) - ulps(y)).abs() > 4 if x.dtype in (torch.float32, torch.float64) else x != y
    return torch.where(x.isnan() | y.isnan(), x.isnan() != y.isnan(), far)


class TestLanes(TestCase):
    def problem(self, f, columns, dtype):
        """The differences between mixed vectors and vectors of one value each; `columns` are the arguments' values."""
        n = len(columns[0])
        x = [torch.tensor(c, dtype=dtype, device=DEVICE) for c in columns]
        alone = f(*(t.repeat_interleave(LANES) for t in x))
        generator = torch.Generator().manual_seed(0)
        order = torch.cat([torch.randperm(n, generator=generator) for _ in range(8)])
        order = torch.cat([order, order[: -len(order) % LANES]]) if len(order) % LANES else order
        mixed = f(*(t[order.to(DEVICE)] for t in x))
        if not isinstance(mixed, torch.Tensor) or not mixed.is_floating_point():
            return None
        alone, mixed = alone.cpu()[::LANES][order], mixed.cpu()
        off = differ(alone, mixed)
        bad = off.nonzero().flatten().tolist()
        if not bad:
            return None
        k = bad[0]
        at = [t.cpu()[order[k]].item() for t in x]
        return f"at {at}: {mixed[k].item()} beside others, {alone[k].item()} alone ({len(bad)} of {len(off)})"

    def table(self, kind, arity, values, dtype):
        problems, checked = [], 0
        for op in op_db:
            if not isinstance(op, kind) or not (FULL or op.name in QUICK):
                continue
            if dtype not in op.supported_dtypes("cpu") or op.name in EXCLUDED:
                continue
            sample = samples(op, dtype, 1)[0]
            args = () if arity == 2 else to_device(sample.args, DEVICE)
            kwargs = to_device(sample.kwargs, DEVICE)
            try:
                found = self.problem(lambda *x, o=op, a=args, k=kwargs: o.op(*x, *a, **k), values, dtype)
            except AssertionError:  # jiterator requires CUDA
                continue
            except (RuntimeError, TypeError) as error:
                problems.append(f"{op.full_name}: {error}")
                continue
            checked += 1
            if found:
                problems.append(f"{op.full_name} {found}")
        return problems, checked

    def test_names(self):
        known = {op.name for op in op_db if isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo))}
        self.assertEqual(set(QUICK) - known, set(), "these are skipped silently")

    def test_differ(self):
        x = torch.tensor([math.nan, 0.0, -0.0, 1.0, math.inf, -math.inf, 3.4e38, 1e-45])
        same = torch.eye(len(x), dtype=torch.bool)
        same[1:3, 1:3] = same[1:3, 7] = same[7, 1:3] = True  # 0, and the number next to it
        a, b = torch.broadcast_tensors(x[:, None], x)
        self.assertEqual(differ(a.contiguous(), b.contiguous()), ~same)

    def test_others(self):
        for name, (arity, f) in OTHERS.items():
            with self.subTest(name):
                self.assertIsNone(self.problem(f, [VALUES] if arity == 1 else pairs(FEW), torch.float32))

    def check(self, kind, arity, values, least, dtype=torch.float32):
        if dtype == torch.float64 and not torch.netcl.get_device_properties().has_fp64:
            self.skipTest("the device has no float64")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problems, checked = self.table(kind, arity, values, dtype)
        if problems:
            self.fail("\n".join(problems))
        self.assertGreater(checked, least)

    def test_unary(self):
        self.check(UnaryUfuncInfo, 1, [VALUES], 60 if FULL else 10)

    def test_binary(self):
        self.check(BinaryUfuncInfo, 2, pairs(FEW), 15 if FULL else 3)

    def test_unary_float64(self):
        self.check(UnaryUfuncInfo, 1, [VALUES + DOUBLES], 60 if FULL else 10, torch.float64)

    def test_binary_float64(self):
        # Vectors of moderate numbers alone may take a way of their own.
        for values in (FEW + FEW_DOUBLES, MODERATE):
            self.check(BinaryUfuncInfo, 2, pairs(values), 15 if FULL else 3, torch.float64)


if __name__ == "__main__":
    run_tests()
