"""QR, SVD, eigh, least squares, LDL and matrix_exp: factors, values, errors, gradients."""

import itertools

import torch
from common import no_fallback
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

D = torch.device("netcl", 0)
DTYPES = [torch.float32, torch.complex64]
if torch.netcl.get_device_properties().has_fp64:
    DTYPES += [torch.float64, torch.complex128]
# One kernel, panels and rounds; batches; nothing.
SHAPES = [(1, 1), (5, 5), (2, 7, 4), (3, 2, 4, 9), (33, 33), (100, 40), (40, 150), (70, 70), (0, 3), (3, 0), (2, 0, 0)]
SQUARES = [(1, 1), (5, 5), (2, 33, 33), (2, 1, 68, 68), (2, 0, 0)]
# What singular values and eigenvalues depend on.
KINDS = ["random", "tiny", "huge", "rank 1", "zero", "graded", "repeated"]


def matrices(shape, dtype, kind="random"):
    """Matrices of a kind, and a bound of their largest singular value."""
    m, n = shape[-2:]
    a = torch.randn(shape, dtype=dtype)
    if kind == "tiny":
        a = a * 1e-30
    elif kind == "huge":
        a = a * 1e30
    elif kind == "rank 1" and a.numel():
        a = a[..., :, :1] @ a[..., :1, :]
    elif kind == "zero":
        a = a * 0
    elif kind == "graded":
        a = a * torch.logspace(0, -12, n).to(dtype)
    elif kind == "repeated":
        a = torch.eye(m, n, dtype=dtype).expand(shape).clone()
    wide = a.to(torch.complex128)
    return a, (torch.linalg.matrix_norm(wide).max().item() if a.numel() else 0) or 1.0


class TestDecompositions(TestCase):
    def check(self, got, expected, n, scale=1.0):
        """LAPACK's bounds: a modest multiple of n eps, relative to the norm of the matrix."""
        self.assertEqual(got.shape, expected.shape)
        got, expected = got.cpu() / scale, expected.cpu() / scale
        self.assertEqual(got, expected, rtol=0, atol=10 * (n + 4) * torch.finfo(got.dtype).eps)

    def check_unitary(self, q, n):
        self.check(q.mH @ q, torch.eye(q.shape[-1], dtype=q.dtype).expand(*q.shape[:-2], -1, -1), n)

    def test_qr_of_columns_that_vanish(self):
        """The rest of a rank-one matrix is rounding, which shrinks from column to column until it is denormal."""
        for dtype in (torch.float32, torch.complex64):
            a = torch.ones(44, 40, device=D, dtype=dtype)
            q, r = torch.linalg.qr(a, mode="complete")
            self.assertEqual((q @ r).cpu(), a.cpu())
            self.assertEqual((q.mH @ q).cpu(), torch.eye(44, dtype=dtype))
            self.assertEqual(torch.linalg.svd(a).S[0].item(), (44 * 40) ** 0.5, rtol=1e-5, atol=0)

    @parametrize("shape", SHAPES)
    @parametrize("dtype", DTYPES)
    def test_qr(self, shape, dtype):
        torch.manual_seed(0)
        n = max(shape[-2:])
        for kind, mode in itertools.product(("random", "tiny", "huge", "rank 1", "zero"), ("reduced", "complete", "r")):
            a, scale = matrices(shape, dtype, kind)
            with no_fallback():
                q, r = torch.linalg.qr(a.mT.contiguous().to(D).mT, mode=mode)
            expected = torch.linalg.qr(a, mode=mode)
            self.assertEqual((q.shape, r.shape), (expected.Q.shape, expected.R.shape))
            self.assertEqual(r, r.triu(), rtol=0, atol=0)
            if kind not in ("rank 1", "zero"):  # otherwise R is not determined beyond its first row
                self.check(r, expected.R, n, scale)
            if mode != "r":
                self.check_unitary(q, n)
                self.check(q @ (r / scale), a / scale, n)

    @parametrize("shape", [(5, 5), (2, 9, 4), (2, 4, 9), (90, 70)])
    @parametrize("dtype", DTYPES)
    def test_reflectors(self, shape, dtype):
        torch.manual_seed(1)
        m, n = shape[-2:]
        a, _ = matrices(shape, dtype)
        with no_fallback():
            v, tau = torch.geqrf(a.to(D))
        for left, adjoint in itertools.product((True, False), repeat=2):
            c = torch.randn(*shape[:-2], *((m, 40) if left else (40, m)), dtype=dtype)
            with no_fallback():
                got = torch.ormqr(v, tau, c.to(D), left, adjoint)
            self.check(got, torch.ormqr(v.cpu(), tau.cpu(), c, left, adjoint), m, 4.0)
        if m >= n:
            with no_fallback():
                q = torch.linalg.householder_product(v, tau[..., : n - 1])
            self.check(q, torch.linalg.householder_product(v.cpu(), tau.cpu()[..., : n - 1]), m)

    @parametrize("shape", SHAPES)
    @parametrize("dtype", DTYPES)
    def test_svd(self, shape, dtype):
        torch.manual_seed(2)
        n, k = max(shape[-2:]), min(shape[-2:])
        for kind, full in itertools.product(KINDS, (False, True)):
            a, scale = matrices(shape, dtype, kind)
            with no_fallback():
                u, s, vh = torch.linalg.svd(a.to(D), full_matrices=full)
                values = torch.linalg.svdvals(a.to(D))
            expected = torch.linalg.svd(a, full_matrices=full)
            self.assertEqual((u.shape, vh.shape), (expected.U.shape, expected.Vh.shape))
            self.check_unitary(u, n)
            self.check_unitary(vh.mH, n)
            self.check(s, expected.S, n, scale)
            self.check(values, expected.S, n, scale)
            self.check((u[..., :k] * (s / scale).unsqueeze(-2)) @ vh[..., :k, :], a / scale, n)
            self.assertTrue((s[..., 1:] <= s[..., :-1]).all().item())

    def test_small_singular_values_keep_their_digits(self):
        """The Jacobi method finds the values of graded columns to relative accuracy; LAPACK's would be off by eps."""
        d = torch.tensor([1.0, 1e-5, 1e-10, 1e-15])
        self.assertEqual(torch.linalg.svdvals(torch.diag(d).to(D)), d, rtol=1e-6, atol=0)
        self.assertEqual(torch.linalg.eigvalsh(torch.diag(d).to(D)), d.flip(0), rtol=1e-6, atol=0)

    def test_rotations_keep_lengths(self):
        """Thousands of rotations make no column longer. Their errors have either sign, so a few eps are left."""
        for n in (50, 64) if torch.netcl.get_device_properties().device_class == "cpu" else (64, 200):
            for dtype in (torch.float32, torch.complex64):
                a = torch.randn(n, n, dtype=dtype)
                wide = torch.linalg.svdvals(a.to(torch.complex128))
                with no_fallback():
                    u, s, vh = torch.linalg.svd(a.to(D))
                eps = torch.finfo(dtype).eps
                self.assertLess((s.cpu() - wide).abs().max().item(), 8 * eps * wide[0].item())
                for q in (u.cpu(), vh.mH.cpu()):
                    lengths = torch.linalg.vector_norm(q.to(torch.complex128), dim=0)
                    self.assertLess((lengths - 1).abs().max().item(), 8 * eps)

    @parametrize("shape", SQUARES)
    @parametrize("dtype", DTYPES)
    def test_eigh(self, shape, dtype):
        torch.manual_seed(3)
        n = shape[-1]
        for kind, uplo in itertools.product(KINDS, "UL"):
            a, _ = matrices(shape, dtype, kind)
            a = (a + a.mH) / 2
            scale = (torch.linalg.matrix_norm(a.to(torch.complex128)).max().item() if a.numel() else 0) or 1.0
            given = a.to(D) + (torch.ones_like(a).tril(-1) if uplo == "U" else torch.ones_like(a).triu(1)).to(D)
            with no_fallback():
                values, v = torch.linalg.eigh(given, UPLO=uplo)
                alone = torch.linalg.eigvalsh(given, UPLO=uplo)
            self.check(values, torch.linalg.eigvalsh(a), n, scale)
            self.check(alone, values, n, scale)
            self.check_unitary(v, n)
            self.check((v * (values / scale).unsqueeze(-2)) @ v.mH, a / scale, n)

    @parametrize("batch", [(), (2, 3)])
    @parametrize("dtype", DTYPES)
    def test_lstsq(self, batch, dtype):
        torch.manual_seed(4)
        drivers = (None, "gels", "gelsy", "gelsd", "gelss")
        for (m, n), driver in itertools.product(((5, 5), (7, 4), (4, 7), (100, 40)), drivers):
            a = torch.randn(*batch, m, n, dtype=dtype) + 3 * torch.eye(m, n, dtype=dtype)
            for b in (torch.randn(*batch, m, 3, dtype=dtype), torch.randn(*batch, m, dtype=dtype)):
                with no_fallback():
                    got = torch.linalg.lstsq(a.to(D), b.to(D), driver=driver)
                expected = torch.linalg.lstsq(a, b, driver=driver)
                for x, y in zip(got, expected, strict=True):  # the condition of these matrices is about 10
                    self.assertEqual(x.dtype, y.dtype)
                    if y.dtype == torch.int64:
                        self.assertEqual(x, y)
                    else:
                        self.check(x, y, 100, 10.0)
        a = torch.randn(9, 2, dtype=dtype) @ torch.randn(2, 6, dtype=dtype)
        b = torch.randn(9, 2, dtype=dtype)
        got, expected = torch.linalg.lstsq(a.to(D), b.to(D)), torch.linalg.lstsq(a, b)
        self.assertEqual(got.rank.item(), 2)
        self.check(got.solution, expected.solution, 20, 10.0)
        with self.assertRaisesRegex(RuntimeError, "should be one of"):
            torch.linalg.lstsq(a.to(D), b.to(D), driver="other")

    def test_lstsq_of_batches_that_are_expanded(self):
        for (left, right), driver in itertools.product(
            (((1,), (2,)), ((2,), (1,)), ((2, 1), (1, 3)), ((1, 1), (2, 3))), (None, "gels", "gelsy", "gelss")
        ):
            with self.subTest(left=left, right=right, driver=driver):
                a, b = torch.randn(*left, 5, 3), torch.randn(*right, 5, 2)
                with no_fallback():
                    got = torch.linalg.lstsq(a.to(D), b.to(D), driver=driver)
                self.assertEqual([t.cpu() for t in got], list(torch.linalg.lstsq(a, b, driver=driver)))

    def test_lstsq_of_empty_matrices(self):
        drivers = (None, "gels", "gelsy", "gelss")
        for (m, n, k), batch, driver in itertools.product(
            ((0, 3, 2), (3, 0, 2), (3, 2, 0), (0, 0, 2), (0, 3, 0), (2, 2, 0)), ((), (2,), (0,)), drivers
        ):
            with self.subTest(m=m, n=n, k=k, batch=batch, driver=driver), no_fallback():
                freed = [torch.full(batch, 77, device=D) for _ in range(8)]  # a rank that nothing writes would show it
                del freed
                got = torch.linalg.lstsq(torch.ones(*batch, m, n).to(D), torch.ones(*batch, m, k).to(D), driver=driver)
                self.assertEqual(got.solution.cpu(), torch.zeros(*batch, n, k))
                if driver != "gels":
                    self.assertEqual(got.rank.cpu(), torch.zeros(batch, dtype=torch.int64))

    @parametrize("shape", SQUARES)
    @parametrize("dtype", DTYPES)
    def test_ldl(self, shape, dtype):
        torch.manual_seed(5)
        n = shape[-1]
        for hermitian in (False, True):
            a, _ = matrices(shape, dtype)
            a = a + (a.mH if hermitian else a.mT)
            b = torch.randn(*shape[:-1], 3, dtype=dtype)
            with no_fallback():
                ld, pivots = torch.linalg.ldl_factor(a.to(D), hermitian=hermitian)
                x = torch.linalg.ldl_solve(ld, pivots, b.to(D), hermitian=hermitian).cpu()
            expected = torch.linalg.ldl_factor(a, hermitian=hermitian)
            self.assertEqual(pivots, expected.pivots)
            self.check(ld, expected.LD, n, 4.0 * max(n, 1))
            if a.numel():
                self.check(a @ x, b, n, (a.abs().max() * x.abs().max()).item())

    def test_ldl_pivots_that_are_no_rows(self):
        ld, good = torch.linalg.ldl_factor(torch.eye(3, device=D))
        for wrong in (0, 4, -4, 1000000):
            pivots = good.clone()
            pivots[1] = wrong
            with self.assertRaisesRegex(RuntimeError, "must be rows of LD"):
                torch.linalg.ldl_solve(ld, pivots, torch.eye(3, device=D))
                torch.netcl.synchronize()

    @parametrize("shape", SQUARES)
    @parametrize("dtype", DTYPES)
    def test_matrix_exp(self, shape, dtype):
        torch.manual_seed(6)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        for size in (0.001, 1.0, 20.0):
            a = torch.randn(shape, dtype=dtype) * size / max(shape[-1], 1) ** 0.5
            with no_fallback():
                got = torch.linalg.matrix_exp(a.to(D))
            expected = torch.linalg.matrix_exp(a.to(wide)).to(dtype)
            # The condition of exp is up to the norm of A.
            scale = (expected.abs().max().item() if a.numel() else 1.0) * (1 + 2 * size)
            self.check(got, expected, shape[-1], scale)
        for bad in (float("nan"), float("inf")):
            for n in (3, 40):
                a = torch.zeros(2, n, n, dtype=dtype)
                a[1, 1, 1] = bad
                got = torch.linalg.matrix_exp(a.to(D)).cpu()
                self.assertEqual(got[0], torch.eye(n, dtype=dtype))
                self.assertTrue(got[1].isnan().all().item())
        x = torch.randn(5, 3, 4, dtype=dtype)
        c = torch.randn(2, 5, dtype=dtype)
        with no_fallback():
            got = torch._compute_linear_combination(x.to(D), c.to(D))
        self.check(got, torch.einsum("oc,cij->oij", c, x), 5, 10.0)  # the CPU takes real coefficients only

    @parametrize("n", [4, 70])
    def test_non_finite(self, n):
        a = torch.eye(n).repeat(2, 1, 1)
        a[1, n // 2, n // 2] = float("nan")
        with no_fallback():
            for call in (torch.linalg.svd, torch.linalg.svdvals, torch.linalg.pinv):
                with self.assertRaisesRegex(torch.linalg.LinAlgError, "Batch element 1.*non-finite"):
                    call(a.to(D))
            for call in (torch.linalg.eigh, torch.linalg.eigvalsh):
                with self.assertRaisesRegex(torch.linalg.LinAlgError, "Batch element 1.*failed to converge"):
                    call(a.to(D))
            a[1, n // 2, n // 2] = float("inf")
            self.assertTrue(torch.linalg.svdvals(a.to(D))[1].isnan().any().item())
            self.assertEqual(torch.linalg.svdvals(a[:1].to(D)), torch.ones(1, n))

    @parametrize("dtype", DTYPES[1:])
    def test_gradients(self, dtype):
        torch.manual_seed(7)

        def loss(x):
            q, r = torch.linalg.qr(x)
            u, s, vh = torch.linalg.svd(x, full_matrices=False)
            values, v = torch.linalg.eigh(x.mH @ x)
            total = (q @ r).abs().square().sum() + r.diagonal(0, -2, -1).abs().sum() + s.square().sum()
            total = total + (u.abs() * vh.abs()[..., :1, :]).sum() + values.log().sum() + v.abs().sum()
            total = total + torch.linalg.matrix_exp(x / 3).abs().sum()
            return total + torch.linalg.lstsq(x, x.mH).solution.abs().sum() + torch.linalg.pinv(x).abs().sum()

        a, grads = matrices((2, 5, 5), dtype)[0] + 3 * torch.eye(5, dtype=dtype), []
        for device in ("cpu", D):
            x = a.clone().to(device).requires_grad_()
            loss(x).backward()
            grads.append(x.grad.cpu())
        # The gaps between singular values divide the errors of the vectors' gradients: about 0.1 here.
        self.assertEqual(grads[1], grads[0], rtol=1000 * torch.finfo(dtype).eps, atol=1000 * torch.finfo(dtype).eps)

    @parametrize("dtype", DTYPES[2:])
    def test_gradcheck(self, dtype):
        """Numerical derivatives; of vectors, the magnitudes, since their phases are free."""
        torch.manual_seed(8)
        b = torch.randn(4, 2, dtype=dtype, device=D)

        def svd(x):
            u, s, vh = torch.linalg.svd(x, full_matrices=False)
            return u.abs(), s, vh.abs()

        def eigh(x):
            values, v = torch.linalg.eigh(x + x.mH)
            return values, v.abs()

        def least_squares(x, b):
            return torch.linalg.lstsq(x, b).solution

        tall, square = (matrices(shape, dtype)[0].to(D) for shape in ((4, 3), (3, 3)))
        cases = ((torch.linalg.qr, tall), (svd, tall), (eigh, square), (torch.linalg.matrix_exp, square),
                 (least_squares, tall, b))  # fmt: skip
        for function, *inputs in cases:
            with self.subTest(function.__name__), no_fallback():
                self.assertTrue(torch.autograd.gradcheck(function, [x.requires_grad_() for x in inputs]))

    def test_large_matrices_on_the_host(self):
        """A CPU device leaves a large matrix to LAPACK, unless that is forbidden; a GPU does not."""
        a = torch.randn(300, 300)
        a = a + a.mT + 100 * torch.eye(300)
        cases = (
            (torch.linalg.svdvals, "aten::_linalg_svd"),
            (torch.linalg.eigvalsh, "aten::_linalg_eigh"),
            (torch.linalg.cholesky, "aten::linalg_cholesky_ex"),
            (torch.linalg.inv, "aten::linalg_lu_factor_ex", "aten::linalg_lu_solve"),
            (lambda a: torch.linalg.solve_triangular(a, a, upper=False), "aten::triangular_solve"),
            (lambda a: torch.linalg.solve_triangular(a.mT, a, upper=True, left=False), "aten::triangular_solve"),
            (lambda a: torch.linalg.qr(a, "r").R, "aten::geqrf"),
            (lambda a: torch.linalg.qr(a[:, :100]).Q, "aten::geqrf", "aten::linalg_householder_product"),
            (lambda a: torch.ormqr(a, a[0] / 1000, a, transpose=True), "aten::ormqr"),
        )
        for call, *names in cases:
            torch.netcl.reset_cpu_fallback_ops()
            self.check(call(a.to(D)), call(a), 300, 300.0)
            on_host = torch.netcl.get_device_properties().device_class == "cpu"
            self.assertEqual(torch.netcl.cpu_fallback_ops(), dict.fromkeys(names, 1) if on_host else {})
        torch.netcl.reset_cpu_fallback_ops()


instantiate_parametrized_tests(TestDecompositions)

if __name__ == "__main__":
    run_tests()
