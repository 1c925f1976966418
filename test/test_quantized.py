"""Products with int8 and int4 weights, against float64 on the CPU."""

import unittest

import torch
from common import DEVICE, check_gpu_shape, no_fallback
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

import torch_netcl  # noqa: F401

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
# Rows of x: one, the steps of the kernels, and the most that they take. Other dtypes have programs of their own, but
# the same loops.
ROWS = (1, 2, 3, 4, 7, 16)


def rows(dtype):
    return ROWS if dtype == torch.float32 else (1, 7)


def int4(n, k, group, dtype):
    """Random numbers (n, k) from 0 to 15, as _convert_weight_to_int4pack takes them, scales and zeros, and the weight
    that they stand for."""
    q = torch.randint(16, (n, k))
    pairs = torch.stack([torch.rand(k // group, n) / 8, torch.randn(k // group, n)], 2).to(dtype)
    scale, zero = pairs.double().repeat_interleave(group, 0).unbind(2)
    return (q[:, ::2] << 4 | q[:, 1::2]).to(torch.uint8), pairs, (q - 8) * scale.T + zero.T


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestQuantized(TestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(2)

    def check(self, got, x, weight):
        """`got` is x @ weight.T. Sums of k products in float have an error of at most k float epsilons; the weight of
        many rows is rounded to the dtype, as are products and result."""
        eps = torch.finfo(got.dtype).eps
        want = x.double() @ weight.double().T
        size = (x.double().abs() @ weight.double().abs().T).max().item()
        self.assertEqual(got.dtype, x.dtype)
        atol = x.shape[1] ** 0.5 * 1.2e-7 * size + (2 * eps * size / max(x.shape[1], 1) ** 0.5 if eps > 1e-5 else 0)
        self.assertEqual(got.cpu().double(), want, atol=atol, rtol=2 * eps)

    def check_int8(self, dtype, m, n, k):
        x, w = torch.randn(m, k).to(dtype), torch.randint(-128, 128, (n, k), dtype=torch.int8)
        scales = torch.rand(n).to(dtype)
        with no_fallback():
            got = torch._weight_int8pack_mm(x.to(DEVICE), w.to(DEVICE), scales.to(DEVICE))
        self.check(got, x, w * scales.double()[:, None])

    def check_int4(self, dtype, m, n, k, group, tiles):
        x = torch.randn(m, k).to(dtype)
        packed, pairs, w = int4(n, k, group, dtype)
        with no_fallback():
            weight = torch._convert_weight_to_int4pack(packed.to(DEVICE), tiles)
            got = torch._weight_int4pack_mm(x.to(DEVICE), weight, group, pairs.to(DEVICE))
        self.assertEqual(weight.shape, (n // 8, k // (16 * tiles), 32, tiles // 2))
        self.assertEqual(weight.dtype, torch.int32)
        self.check(got, x, w)

    @parametrize("dtype", FLOATS)
    def test_int8(self, dtype):
        for m in rows(dtype):
            for n, k in ((5, 7), (64, 96), (33, 257)):
                self.check_int8(dtype, m, n, k)

    @parametrize("dtype", FLOATS)
    def test_int4(self, dtype):
        for m in rows(dtype):
            for n, k, group, tiles in ((8, 32, 32, 2), (64, 192, 64, 4), (40, 384, 128, 8), (24, 512, 256, 4)):
                self.check_int4(dtype, m, n, k, group, tiles)

    @parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_many_rows(self, dtype):
        """The weight is converted, and multiplied as any other."""
        for m in (17, 40):
            self.check_int8(dtype, m, 33, 257)
            for n, k, group in ((8, 96, 32), (40, 192, 64), (16, 384, 128), (24, 512, 256)):
                self.check_int4(dtype, m, n, k, group, 2)
        a, b = torch.randint(-128, 128, (40, 33), dtype=torch.int8), torch.randint(-128, 128, (33, 9), dtype=torch.int8)
        self.assertEqual(torch._int_mm(a.to(DEVICE), b.to(DEVICE)).cpu(), a.int() @ b.int())

    def test_int_mm(self):
        for m in (*ROWS, 0):
            for n, k in ((5, 7), (64, 96), (33, 257), (3, 0), (0, 4)):
                a = torch.randint(-128, 128, (m, k), dtype=torch.int8)
                b = torch.randint(-128, 128, (k, n), dtype=torch.int8)
                want = a.int() @ b.int()
                with no_fallback():
                    got = torch._int_mm(a.to(DEVICE), b.to(DEVICE))
                    turned = torch._int_mm(a.to(DEVICE), b.T.contiguous().to(DEVICE).T)
                    out = torch.empty(n, m, dtype=torch.int32, device=DEVICE).T
                    torch._int_mm(a.to(DEVICE), b.to(DEVICE), out=out)
                self.assertEqual([t.cpu() for t in (got, turned, out)], [want] * 3)

    def test_layouts(self):
        x, w = torch.randn(64, 6).T, torch.randint(-128, 128, (9, 64), dtype=torch.int8)
        scales = torch.rand(18)[::2]
        got = torch._weight_int8pack_mm(x.to(DEVICE), w.to(DEVICE), scales.to(DEVICE))
        self.check(got, x, w * scales.double()[:, None])
        x[2, 3] = torch.nan
        got = torch._weight_int8pack_mm(x.to(DEVICE), w.to(DEVICE), scales.to(DEVICE))
        self.assertEqual(got.isnan().any(1).tolist(), [False, False, True, False, False, False])
        self.assertTrue(got[2].isnan().all().item())

    @parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_int4_not_finite(self, dtype):
        """Infinity meets weights of both signs, numbers 0 among them, and a zero; NaN stays in its row."""
        packed, pairs, w = int4(16, 128, 64, dtype)
        for m in (1, 2, 7, 17):
            x = torch.randn(m, 128).to(dtype)
            x[0, 5] = torch.inf
            x[m // 2, 70] = torch.nan if m > 1 else -torch.inf
            weight = torch._convert_weight_to_int4pack(packed.to(DEVICE), 2)
            got = torch._weight_int4pack_mm(x.to(DEVICE), weight, 64, pairs.to(DEVICE)).cpu()
            want = x.double() @ w.T
            self.assertTrue(want[0].isinf().any() and len(want[0].sign().unique()) > 1)
            self.assertEqual(got.isnan(), want.isnan())
            self.assertEqual(torch.where(got.isinf(), got.double(), 0), torch.where(want.isinf(), want, 0))

    def test_empty(self):
        w, scales = torch.ones(4, 8, dtype=torch.int8, device=DEVICE), torch.ones(4, device=DEVICE)
        self.assertEqual(torch._weight_int8pack_mm(torch.ones(0, 8, device=DEVICE), w, scales).shape, (0, 4))
        none = torch._weight_int8pack_mm(torch.ones(2, 0, device=DEVICE), w[:, :0].contiguous(), scales)
        self.assertEqual(none.tolist(), [[0.0] * 4] * 2)

    def test_errors(self):
        x, w = torch.ones(2, 64, device=DEVICE), torch.ones(8, 64, dtype=torch.int8, device=DEVICE)
        scales = torch.ones(8, device=DEVICE)
        packed = torch._convert_weight_to_int4pack(torch.zeros(8, 32, dtype=torch.uint8, device=DEVICE), 2)
        pairs = torch.ones(2, 8, 2, device=DEVICE)
        for call, text in (
            (lambda: torch._weight_int8pack_mm(x.double(), w, scales), "either 32-bit or 16-bit float"),
            (lambda: torch._weight_int8pack_mm(x[:, :5], w, scales), r"expected B.size\(1\) == 5, got 64"),
            (lambda: torch._weight_int8pack_mm(x, w, scales[:5]), "scales to be 1d tensor with size 8"),
            (lambda: torch._weight_int8pack_mm(x, w.short(), scales), "contiguous int8 tensor"),
            (lambda: torch._weight_int8pack_mm(x, w, scales.half()), "scales of dtype Float, got Half"),
            (lambda: torch._int_mm(w.int(), w.T), "self dtype to be of type int8 but got Int"),
            (lambda: torch._int_mm(w, w), r"self.size\(1\) needs to match mat2.size\(0\) but got 64 and 8"),
            (lambda: torch._convert_weight_to_int4pack(w, 2), "a uint8 weight of 2 dimensions"),
            (lambda: torch._convert_weight_to_int4pack(w.byte(), 3), "innerKTiles of 2, 4 or 8, got 3"),
            (lambda: torch._convert_weight_to_int4pack(w.byte()[:5], 2), "n % 8 == 0"),
            (lambda: torch._weight_int4pack_mm(x, packed, 48, pairs), "qGroupSize to be 32, 64, 128 or 256, got 48"),
            (lambda: torch._weight_int4pack_mm(x, packed, 64, pairs), r"of shape \[1, 8, 2\], got \[2, 8, 2\]"),
            (lambda: torch._weight_int4pack_mm(x[:, :32], packed, 32, pairs), "does not fit 32 columns"),
            (lambda: torch._weight_int4pack_mm(x, packed, 32, pairs.half()), "qScaleAndZeros of dtype Float, got Half"),
        ):
            with self.assertRaisesRegex(RuntimeError, text):
                call()


class TestOtherShape(TestCase):
    def test_gpu_shaped_kernels(self):
        """A GPU's work-groups add in local memory."""
        check_gpu_shape(self, __file__, "int8_b or int4_b or int4_not")


instantiate_parametrized_tests(TestQuantized)

if __name__ == "__main__":
    run_tests()
