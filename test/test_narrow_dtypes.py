"""float8, complex32 and the unsigned integers above 8 bits: storage, casts, copies and the arithmetic that CUDA has,
against the CPU or, where it has no kernel, against a wider dtype."""

import unittest

import torch
import torch.nn.functional as F
from common import DEVICE, no_fallback
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

import torch_netcl  # noqa: F401

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FLOAT8 = [E4M3, E5M2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
TRANSFORMS = [kind + dims for dims in ("", "2", "n") for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")]


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestNarrowDtypes(TestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(3)

    def assertSameBits(self, got, want):
        """All bits, but of NaN only that it is one."""
        self.assertEqual(got.dtype, want.dtype)
        nan = want.float().isnan()
        self.assertEqual(got.float().isnan(), nan)
        self.assertEqual(got.view(torch.uint8)[~nan], want.view(torch.uint8)[~nan])

    @parametrize("dtype", FLOAT8)
    def test_every_float8_is_read(self, dtype):
        codes = torch.arange(256, dtype=torch.uint8).view(dtype)
        with no_fallback():
            for wide in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
                got, want = codes.to(DEVICE).to(wide).cpu(), codes.to(wide)
                self.assertEqual(got, want, atol=0, rtol=0, equal_nan=True)
                self.assertEqual(got.signbit()[~want.isnan()], want.signbit()[~want.isnan()])
            self.assertEqual(codes.to(DEVICE)[:120].to(torch.int32).cpu(), codes[:120].to(torch.int32))

    @parametrize("dtype", FLOAT8)
    def test_float8_rounds_as_on_the_cpu(self, dtype):
        """Every half and bfloat16; floats of any exponent, ties between neighbours and what lies beside them."""
        codes = torch.arange(256, dtype=torch.uint8).view(dtype).float()
        ties = (codes[1:] + codes[:-1]) / 2
        bits = torch.randint(-(2**31), 2**31 - 1, (100003,)).to(torch.int32).view(torch.float32)
        beside = [torch.nextafter(t, torch.tensor(end)) for t in (codes, ties) for end in (torch.inf, -torch.inf)]
        every = torch.arange(65536, dtype=torch.int32).to(torch.int16)
        with no_fallback():
            for x in (torch.cat([bits, codes, ties, *beside]), every.view(torch.float16), every.view(torch.bfloat16)):
                self.assertSameBits(x.to(DEVICE).to(dtype).cpu(), x.to(dtype))

    @parametrize("dtype", FLOAT8[:4])
    def test_float8_moves(self, dtype):
        """Copies of all layouts and the operators that only move bytes or compare."""
        x = (torch.randn(6, 10) * 4).to(dtype)
        mask, index = torch.rand(6, 10) > 0.5, torch.tensor([1, 4, 1])
        cases = [
            lambda x, m, i: x.t().contiguous(),
            lambda x, m, i: x[1:, ::3].contiguous(),
            lambda x, m, i: x[:, 1:].clone(),
            lambda x, m, i: torch.cat([x, x[:2]]),
            lambda x, m, i: torch.stack([x, x]),
            lambda x, m, i: x[i],
            lambda x, m, i: x.index_select(1, i),
            lambda x, m, i: x.index_put((i[:1],), x[:1]),
            lambda x, m, i: torch.where(m, x, x.flip(0)),
            lambda x, m, i: x.roll(3, 1),
            lambda x, m, i: torch.full_like(x, 1.7),
            lambda x, m, i: torch.zeros_like(x),
            lambda x, m, i: F.embedding(i, x),
            lambda x, m, i: x.view(torch.uint8).view(x.dtype),
            lambda x, m, i: x.clone().copy_(x.float() * 2),
        ]
        for f in cases:
            with no_fallback():
                got = f(x.to(DEVICE), mask.to(DEVICE), index.to(DEVICE))
            self.assertSameBits(got.cpu(), f(x, mask, index))
        with no_fallback():
            self.assertEqual((x.to(DEVICE) == x.flip(0).to(DEVICE)).cpu(), x == x.flip(0))
            self.assertEqual(x.to(DEVICE)[2, 3].item(), x[2, 3].item())
            other = E5M2 if dtype is E4M3 else E4M3
            self.assertSameBits(x.to(DEVICE).to(other).cpu(), x.to(other))
            # The CPU has no masked_fill of float8.
            filled = x.to(DEVICE).masked_fill(mask.to(DEVICE), 1.5)
            self.assertSameBits(filled.cpu(), torch.where(mask, torch.full_like(x, 1.5), x))

    def test_scales_move_and_print(self):
        """float8_e8m0fnu, for which the CPU has fewer operators."""
        codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e8m0fnu)
        x = codes.view(16, 16)
        for f in (
            lambda x: x.t().contiguous(),
            lambda x: x[1:, ::3].clone(),
            lambda x: torch.cat([x, x[:2]]),
            lambda x: x[torch.tensor([1, 4, 1], device=x.device)],
            lambda x: torch.full_like(x, 1.7),
            lambda x: torch.zeros_like(x),
            lambda x: x.clone().copy_(x.float() * 3),
            lambda x: x.clone().fill_(3),
            lambda x: torch.where(x.view(torch.uint8) > 99, x, torch.ones_like(x)),
        ):
            with no_fallback():
                got = f(x.to(DEVICE))
            self.assertSameBits(got.cpu(), f(x))
        for other in FLOAT8[:4]:
            self.assertSameBits(codes.to(DEVICE).to(other).cpu(), codes.to(other))
            every = torch.arange(256, dtype=torch.uint8).view(other)
            self.assertSameBits(every.to(DEVICE).to(x.dtype).cpu(), every.to(x.dtype))
        numbers = torch.tensor([0, 1, 2, 3, -5, 100])
        for dtype in (torch.int8, torch.int64, torch.bool, torch.float64):
            self.assertSameBits(numbers.to(dtype).to(DEVICE).to(x.dtype).cpu(), numbers.to(dtype).to(x.dtype))
        mine = codes[100:140].to(DEVICE)
        self.assertEqual(repr(mine).replace(f", device='{mine.device}'", ""), repr(codes[100:140]))
        self.assertEqual(mine.tolist(), codes[100:140].tolist())
        self.assertEqual((mine == mine.clone()).all().item(), True)
        with self.assertRaisesRegex(RuntimeError, "without overflow"):
            torch.full_like(mine, 1e39)
        with self.assertRaisesRegex(NotImplementedError, "Float8_e8m0fnu"):
            mine + mine

    def test_no_arithmetic_of_float8(self):
        x = torch.ones(4, device=DEVICE).to(E4M3)
        for f in (
            lambda: x * 2, lambda: x + x, lambda: x.sum(), lambda: x.abs(), lambda: x @ x, lambda: x.sort(),
            lambda: x.topk(2), lambda: x.median(), lambda: x.kthvalue(1), lambda: x.unique(), lambda: x.mode(),
        ):
            with self.assertRaisesRegex(NotImplementedError, "Float8_e4m3fn"):
                f()

    @parametrize("out", [torch.float32, torch.bfloat16, torch.float16, E4M3])
    def test_scaled_mm(self, out):
        for (m, k, n), of_b in (((17, 33, 9), E4M3), ((64, 128, 48), E5M2), ((1, 16, 5), E4M3), ((3, 0, 2), E4M3)):
            a, b = torch.randn(m, k).to(E4M3), torch.randn(n, k).to(of_b).t()
            bias = None if out is E4M3 else torch.randn(n).to(out)
            for row_wise in (False, True):
                scales = (torch.rand(m, 1), torch.rand(1, n)) if row_wise else (torch.tensor(0.3), torch.tensor(1.7))
                with no_fallback():
                    args = [t.to(DEVICE) for t in (a, b, *scales)]
                    got = torch._scaled_mm(*args, bias=None if bias is None else bias.to(DEVICE), out_dtype=out)
                want = (a.double() @ b.double()) * scales[0].double() * scales[1].double()
                want = want if bias is None else want + bias.double()
                self.assertEqual(got.dtype, out)
                # Sums of k products in float, rounded once to the dtype; float8 rounds to 3 bits of mantissa.
                eps = 2**-3 if out is E4M3 else torch.finfo(out).eps
                atol = 2e-3 if out is E4M3 else 1e-5
                self.assertEqual(got.cpu().double(), want, atol=atol, rtol=max(eps, 1e-5))

    def test_scaled_mm_with_blocks(self):
        """float32 scales of 1 x 128 and 128 x 128 elements, as CUDA has them on Hopper."""
        kinds = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128
        for m, k, n in ((200, 384, 144), (128, 128, 256), (5, 512, 16), (3, 100, 300)):
            a, b = torch.randn(m, k).to(E4M3), torch.randn(n, k).to(E4M3)
            blocks = [-(-size // 128) for size in (m, k, n)]
            for of_a, of_b in ((0, 0), (0, 1), (1, 0)):
                scale_a = torch.rand(blocks[0] if of_a else m, blocks[1]) + 0.5
                scale_b = torch.rand(blocks[2] if of_b else n, blocks[1]) + 0.5
                wide = [
                    x.double() * s.double().repeat_interleave(128 if square else 1, 0)[: len(x)]
                    .repeat_interleave(128, 1)[:, :k]
                    for x, s, square in ((a, scale_a, of_a), (b, scale_b, of_b))
                ]  # fmt: skip
                x, y, s, t = (v.to(DEVICE) for v in (a, b, scale_a, scale_b))
                with self.subTest(shape=(m, k, n), kinds=(of_a, of_b)), no_fallback():
                    got = torch._scaled_mm(x, y.t(), s, t.t(), out_dtype=torch.float32)
                    # Scaled elements are rounded to float, as are sums of k of them.
                    self.assertEqual(got.cpu().double(), wide[0] @ wide[1].t(), atol=1e-3, rtol=1e-5)
                    # Here scales of squares are transposed, with blocks filled up to four.
                    padded = [
                        F.pad(v.t(), (0, 0, 0, -blocks[1] % 4)) if square else v for v, square in ((s, of_a), (t, of_b))
                    ]
                    same = F.scaled_mm(
                        x, y.t(), padded[0], kinds[of_a], padded[1], kinds[of_b], output_dtype=torch.float32
                    )
                    self.assertEqual(same.cpu(), got.cpu())
        ones = torch.ones(5, 16, device=DEVICE).to(torch.float8_e8m0fnu)
        kind = F.ScalingType.BlockWise1x32
        with self.assertRaisesRegex(NotImplementedError, "blocks of 1x128 or 128x128"):
            F.scaled_mm(x, y.t(), ones, kind, ones, kind)

    def test_scaled_mm_v2_and_refusals(self):
        a, b = torch.randn(16, 32).to(E4M3).to(DEVICE), torch.randn(24, 32).to(E4M3).to(DEVICE).t()
        rows, columns = torch.rand(16, 1, device=DEVICE), torch.rand(24, 1, device=DEVICE)
        kind, swizzle = F.ScalingType.RowWise, F.SwizzleType.NO_SWIZZLE
        with no_fallback():
            got = F.scaled_mm(a, b, rows, kind, columns, kind, swizzle, swizzle, output_dtype=torch.float32)
            want = torch._scaled_mm(a, b, rows, columns.t(), out_dtype=torch.float32)
        self.assertEqual(got.cpu(), want.cpu())
        one = torch.ones((), device=DEVICE)
        for error, f in (
            ("float8 matrices", lambda: torch._scaled_mm(a.float(), b, one, one)),
            ("cannot be multiplied", lambda: torch._scaled_mm(a, b.t(), one, one)),
            ("for each row", lambda: torch._scaled_mm(a, b, torch.ones(3, 1, device=DEVICE), one)),
            ("bias of 24", lambda: torch._scaled_mm(a, b, one, one, bias=one[None])),
        ):
            with self.assertRaisesRegex(RuntimeError, error):
                f()

    def test_weight_only(self):
        """As weight-only quantisation does: the weight is stored in float8 and widened for each product."""
        x, weight = torch.randn(5, 32), torch.randn(8, 32)
        scale = weight.abs().amax(1, keepdim=True) / 448
        with no_fallback():
            stored = (weight.to(DEVICE) / scale.to(DEVICE)).to(E4M3)
            got = F.linear(x.to(DEVICE), stored.to(torch.float32) * scale.to(DEVICE))
        self.assertEqual(got.cpu(), F.linear(x, (weight / scale).to(E4M3).float() * scale), atol=1e-5, rtol=1e-5)

    @parametrize("dtype", [torch.bfloat16, torch.float32])
    def test_grouped_mm(self, dtype):
        a, b = torch.randn(32, 16).to(dtype), torch.randn(3, 16, 24).to(dtype)
        ends = torch.tensor([8, 16, 32], dtype=torch.int32)
        with no_fallback():
            got = torch._grouped_mm(a.to(DEVICE), b.to(DEVICE), ends.to(DEVICE))
        want = torch.cat([a[i:j].double() @ b[g].double() for g, (i, j) in enumerate(((0, 8), (8, 16), (16, 32)))])
        # One rounding of sums in float.
        self.assertEqual(got.cpu().double(), want, atol=1e-5, rtol=max(torch.finfo(dtype).eps, 1e-5))

    def test_complex32(self):
        """Storage, casts, parts and element-wise arithmetic, computed in complex64 and rounded once."""
        x, y = (torch.randn(6, 10, dtype=torch.complex64).to(torch.complex32) for _ in range(2))
        x[0, 0], x[0, 1] = complex(torch.inf, 1), complex(torch.nan, 0)
        h, mask = torch.randn(6, 10).half(), torch.rand(6, 10) > 0.5
        move = [
            lambda x, y, h, m: x.t().contiguous(),
            lambda x, y, h, m: x[1:, ::3].contiguous(),
            lambda x, y, h, m: torch.cat([x, y]),
            lambda x, y, h, m: x[:, torch.tensor([2, 1], device=x.device)],
            lambda x, y, h, m: torch.where(m, x, y),
            lambda x, y, h, m: x.masked_fill(m, 1 + 2j),
            lambda x, y, h, m: torch.view_as_real(x).clone(),
            lambda x, y, h, m: torch.view_as_complex(h.view(6, 5, 2)).clone(),
            lambda x, y, h, m: x.real.clone(),
            lambda x, y, h, m: x.imag.clone(),
            lambda x, y, h, m: x.conj().resolve_conj(),
            lambda x, y, h, m: torch.full_like(x, 1 - 2j),
            lambda x, y, h, m: h.chalf(),
            lambda x, y, h, m: torch.complex(h, h),
            lambda x, y, h, m: x[1:].to(torch.complex64),
            lambda x, y, h, m: y.to(torch.float32),
            lambda x, y, h, m: x == y,
        ]
        compute = [
            lambda x, y, h: x + y,
            lambda x, y, h: x - 2 * y,
            lambda x, y, h: x * y,
            lambda x, y, h: x[1:] / y[1:],
            lambda x, y, h: -x,
            lambda x, y, h: x + h,
            lambda x, y, h: x.abs(),
            lambda x, y, h: x[1:].angle(),
            lambda x, y, h: y.sqrt(),
            lambda x, y, h: y.exp(),
            lambda x, y, h: torch.addcmul(x[1:], x[1:], y[1:]),
        ]
        args = x, y, h, mask
        for f in move:
            with no_fallback():
                got = f(*(t.to(DEVICE) for t in args)).cpu()
            self.assertEqual(got, f(*args), atol=0, rtol=0, equal_nan=True)
        for f in compute:
            with no_fallback():
                got = f(*(t.to(DEVICE) for t in args[:3])).cpu()
            want = f(x.to(torch.complex64), y.to(torch.complex64), h)
            self.assertEqual(got.dtype, torch.complex32 if want.is_complex() else torch.float16)
            wide = torch.view_as_real(want) if want.is_complex() else want
            narrow = torch.view_as_real(got) if want.is_complex() else got
            # Half an ulp of half for the rounding, and room for a value beside a tie.
            self.assertEqual(narrow.float(), wide, atol=1e-4, rtol=2**-10, equal_nan=True)

    def test_rounding_into_a_wider_out(self):
        """The sum of two numbers of complex32 overflows, though out= could hold it."""
        x = torch.full((3,), 60000 + 1j, dtype=torch.complex32, device=DEVICE)
        got = torch.add(x, x, out=torch.empty(3, dtype=torch.complex64, device=DEVICE))
        self.assertEqual(got.cpu(), torch.full((3,), complex(torch.inf, 2)))

    @parametrize("name", TRANSFORMS)
    def test_fft_of_half(self, name):
        """As CUDA: half and complex32 are transformed in float32, and the result is complex32 or half."""
        f = getattr(torch.fft, name)
        inputs = [torch.randn(6, 15).half()]
        if not name.startswith(("rfft", "ihfft")):
            inputs.append(torch.randn(6, 15, dtype=torch.complex64).to(torch.complex32))
        for x in inputs:
            want = f(x.to(torch.complex64) if x.is_complex() else x.float())
            with no_fallback():
                got = f(x.to(DEVICE))
                with torch.inference_mode():
                    self.assertEqual(f(x.to(DEVICE)).dtype, got.dtype)
            self.assertEqual(got.dtype, torch.complex32 if want.is_complex() else torch.float16)
            got = got.cpu().to(want.dtype)
            # One rounding to half; float32's own error is 1e-6 of the largest element.
            self.assertEqual(got, want, atol=2e-4 * want.abs().max().item(), rtol=2**-10)

    def test_gradient_of_fft_of_half(self):
        x = torch.randn(8).half()
        leaf, ref = x.to(DEVICE).requires_grad_(), x.float().requires_grad_()
        for t in (leaf, ref):
            torch.view_as_real(torch.fft.rfft(t)).float().square().sum().backward()
        self.assertEqual(leaf.grad.dtype, torch.float16)
        self.assertEqual(leaf.grad.cpu().float(), ref.grad, atol=2e-2, rtol=2e-3)

    @parametrize("dtype", UNSIGNED)
    def test_unsigned_integers(self, dtype):
        """Python's integers are the reference: the CPU lacks most of these."""
        bits = 8 * torch.empty((), dtype=dtype).element_size()
        top = 2**bits
        a = [0, 1, 5, top - 1, top // 2, top // 2 + 3, 77, 1000]
        b = [1, 3, 2, 7, top - 2, top // 2, 9, 11]

        def tensor(values):
            return torch.tensor(values, dtype=dtype)

        x, y = tensor(a).to(DEVICE), tensor(b).to(DEVICE)
        with no_fallback():
            for f in (
                lambda p, q: p + q,
                lambda p, q: p - q,
                lambda p, q: p * q,
                lambda p, q: p // q,
                lambda p, q: p % q,
                lambda p, q: p & q,
                lambda p, q: p | q,
                lambda p, q: p ^ q,
            ):
                got = f(x, y)
                self.assertEqual(got.dtype, dtype)
                self.assertEqual(got.tolist(), [f(p, q) % top for p, q in zip(a, b, strict=True)])
            for f in (lambda p, q: p < q, lambda p, q: p >= q, lambda p, q: p == q, lambda p, q: p != q):
                self.assertEqual(f(x, y).tolist(), [f(p, q) for p, q in zip(a, b, strict=True)])
            self.assertEqual((~x).tolist(), [top - 1 - p for p in a])
            self.assertEqual((x >> 2).tolist(), [p >> 2 for p in a])
            self.assertEqual(torch.maximum(x, y).tolist(), [max(p) for p in zip(a, b, strict=True)])
            self.assertEqual(x.max().item(), max(a))
            self.assertEqual(x[1:].min().item(), min(a[1:]))
            self.assertEqual(x.argmax().item(), a.index(max(a)))
            self.assertEqual(x.sort()[0].tolist(), sorted(a))
            self.assertEqual(x[:3].sum().tolist(), 6)
            self.assertEqual(x[:3].sum().dtype, torch.int64)
            self.assertEqual(x[:3].cumsum(0).tolist(), [0, 1, 6])
            self.assertEqual(torch.cat([x, y]).tolist(), a + b)
            self.assertEqual(x[torch.tensor([3, 1], device=DEVICE)].tolist(), [a[3], a[1]])
            self.assertEqual(torch.where(x < y, x, y).tolist(), [min(p) for p in zip(a, b, strict=True)])
            self.assertEqual(torch.full((3,), top - 1, dtype=dtype, device=DEVICE).tolist(), [top - 1] * 3)
            for other in (torch.float32, torch.float64, torch.int32, torch.uint8, torch.bool, torch.float16):
                self.assertEqual(x.to(other).cpu(), tensor(a).to(other), atol=0, rtol=0)
            for values in (torch.tensor([1.9, 300.0]), torch.tensor([-1, -5, 70000])):
                self.assertEqual(values.to(DEVICE).to(dtype).tolist(), values.to(dtype).tolist())


instantiate_parametrized_tests(TestNarrowDtypes)

if __name__ == "__main__":
    run_tests()
