"""softmax and log_softmax, forward and backward, against the CPU."""

import torch
import torch.nn.functional as F
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl  # noqa: F401

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
# Rows shorter than, as long as and longer than a vector of 16; a long row; a dimension that is not the last.
SHAPES = [
    ((5, 7), -1),
    ((3, 16), 1),
    ((2, 3, 33), -1),
    ((3, 1000), -1),
    ((4, 5, 6), 1),
    ((6, 20), 0),
    ((2, 9, 3, 40), 1),
    ((1,), 0),
]


class TestSoftmax(TestCase):
    def check(self, device, dtype, f, shape, dim):
        x = make_tensor(shape, device=device, dtype=dtype, low=-8, high=8, requires_grad=True)
        y = f(x, dim)
        self.assertEqual(y.dtype, dtype)
        ref_x = x.detach().cpu().double().requires_grad_()
        ref = f(ref_x, dim)
        self.assertEqual(y.cpu(), ref.to(dtype))
        g = make_tensor(shape, device=device, dtype=dtype, low=-1, high=1)
        y.backward(g)
        ref.backward(g.cpu().double())
        # The backward pass starts from the rounded result: one rounding (eps of the dtype) of y changes the gradient by
        # at most eps * (|g| + |sum|), with |sum| <= n |g| for log_softmax.
        eps = torch.finfo(dtype).eps
        slack = eps * (2 + shape[dim]) if f is F.log_softmax else 4 * eps
        self.assertEqual(x.grad.cpu(), ref_x.grad.to(dtype), atol=max(slack, 1e-5), rtol=max(4 * eps, 1e-5))

    @dtypes(*FLOATS)
    def test_softmax(self, device, dtype):
        for shape, dim in SHAPES:
            with self.subTest(shape=shape, dim=dim):
                self.check(device, dtype, F.softmax, shape, dim)

    @dtypes(*FLOATS)
    def test_log_softmax(self, device, dtype):
        for shape, dim in SHAPES:
            with self.subTest(shape=shape, dim=dim):
                self.check(device, dtype, F.log_softmax, shape, dim)

    def test_rows_larger_than_the_cache(self, device):
        # Results of 32 MiB and more may be stored past the cache, if whole vectors are aligned; the exponentials of a
        # row do and do not fit local memory. A few rows are compared with the CPU, the others by their sums.
        for dtype, shape in (
            (torch.float32, (8400, 1024)),
            (torch.bfloat16, (16800, 1040)),
            (torch.float16, (16800, 1024)),
            (torch.float32, (9000, 1000)),
            (torch.float32, (130, 70000)),
        ):
            with self.subTest(dtype=dtype, shape=shape):
                x = torch.randn(shape, device=device, dtype=dtype)
                x[3, 5] = float("nan")
                x[4] = -float("inf")
                some = torch.tensor([0, 3, 4, shape[0] // 2, shape[0] - 1])
                for f in (F.softmax, F.log_softmax):
                    y = f(x, 1)
                    self.assertEqual(y[some].cpu(), f(x[some].cpu().double(), 1).to(dtype))
                    self.assertEqual(y.isnan().any(1).sum().item(), 2)
                    grad = torch.randn_like(x)
                    back = torch.ops.aten._softmax_backward_data if f is F.softmax else torch._log_softmax_backward_data
                    got = back(grad, y, 1, dtype)
                    expected = back(grad[some].cpu().double(), y[some].cpu().double(), 1, torch.float64)
                    # A term of the sum over n elements is below 5, so its error is at most eps32 * 5: 1e-6 * sqrt(n).
                    self.assertEqual(got[some].cpu(), expected.to(dtype), atol=2e-4, rtol=2 * torch.finfo(dtype).eps)
                    self.assertEqual(got.isnan().any(1).sum().item(), 2)

    def test_double(self, device):
        self.check(device, torch.float64, F.softmax, (3, 20), -1)
        self.check(device, torch.float64, F.log_softmax, (3, 4, 5), 1)

    def test_special_values(self, device):
        inf, nan = float("inf"), float("nan")
        x = torch.tensor(
            [
                [-inf] * 20,
                [inf] + [0.0] * 19,
                [nan] + [1.0] * 19,
                [-inf] + [2.0] * 19,
                [1e30, -1e30] + [0.0] * 18,
            ]
        )
        for f in (F.softmax, F.log_softmax):
            for dim in (0, 1):
                self.assertEqual(f(x.to(device), dim).cpu(), f(x, dim))
        # Also beyond the last full vector.
        x = torch.randn(4, 19)
        x[1, 18] = nan
        x[2] = -inf
        x.view(torch.int32)[3, 2] = 0x7FC001FF  # a NaN with some low bits set
        self.assertEqual(F.softmax(x.to(device), 1).cpu(), F.softmax(x, 1))
        # Many rows: each is followed by others, whose first elements share its last vector.
        for n in (5, 19, 50):
            x = torch.randn(70, n)
            x[3::7, n - 1] = nan
            x[4::7] = -inf
            x[5::7, 0] = inf
            x[6::7, ::2] = -inf
            for f in (F.softmax, F.log_softmax):
                a, b = x.to(device).requires_grad_(), x.clone().requires_grad_()
                got, want = f(a, 1), f(b, 1)
                self.assertEqual(got, want, exact_device=False)
                got.backward(torch.ones_like(got))
                want.backward(torch.ones_like(want))
                self.assertEqual(a.grad.cpu(), b.grad)

    def test_shapes_without_elements_or_dimensions(self, device):
        for shape, dim in (((0, 3), 1), ((3, 0), 1), ((3, 0), 0)):
            self.assertEqual(F.softmax(torch.empty(shape, device=device), dim).shape, shape)
        x = torch.tensor(3.0, device=device, requires_grad=True)
        y = F.softmax(x, 0)
        self.assertEqual(y.cpu(), torch.tensor(1.0))
        y.backward()
        self.assertEqual(x.grad.cpu(), torch.tensor(0.0))
        with self.assertRaises(IndexError):
            F.softmax(x, 2)

    def test_strides_and_offsets(self, device):
        base = torch.randn(6, 40)
        x = base.to(device)
        for view in (
            lambda t: t.t(),
            lambda t: t[1:, 3:],
            lambda t: t[:, ::3],
            lambda t: t[2:3].expand(5, 40),
        ):
            for dim in (0, 1):
                self.assertEqual(F.softmax(view(x), dim).cpu(), F.softmax(view(base), dim))
        out = torch.empty(40, 6, device=device).t()
        torch.softmax(x, 1, out=out)
        self.assertEqual(out.cpu(), base.softmax(1))

    def test_half_to_float(self, device):
        x = torch.randn(4, 50).half()
        for f in (F.softmax, F.log_softmax):
            y = x.to(device).requires_grad_()
            out = f(y, -1, dtype=torch.float32)
            ref_x = x.clone().requires_grad_()
            ref = f(ref_x, -1, dtype=torch.float32)
            self.assertEqual(out.dtype, torch.float32)
            self.assertEqual(out.cpu(), ref)
            g = torch.randn(4, 50)
            out.backward(g.to(device))
            ref.backward(g)
            self.assertEqual(y.grad.cpu(), ref_x.grad)
        out = torch._softmax(x.to(device), -1, True)
        self.assertEqual(out.dtype, torch.float32)
        self.assertEqual(out.cpu(), x.float().softmax(-1))
        g = torch.randn(4, 50).to(device)
        gin = torch._softmax_backward_data(g, out, -1, torch.float16)
        self.assertEqual(gin.dtype, torch.float16)
        ref = torch._softmax_backward_data(g.cpu(), out.cpu(), -1, torch.float32).half()
        self.assertEqual(gin.cpu(), ref)

    def test_long_rows(self, device):
        x = torch.randn(3, 50257)
        # A sum of n terms of one sign in 16 chains of float32: the relative error is at most n / 16 * 2^-24 = 2e-4,
        # typically its square root, 3e-6.
        self.assertEqual(F.softmax(x.to(device), -1).cpu(), F.softmax(x.double(), -1).float(), rtol=1e-5, atol=1e-9)
        self.assertEqual(F.log_softmax(x.to(device), -1).cpu(), F.log_softmax(x.double(), -1).float())

    def test_integers_are_refused(self, device):
        with self.assertRaisesRegex(NotImplementedError, "_softmax.*Long"):
            torch.arange(4, device=device).softmax(0)

    def test_gradgrad(self, device):
        x = torch.randn(3, 5, dtype=torch.float64, device=device, requires_grad=True)
        torch.autograd.gradgradcheck(lambda t: F.log_softmax(t, 1), (x,))

    def test_masked(self, device):
        x = torch.randn(2, 3, 4, 4)
        full = torch.rand(2, 3, 4, 4) > 0.6
        masks = [(torch.rand(4, 4) > 0.6, 0), (torch.rand(2, 4) > 0.6, 1)]
        masks += [(full, kind) for kind in (0, 1, None, 2)]
        for mask, kind in masks:
            mask[..., 0] = False  # each row keeps at least one element
            for dim in (None, 3, 1):
                got = torch._masked_softmax(x.to(device), mask.to(device), dim, kind)
                expected = torch._masked_softmax(x, mask, dim, kind)
                self.assertEqual(got.cpu(), expected)
        full = torch.ones(2, 3, 4, 4, dtype=torch.bool)
        self.assertEqual(
            torch._masked_softmax(x.to(device), full.to(device), 3, 2).cpu(), torch._masked_softmax(x, full, 3, 2)
        )
        g = torch.randn_like(x)
        got = torch.ops.aten._masked_softmax_backward(g.to(device), expected.to(device), mask.to(device), 3)
        self.assertEqual(got.cpu(), torch.ops.aten._masked_softmax_backward(g, expected, mask, 3))
        with self.assertRaisesRegex(RuntimeError, "Mask should be a boolean tensor"):
            torch._masked_softmax(x.to(device), x.to(device), 3, 2)
        with self.assertRaisesRegex(RuntimeError, "Mask shape should match input"):
            torch._masked_softmax(x.to(device), masks[0][0].to(device), 3, 2)

    @dtypes(torch.float32, torch.bfloat16)
    def test_row_lengths(self, device, dtype):
        """On GPUs: one, some or all work-items of a group for a row; rows in vectors or not, and beyond registers. On
        CPUs: rows that are transposed, in whole vectors or not, and rows that share a vector with the next."""
        for n, rows in ((3, 70), (21, 37), (32, 16), (58, 99), (64, 33), (100, 9), (770, 5), (4096, 2), (8196, 2)):
            for shift in (0, 1):  # rows that begin at a vector, and rows that do not
                x = torch.randn(rows * n + shift, dtype=torch.float32).to(dtype)
                x[5] = -float("inf")
                a = x.to(device)[shift:].view(rows, n).detach().requires_grad_()
                b = x[shift:].view(rows, n).float().requires_grad_()
                for f in (torch.softmax, torch.log_softmax):
                    got, expected = f(a, 1), f(b, 1)
                    weight = torch.linspace(-1, 1, n).to(dtype)
                    grads = [torch.autograd.grad(got, a, weight.to(device).expand(rows, n))[0]]
                    grads += [torch.autograd.grad(expected, b, weight.float().expand(rows, n))[0]]
                    # bfloat16: the gradient uses the output's rounded values.
                    tolerance = dict(atol=2e-5, rtol=2e-5) if dtype == torch.float32 else dict(atol=3e-2, rtol=2e-2)
                    self.assertEqual(got.cpu().float(), expected, **tolerance)
                    self.assertEqual(grads[0].cpu().float(), grads[1], **tolerance)

    def test_no_fallback(self, device):
        x = torch.randn(4, 8).to(device).requires_grad_()
        torch.netcl.reset_cpu_fallback_ops()
        F.log_softmax(x, -1).backward(x.detach())
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})


instantiate_device_type_tests(TestSoftmax, globals(), only_for="netcl")

if __name__ == "__main__":
    run_tests()
