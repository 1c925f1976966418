"""Scans: cumsum, cumprod, logcumsumexp, cummax, cummin, compared with the CPU."""
# ruff: noqa: B023  (every lambda is called within its own turn of the loop)

import math

import torch
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

NAN, INF = math.nan, math.inf


class TestScan(TestCase):
    def compare(self, f, x, device, **tolerance):
        got, expected = f(x.to(device)), f(x)
        if isinstance(expected, torch.Tensor):
            got, expected = [got], [expected]
        for g, e in zip(got, expected, strict=True):
            self.assertEqual(g.device.type, torch.device(device).type)
            self.assertEqual(g.cpu(), e, exact_dtype=True, **tolerance)

    @dtypes(
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.uint8,
        torch.bool,
    )
    def test_dtypes(self, device, dtype):
        x = make_tensor((5, 70, 9), device="cpu", dtype=dtype, low=-2, high=2)
        # Half and bfloat16 are summed in float on both sides: one rounding each.
        close = {torch.float16: dict(rtol=1e-3, atol=1e-3), torch.bfloat16: dict(rtol=8e-3, atol=8e-3)}
        close = close.get(dtype, {})
        for dim in (1, 2):
            self.compare(lambda t: t.cumsum(dim), x, device, **close)
        self.compare(lambda t: t.cummax(1), x, device)
        self.compare(lambda t: t.cummin(2), x, device)
        self.compare(lambda t: t[:, :7].cumprod(1), x, device, **close)
        if dtype.is_floating_point:
            self.compare(lambda t: t.logcumsumexp(1), x, device, **close)

    def test_layouts(self, device):
        x = make_tensor((6, 33, 40), device="cpu", dtype=torch.float32)
        for view in (x.transpose(0, 2), x[:, 1::2, 3:], x[:, :1].expand_as(x), x.permute(1, 2, 0)):
            for dim in (0, 1, -1):
                self.assertEqual(view.to(device).cumsum(dim).cpu(), view.cumsum(dim))
        y = x.to(device)
        self.assertEqual(y.transpose(0, 2)[1:].cummax(1)[1].cpu(), x.transpose(0, 2)[1:].cummax(1)[1])
        self.assertEqual(y[:, ::3].cumsum(0).cpu(), x[:, ::3].cumsum(0))
        out = torch.empty(40, 33, 6, device=device).permute(2, 1, 0)
        self.assertEqual(torch.cumsum(y, 2, out=out).cpu(), x.cumsum(2))

    @dtypes(torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8)
    def test_many_dense_lines(self, device, dtype):
        # With few cores, 16 rows are scanned together: whole blocks of 16, and remainders of rows and of elements.
        close = {torch.float16: dict(rtol=1e-3, atol=1e-3), torch.bfloat16: dict(rtol=8e-3, atol=8e-3)}
        close = close.get(dtype, {})
        for shape in ((4096, 16), (2050, 35), (7, 400, 50)):
            x = make_tensor(shape, device="cpu", dtype=dtype, low=-1, high=2)
            if dtype.is_floating_point:
                x[3, 5], x[5, 9], x[6, 1] = torch.nan, torch.inf, -torch.inf
            self.compare(lambda t: t.cumsum(-1), x, device, **close)
            self.compare(lambda t: t[1:, 2:].cumsum(-1), x, device, **close)
            self.compare(lambda t: t.clamp(0.5, 1.5).cumprod(-1), x, device, **close)
            y = x.to(device)
            self.assertEqual(y.cumsum_(-1), x.clone().cumsum_(-1), **close)
            out = torch.empty(*shape, 2, device=device, dtype=dtype)
            self.assertEqual(
                torch.cumsum(x.to(device), -1, dtype=dtype, out=out[..., 1]), x.cumsum(-1, dtype=dtype), **close
            )
        if dtype == torch.float32:  # 32 MiB and more are stored past the cache
            self.compare(lambda t: t.cumsum(1), torch.randint(-8, 9, (2100, 4096)).to(dtype), device)  # exact

    def test_long(self, device):
        for shape, dim in (((100001,), 0), ((2, 30000), 1), ((30000, 3), 0), ((9000, 40), 0), ((2, 9001, 11), 1)):
            x = make_tensor(shape, device="cpu", dtype=torch.float32, low=-1, high=1)
            # Without doubles a sum of 1e5 numbers below 1 is off by about 2^-24 * 1e5 / 16 at most.
            self.compare(lambda t: t.cumsum(dim), x, device, rtol=1e-5, atol=4e-4)
            self.compare(lambda t: t.cummax(dim), x, device)
            self.compare(lambda t: (t > 0.9).cumsum(dim), x, device)
            self.compare(lambda t: t.logcumsumexp(dim), x, device, rtol=1e-5, atol=1e-5)
        ones = torch.ones(1 << 18, dtype=torch.float16, device=device)
        self.assertEqual(ones.cumsum(0, dtype=torch.float32)[-1].item(), 1 << 18)

    @dtypes(torch.float32, torch.float16)
    def test_nan_and_inf(self, device, dtype):
        x = torch.zeros(6, 20, dtype=dtype)
        x[0, 3], x[0, 9] = NAN, NAN
        x[1, 5], x[1, 8] = INF, -INF
        x[2, :4] = -INF
        x[3, :] = INF
        x[4, 2:4] = 1
        for f in (torch.cumsum, torch.cumprod, torch.cummax, torch.cummin, torch.logcumsumexp):
            self.compare(lambda t: f(t, 1), x, device)
            self.compare(lambda t: f(t.t().contiguous(), 0), x, device)

    def test_converting_inplace_and_empty(self, device):
        x = make_tensor((7, 12), device="cpu", dtype=torch.int32, low=-5, high=5)
        self.compare(lambda t: t.cumsum(1, dtype=torch.float32), x, device)
        self.compare(lambda t: t.float().cumsum(0, dtype=torch.int64), x, device)
        self.compare(lambda t: t.float().cumsum_(0), x, device)
        self.compare(lambda t: t.float().cumprod_(1), x, device)
        self.compare(lambda t: t[:0].cumsum(0), x, device)
        self.compare(lambda t: t[:0].cummax(1), x, device)
        self.compare(lambda t: t[0, 0].cumsum(0), x, device)
        self.compare(lambda t: t[0, 0].cummax(0), x, device)
        self.compare(lambda t: torch.complex(t.float(), t.float() + 1).cumsum(1), x, device)
        self.compare(lambda t: torch.complex(t.float(), t.float() + 1)[:, :4].cumprod(1), x, device)

    def test_logcumsumexp_of_complex_numbers(self, device):
        x = make_tensor((3, 9000), device="cpu", dtype=torch.complex64, low=-4, high=4)
        x[1, 5], x[2, :3] = complex(NAN, 1), complex(-INF, 0)
        for t, dim in ((x, 1), (x[:, :300].t(), 0)):
            # Compare the sums themselves, since their logarithms jump by 2 pi at the negative axis. Rounding a
            # logarithm of about 8 to float is an error of 8 eps of a sum; 9000 such random steps have sqrt(9000) times
            # that: 1e-4.
            got = t.to(device).logcumsumexp(dim).cpu().exp()
            expected = t.to(torch.complex128).logcumsumexp(dim).exp()
            largest = expected.abs().nan_to_num().max().item()
            self.assertEqual(got.to(torch.complex128), expected, rtol=0, atol=1e-4 * largest)

    def test_backward(self, device):
        for f in (torch.cumsum, torch.logcumsumexp, lambda t, d: torch.cummax(t, d)[0]):
            x, grads = torch.randn(4, 6), []
            for t in (x.clone(), x.to(device)):
                t.requires_grad_()
                f(t, 1).square().sum().backward()
                grads.append(t.grad.cpu())
            self.assertEqual(grads[1], grads[0])


instantiate_device_type_tests(TestScan, globals(), only_for="privateuse1")

if __name__ == "__main__":
    run_tests()
