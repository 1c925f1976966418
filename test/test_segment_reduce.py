"""torch.segment_reduce against the CPU: lengths and offsets, all reductions, gradients."""

import torch
from common import no_fallback
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl  # noqa: F401


class TestSegmentReduce(TestCase):
    def check(self, device, x, reduce, tolerance, **segments):
        a, b = x.to(device).requires_grad_(), x.clone().requires_grad_()
        kwargs = {k: v.to(device) if torch.is_tensor(v) else v for k, v in segments.items()}
        with no_fallback():
            y = torch.segment_reduce(a, reduce, **kwargs)
        expected = torch.segment_reduce(b, reduce, **segments)
        self.assertEqual(y.detach().cpu(), expected.detach(), **tolerance)
        g = torch.randn_like(expected)
        with no_fallback():
            y.backward(g.to(device))
        expected.backward(g)
        self.assertEqual(a.grad.cpu(), b.grad, **tolerance)

    @dtypes(torch.float32, torch.bfloat16)
    def test_against_cpu(self, device, dtype):
        x = torch.randn(9, 4, 3).to(dtype)
        x[1, 0] = 0  # a product without this element is needed
        x[3, 1, 1] = float("nan")
        x[7] = x[8]  # equal elements share a gradient
        lengths = torch.tensor([3, 0, 1, 5])
        offsets = torch.tensor([0, 3, 3, 4, 9], dtype=torch.int32)
        # Both round an intermediate result once or twice; the CPU adds in the dtype itself, up to 5 numbers.
        tolerance = {"atol": 8 * torch.finfo(dtype).eps, "rtol": 8 * torch.finfo(dtype).eps}
        for reduce in ("sum", "mean", "max", "min", "prod"):
            with self.subTest(reduce=reduce):
                self.check(device, x, reduce, tolerance, lengths=lengths)
                self.check(device, x, reduce, tolerance, lengths=lengths, initial=2.0)
                self.check(device, x, reduce, tolerance, offsets=offsets)
                self.check(device, x.mT, reduce, tolerance, lengths=torch.tensor([[1, 2]] * 9), axis=1)

    def test_lengths_that_do_not_fit(self, device):
        x = torch.ones(4, device=device)
        with self.assertRaises(RuntimeError):
            torch.segment_reduce(x, "sum", lengths=torch.tensor([3, 3], device=device))
        # Unchecked lengths are clamped to the data.
        y = torch.segment_reduce(x, "sum", lengths=torch.tensor([3, 1 << 40], device=device), unsafe=True)
        self.assertEqual(y.cpu(), torch.tensor([3.0, 1.0]))


instantiate_device_type_tests(TestSegmentReduce, globals(), only_for="netcl")

if __name__ == "__main__":
    run_tests()
