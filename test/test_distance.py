"""pdist and cdist against the CPU: all norms, gradients, rows of any length."""

import math

import torch
from common import no_fallback
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl  # noqa: F401

NORMS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf)
PLAIN = "donot_use_mm_for_euclid_dist"


class TestDistance(TestCase):
    def check(self, device, dtype, f, *inputs):
        ours = [x.to(device, dtype).requires_grad_() for x in inputs]
        theirs = [x.to(dtype).requires_grad_() for x in inputs]
        with no_fallback():
            y = f(*ours)
        expected = f(*theirs)
        # The sums have up to 300 terms, whose roundings add up in another order.
        self.assertEqual(y.detach().cpu(), expected.detach(), atol=1e-4, rtol=1e-5)
        g = torch.randn_like(expected)
        with no_fallback():
            gradients = torch.autograd.grad(y, ours, g.to(device))
        for a, b in zip(gradients, torch.autograd.grad(expected, theirs, g), strict=True):
            # For p < 1 and nearly equal coordinates, a term is a thousand times the sum.
            self.assertEqual(a.cpu(), b, atol=1e-3, rtol=1e-4)

    @dtypes(torch.float32, torch.float64)
    def test_against_cpu(self, device, dtype):
        for p in NORMS:
            for n, m in ((2, 1), (9, 3), (7, 6), (20, 16), (33, 19), (5, 300)):
                with self.subTest(p=p, n=n, m=m):
                    x, y = torch.randn(n, m), torch.randn(2, 1, n + 4, m)
                    x[-1] = x[0]  # a distance of 0
                    self.check(device, dtype, lambda x, p=p: torch.pdist(x, p), x)
                    self.check(device, dtype, lambda x, y, p=p: torch.cdist(x, y, p, PLAIN), torch.randn(3, n, m), y)

    def test_not_finite(self, device):
        x = torch.randn(12, 35)
        x[2, 0], x[5, 34], x[7, 20], x[8, 20] = math.nan, math.nan, math.inf, -math.inf
        for p in NORMS:
            self.assertEqual(torch.pdist(x.to(device), p).cpu(), torch.pdist(x, p), atol=1e-4, rtol=1e-5)

    def test_few(self, device):
        self.check(device, torch.float32, torch.pdist, torch.empty(3, 0))
        self.check(device, torch.float32, torch.pdist, torch.empty(1, 3))
        self.check(device, torch.float32, torch.cdist, torch.empty(2, 3, 0), torch.empty(2, 4, 0))
        self.check(device, torch.float32, lambda x, y: torch.cdist(x, y, 1.0), torch.randn(1, 5), torch.randn(70001, 5))


instantiate_device_type_tests(TestDistance, globals(), only_for="netcl")

if __name__ == "__main__":
    run_tests()
