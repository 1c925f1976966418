"""Special functions: PyTorch's OpInfo samples against the CPU; precision against SciPy in double; edges."""

import math
import warnings

import torch
from common import DEVICE, Scipy, no_fallback, to_device
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.utils._pytree import tree_map

special = Scipy("special")
NAMES = """digamma erfinv frexp i0 igamma igammac polygamma special.airy_ai special.bessel_j0 special.bessel_j1
    special.bessel_y0 special.bessel_y1 special.erfcx special.i0e special.i1 special.i1e special.log_ndtr
    special.modified_bessel_i0 special.modified_bessel_i1 special.modified_bessel_k0 special.modified_bessel_k1
    special.ndtri special.polygamma special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1
    special.spherical_bessel_j0 special.zeta special.hermite_polynomial_h special.hermite_polynomial_he
    special.laguerre_polynomial_l special.legendre_polynomial_p signal.windows.kaiser""".split()
NAMES += [f"special.{s}chebyshev_polynomial_{c}" for s in ("", "shifted_") for c in "tuvw"]
OPS = [op for op in op_db if op.name in NAMES]

# The CPU's float versions can be far off (trigamma below 0: 340 units in the last place), so float is compared with the
# CPU's double. Bounds: some units in the last place (6e-8); for exp(-x), x^s and the recurrences of the polynomials,
# half a unit of an intermediate result that is up to 100 times as large.
TOLERANCE = {"rtol": 6e-6, "atol": 4e-6}


def spread(*points, n=400):
    """Numbers between the points, equally many in each interval."""
    parts = [torch.linspace(a, b, n, dtype=torch.float64) for a, b in zip(points, points[1:], strict=False)]
    return torch.cat(parts)


# Function, SciPy's function, points, and the bound of the error in units of 2^-24 or 2^-53, relative to max(|value|,
# 1).
UNARY = [
    (torch.special.i0e, special.i0e, spread(-50, -8, 8, 1e4), 8),
    (torch.special.i1e, special.i1e, spread(-50, -8, 8, 1e4), 8),
    (torch.special.scaled_modified_bessel_k0, special.k0e, spread(1e-3, 2, 50), 16),
    (torch.special.scaled_modified_bessel_k1, special.k1e, spread(1e-3, 2, 50), 16),
    (torch.special.bessel_j0, special.j0, spread(-20, 0, 8, 1000), 16),
    (torch.special.bessel_j1, special.j1, spread(-20, 0, 8, 1000), 16),
    (torch.special.bessel_y0, special.y0, spread(1e-3, 8, 1000), 16),
    (torch.special.bessel_y1, special.y1, spread(1e-3, 8, 1000), 16),
    (torch.special.airy_ai, lambda x: special.airy(x)[0], spread(-6, -4.5, 2, 10), 16),
    (torch.special.erfcx, special.erfcx, spread(-1, 0, 3, 100), 8),
    (torch.special.log_ndtr, special.log_ndtr, spread(-100, -1, 5), 8),
    (torch.special.ndtri, special.ndtri, spread(1e-6, 0.25, 0.75, 0.9999), 16),
    (torch.erfinv, special.erfinv, spread(-0.999, -1e-3, 0, 0.999), 16),
    (torch.digamma, special.digamma, spread(-3.9, -3.1), 64),
    (torch.digamma, special.digamma, spread(0.1, 3, 1e4), 16),
    (lambda x: torch.polygamma(1, x), lambda x: special.polygamma(1, x), spread(0.1, 3, 100), 16),
    (lambda x: torch.polygamma(1, x), lambda x: special.polygamma(1, x), spread(-9.9, -9.1), 16),
    (lambda x: torch.polygamma(1, x), lambda x: special.polygamma(1, x), spread(-0.9, -0.1), 16),
    (lambda x: torch.polygamma(4, x), lambda x: special.polygamma(4, x), spread(0.5, 3, 100), 64),
]


class TestSpecial(TestCase):
    @ops(OPS, allowed_dtypes=(torch.float32,))
    def test_against_cpu(self, device, dtype, op):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _, sample in zip(range(4), op.sample_inputs("cpu", dtype), strict=False):
                inputs, args, kwargs = to_device((sample.input, sample.args, sample.kwargs), device)
                with no_fallback():
                    got = op.op(inputs, *args, **kwargs)
                dtypes = tree_map(lambda t: t.dtype, op.op(sample.input, *sample.args, **sample.kwargs))
                self.assertEqual(tree_map(lambda t: t.dtype, got), dtypes)
                wide = sample.transform(lambda t: t.double() if isinstance(t, torch.Tensor) else t)
                expected = op.op(wide.input, *wide.args, **wide.kwargs)
                self.assertEqual(to_device(got, "cpu"), expected, exact_dtype=False, **TOLERANCE)

    def test_other_dtypes(self, device):
        x, n = torch.tensor([0.25, 1.5, 3.0]), torch.arange(3)
        y = x.bfloat16()  # computed in float, rounded once
        self.assertEqual(torch.digamma(y.to(device)).cpu(), torch.digamma(y.float()).bfloat16(), exact_dtype=True)
        self.assertEqual(torch.special.erfcx(n.to(device)).cpu(), torch.special.erfcx(n), exact_dtype=True)
        got = torch.special.legendre_polynomial_p(x.to(device), n.to(device)).cpu()
        self.assertEqual(got, torch.special.legendre_polynomial_p(x, n), exact_dtype=True)
        with self.assertRaisesRegex(RuntimeError, "special_erfcx is not implemented for ComplexFloat"):
            torch.special.erfcx(torch.zeros(2, dtype=torch.complex64, device=device))

    def check_error(self, name, f, reference, arguments, bound):
        has_fp64 = torch.netcl.get_device_properties().has_fp64
        for dtype, unit in ((torch.float32, 2**-24), (torch.float64, 2**-53))[: 1 + has_fp64]:
            rounded = [x.to(dtype) for x in arguments]
            expected = torch.as_tensor(reference(*(x.double().numpy() for x in rounded)))
            got = f(*(x.to(DEVICE) for x in rounded)).cpu().double()
            error = ((got - expected).abs() / expected.abs().clamp_min(1)).max().item() / unit
            self.assertLess(error, bound, f"{name} {dtype}")

    def test_precision(self, device):
        with no_fallback():
            for f, reference, x, bound in UNARY:
                self.check_error(getattr(reference, "__name__", ""), f, reference, [x], bound)

    def test_precision_of_two_arguments(self, device):
        # Below and above the limits of series, fraction and uniform expansion; SciPy's own error is some units.
        a = spread(0.05, 3, 30, 150, 3e4, n=60)
        for ratio in (0.2, 0.8, 0.99, 1.0, 1.01, 1.2, 3.0):
            self.check_error("igamma", torch.special.gammainc, special.gammainc, [a, a * ratio], 64)
            self.check_error("igammac", torch.special.gammaincc, special.gammaincc, [a, a * ratio], 64)
        s, q = spread(1.25, 2, 30, n=100), spread(1, 2, 40, n=100)
        self.check_error("zeta", torch.special.zeta, special.zeta, [s, q], 16)

    def test_edges(self, device):
        x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0, -1.0, -2.0, 300.0])
        # erfinv, ndtri and the polynomials of no degree are NaN, infinite or 0 for the same arguments as on the CPU.
        names = "i0 i0e i1 i1e erfcx log_ndtr ndtri erfinv bessel_j0 bessel_j1 airy_ai spherical_bessel_j0".split()
        for name in names:
            f = getattr(torch.special, name)
            # At infinity the CPU gives NaN, and netcl gives the limits, which are 0 or infinite.
            y = x[x.isfinite()] if name in ("i0", "i1", "i0e", "i1e", "bessel_j0", "bessel_j1") else x
            self.assertEqual(f(y.to(device)).cpu(), f(y), msg=lambda m, n=name: f"{n}: {m}", **TOLERANCE)
        for name in ("bessel_y0", "bessel_y1", "modified_bessel_k0", "scaled_modified_bessel_k1"):
            f, y = getattr(torch.special, name), x[x.isfinite()]
            self.assertEqual(f(y.to(device)).cpu(), f(y), msg=lambda m, n=name: f"{n}: {m}", **TOLERANCE)
        a, b = x.repeat(8), x.repeat_interleave(8)
        for f in (torch.special.zeta, torch.special.gammainc, torch.special.gammaincc):
            # Any NaN gives NaN, unlike on the CPU; some of its zetas at infinity are NaN instead of the limit 0.
            expected = torch.where(a.isnan() | b.isnan(), math.nan, f(a, b))
            if f is torch.special.zeta:
                expected = torch.where((a > 1) & (b > 1) & (a.isinf() | b.isinf()), 0.0, expected)
            self.assertEqual(f(a.to(device), b.to(device)).cpu(), expected, **TOLERANCE)
        for n in (-1, 0, 1, 12, math.nan, math.inf):
            y = torch.tensor([-1.0, -0.3, 0.0, 1.0, 1.5])
            got = torch.special.chebyshev_polynomial_u(y.to(device), n).cpu()
            expected = torch.special.chebyshev_polynomial_u(y, n if math.isfinite(n) else -1)
            self.assertEqual(got, expected, **TOLERANCE)

    def test_degrees_are_truncated(self, device):
        x, n = torch.tensor([-1.5, -0.3, 0.7, 1.0]), torch.tensor([[-1.0], [-0.99], [-0.5], [0.5], [1.9], [2.0]])
        for name in [name for name in NAMES if "polynomial" in name]:
            f = getattr(torch.special, name.removeprefix("special."))
            got = f(x.to(device), n.to(device)).cpu()
            self.assertEqual(got, f(x, n), msg=lambda m, n=name: f"{n}: {m}", **TOLERANCE)

    def test_ends_of_the_range(self, device):
        names = {"erfcx": [-1e10, -27.0, -9.35, 1e10], "ndtri": [1e-45, 1e-40, 1e-30, 1e-12],
                 "modified_bessel_k0": [1e-45, 1e-40], "scaled_modified_bessel_k0": [1e-45], "bessel_y0": [1e-45]}
        for name, values in names.items():
            f, x = getattr(torch.special, name), torch.tensor(values)
            # The reference is the CPU in double; in erfcx, exp(x^2) with x^2 = 87 has 87 roundings of 2^-24 from its
            # argument.
            self.assertEqual(f(x.to(device)).cpu(), f(x.double()).float(), rtol=6e-6, atol=0, msg=name)
        if torch.netcl.get_device_properties().has_fp64:
            # SciPy's ndtri has 15 digits, and so does the CPU's.
            x = torch.tensor([5e-324, 1e-300, 1e-100, 1e-30, 1e-12, 1e-11, 1e-10, 1e-9], dtype=torch.float64)
            got, want = torch.special.ndtri(x.to(device)).cpu(), torch.from_numpy(special.ndtri(x.numpy()))
            self.assertEqual(got, want, rtol=4e-15, atol=0)

    def test_zeta_far_below_zero(self, device):
        # The exact value is the sum of the terms on both sides of 0 from -n + 1/2 on; for n to infinity pi^2, minus a
        # tail of about 1 / n.
        x = torch.tensor([-0.5, -1000.5, -4e6 - 0.5], device=device)
        expected = math.pi**2 - torch.tensor(special.zeta(2, [1.5, 1001.5, 4e6 + 1.5])).float()
        self.assertEqual(torch.polygamma(1, x).cpu(), expected, rtol=1e-6, atol=0)

    def test_zeta_just_below_zero(self, device):
        x = torch.tensor([-1e-17, -1e-9, -1e-3, 1e-17], dtype=torch.float64)
        for n in (1, 2):
            got = torch.polygamma(n, x.float().to(device)).cpu()
            self.assertEqual(got, torch.polygamma(n, x).float(), rtol=2e-6, atol=0)

    def test_windows(self, device):
        with no_fallback():
            got = torch.kaiser_window(33, True, 9.0, device=device)
        self.assertEqual(got.cpu(), torch.kaiser_window(33, True, 9.0), rtol=1e-5, atol=1e-6)


instantiate_device_type_tests(TestSpecial, globals(), only_for="netcl")

if __name__ == "__main__":
    run_tests()
