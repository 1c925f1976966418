# Owner(s): ["module: netcl"]
# ruff: noqa: B023 (the lambdas in loops are called at once)
"""cat, tril/triu, flip, roll, ranges and other operators on shapes, each compared with the CPU."""

import itertools
import math
import os
import sys

import torch
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import run_tests

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_indexing import SIZES, NetclTestCase, own_fallbacks  # noqa: E402


class TestCat(NetclTestCase):
    @dtypes(*SIZES)
    def test_cat(self, device, dtype):
        a, b, c = (self.make(3, n, 5, dtype=dtype) for n in (2, 4, 1))
        for ts in ((a, b, c), (a.mT, b.mT), (a[:, :, ::2], b[1:, :, :3][:, :, :3])):
            dim = 2 if ts[0].stride(-1) != 1 and ts[0].size(1) == 5 else 1
            if ts[0].size(0) == ts[1].size(0):
                self.check(device, lambda *t: torch.cat(t, dim), *ts)
        self.check(device, lambda *t: torch.cat(t, 0), a, a, a)
        self.check(device, lambda *t: torch.cat(t, -1), a, a, a)
        self.check(device, lambda *t: torch.stack(t, 1), a, a, a)
        self.check(device, lambda *t: torch.stack(t, -1), a, a, a)
        self.check(device, lambda *t: torch.stack([x[0, 0, 0] for x in t]), a, b, c)
        self.check(device, lambda *t: torch.hstack(t), a, b, c)

    def test_cat_many(self, device):
        ts = [self.make(2, n % 5, 3) for n in range(30)]
        self.check(device, lambda *t: torch.cat(t, 1), *ts)
        before = torch.netcl.launch_count()
        ts = [t.to(device) for t in ts]
        before = torch.netcl.launch_count()
        torch.cat(ts, 1)
        self.assertLessEqual(torch.netcl.launch_count() - before, 4)  # eight inputs per launch
        for dtype in (torch.float32, torch.bool, torch.bfloat16, torch.float64, torch.complex128):
            ts = [(self.make(n % 7, 5) * 9).to(dtype) for n in range(1300)]  # of which a table holds 1,024
            self.check(device, lambda *t: torch.cat(t), *ts)
            ts[3] = torch.empty(0, dtype=dtype)
            self.check(device, lambda *t: torch.cat(t), *ts)

    def test_cat_promotes(self, device):
        a, b = self.make(3, 2), self.make(3, 4, dtype=torch.int64)
        c, d = self.make(3, 1, dtype=torch.float16), self.make(3, 2, dtype=torch.bool)
        self.check(device, lambda *t: torch.cat(t, 1), a, b, c, d)
        self.check(device, lambda *t: torch.cat(t, 1), b, c)
        self.check(device, lambda *t: torch.cat(t, 1), d, c)

    def test_cat_empty(self, device):
        a, e = self.make(3, 2), torch.empty(0)
        self.check(device, lambda *t: torch.cat(t, 1), a, e, a)
        self.check(device, lambda *t: torch.cat(t, 1), e, a, a.new_empty(3, 0))
        self.check(device, lambda *t: torch.cat(t), e, e)
        with self.assertRaises(RuntimeError):
            torch.cat([a.to(device), a[0, 0].to(device)])
        with self.assertRaises(RuntimeError):
            torch.cat([a.to(device), self.make(2, 3).to(device)], 0)

    def test_cat_memory_format(self, device):
        a, b = (self.make(2, n, 4, 5).to(memory_format=torch.channels_last) for n in (3, 6))
        for dim in range(4):
            ts = (a, b) if dim == 1 else (a, a)
            got = self.check(device, lambda *t: torch.cat(t, dim), *ts)
            self.assertTrue(got.is_contiguous(memory_format=torch.channels_last))
        v = self.make(2, 3, 4, 5, 2).to(memory_format=torch.channels_last_3d)
        for dim in range(5):
            self.check(device, lambda *t: torch.cat(t, dim), v, v)
        self.check(device, lambda *t: torch.cat(t, 1), a, b.contiguous())

    def test_cat_short_rows(self, device):
        for dtype in (torch.float32, torch.bfloat16, torch.uint8, torch.int64, torch.complex128):
            for n in (1, 3, 4, 7, 8, 15, 16, 17, 29, 40):
                a, b = (self.make(2, c, 3, 5, dtype=dtype).to(memory_format=torch.channels_last) for c in (n, 5))
                self.check(device, lambda *t: torch.cat(t, 1), a, b, a)

    def test_cat_out(self, device):
        a = self.make(3, 2)
        d = a.to(device)
        out = torch.empty(2, 6, device=device).t()
        torch.cat([d, d], 0, out=out)
        self.assertEqual(out, torch.cat([a, a]), exact_device=False)
        out = torch.empty(0, device=device, dtype=torch.float64)
        torch.cat([d, d], 1, out=out)
        self.assertEqual(out, torch.cat([a, a], 1).double(), exact_device=False)

    def test_cat_large(self, device):
        a, b = self.make(130, 1000), self.make(130, 33)
        self.check(device, lambda *t: torch.cat(t, 1), a, b, a)
        self.check(device, lambda *t: torch.cat(t, 0), a, a)

    def test_views_and_copies(self, device):
        x = self.make(4, 6, 5)
        self.check(device, lambda x: x.repeat(2, 1, 3), x)
        self.check(device, lambda x: x.tile(2, 2), x)
        self.check(device, lambda x: x.split(2, 1), x)
        self.check(device, lambda x: torch.cat(x.chunk(3, 1)[::-1], 1), x)
        self.check(device, lambda x: torch.nn.functional.pad(x, (1, 2, -1, 1)), x)
        self.check(device, lambda x: x.diag_embed(), x)
        self.check(device, lambda x: x[0].diagonal_scatter(x[1, 0]), x)
        self.check(device, lambda x: torch.block_diag(x[0], x[1]), x)
        self.check(device, lambda x: torch.pixel_shuffle(x.view(1, 4, 6, 5), 2), x)
        self.check(device, lambda x: torch.nn.functional.one_hot(x.long().abs(), 10), x)


class TestTriangles(NetclTestCase):
    @dtypes(*SIZES)
    def test_tril_triu(self, device, dtype):
        x = self.make(2, 3, 5, 7, dtype=dtype)
        for k, op in itertools.product((-6, -1, 0, 2, 8), (torch.tril, torch.triu)):
            self.check(device, lambda x: op(x, k), x)
        self.check(device, lambda x: x.mT.tril(), x)
        self.check(device, lambda x: x[:, 1:, ::2, 1:].triu(1), x)
        self.check(device, lambda x: x.transpose(0, 1).triu(1), x)
        self.check(device, lambda x: x.tril_(), x)
        self.check(device, lambda x: x.mT.triu_(1), x)
        self.check(device, lambda x: x[0, :, 1:, 1:].triu_(), x)
        self.check(device, lambda x: x[:0].tril(), x)

    def test_large(self, device):
        self.check(device, lambda x: x.tril(3), self.make(130, 140))
        self.check(device, lambda x: torch.ones(128, 128, device=x.device, dtype=torch.bool).tril(), self.make(1))
        x = torch.full((3, 3), float("nan"))
        self.check(device, torch.triu, x)

    @dtypes(torch.int64, torch.int32)
    def test_indices(self, device, dtype):
        for (r, c), k in itertools.product(((4, 4), (3, 7), (7, 3), (1, 5), (0, 3), (3, 0)), (-9, -2, 0, 1, 9)):
            for f in (torch.tril_indices, torch.triu_indices):
                got = f(r, c, k, dtype=dtype, device=device)
                self.assertEqual(got, f(r, c, k, dtype=dtype), exact_device=False)
        self.assertEqual({}, own_fallbacks())

    def test_trace_diag(self, device):
        x = self.make(4, 5)
        self.check(device, lambda x: x.diag(), x)
        self.check(device, lambda x: x[0].diag(1), x)
        self.check(device, torch.trace, x, atol=1e-5, rtol=1e-5)


class TestFlipRoll(NetclTestCase):
    @dtypes(*SIZES)
    def test_flip_roll(self, device, dtype):
        x = self.make(4, 5, 67, dtype=dtype)
        for dims in ((0,), (1,), (-1,), (0, 2), (0, 1, 2)):
            self.check(device, lambda x: x.flip(dims), x)
            self.check(device, lambda x: x.mT.flip(dims), x)
        self.check(device, lambda x: x[:0].flip(0), x)
        self.check(device, lambda x: x[0, 0, 0].flip(()), x)
        self.check(device, lambda x: x[:, :1].expand(4, 3, 67).flip(1, 2), x)
        self.check(device, lambda x: x.roll(2, 1), x)
        self.check(device, lambda x: x.roll((1, -70), (0, 2)), x)
        self.check(device, lambda x: x.roll(3), x)
        self.check(device, lambda x: x.rot90(1, (0, 2)), x)
        self.check(device, lambda x: x.fliplr(), x)


class TestSequences(NetclTestCase):
    def both(self, device, fn, dtype, **tol):
        # The CPU rounds the step of half and bfloat16 sequences; netcl rounds only the result.
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        expected = fn(device="cpu", dtype=wide).to(dtype)
        self.assertEqual(fn(device=device, dtype=dtype), expected, exact_device=False, **tol)
        self.assertEqual({}, own_fallbacks())

    @dtypes(torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8)
    def test_linspace(self, device, dtype):
        for a, b, n in ((0, 10, 11), (3, 7, 50), (5, 1, 6), (0, 100, 1), (0, 1, 0), (2, 2, 5)):
            # The CPU truncates integers from values that differ in the last place of a double, so only the ends are
            # exact.
            if not dtype.is_floating_point and n == 50:
                continue
            self.both(device, lambda **k: torch.linspace(a, b, n, **k), dtype)
        if dtype.is_floating_point:
            self.both(device, lambda **k: torch.linspace(-1.5, 2.25, 1001, **k), dtype)
            if dtype in (torch.float32, torch.float64):
                self.both(device, lambda **k: torch.linspace(1 - 2j, 3 + 1j, 7, **k), dtype.to_complex())
                self.both(device, lambda **k: torch.logspace(1 - 2j, 0.5 + 1j, 7, **k), dtype.to_complex())
            self.both(device, lambda **k: torch.logspace(-1, 2, 31, **k), dtype)
            self.both(device, lambda **k: torch.logspace(0, 5, 6, base=2, **k), dtype)
            self.both(device, lambda **k: torch.logspace(0.5, 5, 1, **k), dtype)
        out = torch.empty(10, dtype=dtype, device=device)[::2]
        torch.linspace(0, 4, 5, out=out)
        self.assertEqual(out, torch.arange(5).to(dtype), exact_device=False)

    @dtypes(torch.float32, torch.float16, torch.float64, torch.int64, torch.bool)
    def test_eye_range(self, device, dtype):
        for n, m in ((3, 3), (2, 5), (5, 2), (0, 4)):
            self.both(device, lambda **k: torch.eye(n, m, **k), dtype)
        self.both(device, lambda **k: torch.eye(4, **k), dtype)
        if dtype is not torch.bool:
            self.both(device, lambda **k: torch.range(1, 9, 2, **k), dtype)
            self.both(device, lambda **k: torch.range(5, -3, -2, **k), dtype)


class TestComplex(NetclTestCase):
    @dtypes(torch.float32, torch.float64)
    def test_build(self, device, dtype):
        x, y = self.make(4, 33, dtype=dtype), self.make(4, 33, dtype=dtype)
        self.check(device, torch.complex, x, y)
        self.check(device, torch.complex, x, y[:, :1])
        self.check(device, torch.polar, x, y)

    def test_where_and_casts(self, device):
        x = torch.complex(self.make(4, 33), self.make(4, 33))
        m = self.make(4, 33, dtype=torch.bool)
        self.check(device, lambda m, x: torch.where(m, x, -x), m, x)
        self.check(device, lambda m, x: x.real.to(torch.complex64), m, x)
        self.check(device, lambda m, x: torch.block_diag(x[0], x[:2].real), m, x)


def lazy(x, bits):
    for bit in bits:
        x = x.conj() if bit == "c" else torch._neg_view(x)
    return x


class TestLazyBits(NetclTestCase):
    """Conjugated and negated views as sources and destinations."""

    BITS = ("", "c", "n", "cn", "nc")

    def test_copies(self, device):
        values = torch.tensor([1 + 2j, 3 - 4j, -5 + 0.5j, 7j, -127, 9 - 1j])
        for to, source, bits, target_bits in itertools.product(
            (torch.complex64, torch.float32, torch.int8), (torch.complex64, torch.float32), self.BITS, self.BITS
        ):
            results = []
            for devices in (("cpu", "cpu"), (device, device), (device, "cpu"), ("cpu", device)):
                for step, non_blocking in ((1, False), (2, True)):
                    x = values if source.is_complex else values.real
                    x = lazy(x.to(devices[0], source)[::step], bits)
                    own = target_bits if to.is_complex else target_bits.replace("c", "")
                    y = lazy(torch.zeros(len(x), dtype=to, device=devices[1]), own)
                    y.copy_(x, non_blocking=non_blocking)
                    torch.netcl.synchronize()
                    self.assertEqual((y.is_conj(), y.is_neg()), ("c" in own, "n" in own))
                    results.append(y.cpu().resolve_conj().resolve_neg())
            for i, result in enumerate(results):
                self.assertEqual(result, results[i % 2], (source, to, bits, target_bits, i))

    def test_source_that_overlaps_what_it_is_expanded_to(self, device):
        for d in ("cpu", device):
            x = torch.ones(2, 8, device=d)
            with self.assertRaisesRegex(RuntimeError, "refer to a single memory location"):
                x.copy_(x[:1])
            with self.assertRaisesRegex(RuntimeError, "refer to a single memory location"):
                x.copy_(x[0])
            y = torch.ones(3, device=d).expand(2, 3)
            y.copy_(y.detach())  # nothing needs to be done

    def test_writes(self, device):
        writes = (
            lambda x: x.fill_(1 + 3j),
            lambda x: x.zero_(),
            lambda x: x.mul_(2j),
            lambda x: x.neg_(),
            lambda x: x.conj_physical_(),
            lambda x: x.imag.mul_(3),
            lambda x: torch.add(x, 1j, out=x),
            lambda x: x.index_fill_(0, torch.tensor([1], device=x.device), 5j),
            lambda x: x.masked_fill_(x.real > 1, 2j),
            lambda x: x.resolve_conj().resolve_neg(),
            lambda x: x[1].item(),
        )
        for bits, write in itertools.product(self.BITS, writes):
            results = []
            for d in ("cpu", device):
                x = lazy(torch.tensor([1 + 2j, 3 - 4j], device=d), bits)
                results.append((write(x), x.resolve_conj().resolve_neg()))
            self.assertEqual(results[1], results[0], exact_device=False)


class TestCounts(NetclTestCase):
    @dtypes(torch.int64, torch.int32, torch.uint8)
    def test_bincount(self, device, dtype):
        x = torch.randint(0, 20, (3000,)).to(dtype)
        self.check(device, torch.bincount, x)
        self.check(device, lambda x: torch.bincount(x, minlength=30), x)
        self.check(device, lambda x: torch.bincount(x[:0]), x)
        w = torch.randint(0, 5, (3000,)).float()
        self.check(device, lambda x, w: torch.bincount(x, w), x, w)
        self.check(device, lambda x, w: torch.bincount(x, w.long()), x, w)
        with self.assertRaises(RuntimeError):
            torch.bincount(torch.tensor([1, -1], device=device))

    def test_repeat_interleave(self, device):
        x, n = self.make(5, 3), torch.tensor([2, 0, 3, 1, 1])
        self.check(device, lambda x, n: x.repeat_interleave(n, 0), x, n)
        self.check(device, lambda x, n: x.repeat_interleave(n.int(), 0), x, n)
        self.check(device, lambda x, n: x.repeat_interleave(3, 1), x, n)
        self.check(device, lambda x, n: x.repeat_interleave(n, 0, output_size=7), x, n)
        self.check(device, lambda x, n: torch.repeat_interleave(n[:0]), x, n)
        with self.assertRaises(RuntimeError):
            torch.repeat_interleave(torch.tensor([1, -1], device=device))

    @dtypes(torch.float32, torch.int64, torch.bool, torch.float16)
    def test_unique(self, device, dtype):
        x = torch.randint(0, 2 if dtype is torch.bool else 9, (5, 40)).to(dtype)
        self.check(device, lambda x: torch.unique(x, return_inverse=True, return_counts=True), x)
        self.check(device, lambda x: torch.unique(x), x)
        self.check(device, lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), x)
        self.check(device, lambda x: torch.unique_consecutive(x, dim=1, return_inverse=True, return_counts=True), x)
        self.check(device, lambda x: torch.ops.aten.unique_dim_consecutive(x, 0, True, True), x)
        self.check(device, lambda x: torch.unique(x[:0], return_inverse=True), x)
        self.check(device, lambda x: torch.unique(x[:2], dim=1, return_inverse=True, return_counts=True), x)
        self.check(device, lambda x: torch.unique(x[:, :3].repeat(3, 1), dim=0), x)
        if dtype.is_floating_point:
            x[1, 2], x[2, 3] = float("nan"), float("nan")
            self.check(device, lambda x: torch.unique(x, return_counts=True), x)

    def test_histogram(self, device):
        """Bins by number, range and edges, in one and three dimensions; values on an edge, outside, NaN and Inf."""
        x = torch.randn(400, 3).mul(3).round(decimals=1)
        weight, x1 = torch.rand(400), x[:, 0]
        edges = [torch.tensor([-2.0, -1.0, 0.5, 3.0]), torch.linspace(-3, 3, 7), torch.tensor([0.0, 1.0])]
        odd = torch.cat([x1, torch.tensor([float("nan"), float("inf"), -float("inf")])])

        def calls(d):
            for density in (False, True):
                for w in (None, weight.to(d)):
                    options = {"weight": w, "density": density}
                    yield torch.histogram(x1.to(d), 13, **options)
                    yield torch.histogram(x1.to(d), 13, range=(-1.0, 2.0), **options)
                    yield torch.histogram(x1.to(d), edges[1].to(d), **options)
                    yield torch.histogramdd(x.to(d), [3, 4, 5], **options)
                    yield torch.histogramdd(x.to(d), [3, 4, 5], range=[-1.0, 1.0, -2.0, 2.0, -3.0, 3.0], **options)
                    yield torch.histogramdd(x.to(d), [e.to(d) for e in edges], **options)
            yield torch.histogram(torch.ones(5, device=d), 3)
            yield torch.histogram(torch.ones(0, device=d), 3)
            yield torch.histogram(x.t().to(d), 5)
            yield torch.histogram(odd.to(d), edges[0].to(d))

        torch.netcl.reset_cpu_fallback_ops()
        for got, expected in zip(calls(device), calls("cpu"), strict=True):
            self.assertEqual(got.hist.cpu(), expected.hist)
            if isinstance(got.bin_edges, torch.Tensor):
                got, expected = [got.bin_edges], [expected.bin_edges]
            else:
                got, expected = got.bin_edges, expected.bin_edges
            for a, b in zip(got, expected, strict=True):
                self.assertEqual(a.cpu(), b)
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    def test_histc_isin(self, device):
        x = torch.randint(-6, 7, (500,)).float()
        self.check(device, lambda x: x.histc(10), x)
        self.check(device, lambda x: x.histc(7, -3, 4), x)
        self.check(device, lambda x: x.double().histc(12, -6, 6), x)
        self.check(device, lambda x: (x * 0).histc(4), x)
        outside = torch.tensor([math.nan, math.inf, -math.inf, -3, 3, 3.0001, -3.0001, 0.5, 2.9999])
        self.check(device, lambda x: x.histc(6, -3, 3), outside)
        self.check(device, lambda x: x.histc(6, -3, 3), torch.randn(3000))
        self.check(device, lambda x: x.histc(6, -3, 3), torch.empty(0))
        for n in (0, 1, 3, 400):
            t = torch.randint(-3, 3, (n,)).float()
            self.check(device, lambda x, t: torch.isin(x, t), x, t)
            self.check(device, lambda x, t: torch.isin(x, t, invert=True), x, t)
        self.check(device, lambda x: torch.isin(x, 3.0), x)

    @dtypes(torch.float32, torch.float16, torch.float64, torch.complex64)
    def test_unfold_backward(self, device, dtype):
        # Small integers: sums of up to 3 windows are exact.
        for shape, dim, size, step in (
            ((11,), 0, 3, 1),
            ((4, 9, 3), 1, 4, 2),
            ((5, 7), 1, 2, 3),
            ((6, 5), 0, 6, 1),
        ):
            g = torch.empty(shape).unfold(dim, size, step)
            g = torch.randint(-3, 4, g.shape).to(dtype)
            self.check(device, lambda g: torch.ops.aten.unfold_backward(g, shape, dim, size, step), g)


for case in (TestCat, TestTriangles, TestFlipRoll, TestSequences, TestComplex, TestLazyBits, TestCounts):
    instantiate_device_type_tests(case, globals(), only_for=("privateuse1",))

if __name__ == "__main__":
    run_tests()
