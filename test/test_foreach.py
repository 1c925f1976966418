"""Foreach operators on netcl: one launch per list, with the same results as one operator per tensor."""

import math
import unittest

import torch
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401

DEV = "netcl"
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
if torch.netcl.is_available() and torch.netcl.get_device_properties(0).has_fp64:
    FLOATS.append(torch.float64)
# A chunk has 4096 elements, a vector 16.
SIZES = [(1,), (), (15,), (3, 16), (0,), (4096,), (4099,), (2, 3, 5), (9000,)]

UNARY = ["abs", "exp", "log", "neg", "reciprocal", "rsqrt", "sqrt"]
BINARY = ["add", "sub", "mul", "div", "pow", "maximum", "minimum"]
# A kernel is compiled for each pair of operator and dtype, so all operators run in float32, and some in other dtypes.
SOME = {"neg", "sqrt", "add", "div", "maximum", "addcdiv"}
TERNARY = ["addcmul", "addcdiv"]


def make(dtype, seed=0, low=0.25, high=2.0):
    gen = torch.Generator().manual_seed(seed)
    return [(torch.rand(s, generator=gen) * (high - low) + low).to(dtype) for s in SIZES]


def to(tensors, dev=DEV):
    return [t.to(dev) for t in tensors]


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestForeach(TestCase):
    def check(self, name, dtype, *args, launches=1, **kwargs):
        """Compares the functional and the in-place form on netcl with the CPU."""

        def move(value, dev):
            if isinstance(value, list) and isinstance(value[0], torch.Tensor):
                return [t.to(dev, copy=True) for t in value]
            return value.to(dev) if isinstance(value, torch.Tensor) and value.device.type == "cpu" else value

        # The reference is float64, rounded once: within one unit in the last place; the device's functions are within
        # two.
        exact = [[t.double() for t in a] if isinstance(a, list) and isinstance(a[0], torch.Tensor) else a for a in args]
        want = [w.to(dtype) for w in getattr(torch, f"_foreach_{name}")(*exact, **kwargs)]
        forms = [name] + ([f"{name}_"] if hasattr(torch, f"_foreach_{name}_") else [])
        tolerance = {"atol": 1e-6, "rtol": 4 * torch.finfo(dtype).eps}
        for form in forms:
            moved = [move(a, DEV) for a in args]
            function = getattr(torch, f"_foreach_{form}")
            before = torch.netcl.launch_count()
            out = function(*moved, **kwargs)
            if launches is not None:
                self.assertEqual(torch.netcl.launch_count() - before, launches, msg=form)
            out = moved[0] if out is None else out
            for got, expected in zip(out, want, strict=True):
                self.assertEqual(got.device.type, DEV)
                self.assertEqual(got.dtype, dtype)
                self.assertEqual(got.cpu(), expected, msg=f"{form} {tuple(got.shape)}", **tolerance)

    def some(self, ops, dtype):
        return [op for op in ops if dtype == torch.float32 or op in SOME]

    @parametrize("dtype", FLOATS)
    def test_unary(self, dtype):
        for op in self.some(UNARY, dtype):
            self.check(op, dtype, make(dtype))

    @parametrize("dtype", FLOATS)
    def test_scalar(self, dtype):
        scalars = [0.5 + 0.25 * k for k in range(len(SIZES))]
        for op in self.some(BINARY, dtype):
            self.check(op, dtype, make(dtype), 1.5)
            self.check(op, dtype, make(dtype), scalars)

    @parametrize("dtype", FLOATS)
    def test_list(self, dtype):
        for op in self.some(BINARY, dtype):
            self.check(op, dtype, make(dtype), make(dtype, 1))
        for op in self.some(("add", "sub"), dtype):
            self.check(op, dtype, make(dtype), make(dtype, 1), alpha=0.5)

    @parametrize("dtype", FLOATS)
    def test_ternary(self, dtype):
        scalars = [0.25 * k for k in range(len(SIZES))]
        lists = make(dtype), make(dtype, 1), make(dtype, 2)
        for op in self.some(TERNARY, dtype):
            self.check(op, dtype, *lists, value=0.5)
            self.check(op, dtype, *lists, scalars=scalars)
        self.check("lerp", dtype, *lists)
        for weight in (0.0, 0.1, 0.5, 0.9, 1.0):
            self.check("lerp", dtype, *lists[:2], weight)
        self.check("lerp", dtype, *lists[:2], [w / 10 for w in range(len(SIZES))])

    def test_packed_scalars(self):
        lists = make(torch.float32), make(torch.float32, 1), make(torch.float32, 2)
        packed = torch.arange(len(SIZES), dtype=torch.float32)
        want = torch._foreach_addcdiv(*lists, packed)
        self.assertEqual(to(torch._foreach_addcdiv(*map(to, lists), packed), "cpu"), want)

    @parametrize("dtype", FLOATS)
    def test_tensor_scalar(self, dtype):
        scalar = torch.tensor(1.25, dtype=dtype)
        for op in ("mul", "div"):
            function = getattr(torch, f"_foreach_{op}")
            want = function(make(dtype), scalar)
            for where in (scalar.to(DEV), scalar):
                a = to(make(dtype))
                self.assertEqual(to(function(a, where), "cpu"), want)
                getattr(torch, f"_foreach_{op}_")(a, where)
                self.assertEqual(to(a, "cpu"), want)

    def test_scalar_to_the_power_of_tensors(self):
        self.assertEqual(
            to(torch._foreach_pow(0.9, to(make(torch.float32))), "cpu"), torch._foreach_pow(0.9, make(torch.float32))
        )

    @parametrize("dtype", FLOATS)
    def test_norm(self, dtype):
        host = make(dtype, low=-2)
        dev = to(host)
        for p in (1, 2, 2.0):
            before = torch.netcl.launch_count()
            out = torch._foreach_norm(dev, p)
            self.assertEqual(torch.netcl.launch_count() - before, 2)
            for got, t in zip(out, host, strict=True):
                self.assertEqual(got.dtype, dtype)
                # Sums of up to 9000 positive terms in 16 lanes and chunks: about 256 + 16 + 3 roundings of 2^-24.
                want = t.double().norm(p).to(dtype)
                self.assertEqual(got.cpu(), want, atol=1e-6, rtol=max(2e-5, torch.finfo(dtype).eps))
        some = [i for i, t in enumerate(host) if t.numel()]
        out = torch._foreach_norm([dev[i] for i in some], math.inf)
        self.assertEqual([o.cpu() for o in out], [host[i].abs().max() for i in some], atol=0, rtol=0)
        for p in (1, 2, math.inf):
            for value in (math.nan, math.inf):
                bad = torch.ones(5000, dtype=dtype, device=DEV)
                bad[4321] = value
                self.assertEqual(torch._foreach_norm([bad], p)[0].item(), value)
        self.assertEqual(torch._foreach_norm(dev, 3)[3].cpu(), host[3].norm(3))
        if dtype != torch.float64:
            self.assertEqual(torch._foreach_norm(dev, 2, dtype=torch.float32)[3].dtype, torch.float32)

    def test_nan_and_inf(self):
        values = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -2.0] * 5)
        other = torch.tensor([1.0, math.nan, math.inf, -math.inf, 2.0, 0.0, -3.0] * 5)
        for op in ["add", "sub", "mul", "div", "maximum", "minimum"]:
            function = getattr(torch, f"_foreach_{op}")
            self.assertEqual(function(to([values]), to([other]))[0].cpu(), function([values], [other])[0])
            for scalar in (math.nan, math.inf, 0.0):
                self.assertEqual(function(to([values]), scalar)[0].cpu(), function([values], scalar)[0])
        for op in ("sqrt", "reciprocal", "neg", "abs", "exp", "log"):
            function = getattr(torch, f"_foreach_{op}")
            self.assertEqual(function(to([values]))[0].cpu(), function([values])[0])

    @parametrize("dtype", [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.bool])
    def test_zero_and_copy(self, dtype):
        host = [torch.randint(0, 2, s).to(dtype) for s in SIZES]
        dst = [torch.ones_like(t) for t in to(host)]
        torch._foreach_copy_(dst, to(host))
        self.assertEqual(to(dst, "cpu"), host)
        torch._foreach_zero_(dst)
        self.assertEqual(to(dst, "cpu"), [torch.zeros_like(t) for t in host])

    def test_copy_converts(self):
        pairs = [(torch.float32, d) for d in FLOATS] + [(d, torch.float32) for d in FLOATS]
        for a, b in [*pairs, (torch.float16, torch.bfloat16)]:
            host = make(a)
            dst = [torch.empty_like(t, dtype=b, device=DEV) for t in host]
            torch._foreach_copy_(dst, to(host))
            self.assertEqual(to(dst, "cpu"), [t.to(b) for t in host], atol=0, rtol=0)
        dst = to(make(torch.float32))
        torch._foreach_copy_(dst, make(torch.float32, 1))
        self.assertEqual(to(dst, "cpu"), make(torch.float32, 1))
        ints = [torch.arange(20, device=DEV)]
        torch._foreach_copy_(ints, [torch.full((20,), 2.75, device=DEV)])
        self.assertEqual(ints[0].cpu(), torch.full((20,), 2))

    def test_slow_lists_still_work(self):
        """Mixed dtypes, integers, views, promotion: lists that one launch cannot serve."""
        cases = [
            ([torch.ones(3), torch.ones(4, dtype=torch.float16)], 2.0),
            ([torch.arange(5), torch.arange(3)], 2),
            ([torch.arange(5), torch.arange(3)], 2.5),
            ([torch.arange(12.0).view(3, 4)[:, ::2]], 3.0),
            ([torch.arange(12.0).view(3, 4).t()], [torch.ones(4, 3)]),
            ([torch.ones(3, 1)], [torch.arange(3.0)]),
            ([torch.ones(3, dtype=torch.float16)], [torch.ones(3)]),
        ]
        for tensors, other in cases:
            moved = to(other) if isinstance(other, list) else other
            for op in ("add", "mul"):
                function = getattr(torch, f"_foreach_{op}")
                want, got = function(tensors, other), function(to(tensors), moved)
                self.assertEqual([t.dtype for t in got], [t.dtype for t in want])
                self.assertEqual(to(got, "cpu"), want)

    def test_layouts_of_memory(self):
        """Dense tensors with another order of dimensions, and views at an offset, need one launch."""
        base = torch.randn(4, 3, 5, 5)
        host = [base.to(memory_format=torch.channels_last), torch.randn(30)[7:23], torch.randn(6, 7).t()]
        dev = [
            host[0].to(DEV),
            torch.empty(30, device=DEV)[7:23],
            torch.empty(7, 6, device=DEV).t().t().contiguous().t(),
        ]
        dev[1].copy_(host[1])
        dev[2] = torch.empty(6, 7, device=DEV).t()
        dev[2].copy_(host[2])
        before = torch.netcl.launch_count()
        out = torch._foreach_mul(dev, 2.0)
        self.assertEqual(torch.netcl.launch_count() - before, 1)
        self.assertEqual([o.stride() for o in out], [d.stride() for d in dev])
        self.assertEqual(to(out, "cpu"), [h * 2 for h in host])

    def test_errors(self):
        a = to([torch.ones(2), torch.ones(3)])
        with self.assertRaisesRegex(RuntimeError, "at least one tensor"):
            torch._foreach_add([], 1)
        with self.assertRaisesRegex(RuntimeError, "same number of (tensors|elements)"):
            torch._foreach_add(a, a[:1])
        with self.assertRaisesRegex(RuntimeError, "same number of elements as scalar list"):
            torch._foreach_add(a, [1.0])
        ones = torch.ones(16, 1, device=DEV)
        for target in (torch.empty(0, 1), torch.empty(0, 1, device=DEV), torch.empty(4, 1, device=DEV)):
            for source in (ones, ones.cpu()) if target.device.type == DEV else (ones,):
                with self.assertRaisesRegex(RuntimeError, "size"):
                    target.copy_(source)
                with self.assertRaisesRegex(RuntimeError, "size"):
                    torch._foreach_copy_([target, target], [target, source])

    def test_many_slabs(self):
        """More slabs than one launch takes: rows are grouped, and results are right."""
        host = [torch.full((3 << 18,), float(k)) for k in range(14)]
        dev = []
        for k, t in enumerate(host):
            dev.append(t.to(DEV))
            dev.append(torch.full((5 + k,), float(k), device=DEV))
        other = [d.clone() for d in dev]
        out = torch._foreach_add(dev, other)
        for got, d in zip(out, dev, strict=True):
            self.assertEqual(got[-1].item(), 2 * d[0].item())
            self.assertEqual(got[0].item(), 2 * d[0].item())

    def test_hundreds_of_tensors(self):
        dev = [torch.full((n % 7 + 1,), float(n), device=DEV) for n in range(700)]
        before = torch.netcl.launch_count(), torch.netcl.host_sync_count()
        torch._foreach_add_(dev, 1.0)
        self.assertLessEqual(torch.netcl.launch_count() - before[0], 3)
        self.assertEqual(torch.netcl.host_sync_count(), before[1])
        self.assertEqual([d[-1].item() for d in dev[::50]], [n + 1.0 for n in range(0, 700, 50)])

    def test_autograd(self):
        a = [torch.randn(3, device=DEV).requires_grad_() for _ in range(2)]
        out = torch._foreach_mul(a, 3.0)
        (out[0].sum() + out[1].sum()).backward()
        self.assertEqual(a[0].grad.cpu(), torch.full((3,), 3.0))

    def test_subtraction_of_bool(self):
        for f in (torch._foreach_sub, torch._foreach_sub_):
            for dev in ("cpu", DEV):
                with self.assertRaisesRegex(RuntimeError, "bool"):
                    f([torch.ones(3, device=dev)], True)

    def test_partial_overlap(self):
        for dev in ("cpu", DEV):
            x = torch.arange(8.0, device=dev)
            with self.assertRaisesRegex(RuntimeError, "overlap|memory"):
                torch._foreach_add_([x[:6]], [x[2:]])



instantiate_parametrized_tests(TestForeach)

if __name__ == "__main__":
    run_tests()
