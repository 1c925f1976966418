"""Numbers as arguments: those that the tensor's dtype rounds, which decides comparisons (half(0.1) == 0.1), and those
beyond the dtype, which CPU and CUDA refuse."""

import unittest

import torch
import torch.nn.functional as F
from common import DEVICE
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl  # noqa: F401


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestScalars(TestCase):
    def test_named(self):
        for dtype in (torch.float16, torch.bfloat16):
            x, number = torch.tensor([0.1, 0.7], dtype=dtype, device=DEVICE), torch.tensor(0.1, dtype=torch.float64)
            for other in (0.1, number):
                self.assertEqual((x == other).tolist(), [True, False])
                self.assertEqual((x != other).tolist(), [False, True])
                self.assertEqual(((x < other) | (x > other)).tolist(), [False, True])
                self.assertEqual(((x <= other) & (x >= other)).tolist(), [True, False])
                self.assertEqual((x % other)[0].item(), 0)
                self.assertEqual(torch.fmod(x, other)[0].item(), 0)
            self.assertEqual(torch.isin(x, 0.1).tolist(), [True, False])
            self.assertEqual(F.hardshrink(x, 0.1)[0].item(), 0)
            y = x.clone().requires_grad_()
            y.clamp(0.1, 0.7).sum().backward()
            self.assertEqual(y.grad.tolist(), [1, 1])

    def test_overflow_named(self):
        half, byte = torch.ones(3, dtype=torch.half, device=DEVICE), torch.ones(3, dtype=torch.int8, device=DEVICE)
        mask = half > 0
        calls = {
            "fill_": lambda: half.fill_(-1e9),
            "full": lambda: torch.full((2,), 300, dtype=torch.int8, device=DEVICE),
            "full_like": lambda: torch.full_like(half, 1e9),
            "new_full": lambda: half.new_full((2,), 1e9),
            "setitem": lambda: half.__setitem__(0, 1e9),
            "setitem of a mask": lambda: half.__setitem__(mask, 1e9),
            "masked_fill": lambda: half.masked_fill(mask, -1e9),
            "where": lambda: torch.where(mask, byte, 300),
            "pad": lambda: F.pad(byte, (1, 1), value=300),
            "fill_diagonal_": lambda: half.new_zeros(2, 2).fill_diagonal_(1e9),
            "index_fill": lambda: half.index_fill(0, torch.tensor([0], device=DEVICE), 1e9),
            "threshold": lambda: F.threshold(half, 0.5, 1e9),
            "addcmul": lambda: torch.addcmul(byte, byte, byte, value=300),
            "pow": lambda: byte.pow(300),
        }
        for name, function in calls.items():
            with self.subTest(name=name), self.assertRaisesRegex(RuntimeError, "without overflow"):
                function()
        self.assertEqual(half.fill_(float("-inf")).tolist(), [float("-inf")] * 3)


if __name__ == "__main__":
    run_tests()
