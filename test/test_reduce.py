"""Reductions: every operator, layout and dtype, compared with the CPU."""
# ruff: noqa: B023  (every lambda is called within its own turn of the loop)

import itertools
import math
import warnings

import torch
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTS = (torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool)
NAN, INF = math.nan, math.inf


def layouts(x):
    """The same shape on other memory: transposed, sliced with an offset, expanded."""
    yield x
    yield x.transpose(0, -1).contiguous().transpose(0, -1)
    wide = torch.zeros([2 * s + 1 for s in x.shape], dtype=x.dtype)
    part = wide[tuple(slice(1, None, 2) for _ in x.shape)]
    part.copy_(x)
    yield part
    yield x[:, :1].expand_as(x)


def to_same_strides(x, device):
    """`x` on `device` with the strides and the offset it has on the CPU."""
    base = torch.as_strided(x, (x.untyped_storage().size() // x.element_size(),), (1,), 0)
    return base.to(device).as_strided(x.shape, x.stride(), x.storage_offset())


class TestReduce(TestCase):
    def compare(self, f, x, device, **tolerance):
        """Asserts that f on the device equals f on the CPU, which also computes half and bfloat16 in float."""
        expected = f(x)
        got = f(to_same_strides(x, device))
        if isinstance(expected, torch.Tensor):
            expected, got = [expected], [got]
        for e, g in zip(expected, got, strict=True):
            self.assertEqual(g.device.type, torch.device(device).type)
            self.assertEqual(g.cpu(), e, exact_dtype=True, exact_stride=False, **tolerance)

    def test_layouts(self, device):
        ops = (torch.sum, torch.amax, lambda t, d, k: torch.var(t, d, keepdim=k))
        x = make_tensor((5, 37, 70), device="cpu", dtype=torch.float32, low=-1, high=1)
        for op, view, dims, keep in itertools.product(
            ops, layouts(x), (0, 1, 2, (0, 1), (1, 2), (0, 2), (0, 1, 2)), (False, True)
        ):
            # Sums of up to 12950 numbers below 1: the order of summation changes them by some 1e-6 * sqrt(n).
            self.compare(lambda t: op(t, dims, keep), view, device, rtol=1e-5, atol=2e-4)

    def test_many_dimensions(self, device):
        x = make_tensor((2, 3, 2, 3, 2, 3), device="cpu", dtype=torch.float32)
        self.compare(lambda t: t.sum((0, 2, 4)), x, device, rtol=1e-5, atol=1e-5)
        self.compare(lambda t: t.permute(5, 0, 3, 2, 1, 4).sum((1, 3, 5)), x, device, rtol=1e-5, atol=1e-5)
        self.compare(lambda t: t.permute(5, 0, 3, 2, 1, 4).amax((0, 4)), x, device)

    def test_lengths(self, device):
        # Sizes around the vector width, the blocks and the segments of the kernels.
        for n in (1, 2, 15, 16, 17, 63, 64, 65, 4095, 16383, 16449, 300007):
            x = make_tensor((n,), device="cpu", dtype=torch.float32, low=0.5, high=1.5)
            y = to_same_strides(x, device)
            self.assertEqual(y.sum().item(), x.double().sum().item(), rtol=1e-6, atol=0)
            self.assertEqual(y.max().item(), x.max().item())
            self.assertEqual(y.argmax().item(), x.argmax().item())
            self.assertEqual(y.expand(3, n).contiguous().sum(0).cpu(), 3 * x, rtol=1e-6, atol=0)
        for shape, dim in (
            ((3, 20000), 0),
            ((20000, 3), 0),
            ((20000, 3), 1),
            ((3, 20011), 1),
            ((2, 1030), 0),
            ((600, 1030), 0),
        ):
            x = make_tensor(shape, device="cpu", dtype=torch.float32, low=0.5, high=1.5)
            self.compare(lambda t: t.sum(dim), x, device, rtol=2e-6, atol=0)
            self.compare(lambda t: torch.max(t, dim), x, device)

    @dtypes(torch.float32, torch.bfloat16, torch.uint8)
    def test_short_rows(self, device, dtype):
        """Rows of adjacent elements, many and few: whole vectors of them or not, with and without gaps between rows."""
        ops = (torch.sum, torch.max, torch.argmin, torch.any)
        for n, rows in itertools.product((3, 16, 58, 130), (1, 16, 37)):
            x = make_tensor((rows, n), device="cpu", dtype=dtype, low=0, high=3)
            wide = make_tensor((rows, n + 3), device="cpu", dtype=dtype, low=0, high=3)[:, 1:-2]
            for op, view in itertools.product(ops, (x, wide)):
                self.compare(lambda t: op(t, 1), view, device, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=0)
            if dtype.is_floating_point:
                self.compare(lambda t: torch.var_mean(t, 1), x, device, rtol=2e-2 if dtype == torch.bfloat16 else 1e-5,
                             atol=1e-6, equal_nan=True)  # fmt: skip
        image = make_tensor((2, 58, 5, 7), device="cpu", dtype=dtype, low=0, high=3)
        image = image.contiguous(memory_format=torch.channels_last)
        for op in ops:
            self.compare(lambda t: op(t, 1), image, device, rtol=1e-2, atol=0)

    @dtypes(torch.float32, torch.float16, torch.int32)
    def test_every_operator(self, device, dtype):
        x = make_tensor((9, 50), device="cpu", dtype=dtype, low=-3, high=3)
        for dim in (0, 1):
            for op in (
                torch.amax,
                torch.amin,
                torch.argmin,
                torch.all,
                torch.max,
                torch.min,
                torch.count_nonzero,
            ):
                self.compare(lambda t: op(t, dim), x, device)
        for op in (torch.min, torch.argmax, torch.aminmax):
            self.compare(op, x, device)
        # The CPU sums half in float too, but rounds at other points.
        close = dict(rtol=2e-3, atol=2e-2) if dtype == torch.float16 else dict(rtol=1e-5, atol=1e-5)
        self.compare(lambda t: t[:, :4].prod(1), x, device, **close)
        if dtype.is_floating_point:
            self.compare(torch.nansum, x, device, **close)
            self.compare(torch.std, x, device, **close)
            self.compare(lambda t: torch.var_mean(t, 0), x, device, **close)
            for p in (0, 1, 2, 3.5, INF, -INF):
                self.compare(lambda t: torch.linalg.vector_norm(t, p, 1), x, device, **close)

    @dtypes(*FLOATS, torch.float64, *INTS, torch.int16, torch.complex64)
    def test_dtypes(self, device, dtype):
        x = make_tensor((9, 50), device="cpu", dtype=dtype, low=-3, high=3)
        # Half and bfloat16: both sides round the result once, to 2^-11 and 2^-8.
        close = {torch.float16: dict(rtol=1e-3, atol=1e-3), torch.bfloat16: dict(rtol=8e-3, atol=8e-3)}
        close = close.get(dtype, dict(rtol=1e-5, atol=1e-5))
        for dim in (0, 1):
            self.compare(lambda t: t.sum(dim), x, device, **close)
        if not dtype.is_complex:
            self.compare(lambda t: torch.max(t, 1), x, device)
            self.compare(lambda t: torch.amin(t, 0), x, device)
            self.compare(torch.any, x, device)
        if dtype.is_floating_point or dtype.is_complex:
            self.compare(lambda t: t.mean(1), x, device, **close)
            self.compare(lambda t: torch.std(t, 1), x, device, **close)
            self.compare(lambda t: torch.linalg.vector_norm(t, 2, 1), x, device, **close)
        if dtype.is_complex:
            self.compare(lambda t: t[:, :5].prod(1), x, device, **close)

    def test_converting(self, device):
        x = make_tensor((40, 33), device="cpu", dtype=torch.float16, low=-1, high=1)
        tight = dict(rtol=1e-5, atol=1e-5)
        self.compare(lambda t: t.sum(0, dtype=torch.float32), x, device, **tight)
        self.compare(lambda t: t.mean(dtype=torch.float32), x, device, **tight)
        self.compare(lambda t: t.float().sum(1, dtype=torch.float64), x, device, **tight)
        self.compare(lambda t: (t * 9).sum(1, dtype=torch.int64), x, device)  # truncates each, then sums
        self.compare(lambda t: t.prod(1, dtype=torch.float32), x, device, **tight)
        i = make_tensor((40, 33), device="cpu", dtype=torch.int32, low=-9, high=9)
        self.compare(lambda t: t.sum(1), i, device)
        self.compare(lambda t: t.mean(1, dtype=torch.float32), i, device, **tight)
        self.compare(lambda t: t.sum(1, dtype=torch.bool), i, device)
        self.compare(lambda t: t.sum(0, dtype=torch.int8), i, device)
        u = make_tensor((40, 33), device="cpu", dtype=torch.uint8)
        self.assertEqual(u.to(device).any(1).dtype, torch.uint8)
        self.compare(lambda t: t.any(1), u, device)
        self.compare(lambda t: torch.linalg.vector_norm(t, dtype=torch.float32), x, device, **tight)

    def test_float_sum_is_exact_in_half(self, device):
        # 70000 halves of 1: overflows half (65504), and 2048 + 1 == 2048 in half.
        x = torch.ones(70000, dtype=torch.float16, device=device)
        self.assertEqual(x.sum().item(), INF)
        self.assertEqual(x.sum(dtype=torch.float32).item(), 70000)
        self.assertEqual(x[:4097].sum().item(), 4096)
        self.assertEqual(x.mean().item(), 1)

    def test_accuracy(self, device):
        # A plain running sum of 2^20 floats near 1 would be off by about 1e-4 relative.
        x = torch.rand(1 << 20) + 0.5
        for y, e in (
            (x.to(device).sum(), x.double().sum()),
            (x.view(1 << 10, -1).to(device).sum(0).sum(), x.double().sum()),
            (x.view(-1, 4).to(device).sum(0), x.double().view(-1, 4).sum(0)),
            (x.view(-1, 64).to(device).sum(0), x.double().view(-1, 64).sum(0)),
        ):
            self.assertEqual(y.cpu().double(), e, rtol=1e-6, atol=0)

    def test_variance_of_large_means(self, device):
        # (x - mean)^2 with a mean of 1e4 times the deviation: with a sum of squares no digit would be right.
        x = torch.randn(300, 517) + 1e4
        e = x.double()
        for dim in (0, 1, None):
            args = () if dim is None else (dim,)
            # The data are rounded to 2^-24 * 1e4 = 6e-4 on both sides alike; distances and sums add an error of 1e-5.
            self.assertEqual(x.to(device).var(*args).cpu().double(), e.var(*args), rtol=1e-4, atol=0)
            var, mean = torch.var_mean(x.to(device), *args) if args else torch.var_mean(x.to(device))
            self.assertEqual(mean.cpu().double(), e.mean(*args), rtol=3e-7, atol=0)
            self.assertEqual(var.cpu().double(), e.var(*args), rtol=1e-4, atol=0)

    def test_var_corrections(self, device):
        x = torch.randn(6, 5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for correction, dim in itertools.product((0, 1, 2.5, 5, 7), (0, 1, None)):
                self.compare(lambda t: torch.var(t, dim, correction=correction), x, device)
                self.compare(lambda t: torch.std(t, dim, correction=correction, keepdim=True), x, device)
                self.compare(lambda t: torch.std_mean(t, dim, correction=correction), x, device)
            self.compare(lambda t: t[:0].var(0), x, device)
            self.compare(lambda t: t[:1, :1].var(), x, device)
        out = torch.empty(0, device=device)
        self.assertEqual(torch.var(x.to(device), 1, out=out).cpu(), x.var(1))

    @dtypes(torch.float32, torch.float16)
    def test_nan_and_inf(self, device, dtype):
        rows = torch.zeros(8, 40, dtype=dtype)
        rows[0, 3] = NAN
        rows[1, 5], rows[1, 30], rows[1, 7] = INF, NAN, NAN
        rows[2, 9] = -INF
        rows[3, 11], rows[3, 12] = INF, -INF
        rows[4, :] = -INF
        rows[5, :] = INF
        rows[6, 39] = NAN
        rows[7, :] = NAN
        for x in (rows, rows.t().contiguous().t(), rows[:, :20]):
            for op in (
                torch.amax,
                torch.amin,
                torch.sum,
                torch.argmax,
                torch.argmin,
                torch.prod,
                torch.nansum,
            ):
                self.compare(lambda t: op(t, 1), x, device)
            for op in (torch.max, torch.min):
                self.compare(lambda t: op(t, 1), x, device)
                self.compare(op, x, device)
            for op in (torch.any, torch.all):
                self.compare(lambda t: op(t, 1), x, device)
            for p in (0, 1, 2, INF, -INF):
                self.compare(lambda t: torch.linalg.vector_norm(t, p, 1), x, device)

    def test_first_index_wins(self, device):
        x = torch.zeros(3, 9000)
        x[1, 4500] = x[1, 8999] = 1
        x[2, 17] = x[2, 5000] = NAN
        self.compare(lambda t: t.argmax(1), x, device)
        self.compare(lambda t: t.t().contiguous().argmax(0), x, device)
        self.compare(lambda t: t[1].argmax(), x, device)
        self.compare(lambda t: t[2].argmin(), x, device)
        self.compare(lambda t: t.max(1), x, device)
        self.compare(lambda t: t[:2].argmin(), x, device)
        long = torch.zeros(400000)  # in several segments
        long[[150000, 399999]] = 1
        self.compare(lambda t: t.argmax(), long, device)
        self.compare(lambda t: t.view(-1, 2).max(0), long, device)
        low = torch.full((5, 33), torch.iinfo(torch.int64).min)
        self.compare(lambda t: t.argmax(1), low, device)
        self.compare(lambda t: t.argmax(0), low, device)
        self.compare(lambda t: t.argmin(0), low, device)

    def test_first_of_two_at_every_pair_of_places(self, device):
        # Whole steps of four vectors, and a rest; rows that are transposed, and a rest.
        for n, value in itertools.product((131, 39), (1.0, NAN)):
            i, j = torch.triu_indices(n, n)
            x = torch.full((i.numel(), n), 0.0 if value == 1 else INF)
            x[torch.arange(i.numel()), i] = x[torch.arange(i.numel()), j] = value
            self.compare(lambda t: t.argmax(1), x, device)
            self.compare(lambda t: t.neg().argmin(1), x, device)
            self.compare(lambda t: t.t().contiguous().max(0), x, device)

    def test_hash(self, device):
        for x in (
            torch.randn(3, 40, 5),
            torch.randn(70000).bfloat16(),
            torch.randint(-9, 9, (5, 33)),
            torch.rand(4, 5) > 0.5,
            torch.tensor(2.5),
        ):
            if x.is_floating_point() and not torch.netcl.get_device_properties().has_fp64:
                continue  # numbers are hashed as float64
            self.compare(torch.hash_tensor, x, device)
            if x.dim() > 1:
                self.compare(lambda t: torch.hash_tensor(t, 1), x, device)
                self.compare(lambda t: torch.hash_tensor(t, (0, 1), keepdim=True), x, device)

    def test_zero_size(self, device):
        x = torch.empty(3, 0, 2)
        for op in (torch.sum, torch.prod, torch.any, torch.all):
            self.compare(op, x, device)
            self.compare(lambda t: op(t, 1), x, device)
            self.compare(lambda t: op(t, 0), x, device)
        self.compare(lambda t: t.mean(1), x, device)
        self.compare(lambda t: torch.linalg.vector_norm(t, 2, 1), x, device)
        self.compare(lambda t: t.amax(0), x, device)
        self.compare(lambda t: t.max(0), x, device)
        for op in (torch.amax, torch.max, torch.argmax):
            for f in (lambda t: op(t, 1), lambda t: op(t)):
                with self.assertRaises((RuntimeError, IndexError)) as cpu:
                    f(x)
                with self.assertRaises((RuntimeError, IndexError)) as own:
                    f(x.to(device))
                self.assertEqual(str(own.exception), str(cpu.exception))

    def test_zero_dim(self, device):
        x = torch.tensor(-2.5)
        for op in (
            torch.sum,
            torch.mean,
            torch.prod,
            torch.amax,
            torch.max,
            torch.argmax,
            torch.any,
            torch.norm,
        ):
            self.compare(op, x, device)
        self.compare(lambda t: torch.max(t, 0), x, device)
        self.compare(lambda t: torch.sum(t, 0), x, device)
        self.compare(lambda t: torch.any(t, 0), x, device)
        self.compare(lambda t: torch.var(t, correction=0), x, device)

    def test_out(self, device):
        x = make_tensor((7, 20), device="cpu", dtype=torch.float32)
        y = x.to(device)
        out = torch.empty(20, 2, device=device)[:, 1]
        self.assertEqual(torch.sum(y, 0, out=out).cpu(), x.sum(0))
        self.assertEqual(out.stride(), (2,))
        self.assertEqual(torch.amax(y, 0, out=out).cpu(), x.amax(0))
        values, indices = torch.empty(0, device=device), torch.empty(0, 2, dtype=torch.int64, device=device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.max(y, 1, out=(values, indices))
        self.assertEqual((values.cpu(), indices.cpu()), tuple(x.max(1)))
        half = torch.empty(7, dtype=torch.float64, device=device)
        torch.sum(y, 1, dtype=torch.float64, out=half)
        self.assertEqual(half.cpu(), x.double().sum(1))
        for dtype in (torch.int64, torch.uint8, torch.bool):
            with self.assertRaisesRegex(RuntimeError, "can't be cast to the desired output type"):
                torch.mean(y, 0, out=torch.empty(20, dtype=dtype, device=device))

    def test_out_that_is_the_input(self, device):
        """The result is that of the input as it was, though resizing the output changes its sizes and elements."""

        def norm(p):
            return lambda x, dim, keepdim=False, out=None: torch.linalg.vector_norm(x, p, dim, keepdim, out=out)

        one = {name: getattr(torch, name) for name in (
            "sum", "nansum", "mean", "prod", "amax", "amin", "std", "var", "logsumexp", "all", "any", "argmax",
            "argmin", "norm",
        )}  # fmt: skip
        one["norm"] = lambda x, dim, keepdim=False, out=None: torch.norm(x, 2, dim, keepdim, out=out)
        one |= {f"vector_norm {p}": norm(p) for p in (0, 1, 2, 3, math.inf, -math.inf)}
        two = {name: getattr(torch, name) for name in ("max", "min", "aminmax")}
        two["topk"] = lambda x, dim, keepdim=False, out=None: torch.topk(x, 1, dim, out=out)
        two["aminmax"] = lambda x, dim, keepdim=False, out=None: torch.aminmax(x, dim=dim, keepdim=keepdim, out=out)
        shapes = ((0,), (3, 0), (0, 3), (2, 0, 4), (5,), (3, 5), (2, 3, 4))
        for (name, f), shape, keepdim in itertools.product({**one, **two}.items(), shapes, (False, True)):
            bools, indices = name in ("all", "any"), name in ("argmax", "argmin")
            host = (torch.arange(math.prod(shape)) * 7 % 11).view(shape).to(
                torch.bool if bools else torch.int64 if indices else torch.float32)
            for dim in range(host.dim()):
                with self.subTest(name, shape=shape, dim=dim, keepdim=keepdim), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # an output with elements is resized; degrees of freedom
                    try:
                        expected = f(host, dim, keepdim=keepdim)
                    except (IndexError, RuntimeError):  # nothing has no largest element
                        continue
                    x = host.to(device)
                    if name not in two:
                        f(x, dim, keepdim=keepdim, out=x)
                        self.assertEqual(x.cpu(), expected)
                        continue
                    other = torch.empty(0, device=device, dtype=expected[1].dtype)
                    f(x, dim, keepdim=keepdim, out=(x, other))
                    self.assertEqual(x.cpu(), expected[0])

    def test_columns_beyond_whole_vectors(self, device):
        """The last vector of outputs repeats some of the one before."""
        for c in (17, 24, 58, 1030):
            x = make_tensor((2, c, 5, 7), device="cpu", dtype=torch.float32).contiguous(
                memory_format=torch.channels_last
            )
            for op in (torch.sum, torch.mean, torch.var, torch.amax):
                self.compare(lambda t, op=op: op(t, (2, 3)), x, device)
            rows = x.permute(0, 2, 3, 1).reshape(70, c)
            self.compare(lambda t: t.max(0), rows, device)
            self.compare(lambda t: t.argmin(0), rows, device)
            self.compare(lambda t: t.unfold(1, 3, 1).sum(2), rows, device)  # neighbours overlap
            self.compare(lambda t: t.unfold(1, 3, 1).argmax(2), rows, device)
        self.compare(lambda t: t.sum(0), make_tensor((30000, 24), device="cpu", dtype=torch.int32), device)  # in parts

    def test_any_all_dims(self, device):
        x = make_tensor((3, 4, 5), device="cpu", dtype=torch.bool)
        for op, dims in itertools.product((torch.any, torch.all), ((0, 2), (1,), (), None)):
            self.compare(lambda t: op(t, dims), x, device)
        self.compare(lambda t: torch.any(t, (0, 2), keepdim=True), x, device)

    def test_composites(self, device):
        x = make_tensor((6, 30), device="cpu", dtype=torch.float32, low=-4, high=4)
        self.compare(lambda t: t.logsumexp(1), x, device)
        self.compare(lambda t: t.norm(), x, device)
        self.compare(lambda t: torch.norm(t, 3, 1), x, device)
        self.compare(lambda t: torch.nn.functional.normalize(t), x, device)
        self.compare(lambda t: torch.nanmean(t, 1), x, device)

    def test_equal_and_renorm(self, device):
        x = torch.randn(5, 6)
        y = x.to(device)
        self.assertTrue(torch.equal(y, x.to(device)))
        self.assertFalse(torch.equal(y, y + 1))
        self.assertFalse(torch.equal(y, y[:4]))
        self.assertTrue(torch.equal(y[:0], y[:0]))
        for p, dim in ((2, 0), (1, -1), (INF, 1)):
            self.compare(lambda t: torch.renorm(t, p, dim, 1.5), x, device)
        self.compare(lambda t: t.half().renorm_(2, 0, 1.5), x, device, rtol=2e-3, atol=1e-3)

    def test_backward(self, device):
        for op in (torch.sum, torch.mean, torch.var, torch.norm, torch.amax, torch.prod):
            x = torch.randn(4, 6)
            grads = []
            for t in (x.clone(), x.to(device)):
                t.requires_grad_()
                op(t, dim=1).square().sum().backward()
                grads.append(t.grad.cpu())
            self.assertEqual(grads[1], grads[0])

    def test_no_fallback_and_repeatable(self, device):
        x = torch.randn(200000, device=device)
        before = dict(torch.netcl.cpu_fallback_ops())
        sums = {x.sum().item() for _ in range(5)}
        x.view(400, -1).var(0)
        x.argmax(), x.norm(), x.std(), x.any()
        self.assertEqual(len(sums), 1)
        self.assertEqual(dict(torch.netcl.cpu_fallback_ops()), before)

    def test_variance_of_infinities(self, device):
        inf, nan = math.inf, math.nan
        for row in ([inf], [nan], [inf, 1.0], [1.0] * 40 + [-inf], [inf] * 300, [2.0, nan] * 100, [1.0]):
            ops = [torch.var, torch.std]
            if len(set(row)) == 1:  # the mean of finite numbers and an infinity is either, or NaN, by their order
                ops += [torch.var_mean, torch.std_mean]
            for x in (torch.tensor(row), torch.tensor(row).repeat(70, 1), torch.tensor(row).repeat(70, 1).t()):
                for dim, op, n in itertools.product(range(x.dim()), ops, (0, 1)):
                    with self.subTest(row=row[:3], shape=x.shape, dim=dim, op=op.__name__, n=n):
                        self.compare(lambda t: op(t, dim, correction=n), x, device)  # noqa: B023


instantiate_device_type_tests(TestReduce, globals(), only_for="privateuse1", allow_xpu=False)

if __name__ == "__main__":
    run_tests()
