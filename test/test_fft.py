"""FFTs compared with the CPU in double: lengths with small prime factors and others, dimensions, norms, real
transforms."""

import math

import torch
from common import no_fallback
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

D = torch.device("netcl", 0)
HAS_FP64 = torch.netcl.get_device_properties().has_fp64


class TestFft(TestCase):
    def check(self, f, x, n):
        """Asserts that f(x) on netcl is near f of the same numbers in double.

        A butterfly has an error of some eps of its results' root mean square, and n elements go through log2(n)
        butterflies; in Bluestein's algorithm, through three times log2(4 n) and two products. The largest of a
        thousand normally distributed errors is below 5 deviations.
        """
        expected = f(x.to(torch.complex128 if x.is_complex() else torch.float64))
        with no_fallback():
            got = f(x.to(D)).cpu()
        self.assertEqual((got.shape, got.dtype.to_real()), (expected.shape, x.dtype.to_real()))
        size = expected.abs().square().mean().sqrt().item()
        atol = 5 * torch.finfo(got.dtype).eps * (math.log2(n) + 2) * size
        self.assertEqual(got.to(expected.dtype), expected, rtol=0, atol=atol)

    # 2 and 4 take one pass, 128 and 1000 several, primes up to 13 one; 97, 202 and 1021 use Bluestein's algorithm.
    @parametrize("n", [1, 2, 4, 7, 30, 97, 128, 143, 202, 1000, 1021])
    def test_lengths(self, n):
        torch.manual_seed(n)
        x, half = torch.randn(3, n, dtype=torch.complex64), torch.randn(2, n // 2 + 1, dtype=torch.complex64)
        self.check(torch.fft.fft, x, n)
        self.check(torch.fft.ifft, x, n)
        self.check(torch.fft.rfft, x.real, n)
        self.check(torch.fft.ihfft, x.real, n)
        self.check(lambda t: torch.fft.irfft(t, n), half, n)
        self.check(lambda t: torch.fft.hfft(t, n), half, n)

    # CPUs transform lines side by side in the lanes of vectors: rows in whole and part blocks, or neighbours in memory.
    @parametrize("dtype", [torch.float32, torch.float64])
    def test_lines(self, dtype):
        if dtype == torch.float64 and not HAS_FP64:
            self.skipTest("the device has no cl_khr_fp64")
        for n in (1, 2, 3, 5, 8, 13, 22, 26, 63, 64, 77, 100, 101, 240, 1000):
            for shape, dim in (((20, n), 1), ((33, n), 1), ((3, n, 5), 1), ((2, n, 37), 1), ((n, 16), 0)):
                with self.subTest(shape=shape, dim=dim):
                    torch.manual_seed(n)
                    x = torch.randn(shape, dtype=dtype.to_complex())
                    for f in (torch.fft.fft, torch.fft.ifft):
                        self.check(lambda t, f=f: f(t, dim=dim, norm="ortho"), x, n)
                    for f in (torch.fft.rfft, torch.fft.fft):
                        self.check(lambda t, f=f: f(t, dim=dim), x.real.contiguous(), n)
                    # The first and, of an even length, the last number of a real result's spectrum count as real.
                    spectrum = x.narrow(dim, 0, n // 2 + 1)
                    self.check(lambda t: torch.fft.irfft(t, n, dim=dim, norm="forward"), spectrum, n)

    def test_a_line_of_nan_leaves_its_neighbours_alone(self):
        x = torch.randn(20, 24)
        x[3, 5], x[7, 0] = math.nan, math.inf
        got = torch.fft.rfft(x.to(D)).cpu()
        self.assertFalse(got[[3, 7]].abs().isfinite().any())
        rest = [i for i in range(20) if i not in (3, 7)]
        self.assertEqual(got[rest], torch.fft.rfft(x[rest]))

    def test_double(self):
        if not HAS_FP64:
            self.skipTest("the device has no cl_khr_fp64")
        for n in (24, 101):
            self.check(torch.fft.fft, torch.randn(n, dtype=torch.complex128), n)
            self.check(torch.fft.rfft, torch.randn(n, dtype=torch.float64), n)

    def test_dimensions_and_norms(self):
        torch.manual_seed(0)
        x = torch.randn(4, 6, 5, 17, dtype=torch.complex64)
        for norm in ("forward", "backward", "ortho"):
            for dim in (0, 2, (3, 0), (0, 1, 2)):
                dims = dim if isinstance(dim, tuple) else (dim,)
                n = math.prod(x.shape[d] for d in dims)
                for f in (torch.fft.fftn, torch.fft.ifftn, torch.fft.irfftn):
                    self.check(lambda t: f(t, dim=dims, norm=norm), x, n)
                self.check(lambda t: torch.fft.rfftn(t, dim=dims, norm=norm), x.real, n)

    def test_views(self):
        x = torch.randn(12, 8, dtype=torch.complex64)
        self.check(lambda t: torch.fft.fft(t.t().conj()[1::2]), x, 12)
        self.check(lambda t: torch.fft.rfft(t.imag[:, ::3]), x, 3)
        self.check(lambda t: torch.fft.fft2(t.expand(3, 12, 8), s=(5, 16)), x, 80)
        self.assertEqual(torch.fft.fft(torch.empty(0, 5, device=D)).shape, (0, 5))

    def test_round_trip_and_gradients(self):
        x = torch.randn(3, 20, requires_grad=True)
        on_device = x.detach().to(D).requires_grad_()
        for t in (x, on_device):
            spectrum = torch.stft(t, 8, 4, window=torch.hann_window(8, device=t.device), return_complex=True)
            (spectrum.abs().square().sum() + torch.fft.irfft(torch.fft.rfft(t)[..., :6]).square().sum()).backward()
        self.assertEqual(on_device.grad.cpu(), x.grad, rtol=1e-4, atol=1e-4)
        with no_fallback():
            self.assertEqual(torch.fft.irfft(torch.fft.rfft(on_device), 20), on_device, rtol=0, atol=1e-5)

    def test_out(self):
        x = torch.randn(3, 9, dtype=torch.complex64)
        out = torch.empty(9, 3, dtype=torch.complex64, device=D).t()
        with no_fallback():
            self.assertIs(torch.fft.fft(x.to(D), out=out), out)
        self.assertEqual(out.cpu(), torch.fft.fft(x), rtol=1e-5, atol=1e-5)

    def test_refuses(self):
        with no_fallback():
            with self.assertRaisesRegex(RuntimeError, "float32, float64 and their complex numbers"):
                torch.ops.aten._fft_r2c(torch.ones(4, device=D, dtype=torch.bfloat16), [0], 0, True)
            with self.assertRaisesRegex(RuntimeError, r"Invalid number of data points \(0\)"):
                torch.ops.aten._fft_c2c(torch.ones(0, device=D, dtype=torch.complex64), [0], 0, True)
            with self.assertRaisesRegex(RuntimeError, "12 real ones need 7"):
                torch.ops.aten._fft_c2r(torch.ones(4, device=D, dtype=torch.complex64), [0], 0, 12)
            with self.assertRaisesRegex(IndexError, "out of range"):
                torch.ops.aten._fft_c2c(torch.ones(4, device=D, dtype=torch.complex64), [1], 0, True)


instantiate_parametrized_tests(TestFft)

if __name__ == "__main__":
    run_tests()
