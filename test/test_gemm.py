"""Matrix multiplication: mm, addmm, bmm, baddbmm, mv, addmv, dot, vdot, addr, addbmm, linear, matmul."""

import itertools
import math
from functools import partial

import torch
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401

DEVICE = "netcl"
HAS_FP64 = torch.netcl.get_device_properties().has_fp64 if torch.netcl.is_available() else False
FLOATS = [torch.float32, torch.float16, torch.bfloat16] + [torch.float64] * HAS_FP64
INTS = [torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8]

SHAPES = [  # m, n, k: empty, single, odd, tails of every tile, skinny, and what each kernel is for
    (0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (1, 1, 37), (1, 70, 33), (70, 1, 33), (3, 100, 64),
    (100, 3, 64), (8, 48, 16), (12, 32, 20), (13, 33, 21), (17, 16, 5), (31, 15, 130), (64, 64, 64),
    (70, 130, 67), (5, 7, 5000), (64, 10, 784), (10, 30, 200), (200, 11, 700),
]  # fmt: skip


def tolerance(dtype, k):
    """Bounds for a sum of k products of numbers of size about 1, against the CPU's order of summation.

    The error of a sum of k terms in fp32 grows like eps * sqrt(k) * |terms| on average; 4 standard
    deviations on both sides, times the spread sqrt(k) of the result. Narrow types add one rounding of the
    result (the CPU may round differently by one unit), float64 has its own eps.
    """
    eps = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    atol = 8 * eps * max(k, 1)
    rtol = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}.get(dtype, 4 * eps)
    return dict(atol=max(atol, 1e-7 if dtype != torch.float64 else 0), rtol=rtol)


def reference(function, *tensors):
    """The function on the CPU; narrow floats in fp32, since the CPU may round within a sum."""
    dtype = tensors[0].dtype
    if dtype in (torch.float16, torch.bfloat16):
        return function(*(t.float() for t in tensors)).to(dtype)
    return function(*tensors)


def data(shape, dtype, seed=0):
    """Random numbers on the CPU, the same for a seed."""
    g = torch.Generator().manual_seed(seed + sum(shape) * 1000)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=g, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -9, 10, shape, generator=g).to(dtype)


def layouts(t):
    """The same matrices with different strides: plain, transposed, parts of wider ones, every second element."""
    yield t
    yield t.mT.contiguous().mT
    wide = torch.empty(*t.shape[:-2], t.shape[-2] + 3, t.shape[-1] + 5, dtype=t.dtype, device=t.device)
    wide[..., 2 : 2 + t.shape[-2], 3 : 3 + t.shape[-1]] = t
    yield wide[..., 2 : 2 + t.shape[-2], 3 : 3 + t.shape[-1]]
    sparse = torch.empty(*t.shape[:-2], t.shape[-2] * 2, t.shape[-1] * 3, dtype=t.dtype, device=t.device)
    sparse[..., ::2, ::3] = t
    yield sparse[..., ::2, ::3]


class TestGemm(TestCase):
    def check(self, function, *tensors, k):
        expected = reference(function, *tensors)
        actual = function(*(t.to(DEVICE) for t in tensors))
        self.assertEqual(actual.device.type, DEVICE)
        self.assertEqual(actual.cpu(), expected, **tolerance(expected.dtype, k))

    @parametrize("dtype", FLOATS + INTS)
    def test_mm_shapes(self, dtype):
        for m, n, k in SHAPES:
            with self.subTest(m=m, n=n, k=k):
                self.check(torch.mm, data((m, k), dtype), data((k, n), dtype, 1), k=k)

    @parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_mm_larger(self, dtype):
        for m, n, k in [(300, 500, 700), (65, 40, 2500), (200, 90, 4100), (97, 150, 335)]:
            a, b = data((m, k), dtype), data((k, n), dtype, 1)
            for ta, tb in itertools.product((False, True), repeat=2):
                with self.subTest(m=m, n=n, k=k, ta=ta, tb=tb):
                    x = a.to(DEVICE).T.contiguous().T if ta else a.to(DEVICE)
                    y = b.to(DEVICE).T.contiguous().T if tb else b.to(DEVICE)
                    self.assertEqual((x @ y).cpu(), reference(torch.mm, a, b), **tolerance(dtype, k))

    @parametrize("dtype", FLOATS)
    def test_few_rows(self, dtype):
        """Tiles of few rows and of more, edges of both, and k in one block, in several, and in a part of one."""
        bias = data((1030,), dtype, 2)
        others = ((300, 1), (33, 16), (300, 97), (97, 640), (1030, 520))  # the last one is read in blocks
        for m, (n, k) in itertools.product((2, 4, 5, 8, 9, 16, 17, 24, 32, 33), others):
            a, b = data((m, k), dtype), data((k, n), dtype, 1)
            with self.subTest(m=m, n=n, k=k):
                self.check(torch.mm, a, b, k=k)
                self.check(lambda a, b: a @ b.t(), a, b.t().contiguous(), k=k)
                self.check(partial(torch.addmm, beta=2, alpha=0.5), bias[:n], a, b, k=2 * k + 4)

    @parametrize("dtype", [torch.float32, torch.float64])
    def test_mm_columns_of_one_vector(self, dtype):
        """The last panel has columns for one of a tile's two vectors, whole, half, or less; packed or not."""
        if dtype == torch.float64 and not torch.netcl.get_device_properties().has_fp64:
            self.skipTest("the device has no fp64")
        for m, n, k in [(37, n, k) for n in (17, 20, 24, 36, 40, 44, 48, 72, 80) for k in (1, 30, 1100)] + [
            (401, 148, 300)
        ]:
            a, b, c = data((m, k), dtype), data((k, n), dtype, 1), data((m, n), dtype, 2)
            with self.subTest(m=m, n=n, k=k):
                self.check(torch.mm, a, b, k=k)
                self.check(partial(torch.addmm, beta=0.5, alpha=2), c, a, b, k=3 * k + 4)
                out = torch.full((n + 1, m), 7, dtype=dtype, device=DEVICE)
                torch.mm(a.to(DEVICE), b.to(DEVICE), out=out[:n].T)
                self.assertEqual(out[:n].T.cpu(), reference(torch.mm, a, b), **tolerance(dtype, k))
                self.assertEqual(out[n].cpu(), torch.full((m,), 7, dtype=dtype))

    @parametrize("dtype", [torch.float32, torch.float16, torch.int64])
    def test_mm_layouts(self, dtype):
        for m, n, k in [(5, 40, 33), (40, 5, 33), (70, 66, 35), (1, 50, 40), (50, 1, 40)]:
            a, b = data((m, k), dtype), data((k, n), dtype, 1)
            expected = reference(torch.mm, a, b)
            for i, x in enumerate(layouts(a.to(DEVICE))):
                for j, y in enumerate(layouts(b.to(DEVICE))):
                    with self.subTest(m=m, n=n, k=k, a=i, b=j):
                        self.assertEqual((x @ y).cpu(), expected, **tolerance(dtype, k))

    @parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_addmm(self, dtype):
        for m, n, k in [(6, 20, 40), (1, 33, 17), (64, 70, 30), (3, 4, 0), (30, 4, 9000)]:
            a, b = data((m, k), dtype), data((k, n), dtype, 1)
            for bias, beta, alpha in [
                ((n,), 1, 1),
                ((m, 1), 0.5, 2),
                ((1, n), -1.5, 0),
                ((m, n), 1, -3),
                ((), 0, 1),
            ]:
                c = data(bias, dtype, 2)
                with self.subTest(m=m, n=n, k=k, bias=bias, beta=beta, alpha=alpha):
                    scales = dict(beta=beta, alpha=alpha)
                    self.check(partial(torch.addmm, **scales), c, a, b, k=3 * k + 4)

    def test_addmm_integers(self):
        a, b, c = (data(s, torch.int32, i) for i, s in enumerate([(9, 20), (20, 33), (33,)]))
        self.check(lambda c, a, b: torch.addmm(c, a, b, beta=-2, alpha=3), c, a, b, k=20)
        big = torch.full((4, 4), 2**40 + 1)
        self.check(torch.mm, big, big, k=4)  # wraps
        # Factors that are no integers are truncated, as on the CPU.
        for alpha, beta in ((2.5, 1), (1, -1.5), (2.0, 0.5)):
            factors = dict(alpha=alpha, beta=beta)
            self.check(partial(torch.addmm, **factors), c, a, b, k=20)
            self.check(partial(torch.addmv, **factors), c[:9], a, b[:, 0], k=20)
            self.check(partial(torch.addbmm, **factors), c, a[None], b[None], k=20)
            c64, a64, b64 = (t.long() for t in (c, a, b))
            self.check(partial(torch.addmm, **factors), c64, a64, b64, k=20)
            self.check(partial(torch.addmv, **factors), c64[:9], a64, b64[:, 0], k=20)
            self.check(partial(torch.addbmm, **factors), c64, a64[None], b64[None], k=20)
            self.check(partial(torch.baddbmm, **factors), c64, a64[None], b64[None], k=20)

    def test_out_and_inplace(self):
        a, b = data((20, 30), torch.float32), data((30, 40), torch.float32, 1)
        c = data((20, 40), torch.float32, 2)
        expected = torch.addmm(c, a, b)
        x, y = a.to(DEVICE), b.to(DEVICE)
        z = c.to(DEVICE)
        self.assertIs(z.addmm_(x, y), z)
        self.assertEqual(z.cpu(), expected, **tolerance(torch.float32, 30))
        for out in [torch.empty(20, 40), torch.empty(40, 20).T, torch.zeros(20, 80)[:, ::2]]:
            strides = out.stride()
            out = torch.empty_strided(out.shape, strides, device=DEVICE)
            self.assertIs(torch.addmm(c.to(DEVICE), x, y, out=out), out)
            self.assertEqual(out.stride(), strides)
            self.assertEqual(out.cpu(), expected, **tolerance(torch.float32, 30))
            torch.mm(x, y, out=out)
            self.assertEqual(out.cpu(), a @ b, **tolerance(torch.float32, 30))
        # The rows beside a slice are not changed.
        guard = torch.full((24, 46), 7.0, device=DEVICE)
        torch.mm(x, y, out=guard[2:22, 3:43])
        g = guard.cpu()
        self.assertEqual(g[2:22, 3:43], a @ b, **tolerance(torch.float32, 30))
        g[2:22, 3:43] = 7
        self.assertEqual(g, torch.full((24, 46), 7.0))
        grown = torch.empty(0, device=DEVICE)
        torch.mm(x, y, out=grown)
        self.assertEqual(grown.shape, (20, 40))

    @parametrize("dtype", [torch.float32, torch.float16])
    def test_non_finite(self, dtype):
        for m, n, k in [(4, 40, 40), (1, 40, 64), (40, 50, 40), (5, 5, 5000)]:
            a, b = data((m, k), dtype), data((k, n), dtype, 1)
            a[0, 1], a[m - 1, k - 1], b[2, 3] = math.nan, math.inf, -math.inf
            self.check(torch.mm, a, b, k=k)
            nan = torch.full((m, n), math.nan, dtype=dtype)
            x, y, z = a.to(DEVICE), b.to(DEVICE), nan.to(DEVICE)
            self.assertEqual(torch.addmm(z, x, y, beta=0), x @ y)
            self.assertTrue(torch.addmm(z, x, y).isnan().all().item())
            # As in BLAS, alpha = 0 reads neither matrix.
            self.assertEqual(torch.addmm(torch.ones_like(z), x, y, alpha=0).cpu(), torch.ones(m, n, dtype=dtype))

    def test_half_rounds_once(self):
        # 2048 + 1 is not a half, so a sum kept in half would stay at 2048.
        a, b = torch.ones(3, 5000, dtype=torch.float16), torch.ones(5000, 40, dtype=torch.float16)
        self.assertEqual((a.to(DEVICE) @ b.to(DEVICE)).cpu(), torch.full((3, 40), 5000.0, dtype=torch.float16))
        c = torch.full((40,), 0.25, dtype=torch.float16)
        actual = torch.addmm(c.to(DEVICE), (a[:, :1] * 1024).to(DEVICE), b[:1].to(DEVICE), alpha=1.000244140625)
        self.assertEqual(actual.cpu(), torch.full((3, 40), 1024.5, dtype=torch.float16), atol=0, rtol=0)

    @parametrize("dtype", FLOATS + [torch.int64])
    def test_bmm(self, dtype):
        for batch, m, n, k in [
            (0, 2, 3, 4),
            (3, 0, 3, 4),
            (2, 3, 4, 0),
            (5, 7, 9, 11),
            (3, 40, 33, 50),
            (4, 1, 64, 64),
        ]:
            a, b = data((batch, m, k), dtype), data((batch, k, n), dtype, 1)
            with self.subTest(batch=batch, m=m, n=n, k=k):
                self.check(torch.bmm, a, b, k=k)
                self.check(lambda a, b: torch.bmm(a, b.mT.contiguous().mT), a, b, k=k)
                self.check(lambda a, b: torch.bmm(a.mT.contiguous().mT, b[:1].expand_as(b)), a, b, k=k)

    def test_baddbmm(self):
        a, b = data((3, 20, 30), torch.float32), data((3, 30, 40), torch.float32, 1)
        for shape in [(3, 20, 40), (40,), (1, 20, 1), (3, 1, 40)]:
            c = data(shape, torch.float32, 2)
            self.check(lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=-2), c, a, b, k=60)
        c = torch.full((3, 20, 40), math.nan)
        self.check(lambda c, a, b: torch.baddbmm(c, a, b, beta=0), c, a, b, k=30)
        self.check(lambda c, a, b: c.clone().zero_().baddbmm_(a, b), c, a, b, k=30)
        self.check(lambda c, a, b: torch.addbmm(c[0].zero_(), a, b), c, a, b, k=90)
        with self.assertRaisesRegex(RuntimeError, "expand"):
            torch.baddbmm(c[:, :2].to(DEVICE), a.to(DEVICE), b.to(DEVICE), beta=0)

    def test_baddbmm_reads_a_broadcast_addend(self):
        c, a, b = (torch.ones(s, device=DEVICE) for s in ((1, 4, 5), (3, 4, 6), (3, 6, 5)))
        torch.baddbmm(c, a, b)
        before = torch.netcl.launch_count()
        torch.baddbmm(c, a, b)
        self.assertEqual(torch.netcl.launch_count() - before, 1)

    def test_large_batch_goes_through_panels(self):
        a, b = data((40, 70, 90), torch.float32), data((40, 90, 33), torch.float32, 1)
        self.check(lambda a, b: torch.bmm(a[:, ::2, ::2], b[:, ::2]), a, b, k=45)

    @parametrize("dtype", FLOATS + [torch.int32])
    def test_vectors(self, dtype):
        for m, k in [(1, 1), (7, 40), (40, 7), (100, 300), (3, 0), (0, 3), (20, 9001)]:
            a, x, y = data((m, k), dtype), data((k,), dtype, 1), data((m,), dtype, 2)
            with self.subTest(m=m, k=k):
                self.check(torch.mv, a, x, k=k)
                self.check(lambda a, x: torch.mv(a.T.contiguous().T, x), a, x, k=k)
                self.check(lambda y, a, x: torch.addmv(y, a, x, beta=2, alpha=3), y, a, x, k=3 * k + 2)
                self.check(lambda y, a: a.T @ y, y, a, k=m)
                self.check(torch.dot, x, x.flip(0).contiguous(), k=k)
                self.check(torch.vdot, x, x.flip(0).contiguous(), k=k)
                self.check(torch.outer, y, x, k=1)
                if dtype not in (torch.float16, torch.bfloat16):  # for the others addr rounds twice
                    self.check(lambda a, y, x: torch.addr(a, y, x), a, y, x, k=2)

    @parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_one_launch(self, dtype):
        """Operands read in place beside packed ones, tails of k, rows and columns, and NaN beyond the edges."""

        def amid_nan(t, transpose):
            shape = [size + 20 for size in t.shape]
            wide = torch.full(shape[::-1] if transpose else shape, math.nan, dtype=dtype, device=DEVICE)
            return (wide.T if transpose else wide)[: t.shape[0], : t.shape[1]].copy_(t)

        for m, n, k in [(38, 70, 45), (40, 300, 502), (64, 48, 6001)]:
            a, b = data((m, k), dtype), data((k, n), dtype, 1)
            expected = reference(torch.mm, a, b)
            for ta, tb in itertools.product((False, True), repeat=2):
                with self.subTest(m=m, n=n, k=k, ta=ta, tb=tb):
                    self.assertEqual((amid_nan(a, ta) @ amid_nan(b, tb)).cpu(), expected, **tolerance(dtype, k))

    def test_batches_a_work_item(self):
        a, b, c = (data(s, torch.float32, i) for i, s in enumerate([(70, 33, 21), (70, 21, 40), (70, 33, 40)]))
        for count in (1, 9, 70):
            x, y, z = a[:count], b[:count], c[:count]
            self.check(lambda z, x, y: torch.baddbmm(z, x, y, beta=-1, alpha=2), z, x, y, k=60)
            self.check(lambda x, y: torch.bmm(y.mT, x.mT), x, y, k=21)

    def test_dot_of_views_and_long_vectors(self):
        x = data((50000,), torch.float32)
        self.check(lambda x: torch.dot(x[::2], x[1::2]), x, k=25000)
        self.check(lambda x: torch.dot(x[:1].expand(9000), x[:9000]), x, k=9000)

    @parametrize("dtype", [torch.complex64] + [torch.complex128] * HAS_FP64)
    def test_large_complex(self, dtype):
        # CPUs compute these as one real product.
        a, b, c = (data(s, torch.complex64, i).to(dtype) for i, s in enumerate([(130, 140), (140, 150), (130, 150)]))
        t = tolerance(dtype.to_real(), 4 * 140)
        on = lambda *tensors: [x.to(DEVICE) for x in tensors]  # noqa: E731
        for f in (
            lambda a, b, c: a @ b,
            lambda a, b, c: a.conj() @ b,
            lambda a, b, c: b.mH @ a.mH,
            lambda a, b, c: torch.addmm(c, a, b, beta=2 - 1j, alpha=0.5 + 3j),
            lambda a, b, c: torch.addmm(c[0], a, b, beta=0),
            lambda a, b, c: torch.addmm(c, a, b, alpha=0),
            lambda a, b, c: torch.baddbmm(c, a.expand(2, -1, -1), torch.stack((b, b.flip(0))), alpha=2),
            lambda a, b, c: torch.mm(a, b, out=torch.empty(150, 130, dtype=dtype, device=a.device).t()),
        ):
            self.assertEqual(f(*on(a, b, c)).cpu(), f(a, b, c), **t)
        a[3, 4], c[5, 6] = complex(math.nan, 0), complex(0, math.nan)
        got = torch.addmm(c.to(DEVICE), *on(a, b), beta=0).cpu()
        self.assertTrue(got[3].isnan().all())
        self.assertFalse(got[torch.arange(130) != 3].isnan().any())

    def test_complex(self):
        a, b = data((20, 30), torch.complex64), data((30, 40), torch.complex64, 1)
        self.check(torch.mm, a, b, k=120)
        self.check(lambda a, b: torch.addmm(a[:, :1], a, b, beta=1j, alpha=2 - 1j), a, b, k=240)
        self.check(lambda a, b: a.conj() @ b, a, b, k=120)
        self.check(lambda a: torch.vdot(a[0], a[1]), a, k=120)

    @parametrize("dtype", [torch.float32, torch.float16])
    def test_linear_and_matmul(self, dtype):
        x, w, b = data((4, 9, 24), dtype), data((40, 24), dtype, 1), data((40,), dtype, 2)
        self.check(torch.nn.functional.linear, x, w, b, k=26)
        self.check(torch.nn.functional.linear, x, w, k=24)
        self.check(torch.nn.functional.linear, x[0, 0], w, b, k=26)
        self.check(lambda x, w: x @ w.T, x, w, k=24)
        q = data((2, 3, 9, 24), dtype, 3)
        self.check(lambda q: q @ q.mT, q, k=24)
        self.check(lambda q: q.transpose(1, 2) @ q.transpose(1, 2).mT, q, k=24)

    def test_gradients(self):
        x, w, b = (
            data((6, 24), torch.float32),
            data((40, 24), torch.float32, 1),
            data((40,), torch.float32, 2),
        )

        def gradients(x, w, b):
            leaves = [t.clone().requires_grad_() for t in (x, w, b)]
            y = torch.nn.functional.linear(*leaves)
            return torch.cat([g.flatten() for g in torch.autograd.grad((y * y).sum(), leaves)])

        self.check(gradients, x, w, b, k=40 * 24)

    def test_errors(self):
        a, b = torch.zeros(3, 4, device=DEVICE), torch.zeros(5, 6, device=DEVICE)
        with self.assertRaisesRegex(RuntimeError, "shapes cannot be multiplied"):
            a @ b
        with self.assertRaisesRegex(RuntimeError, "dtype"):
            torch.mm(a, torch.zeros(4, 6, device=DEVICE, dtype=torch.float16))
        with self.assertRaisesRegex(RuntimeError, "device"):
            torch.mm(a, torch.zeros(4, 6))
        with self.assertRaisesRegex(RuntimeError, "same number of elements"):
            torch.dot(a[0], b[0])

    def test_repeats_bit_for_bit(self):
        for m, n, k in [(70, 130, 67), (4, 4, 20000), (300, 100, 700)]:
            a, b = data((m, k), torch.float32).to(DEVICE), data((k, n), torch.float32, 1).to(DEVICE)
            first = a @ b
            for _ in range(3):
                self.assertTrue(torch.equal(first.cpu(), (a @ b).cpu()))

    @parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_out_dtype(self, dtype):
        """Products of 16-bit numbers as float32, in which the sums are kept."""
        for m, n, k in [(1, 1, 1), (13, 33, 21), (70, 130, 67), (3, 4, 0), (5, 7, 500)]:
            a, b = data((2, m, k), dtype), data((2, k, n), dtype, 1)
            added = data((2, m, n), torch.float32, 2)
            x, y, z = a.to(DEVICE), b.to(DEVICE), added.to(DEVICE)
            product, options = a.float() @ b.float(), {"out_dtype": torch.float32}
            cases = {
                "mm": (torch.mm(x[0], y[0], **options), product[0]),
                "bmm": (torch.bmm(x, y, **options), product),
                "addmm": (torch.addmm(z[0], x[0], y[0], beta=0.5, alpha=2, **options), added[0] / 2 + product[0] * 2),
                "baddbmm": (torch.baddbmm(z, x, y, **options), added + product),
                "mm of columns": (torch.mm(x[0], y[0].t().contiguous().t(), **options), product[0]),
            }
            for name, (got, want) in cases.items():
                with self.subTest(name, shape=(m, n, k)):
                    self.assertEqual(got.dtype, torch.float32)
                    # Sums of k exact products of size about 1, each addition rounded to float32.
                    self.assertEqual(got.cpu(), want, atol=1e-6 * (k + 1), rtol=1e-5)

    def test_no_fallback(self):
        a = torch.rand(8, 8).to(DEVICE)
        before = dict(torch.netcl.cpu_fallback_ops())
        (
            torch.addbmm(a, a[None], a[None]),
            torch.addr(a, a[0], a[1]),
            torch.chain_matmul(a, a),
            torch.ger(a[0], a[1]),
        )
        torch._addmm_activation(a, a, a), torch.matmul(a, a[0]), torch.nn.functional.linear(a, a, a[0])
        torch.linalg.multi_dot([a, a, a]), torch.inner(a, a), torch.tensordot(a, a, 1)
        after = torch.netcl.cpu_fallback_ops()
        self.assertEqual({k: v for k, v in after.items() if v != before.get(k, 0)}, {})


instantiate_parametrized_tests(TestGemm)

if __name__ == "__main__":
    run_tests()
