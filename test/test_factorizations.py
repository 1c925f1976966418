"""Cholesky, LU, solves, inverses, determinants: correct solutions, errors, gradients."""

import itertools

import torch
from common import no_fallback
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

D = torch.device("netcl", 0)
DTYPES = [torch.float32, torch.complex64]
if torch.netcl.get_device_properties().has_fp64:
    DTYPES += [torch.float64]
# One, two and more blocks; batches of several matrices to a work-group of a GPU, and of more than one work-group.
SHAPES = [(1, 1), (5, 5), (2, 33, 33), (3, 2, 70, 70), (37, 3, 3), (9, 12, 12)]


def matrices(shape, dtype):
    """Matrices far from singular: the diagonal dominates, so errors grow by about n eps at most."""
    return torch.randn(shape, dtype=dtype) + 3 * shape[-1] ** 0.5 * torch.eye(shape[-1], dtype=dtype)


class TestFactorizations(TestCase):
    def check(self, got, expected, n):
        """Compares sums of n products, each off by one or two eps, of numbers up to the largest."""
        self.assertEqual((got.device, got.dtype, got.shape), (D, expected.dtype, expected.shape))
        atol = 8 * n * torch.finfo(got.dtype).eps * max(expected.abs().max().item(), 1)
        self.assertEqual(got.cpu(), expected, rtol=0, atol=atol)

    @parametrize("shape", SHAPES)
    @parametrize("dtype", DTYPES)
    def test_cholesky(self, shape, dtype):
        torch.manual_seed(0)
        n, a = shape[-1], matrices(shape, dtype)
        a = a @ a.mH
        b = torch.randn(*shape[:-1], 3, dtype=dtype)
        for upper in (False, True):
            with no_fallback():
                factor = torch.linalg.cholesky(a.to(D), upper=upper)
                product = factor.mH @ factor if upper else factor @ factor.mH
                inverse = torch.cholesky_inverse(factor, upper=upper)
                x = torch.cholesky_solve(b.to(D), factor, upper=upper)
            self.assertEqual(factor, factor.triu() if upper else factor.tril(), rtol=0, atol=0)
            self.check(product, a, n)
            self.check(inverse @ a.to(D), torch.eye(n, dtype=dtype).expand(shape), n)
            self.check(a.to(D) @ x, b, n)

    @parametrize("shape", [*SHAPES, (40, 7), (2, 7, 40), (0, 3), (2, 0, 0), (2, 301, 45), (21, 6, 11)])
    @parametrize("dtype", DTYPES)
    def test_lu(self, shape, dtype):
        torch.manual_seed(1)
        a = torch.randn(shape, dtype=dtype)
        with no_fallback():
            p, low, up = torch.linalg.lu(a.to(D))
            lu, pivots = torch.linalg.lu_factor(a.to(D))
            unpacked = torch.lu_unpack(lu, pivots)
        if a.numel():
            self.check(p @ low @ up, a, max(shape))
            self.assertLessEqual(low.abs().max().item(), 1.5)  # |re| + |im| chose the pivots
        for x, y in zip((p, low, up), unpacked, strict=True):
            self.assertEqual(x, y, rtol=0, atol=0)

    @parametrize("shape", SHAPES)
    @parametrize("dtype", DTYPES)
    def test_solve(self, shape, dtype):
        torch.manual_seed(2)
        n, a = shape[-1], matrices(shape, dtype)
        for view, left in itertools.product((a, a.mT.contiguous().mT, a.conj()), (True, False)):
            b = torch.randn(*shape[:-2], *((n, 3) if left else (3, n)), dtype=dtype)
            m = view.to(D)
            with no_fallback():
                x = torch.linalg.solve(m, b.to(D), left=left)
            self.check(m @ x if left else x @ m, b, n)
        lu, pivots = torch.linalg.lu_factor(a.to(D))
        b = torch.randn(*shape[:-1], 2, dtype=dtype)
        with no_fallback():
            self.check(a.to(D).mH @ torch.linalg.lu_solve(lu, pivots, b.to(D), adjoint=True), b, n)
            self.check(torch.linalg.inv(a.to(D)) @ a.to(D), torch.eye(n, dtype=dtype).expand(shape), n)
            small = a.to(D) / (3 * n**0.5)
            self.check(torch.linalg.det(small), torch.linalg.det(small.cpu()), n)
            sign, log = torch.linalg.slogdet(a.to(D))
        self.check(sign, torch.linalg.slogdet(a)[0], n)
        self.check(log, torch.linalg.slogdet(a)[1], n)

    @parametrize("dtype", DTYPES)
    def test_triangular(self, dtype):
        torch.manual_seed(3)
        a = matrices((2, 1, 50, 50), dtype) / 20
        for upper, left, unit in itertools.product((False, True), repeat=3):
            b = torch.randn(*((3, 50, 4) if left else (3, 4, 50)), dtype=dtype)
            factor = a.triu(int(unit)) if upper else a.tril(-int(unit))
            if unit:  # must be small, or the numbers grow as 2 ** n
                factor = factor / 10 + torch.eye(50, dtype=dtype)
            given = factor + (torch.ones_like(a).tril(-1) if upper else torch.ones_like(a).triu(1))
            for m in (given.to(D), given.to(D).mT.contiguous().mT):
                with no_fallback():
                    x = torch.linalg.solve_triangular(m, b.to(D), upper=upper, left=left, unitriangular=unit)
                f = factor.to(D)
                self.check(f @ x if left else x @ f, b.expand(2, *b.shape), 50)
        b, low = torch.randn(50, 4, dtype=dtype), a[0, 0].tril()
        with no_fallback():
            x = torch.triangular_solve(b.to(D), low.to(D), upper=False, transpose=True).solution
        self.check(low.to(D).mT @ x, b, 50)

    def test_errors(self):
        bad = torch.eye(40, device=D)
        bad[36, 36] = -1
        with self.assertRaisesRegex(torch.linalg.LinAlgError, "leading minor of order 37 is not positive-definite"):
            torch.linalg.cholesky(bad)
        bad[36, 36] = 0
        with self.assertRaisesRegex(RuntimeError, r"U\[37,37\] is zero"):
            torch.linalg.lu_factor(bad)
        with self.assertRaisesRegex(torch.linalg.LinAlgError, "singular"):
            torch.linalg.solve(bad, bad)
        self.assertEqual(torch.linalg.cholesky_ex(bad).info.item(), 37)
        self.assertEqual(torch.linalg.det(bad).item(), 0)
        with self.assertRaisesRegex(RuntimeError, "[Ll]ow precision|not implemented"):
            torch.linalg.solve_triangular(bad.half(), bad.half(), upper=True)

    @parametrize("n", [3, 8, 12, 30, 75])
    def test_info_of_a_batch(self, n):
        """Each matrix of a batch has its own code: the first step that fails."""
        torch.manual_seed(5)
        a = matrices((20, n, n), torch.float32)
        spd = a @ a.mT
        for i in range(0, 20, 3):
            spd[i, i % n, i % n] = -1
            a[i, :, i % n] = 0
        a[1] = spd[1, 0, 0] = 0
        self.assertEqual(torch.linalg.cholesky_ex(spd.to(D)).info.cpu(), torch.linalg.cholesky_ex(spd).info)
        got, expected = torch.linalg.lu_factor_ex(a.to(D)), torch.linalg.lu_factor_ex(a)
        self.assertEqual(got.info.cpu(), expected.info)
        self.assertEqual(got.pivots.cpu(), expected.pivots)
        self.check(got.LU, expected.LU, n)

    @parametrize("shape", [(7, 5, 5), (2, 20, 20), (90, 60)])
    @parametrize("dtype", DTYPES)
    def test_pivots(self, shape, dtype):
        """As LAPACK, the first of the largest elements, which small integers have many of; and without pivoting."""
        torch.manual_seed(6)
        a = torch.randint(-2, 3, shape).to(dtype)
        a[..., 0] = 2 * torch.randint(0, 2, shape[:-1]).to(dtype) - 1
        got, expected = torch.linalg.lu_factor_ex(a.to(D)), torch.linalg.lu_factor_ex(a)
        self.assertEqual(got.pivots.cpu()[..., :3], expected.pivots[..., :3])
        if shape[-1] == shape[-2]:
            a = matrices(shape, dtype)
            low, up = torch.linalg.lu(a.to(D), pivot=False)[1:]
            self.check(low @ up, a, 4 * shape[-1])

    @parametrize("n", [4, 20, 70])
    def test_nan(self, n):
        """A NaN spreads to what depends on it, and to no other matrix of the batch."""
        torch.manual_seed(7)
        a = matrices((18, n, n), torch.float32)
        a = a @ a.mT
        spoilt = a.clone()
        spoilt[5, n - 2, 0] = spoilt[5, 0, n - 2] = float("nan")
        for f in (torch.linalg.cholesky_ex, torch.linalg.lu_factor_ex):
            with no_fallback():  # LAPACK leaves what comes after the step that fails as it was
                clean, got = f(a.to(D)), f(spoilt.to(D))
            others = torch.arange(18) != 5
            self.assertEqual(got[0].cpu()[others], clean[0].cpu()[others], rtol=0, atol=0)
            self.assertTrue(got[0][5, n - 1, n - 1].isnan().item())
        self.assertEqual(torch.linalg.cholesky_ex(spoilt.to(D)).info[5].item(), n - 1)

    def test_pivots_that_are_no_rows(self):
        lu, good = torch.linalg.lu_factor(torch.randn(3, 3, device=D))
        for wrong in (0, 4, -1000000, 1000000):
            pivots = good.clone()
            pivots[1] = wrong
            calls = (
                lambda p: torch.linalg.lu_solve(lu, p, torch.eye(3, device=D)),
                lambda p: torch.linalg.lu_solve(lu, p, torch.eye(3, device=D), adjoint=True),
                lambda p: torch.lu_unpack(lu, p),
            )
            for call in calls:
                with self.assertRaisesRegex(RuntimeError, "between 1 and LU.size"):
                    call(pivots)
                    torch.netcl.synchronize()
                call(good)  # the device still works
                torch.netcl.synchronize()

    def test_gradients(self):
        torch.manual_seed(4)
        a = matrices((2, 6, 6), torch.float32)
        grads = []
        for device in ("cpu", D):
            x = a.clone().to(device).requires_grad_()
            low = torch.linalg.cholesky(x @ x.mT)
            (torch.linalg.slogdet(x)[1].sum() + torch.linalg.solve(x, low).square().sum()).backward()
            grads.append(x.grad.cpu())
        self.assertEqual(grads[1], grads[0], rtol=1e-4, atol=1e-5)


instantiate_parametrized_tests(TestFactorizations)

if __name__ == "__main__":
    run_tests()
