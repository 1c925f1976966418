# Owner(s): ["module: netcl"]
# ruff: noqa: B023 (the lambdas in loops are called at once)
"""Indexing, gather/scatter and masks on netcl, each compared with the CPU."""

import itertools
import re
import warnings

import torch
from common import check_gpu_shape
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
# One dtype per element size; moves depend on nothing else.
SIZES = (torch.bool, torch.float16, torch.float32, torch.int64, torch.complex128)


OWN = re.compile(
    r"aten::_?(unsafe_)?(index|gather|scatter|take|put|masked|nonzero|cat|tri|flip|roll|eye|range|linspace"
    r"|logspace|unfold|repeat|trace|bincount|stack)"
)


def own_fallbacks():
    """Calls of the tested operators that ran on the CPU."""
    return {k: v for k, v in torch.netcl.cpu_fallback_ops().items() if OWN.match(k)}


class NetclTestCase(TestCase):
    """Runs an operator on netcl and on the CPU and compares; it must not fall back to the CPU."""

    def setUp(self):
        super().setUp()
        torch.netcl.reset_cpu_fallback_ops()  # what earlier tests counted

    def _callTestMethod(self, method):
        try:
            return super()._callTestMethod(method)
        except NotImplementedError as e:
            if "cl_khr_fp64" in str(e):
                self.skipTest("the device has no float64")
            raise

    def make(self, *shape, dtype=torch.float32, low=-9, high=9):
        """A CPU tensor; its counterpart comes from to_dev."""
        if dtype is torch.bool:
            return make_tensor(shape, dtype=dtype, device="cpu")
        if not dtype.is_signed:
            low = 0
        return make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)

    def to_dev(self, x, device):
        """Tensors, and tensors within tuples and lists, on the device; strides are kept."""
        if isinstance(x, torch.Tensor):
            if x.is_contiguous() or x.numel() == 0:
                return x.to(device)
            if 0 in x.stride():
                one = x[tuple(slice(0, 1) if s == 0 else slice(None) for s in x.stride())]
                return self.to_dev(one.clone(), device).expand(x.shape)
            y = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
            return y.copy_(x)
        if isinstance(x, (tuple, list)):
            return type(x)(self.to_dev(e, device) for e in x)
        return x

    def check(self, device, fn, *args, **kwargs):
        """fn on copies of `args` on both devices: results and in-place changes agree."""
        before = own_fallbacks()
        moved = [self.to_dev(a, device) for a in args]
        copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = fn(*copies)
            got = fn(*moved)
        self.assertEqual(before, own_fallbacks(), "the CPU fallback was used")
        self.assertEqual(got, expected, exact_device=False, **kwargs)
        for a, b in zip(moved, copies, strict=True):
            if isinstance(a, torch.Tensor):
                self.assertEqual(a, b, exact_device=False, **kwargs)
        return got


class TestIndex(NetclTestCase):
    @dtypes(*SIZES)
    def test_index_every_element_size(self, device, dtype):
        x = self.make(5, 7, 4, dtype=dtype)
        i, j = torch.tensor([0, -1, 3, 3]), torch.tensor([[6], [-7]])
        for pick in (
            lambda x, i, j: x[i],
            lambda x, i, j: x[:, i],
            lambda x, i, j: x[..., i],
            lambda x, i, j: x[i, :, i],
            lambda x, i, j: x[i, j],
            lambda x, i, j: x[i[:, None], :, j[:, 0] % 4],
            lambda x, i, j: x.mT[i, i % 4],
            lambda x, i, j: x[1:, ::2][i % 4, :, i],
        ):
            self.check(device, pick, x, i, j)

    def test_index_forms(self, device):
        x = self.make(6, 5, 4, 3)
        i = torch.tensor([1, 0, -1])
        self.check(device, lambda x, i: x[i, i, i, i], x, i)
        self.check(device, lambda x, i: x[i.int()], x, i)
        self.check(device, lambda x, i: x[i[:0]], x, i)
        self.check(device, lambda x, i: x[x > 0], x, i)
        self.check(device, lambda x, i: x[x[:, :, 0, 0] > 0], x, i)
        self.check(device, lambda x, i: x[x[:, 0, 0, 0] > 100], x, i)
        self.check(device, lambda x, i: x[i[0]], x, i)
        self.check(device, lambda x, i: torch.take(x, i), x, i)
        self.check(device, lambda x, i: torch.take(x.permute(3, 1, 0, 2), i[:, None] * 7), x, i)
        self.check(device, lambda x, i: torch.ops.aten._unsafe_index(x, [i, None, i]), x, i)
        out = torch.empty(0, device=device)
        dx, di = x.to(device), i.to(device)
        torch.ops.aten.index.Tensor_out(dx, [di], out=out)
        self.assertEqual(out, x[i], exact_device=False)
        self.assertEqual(dx[i], x[i], exact_device=False)  # an index on the CPU

    def test_index_many(self, device):
        x = self.make(3, 2, 3, 2, 3, 2)
        i = torch.tensor([1, 0, -1, -2])
        self.check(device, lambda x, i: x[i, i, i, i, i, i], x, i)
        self.check(device, lambda x, i: x[i, i, i, :, i], x, i)

    def test_index_large(self, device):
        x = self.make(300, 257)
        i = torch.randint(-300, 300, (1000,))
        self.check(device, lambda x, i: x[i], x, i)
        self.check(device, lambda x, i: x[i, i % 257], x, i)
        self.check(device, lambda x, i: x.index_select(1, i % 257), x, i)

    def test_bad_index_raises(self, device):
        x = torch.arange(6.0, device=device).view(3, 2)
        i = torch.tensor([0, 3], device=device)
        for fn in (
            lambda: x[i],
            lambda: x[-i - 1],
            lambda: x.index_select(0, i),
            lambda: x.index_select(0, -i),
            lambda: x.gather(0, i[:, None]),
            lambda: x.clone().scatter_(0, i[:, None], 1.0),
            lambda: x.clone().index_add_(0, i, x[:2]),
            lambda: x.clone().index_put_((i,), x[:2], accumulate=True),
            lambda: torch.take(x, i * 2),
        ):
            with self.assertRaisesRegex(IndexError, "out of (range|bounds)"):
                fn().cpu()
            torch.netcl.synchronize()
        self.assertEqual(x.cpu(), torch.arange(6.0).view(3, 2))
        with self.assertRaises(IndexError):
            torch.empty(0, 3, device=device)[torch.tensor([0], device=device)]

    @dtypes(*SIZES)
    def test_index_put(self, device, dtype):
        x, i, j = self.make(6, 5, 4, dtype=dtype), torch.tensor([4, 0, -1]), torch.tensor([1, 0, 3])
        v = self.make(3, 5, 4, dtype=dtype)

        def put(fn):
            def run(x, i, j, v):
                fn(x, i, j, v)
                return x

            self.check(device, run, x, i, j, v)

        put(lambda x, i, j, v: x.__setitem__(i, v))
        put(lambda x, i, j, v: x.__setitem__((slice(None), i), v[0, 0]))
        put(lambda x, i, j, v: x.__setitem__((i, slice(None), j), v[:, 0, :1]))
        put(lambda x, i, j, v: x.__setitem__((i, j), 1))
        put(lambda x, i, j, v: x.__setitem__(x != x[0, 0, 0], 1))
        put(lambda x, i, j, v: x.__setitem__(x != x[0, 0, 0], v[0, 0, 0]))
        put(lambda x, i, j, v: x.transpose(0, 2).__setitem__(j, v.transpose(0, 2)[:3, :, :1]))
        put(lambda x, i, j, v: x.put_(i * 7, v[0, 0, :3]))

    @dtypes(
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int64,
        torch.int8,
        torch.bool,
        torch.complex64,
    )
    def test_index_put_accumulate(self, device, dtype):
        # Small integers: sums are exact in every dtype, so the order of additions does not matter.
        x, v = self.make(9, 5, dtype=dtype, low=0, high=3), self.make(40, 5, dtype=dtype, low=0, high=2)
        if dtype.is_floating_point:
            x, v = x.round(), v.round()
        elif dtype.is_complex:
            x, v = (
                torch.view_as_complex(torch.view_as_real(x).round()),
                torch.view_as_complex(torch.view_as_real(v).round()),
            )
        i = torch.randint(-9, 9, (40,))
        self.check(device, lambda x, i, v: x.index_put_((i,), v, accumulate=True), x, i, v)
        self.check(device, lambda x, i, v: x.index_put((i, i % 5), v[:, 0], accumulate=True), x, i, v)
        self.check(device, lambda x, i, v: x.t().index_put_((i % 5,), v.t()[0, 0], accumulate=True), x, i, v)
        self.check(device, lambda x, i, v: x.put_(i, v[:, 0], accumulate=True), x, i, v)
        self.check(device, lambda x, i, v: x.t().put_(i, v[:, 0], accumulate=True), x, i, v)

    @dtypes(
        torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.complex64
    )
    def test_conflicts(self, device, dtype):
        """Thousands of additions to a few elements: by atomics, and in order in deterministic mode."""
        n = 5000
        v = torch.ones(n, dtype=dtype)
        i = torch.randint(0, 40, (n,))  # about 125 each: exact in bfloat16 and uint8
        x = torch.zeros(41, dtype=dtype)[1:]
        self.check(device, lambda x, i, v: x.index_put_((i,), v, accumulate=True), x, i, v)
        self.check(device, lambda x, i, v: x.scatter_add_(0, i, v), x, i, v)
        self.check(device, lambda x, i, v: x.index_add_(0, i, v), x, i, v)
        torch.use_deterministic_algorithms(True)
        try:
            self.check(device, lambda x, i, v: x.scatter_add_(0, i, v), x, i, v)
            self.check(device, lambda x, i, v: x.index_put_((i,), v, accumulate=True), x, i, v)
            order = torch.arange(n).to(dtype)
            self.check(device, lambda x, i, v: x.index_put_((i,), v), x, i, order)
            self.check(device, lambda x, i, v: x.scatter_(0, i, v), x, i, order)
        finally:
            torch.use_deterministic_algorithms(False)

    @dtypes(torch.float32, torch.float16, torch.float64, torch.int32, torch.int64, torch.complex64, torch.complex128)
    def test_long_reductions(self, device, dtype):
        """Rows that many indices lead to: by atomics where the device has them, else from sorted destinations, as in
        deterministic mode."""
        i = torch.randint(0, 7, (700,)).sort().values[torch.randperm(700)]
        i[:40] = 3
        x, v = torch.zeros(9, 33, dtype=dtype)[1:], torch.randint(0, 3, (700, 33)).to(dtype)  # exact sums
        wide = i[:, None].expand(700, 33).contiguous()
        wide[5] = torch.arange(33) % 7
        for deterministic in (False, True):
            torch.use_deterministic_algorithms(deterministic)
            self.addCleanup(torch.use_deterministic_algorithms, False)
            self.check(device, lambda x, i, v: x.index_add_(0, i, v), x, i, v)
            self.check(device, lambda x, i, v: x.index_add_(0, i, v, alpha=2), x, i, v)
            self.check(device, lambda x, i, v: x.t().index_add_(1, i, v.t()), x, i, v)
            self.check(device, lambda x, i, v: x.index_put_((i, i), v[:, 0], accumulate=True), x, i, v)
            self.check(device, lambda x, i, v: x.scatter_add_(0, i, v), x, wide, v)
            if not dtype.is_complex:
                self.check(device, lambda x, i, v: x.scatter_reduce_(0, i, v, "amax"), x, wide, v)
                self.check(device, lambda x, i, v: x.scatter_reduce_(0, i, v, "amin"), x, wide, v)

    @dtypes(torch.float32, torch.float16, torch.uint8, torch.complex128)
    def test_last_writes(self, device, dtype):
        """In deterministic mode the last of many writes to an element wins."""
        i = torch.randint(0, 7, (700,))
        x, v = torch.zeros(8, 40, dtype=dtype), torch.arange(700 * 40).view(700, 40).to(dtype)
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        last = {int(k): n for n, k in enumerate(i)}
        rows, cells = x.clone(), x.clone()
        for k, n in last.items():
            rows[k], cells[k, k] = v[n], v[n, 0]
        self.assertEqual(x.to(device).index_put_((i.to(device),), v.to(device)).cpu(), rows)
        self.assertEqual(x.to(device).index_put_((i.to(device) - 8, i.to(device)), v[:, 0].to(device)).cpu(), cells)
        wide = torch.randint(0, 8, (700, 3))
        for n in range(700):
            for j in range(3):
                cells[wide[n, j], j] = v[n, j]
        got = x.to(device)
        got[:, :3].scatter_(0, wide.to(device), v.to(device))
        self.assertEqual(got.cpu()[:, :3], cells[:, :3])
        got = x.t().contiguous().to(device)
        got[:3].scatter_(1, wide.t().to(device), v.t().to(device))
        self.assertEqual(got.cpu()[:3], cells[:, :3].t())
        self.assertEqual(x.to(device).index_fill_(0, i.to(device), 3).cpu(), x.index_fill(0, i, 3))
        i, one = torch.zeros(5000, dtype=torch.long, device=device), torch.zeros(1, dtype=dtype, device=device)
        v = torch.arange(5000, device=device).to(dtype)
        self.assertEqual(one.scatter(0, i, v).cpu(), v[-1:].cpu())  # all rows go to one address
        for index in (i, i[:1].expand(5000)):
            self.assertEqual(one.index_put((index,), v).cpu(), v[-1:].cpu())

    @dtypes(*SIZES)
    def test_index_select(self, device, dtype):
        x, i = self.make(5, 6, 7, dtype=dtype), torch.tensor([4, 0, 0, 2])
        for dim, view in itertools.product(
            (0, 1, 2, -1), (lambda x: x, lambda x: x.mT, lambda x: x[1:, 1:, 1:])
        ):
            self.check(device, lambda x, i: view(x).index_select(dim, i % 4), x, i)
        self.check(device, lambda x, i: x.index_select(0, i.int()), x, i)
        self.check(device, lambda x, i: x.index_select(1, i[:0]), x, i)
        self.check(device, lambda x, i: x[0, 0, 0].index_select(0, i[1]), x, i)
        self.check(device, lambda x, i: x.index_select(0, i[::2]), x, i)
        out = torch.empty(0, dtype=dtype, device=device)
        torch.index_select(x.to(device), 0, i.to(device), out=out)
        self.assertEqual(out, x[i], exact_device=False)
        for bad in (i.float(), i[None]):
            with self.assertRaises((RuntimeError, IndexError)):
                x.to(device).index_select(0, bad.to(device))

    @dtypes(*FLOATS, torch.int64, torch.uint8, torch.bool, torch.complex64)
    def test_index_add(self, device, dtype):
        x, i = self.make(5, 6, 7, dtype=dtype, high=4), torch.tensor([4, 0, 1, 2])
        for dim in (0, 1, -1):
            v = self.make(*(4 if d == dim % 3 else s for d, s in enumerate(x.shape)), dtype=dtype, high=4)
            self.check(device, lambda x, i, v: x.index_add(dim, i, v), x, i, v)
            self.check(device, lambda x, i, v: x.mT.index_add_({0: 0, 1: -1, -1: 1}[dim], i, v.mT), x, i, v)
        if dtype is not torch.bool:
            self.check(
                device,
                lambda x, i, v: x.index_add_(0, i, v[:4], alpha=2),
                x,
                i,
                self.make(4, 6, 7, dtype=dtype),
            )
        self.check(device, lambda x, i, v: x[0, 0, 0].index_add_(0, i[1], v[0, 0, 0]), x, i, v)

    @dtypes(torch.float32, torch.bfloat16, torch.int32)
    def test_index_reduce(self, device, dtype):
        x, i = self.make(5, 6, dtype=dtype, low=1, high=4), torch.tensor([4, 0, 1, 0, 4, 4])
        v = self.make(6, 6, dtype=dtype, low=1, high=4)
        for red, include in itertools.product(("prod", "mean", "amax", "amin"), (True, False)):
            self.check(device, lambda x, i, v: x.index_reduce_(0, i, v, red, include_self=include), x, i, v)

    @dtypes(*SIZES)
    def test_index_copy_fill(self, device, dtype):
        x, i = self.make(5, 6, 7, dtype=dtype), torch.tensor([4, 0, 2])
        v = self.make(5, 3, 7, dtype=dtype)
        self.check(device, lambda x, i, v: x.index_copy(1, i, v), x, i, v)
        self.check(device, lambda x, i, v: x.transpose(0, 1).index_copy_(0, i, v.transpose(0, 1)), x, i, v)
        self.check(device, lambda x, i, v: x.index_fill_(2, i - 5, 1), x, i, v)
        self.check(device, lambda x, i, v: x.index_fill(0, i, v[0, 0, 0]), x, i, v)


class TestManyDimensions(NetclTestCase):
    """More dimensions than a kernel's arguments have, of which no two can be merged."""

    def make(self, device, dims):
        x = torch.randn((2,) * dims).permute(torch.randperm(dims).tolist())
        return x, torch.empty_strided(x.shape, x.stride(), device=device).copy_(x)

    def test_many_index_tensors(self, device):
        for dims in (9, 12):
            x, d = self.make(device, dims)
            indices = [torch.randint(-2, 2, (3, 1) if k % 2 else (5,)) for k in range(dims)]
            there = [i.to(device) for i in indices]
            for given in (
                range(dims), range(9), range(dims - 9, dims), [k for k in range(dims) if k != 2], [0, *range(2, dims)]
            ):  # fmt: skip
                with self.subTest(dims=dims, given=given):
                    at = tuple(indices[k] if k in given else slice(None) for k in range(dims))
                    on_device = tuple(there[k] if k in given else slice(None) for k in range(dims))
                    want = x[at]
                    self.assertEqual(d[on_device].cpu(), want)
                    out = torch.empty(0, device=device)
                    listed = [[i[k] if k in given else None for k in range(dims)] for i in (there, indices)]
                    torch.ops.aten.index.Tensor_out(d, listed[0], out=out)
                    self.assertEqual(out.cpu(), want)
                    # Positions may repeat: they are added in any order; if they are set, they all get one value.
                    values = torch.randn(want.shape)
                    got = torch.ops.aten.index_put(d, listed[0], values.to(device), True)
                    self.assertEqual(got.cpu(), torch.ops.aten.index_put(x, listed[1], values, True))
                    got, want = d.clone(), x.clone()
                    got[on_device] = 7.0
                    want[at] = 7.0
                    self.assertEqual(got.cpu(), want)
                    # The flattened dimensions are a copy of the permuted ones; then they are a view of these.
                    got, want = d.clone(memory_format=torch.contiguous_format), x.clone()
                    got[on_device] = 7.0
                    want[at] = 7.0
                    self.assertEqual(got.cpu(), want)
            leaf, own = d.clone().requires_grad_(), x.clone().requires_grad_()
            leaf[tuple(there)].square().sum().backward()
            own[tuple(indices)].square().sum().backward()
            self.assertEqual(leaf.grad.cpu(), own.grad)
            self.assertEqual(d[d > 0].cpu(), x[x > 0])
            for bad in (2, -3, 2**40):
                there[-1] = torch.tensor([0, bad, 1, 0, 0], device=device)
                there[-2] = torch.tensor([0, 0, 1, 0, 0], device=device)
                with self.assertRaises(IndexError):
                    d[tuple(there)]
                    torch.netcl.synchronize()

    def test_many_dimensions(self, device):
        operators = (
            lambda x, i, y: x.index_select(3, i), lambda x, i, y: x.index_add(3, i, y), lambda x, i, y: x[:, i, i],
            lambda x, i, y: x.index_copy(3, i, y), lambda x, i, y: x.index_fill(3, i, 2.0),
            lambda x, i, y: x.flip(0, 3),
            lambda x, i, y: x.gather(2, (y > 0).long()), lambda x, i, y: x.scatter_add(2, (y > 0).long(), y),
            lambda x, i, y: x.scatter(2, torch.ones_like(y).long(), 2.0), lambda x, i, y: x.masked_fill(y > 0, 2.0),
            lambda x, i, y: x.scatter_reduce(2, (y > 0).long(), y, "amax"),
            lambda x, i, y: x.masked_fill(y > 0, x.max()),
            lambda x, i, y: torch.take_along_dim(x, (y > 0).long(), 1), lambda x, i, y: x.index_reduce(3, i, y, "amin"),
        )  # fmt: skip
        for dims in (9, 12):
            x, d = self.make(device, dims)
            i = torch.tensor([1, 0])
            for k, f in enumerate(operators):
                with self.subTest(dims=dims, k=k):
                    self.assertEqual(f(d, i.to(device), d.transpose(0, 1)).cpu(), f(x, i, x.transpose(0, 1)))


class TestGatherScatter(NetclTestCase):
    @dtypes(*SIZES)
    def test_gather(self, device, dtype):
        x = self.make(4, 5, 6, dtype=dtype)
        for dim in (0, 1, 2, -1):
            i = torch.randint(0, x.size(dim), (3, 5, 4))
            self.check(device, lambda x, i: x.gather(dim, i), x, i)
            self.check(device, lambda x, i: x.gather(dim, i.mT.contiguous().mT), x, i)
            self.check(device, lambda x, i: x.gather(dim, i[:, :1, :1].expand(3, 5, 4)), x, i)
        self.check(device, lambda x, i: x.mT.gather(1, i[:, :4]), x, torch.randint(0, 6, (3, 5, 4)))
        self.check(device, lambda x, i: x[0, 0, 0].gather(0, i), x, torch.tensor(0))
        self.check(device, lambda x, i: x.gather(0, i.int()), x, i % 4)
        self.check(device, lambda x, i: x.gather(0, i[:0]), x, i % 4)
        self.check(device, lambda x, i: x.take_along_dim(i, 1), x, torch.randint(0, 5, (4, 2, 6)))

    @dtypes(*SIZES)
    def test_scatter(self, device, dtype):
        x, src = self.make(4, 5, 6, dtype=dtype), self.make(4, 5, 6, dtype=dtype)
        for dim in (0, 1, -1):
            # A permutation along dim, so that no element is written twice.
            i = torch.rand(4, 5, 6).argsort(dim)[:3, :4]
            self.check(device, lambda x, i, s: x.scatter(dim, i, s), x, i, src)
            self.check(device, lambda x, i, s: x.scatter_(dim, i, 1), x, i, src)
            self.check(device, lambda x, i, s: x.mT.scatter_({0: 0, 1: 2, -1: 1}[dim], i.mT, s.mT), x, i, src)
        self.check(device, lambda x, i, s: x[0, 0, 0].scatter_(0, i, s[0, 0, 0]), x, torch.tensor(0), src)

    @dtypes(*FLOATS, *INTS, torch.bool)
    def test_scatter_reduce(self, device, dtype):
        x = self.make(4, 9, dtype=dtype, low=1, high=3)
        src = self.make(6, 9, dtype=dtype, low=1, high=3)
        i = torch.randint(0, 4, (6, 9))
        # A product or sum of up to 7 rounded terms, in another order: 7 roundings of the storage dtype.
        tol = {}
        if dtype.is_floating_point:
            tol = dict(rtol=8 * torch.finfo(dtype).eps, atol=8 * torch.finfo(dtype).eps)
        self.check(device, lambda x, i, s: x.scatter_add(0, i, s), x, i, src, **tol)
        for red, include in itertools.product(("sum", "prod", "mean", "amax", "amin"), (True, False)):
            if dtype is torch.bool and red == "mean":
                continue
            self.check(
                device, lambda x, i, s: x.scatter_reduce(0, i, s, red, include_self=include), x, i, src, **tol
            )
        if dtype is not torch.bool:
            self.check(device, lambda x, i, s: x.scatter_(0, i, s, reduce="add"), x, i, src, **tol)
            self.check(device, lambda x, i, s: x.scatter_(0, i, 2, reduce="multiply"), x, i, src, **tol)

    @dtypes(torch.float32, torch.float16, torch.bfloat16, torch.float64)
    def test_nan_and_inf(self, device, dtype):
        x = torch.tensor([1.0, float("nan"), float("-inf"), 2.0], dtype=dtype)
        src = torch.tensor([float("nan"), 5.0, float("inf"), -1.0, 3.0], dtype=dtype)
        i = torch.tensor([0, 1, 2, 3, 3])
        for red in ("sum", "prod", "amax", "amin", "mean"):
            self.check(device, lambda x, i, s: x.scatter_reduce(0, i, s, red), x, i, src)

    @dtypes(torch.float32, torch.float16, torch.int64, torch.uint8)
    def test_atomic_reductions(self, device, dtype):
        """One line and many elements: every reduction by compare-and-swap."""
        src = self.make(4000, dtype=dtype, low=1, high=5)
        x = self.make(21, dtype=dtype, low=1, high=5)[1:]
        i = torch.randint(0, 20, (4000,))
        for red in ("amax", "amin"):
            self.check(device, lambda x, i, s: x.scatter_reduce(0, i, s, red), x, i, src)
        ones = torch.ones_like(src)
        self.check(device, lambda x, i, s: x.scatter_reduce(0, i, s, "prod"), x, i, ones)

    def test_expanded_index(self, device):
        """The index of a graph's messages: one destination per row."""
        x, src, i = torch.zeros(10, 33), self.make(50, 33), torch.randint(0, 10, (50, 1)).expand(50, 33)
        self.check(device, lambda x, i, s: x.scatter_add_(0, i, s), x, i, src, atol=1e-4, rtol=1e-5)
        self.check(device, lambda x, i, s: s.gather(0, i), x, i, src)

    def test_additions_by_an_expanded_index(self, device):
        """All positions along it meet in one element. Millions of them are needed to lose some on a CPU."""

        def grad(i):
            weight = torch.ones(8, device=i.device, requires_grad=True)
            return torch.autograd.grad(weight[i].sum(), weight)[0]

        def zeros(i):
            return torch.zeros(8, device=i.device)

        one, rows = torch.tensor([3]).expand(3_000_000), torch.arange(8)[:, None].expand(8, 5000)
        for deterministic in (False, True):
            torch.use_deterministic_algorithms(deterministic)
            self.addCleanup(torch.use_deterministic_algorithms, False)
            for i in (one[:50], one, rows):
                self.check(device, lambda i: zeros(i).index_put((i,), i + 1.0, accumulate=True), i)
                self.check(device, lambda i: zeros(i).put(i, i + 1.0, accumulate=True), i)
                self.check(device, grad, i)
            self.check(device, lambda i: zeros(i).scatter_add(0, i, i + 1.0), one)

    def test_backward(self, device):
        x, i = self.make(5, 4), torch.tensor([[0, 1, 2, 0], [4, 4, 0, 1]])

        def grads(x, i):
            x = x.detach().requires_grad_()
            y = (
                x.gather(0, i).square().sum()
                + x[i[0]].square().sum()
                + x.index_select(1, i[0]).square().sum()
            )
            y = y + x.masked_fill(x > 1, 0.0).square().sum() + x[x > 0].square().sum()
            y = y + torch.zeros(6, 4, device=x.device).scatter_add(0, i, x[:2]).square().sum()
            return torch.autograd.grad(y, x)[0]

        self.check(device, grads, x, i)


class TestMasks(NetclTestCase):
    @dtypes(*SIZES, torch.bfloat16, torch.int8)
    def test_masked_fill(self, device, dtype):
        x, m = self.make(7, 5, 66, dtype=dtype), self.make(7, 5, 66, dtype=torch.bool)
        self.check(device, lambda x, m: x.masked_fill(m, 1), x, m)
        self.check(device, lambda x, m: x.masked_fill_(m[0], 1), x, m)
        self.check(device, lambda x, m: x.masked_fill_(m[..., :1], x[0, 0, 0]), x, m)
        self.check(device, lambda x, m: x.mT.masked_fill_(m.mT, 0), x, m)
        self.check(device, lambda x, m: x[:, 1::2, 1:].masked_fill_(m[:, 1::2, 1:], 0), x, m)
        self.check(device, lambda x, m: x[0, 0, 0].masked_fill_(m[0, 0, 0], 0), x, m)
        self.check(device, lambda x, m: x[:0].masked_fill(m[:0], 0), x, m)

    def test_masked_fill_values(self, device):
        x, m = self.make(8, 40), self.make(8, 40, dtype=torch.bool)
        for v in (float("-inf"), float("nan"), 1e-3):
            self.check(device, lambda x, m: x.masked_fill(m, v), x, m)
            self.check(device, lambda x, m: x.half().masked_fill(m, v), x, m)
            self.check(device, lambda x, m: x.bfloat16().masked_fill(m, v), x, m)
        with self.assertRaises(RuntimeError):
            x.to(device).masked_fill(m.to(device).int(), 0)
        with self.assertRaises(RuntimeError):
            x.to(device).masked_fill(m.to(device), torch.zeros(2, device=device))

    @dtypes(*SIZES, torch.bfloat16, torch.int8, torch.complex64)
    def test_nonzero(self, device, dtype):
        x = self.make(6, 5, 4, dtype=dtype)
        x[::2, 1] = 0
        if dtype.is_floating_point:
            x[1, 1, 1], x[1, 1, 2] = -0.0, float("nan")
        self.check(device, torch.nonzero, x)
        self.check(device, torch.nonzero, x.mT[1:])
        self.check(device, lambda x: torch.nonzero(x, as_tuple=True), x)
        self.check(device, lambda x: torch.nonzero(x[0, 0, 0]), x)
        self.check(device, lambda x: torch.nonzero(x[:0]), x)
        self.check(device, torch.argwhere, x)
        self.check(device, lambda x: torch.nonzero(x * 0), x)
        self.check(device, lambda x: torch.nonzero_static(x, size=7, fill_value=-1), x)
        self.check(device, lambda x: torch.nonzero_static(x, size=300, fill_value=-5), x)

    def test_nonzero_large(self, device):
        x = torch.rand(70000) > 0.7
        self.check(device, torch.nonzero, x)
        self.check(device, torch.nonzero, x.view(7, 100, 100))
        self.check(device, lambda x: torch.nonzero_static(x, size=30000, fill_value=-1), x)
        rare = torch.zeros(4_300_001)  # chunks longer than usual, which are no whole tiles
        rare[::1000], rare[-1] = 1, -0.0
        self.check(device, torch.nonzero, rare)

    def test_masked_large(self, device):
        x, m = self.make(70001, dtype=torch.float16), torch.rand(70001) > 0.7
        self.check(device, lambda x, m: x.masked_select(m), x, m)
        self.check(device, lambda x, m: x.masked_scatter(m, x.flip(0)), x, m)

    @dtypes(*SIZES)
    def test_masked_select_scatter(self, device, dtype):
        x, m = self.make(7, 5, 6, dtype=dtype), self.make(7, 5, 6, dtype=torch.bool)
        src = self.make(220, dtype=dtype)
        self.check(device, lambda x, m: x.masked_select(m), x, m)
        self.check(device, lambda x, m: x.mT.masked_select(m[0, 0, :5]), x, m)
        self.check(device, lambda x, m: x[0].masked_select(m), x, m)
        self.check(device, lambda x, m: x.masked_select(m & ~m), x, m)
        self.check(device, lambda x, m, s: x.masked_scatter(m, s), x, m, src)
        self.check(device, lambda x, m, s: x.mT.masked_scatter_(m[0, 0, :5], s), x, m, src)

    def test_index_reduce_without_self(self, device):
        x, src = torch.randn(4, 3), torch.randn(5, 3)
        for index_dtype in (torch.int32, torch.int64):
            index = torch.tensor([0, 3, 3, 1, 0], dtype=index_dtype)
            for reduce in ("prod", "mean", "amax", "amin"):
                f = lambda x, i, s: x.index_reduce(0, i, s, reduce, include_self=False)  # noqa: B023, E731
                self.check(device, f, x, index, src)

    def test_masked_scatter_short_source(self, device):
        x = torch.zeros(9, device=device)
        with self.assertRaises((RuntimeError, IndexError)):
            x.masked_scatter_(torch.ones(9, dtype=torch.bool, device=device), torch.ones(4, device=device))
            torch.netcl.synchronize()

    def test_fill_with_a_wider_value(self, device):
        for dtype, value in (
            (torch.int32, torch.tensor(1.5)), (torch.float32, torch.tensor(1j)), (torch.uint8, torch.tensor(300)),
            (torch.bool, torch.tensor(2)), (torch.int8, torch.tensor(-3)), (torch.float16, torch.tensor(2.5)),
        ):
            results = []
            for dev in ("cpu", device):
                x, mask = torch.ones(5, dtype=dtype, device=dev), torch.arange(5, device=dev) > 2
                try:
                    results.append(x.masked_fill_(mask, value.to(dev)).cpu())
                except RuntimeError as error:
                    results.append(type(error))
            self.assertEqual(results[1], results[0], msg=f"{dtype} {value}")

    def test_fill_of_an_expanded_tensor(self, device):
        for value in (2.0, torch.tensor(3.0)):
            results = []
            for dev in ("cpu", device):
                x, mask = torch.zeros(1, 3, device=dev), torch.tensor([True, False, True], device=dev)
                with self.assertWarnsRegex(UserWarning, "deprecated"):
                    x.expand(2, 3).masked_fill_(mask, value.to(dev) if torch.is_tensor(value) else value)
                results.append(x.cpu())
            self.assertEqual(results[1], results[0])

    def test_nonzero_static_out(self, device):
        x = torch.tensor([3, 0, 1, 2])
        out = torch.zeros(4, 1, dtype=torch.long, device=device)
        with self.assertRaisesRegex(RuntimeError, "overlap|memory"):
            torch.nonzero_static(out.view(4), size=4, out=out)
        torch.nonzero_static(x.to(device), size=4, fill_value=-2, out=out)
        self.assertEqual(out.cpu(), torch.nonzero_static(x, size=4, fill_value=-2))



class TestOtherShape(TestCase):
    def test_gpu_shaped_kernels(self):
        """GPUs use atomics and small work-items, so some checks run again in a process with GPU kernels."""
        names = "conflicts_netcl_float32 or conflicts_netcl_int64 or reductions_netcl_float16 or index_large"
        check_gpu_shape(self, __file__, names)


for case in (TestIndex, TestManyDimensions, TestGatherScatter, TestMasks):
    instantiate_device_type_tests(case, globals(), only_for=("privateuse1",))

if __name__ == "__main__":
    run_tests()
