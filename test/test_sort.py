"""sort, topk, kthvalue, median, mode and searchsorted against the CPU."""
# ruff: noqa: B023  (every lambda is called within its own turn of the loop)

import math

import torch
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

NAN, INF = math.nan, math.inf
ALL = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.uint8,
    torch.bool,
)


def with_ties(shape, dtype):
    """Few distinct values, to test stability."""
    return make_tensor(shape, device="cpu", dtype=torch.int64, low=-4, high=4).to(dtype)


class TestSort(TestCase):
    def check_sort(self, x, device, dim, descending):
        got = x.to(device).sort(dim=dim, descending=descending, stable=True)
        expected = x.sort(dim=dim, descending=descending, stable=True)
        self.assertEqual(got.values.cpu(), expected.values, exact_dtype=True)
        self.assertEqual(got.indices.cpu(), expected.indices)

    @dtypes(*ALL)
    def test_dtypes(self, device, dtype):
        x = with_ties((3, 90), dtype)
        self.check_sort(x, device, 1, False)
        self.check_sort(x, device, 0, True)
        if dtype.is_floating_point:
            x = torch.randn(2, 90).to(dtype)
            x[0, 3], x[0, 50], x[1, 2], x[1, 7], x[1, 8], x[1, 9] = NAN, NAN, INF, -INF, -0.0, 0.0
            self.check_sort(x, device, 1, False)
            self.check_sort(x, device, 1, True)

    def test_extremes(self, device):
        for dtype in (torch.int64, torch.int32, torch.uint8):
            i = torch.iinfo(dtype)
            self.check_sort(torch.tensor([0, i.max, i.min, 1, i.max, i.min], dtype=dtype), device, 0, False)
            self.check_sort(torch.tensor([0, i.max, i.min, 1, i.max, i.min], dtype=dtype), device, 0, True)
        x = torch.tensor([1e-45, 0.0, -1e-45, 3.4e38, -3.4e38, -0.0])
        got = x.to(device).sort().values.cpu()
        self.assertEqual(got.signbit(), x.sort(stable=True).values.signbit())

    def test_lengths(self, device):
        for n in (1, 2, 31, 32, 33, 64, 65, 1000, 20000, 70001):
            self.check_sort(torch.randn(n), device, 0, False)
        self.check_sort(torch.randn(300, 70), device, 1, True)
        self.check_sort(torch.randn(9000, 3), device, 0, False)
        self.check_sort(with_ties((40000,), torch.float32), device, 0, True)

    @dtypes(torch.float32, torch.float16, torch.float64, torch.int64, torch.int16, torch.int8, torch.bool)
    def test_tiles(self, device, dtype):
        """Rows about as long as what a work-group sorts at once; -0 and NaNs keep their bits."""
        for n in (511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 6000):
            x = with_ties((2, n), dtype)
            if dtype.is_floating_point:
                x[:, ::7] = torch.randn(2, len(range(0, n, 7))).to(dtype)
                for k, value in enumerate((NAN, -NAN, -0.0, INF, -INF)):
                    x[:, k::50] = value
            for descending in (False, True):
                got = x.to(device).sort(dim=1, descending=descending, stable=True)
                expected = x.sort(dim=1, descending=descending, stable=True)
                self.assertEqual(got.indices.cpu(), expected.indices)
                self.assertEqual(got.values.cpu().view(torch.uint8), expected.values.view(torch.uint8))

    def test_many_rows(self, device):
        self.check_sort(with_ties((70000, 3), torch.float32), device, 1, False)
        self.check_sort(with_ties((140001,), torch.int32), device, 0, True)  # more tiles than a chunk has
        self.check_sort(torch.zeros(3, 5000), device, 1, False)

    def test_topk_of_long_rows(self, device):
        """Among equal elements the first are taken, so the indices are those of a stable sort."""
        for dtype in (torch.float32, torch.float16, torch.int64, torch.uint8):
            x = make_tensor((3, 20001), device="cpu", dtype=torch.int64, low=0, high=90).to(dtype)
            if dtype.is_floating_point:
                x[0, 77::1000] = NAN
                x[1, ::2] = -0.0
            for k in (1, 3, 1024, 1500, 2500):
                for largest in (True, False):
                    got = x.to(device).topk(k, 1, largest)
                    expected = x.sort(dim=1, descending=largest, stable=True)
                    self.assertEqual(got.values.cpu(), expected.values[:, :k])
                    self.assertEqual(got.indices.cpu(), expected.indices[:, :k])

    def test_modes_of_long_rows(self, device):
        for n, high in ((3000, 5), (3000, 100000), (70, 3)):
            x = torch.randint(0, high, (4, n))
            x[3] = torch.arange(n)
            got = x.to(device).mode(1)
            self.assertEqual(got.values.cpu(), x.mode(1).values)
            self.assertEqual(x.gather(1, got.indices.cpu()[:, None])[:, 0], got.values.cpu())

    def test_layouts(self, device):
        x = torch.randn(5, 40, 7)
        for view in (lambda t: t.transpose(0, 2), lambda t: t[:, 1::2, 2:], lambda t: t[:, :1].expand_as(t)):
            for dim in (0, 1, 2):
                got, expected = (
                    view(x.to(device)).sort(dim=dim, stable=True),
                    view(x).sort(dim=dim, stable=True),
                )
                self.assertEqual(got.values.cpu(), expected.values)
                self.assertEqual(got.indices.cpu(), expected.indices)
        y = x.to(device)
        indices = torch.empty(0, dtype=torch.int64, device=device)
        values = torch.empty(5, 7, 40, device=device).transpose(1, 2)
        torch.sort(y, 1, out=(values, indices))
        self.assertEqual(values.cpu(), x.sort(1).values)
        torch.sort(y, 1, out=(y, indices))
        self.assertEqual(y.cpu(), x.sort(1).values)
        self.assertEqual(x.to(device).argsort(0).cpu(), x.argsort(0))
        self.assertEqual(x.to(device).msort().cpu(), x.msort())
        self.assertEqual(torch.tensor(3.0, device=device).sort(), (torch.tensor(3.0), torch.tensor(0)))
        self.assertEqual(torch.empty(0, 3, device=device).sort(0).values.shape, (0, 3))

    def test_many_dimensions(self, device):
        """Of 9 dimensions that no stride joins, 8 remain beside the one that is scanned, as many as kernels take. More:
        test_many_dims.py."""
        few = torch.randn((3,) * 9)[(slice(None, None, 2),) * 9]
        got = torch.empty_strided(few.shape, few.stride(), device=device).copy_(few)
        functions = (lambda t: t.cumsum(4), lambda t: t.sum(4))
        for f in (*functions, lambda t: t.sort(4).values, lambda t: t.median(4).values):
            self.assertEqual(f(got).cpu(), f(few))

    def test_topk(self, device):
        for shape, dim, ks in (
            ((4, 300), 1, (1, 5, 64, 65, 300)),
            ((50, 6), 0, (3,)),
            ((60000,), 0, (10, 500)),
        ):
            # Distinct values, since the order of equal ones is not defined.
            x = torch.randperm(math.prod(shape)).float().view(shape)
            y = x.to(device)
            for k in ks:
                for largest in (True, False):
                    got, expected = y.topk(k, dim, largest), x.topk(k, dim, largest)
                    self.assertEqual(got.values.cpu(), expected.values)
                    self.assertEqual(got.indices.cpu(), expected.indices)
        x = torch.randn(3, 100)
        x[0, 5], x[1, 6], x[2, :] = NAN, INF, 1
        got = x.to(device).topk(4)
        self.assertEqual(got.values.cpu(), x.topk(4).values)
        self.assertEqual(x.gather(1, got.indices.cpu()), got.values.cpu())
        x = make_tensor((3, 500), device="cpu", dtype=torch.int64)
        self.assertEqual(x.to(device).topk(7, largest=False).values.cpu(), x.topk(7, largest=False).values)
        self.assertEqual(x[0, 0].to(device).topk(1).values.cpu(), x[0, 0])
        self.assertEqual(x.to(device).topk(0).values.shape, (3, 0))
        with self.assertRaisesRegex(RuntimeError, "out of range"):
            x.to(device).topk(501)

    def test_pick(self, device):
        x = torch.randn(7, 33, 5)
        y = x.to(device)
        for dim, keep in ((0, False), (1, True), (-1, False)):
            for f in (
                lambda t: t.kthvalue(3, dim, keep),
                lambda t: t.median(dim, keep),
                lambda t: t.nanmedian(dim, keep),
            ):
                got, expected = f(y), f(x)
                self.assertEqual(got[0].cpu(), expected[0])
                self.assertEqual(got[1].cpu(), expected[1])
        self.assertEqual(y.median().cpu(), x.median())
        x[0, 3, 1] = x[2, :, 2] = NAN
        x[0, 9, 1] = NAN
        y = x.to(device)
        self.assertEqual(y.median(1)[0].cpu(), x.median(1)[0])
        self.assertEqual(y.median(1)[1].cpu(), x.median(1)[1])
        self.assertEqual(y.nanmedian(1)[0].cpu(), x.nanmedian(1)[0])
        self.assertEqual(y.median().cpu(), x.median())
        self.assertEqual(y.nanmedian().cpu(), x.nanmedian())
        self.assertEqual(torch.empty(0, device=device).median().cpu(), torch.tensor(NAN))
        m = with_ties((6, 50), torch.int64)
        got = m.to(device).mode(1)
        self.assertEqual(got.values.cpu(), m.mode(1).values)
        self.assertEqual(m.gather(1, got.indices.cpu()[:, None])[:, 0], got.values.cpu())
        with self.assertRaisesRegex(RuntimeError, "out of range"):
            y.kthvalue(50, 0)
        for function in (torch.median, torch.nanmedian, lambda t, dim: t.kthvalue(1, dim)):
            with self.assertRaisesRegex(NotImplementedError, "ComplexFloat"):
                function(torch.empty(0, 2, dtype=torch.complex64, device=device), 1)
        self.assertEqual(torch.quantile(y[3:, :, 0], 0.3, dim=1).cpu(), torch.quantile(x[3:, :, 0], 0.3, dim=1))

    @dtypes(*ALL)
    def test_pick_of_long_rows(self, device, dtype):
        rows = [with_ties((3, 5001), dtype), make_tensor((3, 5001), device="cpu", dtype=dtype)]
        if dtype.is_floating_point:
            rows.append(rows[1].clone())
            rows[2][0, 7::3], rows[2][1, 4000], rows[2][2, :] = NAN, NAN, NAN
            rows[2][0, 0], rows[2][0, 1], rows[2][0, 2], rows[2][0, 3] = INF, -INF, -0.0, 0.0
        for x in rows:
            y = x.to(device)
            order = x.float() if dtype == torch.bool else x  # the CPU selects no bool
            for f in (lambda t, k=k: t.kthvalue(k, 1) for k in (1, 1667, 1668, 1669, 2501, 5001)):
                got, expected = f(y), f(order)
                self.assertEqual(got.values.cpu(), expected.values.to(dtype))
                self.assertEqual(x.gather(1, got.indices.cpu()[:, None])[:, 0], got.values.cpu())
            for f in (torch.median, torch.nanmedian):
                self.assertEqual(f(y, 1).values.cpu(), f(order, 1).values.to(dtype))
                self.assertEqual(f(y).cpu(), f(order).to(dtype))
            # Of equals, that of the place in a stable order.
            self.assertEqual(y.kthvalue(2000, 1).indices.cpu(), x.sort(dim=1, stable=True).indices[:, 1999])

    def test_empty_complex(self, device):
        """The CPU's mode takes any dtype if there is no element; kthvalue and median do not."""
        for shape, dim in ((0, 3), 1), ((2, 0), 0), ((3, 0, 2), -1):
            x = torch.empty(shape, dtype=torch.complex64, device=device)
            values, indices = x.mode(dim)
            expected = x.cpu().mode(dim)
            self.assertEqual((values.shape, values.dtype), (expected.values.shape, expected.values.dtype))
            self.assertEqual((indices.shape, indices.dtype), (expected.indices.shape, expected.indices.dtype))
            for pick in (lambda t, d: t.kthvalue(1, d), torch.median, torch.nanmedian):
                with self.assertRaises(NotImplementedError):
                    pick(x, dim)
        with self.assertRaises(NotImplementedError):
            torch.ones(3, dtype=torch.complex64, device=device).mode()

    def test_searchsorted(self, device):
        bounds = torch.tensor([1.0, 3.0, 3.0, 5.0, 7.0])
        values = torch.tensor([[-1.0, 1.0, 3.0], [4.0, 7.0, NAN], [INF, 5.5, -INF]])
        b, v = bounds.to(device), values.to(device)
        for right in (False, True):
            self.assertEqual(torch.bucketize(v, b, right=right).cpu(), torch.bucketize(values, bounds, right=right))
            got = torch.searchsorted(b, v, right=right, out_int32=True)
            self.assertEqual(
                got.cpu(), torch.searchsorted(bounds, values, right=right, out_int32=True), exact_dtype=True
            )
        self.assertEqual(torch.bucketize(3, b).cpu(), torch.bucketize(3, bounds))
        self.assertEqual(torch.searchsorted(b, 4.5).cpu(), torch.searchsorted(bounds, 4.5))
        rows = torch.randn(3, 20).sort(1).values
        self.assertEqual(
            torch.searchsorted(rows.to(device), v, side="right").cpu(),
            torch.searchsorted(rows, values, side="right"),
        )
        mixed = torch.randint(0, 20, (3, 7))
        self.assertEqual(torch.searchsorted(rows.to(device), mixed.to(device)).cpu(), torch.searchsorted(rows, mixed))
        shuffled = torch.randn(3, 20)
        order = shuffled.argsort(1)
        self.assertEqual(
            torch.searchsorted(shuffled.to(device), v, sorter=order.to(device)).cpu(),
            torch.searchsorted(shuffled, values, sorter=order),
        )

    def test_topk_of_a_number(self, device):
        x = torch.tensor(3.0)
        for k in (0, 1):
            for got, want in zip(torch.topk(x.to(device), k), torch.topk(x, k), strict=True):
                self.assertEqual(got.cpu(), want)


instantiate_device_type_tests(TestSort, globals(), only_for="privateuse1")

if __name__ == "__main__":
    run_tests()
