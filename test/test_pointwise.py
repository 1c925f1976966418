"""Element-wise operators: PyTorch's OpInfo samples compared with the CPU, without fallback; special values; unusual
layouts."""

import itertools
import math
import warnings

import torch
import torch.nn.functional as F
from common import no_fallback, to_device
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests
from torch.utils._pytree import tree_map

UNARY = """abs acos acosh angle asin asinh atan atanh bitwise_not ceil clamp clamp_max clamp_min conj_physical cos cosh
    erf erfc exp exp2 expm1 floor frac isfinite isinf isnan isneginf isposinf lgamma log log10 log1p log2 logical_not
    logit nan_to_num neg reciprocal round rsqrt sgn sigmoid sign signbit sin sinc sinh special.entr sqrt square tan tanh
    trunc""".split()
BINARY = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign div eq
    floor_divide fmax fmin fmod gcd ge gt heaviside hypot lcm ldexp le logaddexp logaddexp2 logical_and logical_or
    logical_xor lt maximum minimum mul ne nextafter pow remainder rsub special.xlog1py sub true_divide xlogy addcmul
    addcdiv lerp where""".split()
ACTIVATIONS = [
    "nn.functional." + n
    for n in """celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh huber_loss leaky_relu logsigmoid mish
    mse_loss prelu relu relu6 selu silu smooth_l1_loss softplus softshrink softsign tanhshrink threshold""".split()
]
OPS = [op for op in op_db if op.name in UNARY + BINARY + ACTIVATIONS]
SAMPLES = 6

# One digit more than the CPU's own rounding: the functions of OpenCL C are accurate to a few ulp (its specification,
# section 7.4: exp 3, log 3, pow 16, tan 5, lgamma without a bound), and a float's ulp is 1.2e-7.
TOLERANCE = {
    torch.float32: {"rtol": 4e-6, "atol": 2e-6},
    # Functions of complex numbers combine several such results.
    torch.complex64: {"rtol": 1e-5, "atol": 2e-5},
    # Both sides round once to 8 or 11 bits at the end: one unit in the last place.
    torch.bfloat16: {"rtol": 2**-7, "atol": 1e-5},
    torch.float16: {"rtol": 2**-10, "atol": 1e-5},
}


class TestPointwise(TestCase):
    @ops(OPS, allowed_dtypes=(torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.uint8, torch.bool))
    def test_against_cpu(self, device, dtype, op):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.check_samples(device, dtype, op)

    def check_samples(self, device, dtype, op):
        for n, sample in enumerate(op.sample_inputs("cpu", dtype)):
            if n == SAMPLES:
                break
            arguments = (sample.input, sample.args, sample.kwargs)
            inputs, args, kwargs = to_device(arguments, device)
            with no_fallback():
                got = op.op(inputs, *args, **kwargs)
            expected = op.op(sample.input, *sample.args, **sample.kwargs)
            got = tree_map(lambda t: t.cpu() if isinstance(t, torch.Tensor) else t, got)
            self.assertEqual(got, expected, exact_dtype=True, exact_stride=False, **TOLERANCE.get(dtype, {}))

    def test_special_values(self, device):
        x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 3e38, -3e38, 1e-40, 0.5, 2.5])
        # Leave out the denormal, which OpenCL lets a device flush, so that a division by it is a division by 0. Also
        # leave out quotients beyond a float's range, for which the CPU's vectorised remainder gives NaN.
        y = torch.where(x == 1e-40, 2.0, x).clamp(-1e38, 1e38).where(x.isfinite(), x)
        a, b = y.repeat(len(y)), y.repeat_interleave(len(y))
        unary = ("abs", "neg", "sign", "sgn", "sqrt", "exp", "log", "sigmoid", "tanh", "round", "floor", "isnan")
        for name in unary + ("isinf", "isfinite", "relu", "erf", "signbit", "trunc", "reciprocal", "nan_to_num"):
            f = getattr(torch, name)
            self.assertEqual(f(x.to(device)).cpu(), f(x), msg=lambda m, n=name: f"{n}: {m}")
        binary = (
            "add",
            "mul",
            "div",
            "maximum",
            "minimum",
            "fmax",
            "fmin",
            "eq",
            "lt",
            "ge",
            "logical_and",
            "copysign",
        )
        for name in binary + ("floor_divide", "remainder", "fmod", "atan2", "hypot", "xlogy"):
            f = getattr(torch, name)
            self.assertEqual(f(a.to(device), b.to(device)).cpu(), f(a, b), msg=lambda m, n=name: f"{n}: {m}")
        for lo, hi in ((-1, 1), (None, 1), (-1, None)):
            self.assertEqual(torch.clamp(x.to(device), lo, hi).cpu(), torch.clamp(x, lo, hi))

    @dtypes(torch.int32, torch.int8)
    def test_integer_division_never_traps(self, device, dtype):
        low = torch.iinfo(dtype).min
        x = torch.tensor([low, low, 7, -7, 0], dtype=dtype)
        y = torch.tensor([-1, 1, 2, 2, 5], dtype=dtype)
        # low / -1 overflows: the CPU itself traps or wraps there, so only the rest is compared.
        for f in (lambda a, b: torch.div(a, b, rounding_mode="floor"), torch.remainder, torch.fmod):
            self.assertEqual(f(x.to(device), y.to(device)).cpu()[1:], f(x[1:], y[1:]))
        torch.remainder(x.to(device), torch.zeros_like(y).to(device)).cpu()

    def test_ends_of_complex_functions(self, device):
        values = [0.0, -0.0, 1e-45, -1e-30, 0.5, -1.5, 20.0, -100.0, 1e20, 3.4e38, math.inf, -math.inf]
        values += [1.0, -1.0, 1 - 1e-7]  # where inverse functions have poles and cuts
        z = torch.tensor([complex(a, b) for a in values for b in values])
        # In complex128 no part overflows that does not overflow in complex64; NaN and the sign beside it may differ.
        for name in "sqrt exp sin cos tan sinh cosh tanh log asin acos atan asinh acosh atanh".split():
            f = getattr(torch, name)
            got, want = f(z.to(device)).cpu(), f(z.to(torch.complex128)).to(torch.complex64)
            for part in (torch.real, torch.imag):
                g, w = part(got), part(want)
                keep = ~w.isnan() & (w.isinf() | (w.abs() > 1e-37)) & ~(part(f(z)).isnan())
                keep &= ~z.real.isinf() | ~z.imag.isinf()
                self.assertEqual(g[keep], w[keep], rtol=2e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")

    def test_parts_of_complex_functions_that_vanish_or_overflow(self, device):
        """The test above leaves these out: it masks results beside NaN, and its absolute tolerance hides tiny ones."""

        def numbers(*pairs):
            return torch.tensor([complex(*p) for p in pairs])

        def check(function, x, want, **tolerance):
            got = getattr(torch, function)(x.to(device)).cpu()
            for part in (torch.real, torch.imag):
                self.assertEqual(part(got), part(want), **tolerance, msg=lambda m: f"{function} of {x}: {m}")
                zero = part(want) == 0
                self.assertEqual(part(got)[zero].signbit(), part(want)[zero].signbit(), msg=f"{function} of {x}: {got}")

        inf, nan = math.inf, math.nan
        # e^-inf is 0 in every direction, and a sine of 0 times an infinite cosh is 0.
        x = numbers((-inf, inf), (-inf, -inf), (-inf, nan), (inf, inf), (inf, nan))
        check("exp", x, numbers((0, 0), (0, -0.0), (0, 0), (inf, nan), (inf, nan)))
        for x in (100, 400, inf):  # float's e^x overflows; for 400 its root does as well
            zero = numbers((0, x), (0, -x), (-0.0, x))
            check("sin", zero, numbers((0, inf), (0, -inf), (-0.0, inf)))
            check("cos", zero, numbers((inf, -0.0), (inf, 0), (inf, 0)))
            zero = numbers((x, 0), (-x, 0), (x, -0.0))
            check("sinh", zero, numbers((inf, 0), (-inf, 0), (inf, -0.0)))
            check("cosh", zero, numbers((inf, 0), (inf, -0.0), (inf, -0.0)))
        tiny = [0.0, 1e-45, -1e-45, 3e-42, 1e-38, -1e-30]
        x = numbers(*((a, b) for a in tiny for b in tiny if a or b))
        # In ulp, hypot has 4, half of which the root keeps, the root 3, and the quotient 2.5: at most 8.
        check("sqrt", x, x.to(torch.complex128).sqrt().to(torch.complex64), rtol=8 * 2**-23, atol=0)

    @dtypes(torch.float16, torch.bfloat16)
    def test_nextafter_of_every_number(self, device, dtype):
        x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
        for towards in (math.inf, -math.inf, 0.0, -0.0, 1.0, math.nan):
            y = torch.full_like(x, towards)
            got, want = torch.nextafter(x.to(device), y.to(device)).cpu(), torch.nextafter(x, y)
            same = (got.view(torch.int16) == want.view(torch.int16)) | (got.isnan() & want.isnan())
            self.assertTrue(same.all(), f"{x[~same][:4]} -> {towards}: {got[~same][:4]}, not {want[~same][:4]}")

    @dtypes(torch.int8, torch.int16, torch.uint8, torch.int32)
    def test_lcm_wraps(self, device, dtype):
        x = make_tensor(500, device="cpu", dtype=dtype, low=None, high=None)
        y = make_tensor(500, device="cpu", dtype=dtype, low=None, high=None)
        low = torch.iinfo(dtype).min
        x[:4], y[:4] = torch.tensor([-127, 127, low, 0]).to(dtype), torch.tensor([-2, 2, 3, 0]).to(dtype)
        self.assertEqual(torch.lcm(x.to(device), y.to(device)).cpu(), torch.lcm(x, y))

    def test_gcd_of_the_least_value(self, device):
        for a, b in ((torch.uint8, torch.int32), (torch.int32,) * 2, (torch.int8,) * 2, (torch.int64,) * 2):
            x = torch.tensor([7, 0, 6, 1, 96], dtype=a)
            y = torch.full((5,), torch.iinfo(b).min, dtype=b)
            self.assertEqual(torch.gcd(x.to(device), y.to(device)).cpu(), torch.gcd(x, y))
            self.assertEqual(torch.lcm(x.to(device), y.to(device)).cpu(), torch.lcm(x, y))

    def test_complex_functions_at_their_cuts(self, device):
        """The sign of a zero says on which side of a cut a number lies."""
        parts = (-2.0, -0.3, -1e-9, -0.0, 0.0, 1e-9, 0.3, 2.0)
        z = torch.tensor([complex(a, b) for a in parts for b in (-0.0, 0.0)])
        for name in "log1p log sqrt acos asin acosh asinh atanh atan expm1 tanh sinh".split():
            f = getattr(torch, name)
            self.assertEqual(f(z.to(device)).cpu(), f(z), msg=lambda m, n=name: f"{n}: {m}")
        zeros = torch.tensor([complex(a, b) for a in (0.0, -0.0) for b in (0.0, -0.0)])
        got = torch.view_as_real(zeros.to(device).asinh()).cpu()
        self.assertEqual(got.signbit(), torch.view_as_real(zeros).signbit())

    def test_what_a_dtype_lacks_is_refused_for_empty_tensors(self, device):
        x = torch.empty(0, dtype=torch.complex64, device=device)
        for f in (torch.bitwise_and, torch.bitwise_xor, torch.gcd, torch.maximum, torch.hypot, torch.lt):
            with self.assertRaises((NotImplementedError, RuntimeError), msg=f.__name__):
                f(x, x)
        for f in (torch.add, torch.eq, lambda a, b: a.abs(), lambda a, b: a.masked_fill(a == b, 1), torch.logical_and):
            self.assertEqual(f(x, x).cpu(), f(x.cpu(), x.cpu()))

    def test_layouts(self, device):
        x = make_tensor((3, 4, 5, 6, 7, 2, 3, 2), device="cpu", dtype=torch.float32)
        y = make_tensor((4, 1, 6, 1, 2, 1, 2), device="cpu", dtype=torch.float32)
        self.assertEqual((x.to(device) * y.to(device)).cpu(), x * y)
        p = (7, 2, 5, 0, 3, 1, 6, 4)
        q = x.permute(p)
        self.assertEqual((x.to(device).permute(p) + 1).cpu(), q + 1)
        self.assertEqual((x.to(device)[:, ::2, 1:, :, ::3] * 2).cpu(), x[:, ::2, 1:, :, ::3] * 2)
        z = torch.zeros(9, device=device)
        z[2:7].add_(torch.arange(5.0, device=device))
        self.assertEqual(z.cpu(), torch.tensor([0.0, 0, 0, 1, 2, 3, 4, 0, 0]))
        wide = torch.arange(70000.0).reshape(7, 10000)
        self.assertEqual((wide.to(device) + wide[0].to(device)).cpu(), wide + wide[0])

    def test_dense_operands_beside_numbers(self, device):
        # If all operands are dense, or the last one is a number, whole vectors are read without a look at the strides.
        for dtype in (torch.float32, torch.float16, torch.uint8):
            for n in (15, 16, 33, 2053):
                x, y = (torch.randint(1, 9, (n + 1,)).to(dtype) for _ in range(2))
                dx, dy = x.to(device), y.to(device)
                self.assertEqual(dx[1:] + dy[:-1], x[1:] + y[:-1])
                self.assertEqual(dx * 3, x * 3)
                self.assertEqual(3 - dx, 3 - x)
                self.assertEqual(dx + dy[2], x + y[2])
                self.assertEqual(dx[::2] + 3, x[::2] + 3)
                self.assertEqual(torch.where(dx > dy, dx, 0), torch.where(x > y, x, 0))
                self.assertEqual(torch.where(dx > dy, 0, dx), torch.where(x > y, 0, x))
                self.assertEqual(torch.addcmul(dx, dx, dy), torch.addcmul(x, x, y))

    def test_few_rows_or_columns_across(self, device):
        """Tiles that are not full: vectors of 16 rows end within the memory, and only the wanted ones are written."""
        sizes = (1, 2, 9, 15, 16, 17, 31, 49)
        for dtype, rows, columns in itertools.product((torch.uint8, torch.half, torch.float), sizes, sizes):
            x = torch.arange(3 * rows * columns).view(3, rows, columns).to(dtype)
            y = torch.full((3, columns + 1, rows), 7, dtype=dtype, device=device)
            y[:, :columns].copy_(x.to(device).mT)
            self.assertEqual(y[:, :columns], x.mT, rtol=0, atol=0)
            self.assertEqual(y[:, columns], torch.full((3, rows), 7, dtype=dtype), rtol=0, atol=0)
            y[:, :columns] += x.to(device).mT
            self.assertEqual(y[:, :columns], x.mT + x.mT, rtol=0, atol=0)

    def test_operands_across_rows(self, device):
        # These shapes are processed in tiles of 16 columns and rows, or in slightly larger ones.
        for shape in ((131, 77), (16, 64), (15, 300), (3, 2, 70, 33), (1000, 1), (64, 800)):
            for dtype in (torch.float32, torch.float16, torch.int64, torch.complex64, torch.uint8):
                x, y = (torch.randn(shape).mul(9).abs().to(dtype) for _ in range(2))
                for a in range(len(shape) - 1):
                    s, t = x.transpose(a, -1), y.transpose(a, -1).contiguous()
                    got = t.to(device) + x.to(device).transpose(a, -1)
                    self.assertEqual(got, t + s, msg=f"{shape} {dtype} {a}")
                    self.assertEqual(x.to(device).transpose(a, -1).contiguous(), s, rtol=0, atol=0)
        # With dense, broadcast and other inputs, casts, numbers, and outputs that are inputs.
        x, y = torch.randn(100, 50), torch.randn(50, 100)
        for f in (
            lambda x, y: torch.addcmul(y, x.t(), y),
            lambda x, y: torch.addcmul(x.t(), y, x.t(), value=3),
            lambda x, y: torch.where(y > 0, x.t(), 2),
            lambda x, y: x.t() + y[:, :1],
            lambda x, y: y[:1] * x.t(),
            lambda x, y: y.double().mul_(x.t()),
            lambda x, y: y.mul_(x.t()).sub_(x.t(), alpha=2),
            lambda x, y: x[1:, 3:].t() - y[3:, 1:],
            lambda x, y: x[::2].t() - y[:, ::2].bfloat16(),
            lambda x, y: torch.empty(100, 50, device=x.device).t().copy_(y),
            lambda x, y: torch.frexp(x.t().contiguous() + x.t())[0],
        ):
            self.assertEqual(f(x.to(device), y.to(device)), f(x.clone(), y.clone()))

    def test_short_rows(self, device):
        # With few channels, channels last, a row has few adjacent elements. On CPUs, rows without gaps become one row
        # with periodic operands, and the last vector of a row repeats some elements of the one before.
        def same(f, *args):
            on_device = [a.to(device) for a in args]
            want, got = f(*(a.clone() for a in args)), f(*on_device)
            self.assertEqual((got.dtype, got.stride()), (want.dtype, want.stride()))
            self.assertEqual(got, want, **TOLERANCE.get(want.dtype, {}))

        def last(*shape, dtype=torch.float32):
            x = torch.randn(shape).mul(9).to(dtype)
            return x.to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)

        for c in (1, 2, 3, 5, 9, 15, 16, 17, 24, 31, 58, 64, 65, 100):
            x, y, w, e, m = last(3, c, 5, 7), last(3, c, 5, 7), last(1, c, 1, 1), last(3, c, 1, 1), last(3, 1, 5, 7)
            for f in (
                lambda x, w: x * w,
                lambda x, w: w - x,
                lambda x, w: torch.where(x > w, x, 2),
                lambda x, w: x.mul_(w).sub_(w, alpha=2),
                lambda x, w: torch.add(x, w, out=torch.empty_like(x)),
                lambda x, w: x.bfloat16() * w,
                lambda x, w: torch.add(x, w.half(), out=torch.empty_like(x, dtype=torch.float64)),
            ):
                for other in (w, e, m, y[:1]):
                    same(f, x, other)
            same(lambda x, y, w, e, m: torch.addcmul(x * w, x.sub(y, alpha=3), m).addcmul_(e, w), x, y, w, e, m)
            same(lambda x, w: F.prelu(x, w.flatten()), x, w)
            same(lambda x, y: x[:, c // 3 :].relu_() - y[:, c // 3 :], x, y)
            same(lambda x: x[:, c // 2 :, 1:, :-1].clone(memory_format=torch.contiguous_format), x)
            same(lambda x: x[:, c // 2 :].add_(1) * x[:, c // 2 :, :1] > 0, x)
            same(lambda x, y: x[:, : c // 2].copy_(y[:, c - c // 2 :]) if c > 1 else x, x, y)
            same(lambda x, w: x * w, last(2, c, 3, 5, 3), last(1, c, 1, 1, 1))
        for dtype in (
            torch.float16,
            torch.bfloat16,
            torch.float64,
            torch.int64,
            torch.uint8,
            torch.bool,
            torch.complex64,
        ):
            for c in (3, 6, 7, 12, 24, 29):
                x, w = last(2, c, 5, 3, dtype=dtype), last(1, c, 1, 1, dtype=dtype)
                for f in (lambda x, w: x + w, lambda x, w: x[:, 1:] * w[:, 1:], lambda x, w: x[:, 1:] == w[:, 1:]):
                    same(f, x, w)
                same(lambda x, w: x[:, 1:].logical_not_() if x.dtype == torch.bool else x[:, 1:].mul_(w[:, 1:]), x, w)
        # What a work-item would get last is less than a vector.
        for n in (2049, 4111):
            same(lambda x, w: x[:, :-20].mul_(w), torch.randn(3, n + 20), torch.randn(3, 1))
            same(lambda x, w: x.mul_(w), torch.randn(n, 3), torch.randn(3))

    def test_tiny_rows_are_not_walked_one_by_one(self, device):
        # A longer dimension becomes the inner one, or the first outer one for tiles.
        x = torch.randn(2, 24, 19, 18)
        last = x.to(memory_format=torch.channels_last)
        for v in (x, last):
            for f in (
                lambda v: v.unflatten(3, (9, 2)).permute(0, 1, 2, 4, 3).contiguous(),
                lambda v: v.unflatten(1, (2, 12)).permute(0, 3, 4, 2, 1).contiguous(),
                lambda v: F.pixel_shuffle(v, 2) * 2,
                lambda v: F.pixel_unshuffle(v[:, :, 1:], 2),
                lambda v: torch.zeros(2, 24, 20, 20, device=v.device)[:, :, 1:, 1:-1].copy_(v),
                lambda v: torch.ones(24, 19, 18, 2, device=v.device).mul_(v.permute(1, 2, 3, 0)),
                lambda v: v.bfloat16()[:, :3].permute(2, 3, 0, 1) + v[:, :3].permute(2, 3, 0, 1).contiguous(),
            ):
                want, got = f(v), f(v.to(device))
                self.assertEqual((got, got.stride()), (want, want.stride()))

    def test_copies_move_bits(self, device):
        x = torch.randn(40, 30, dtype=torch.complex64)
        y = x.to(device)
        for f in (
            lambda t: t.t().contiguous(),
            lambda t: t.conj().t().contiguous(),
            lambda t: torch.empty_like(t).copy_(t.conj()),
            lambda t: torch.empty_like(t.t()).conj().copy_(t.t()),
            lambda t: torch.empty_like(t.t()).conj().copy_(t.t().conj()),
            lambda t: t.conj().imag.t().contiguous(),
            lambda t: torch.empty(30, 40, device=t.device).copy_(t.conj().imag.t()),
        ):
            self.assertEqual(f(y), f(x))
        nan = torch.tensor([0x7F800001, 0x7FC12345, 0x00000001], dtype=torch.int32).repeat(400_000)
        got = nan.to(device).view(torch.float32).clone().view(torch.int32)  # payloads, signalling NaNs, subnormals
        self.assertEqual(got, nan)
        self.assertEqual(
            nan.to(device).view(torch.float32).view(3, -1).t().contiguous().view(torch.int32), nan.view(3, -1).t()
        )
        for n in (20, 2_000_000):
            z = torch.arange(n, device=device)
            with self.assertRaisesRegex(RuntimeError, "single memory location"):
                z[1:].copy_(z[:-1])
            self.assertEqual(z.copy_(z.view_as(z)), torch.arange(n))

    def test_outputs_larger_than_the_cache(self, device):
        # Outputs of 32 MiB and more may be stored past the cache, if they are aligned: whole and partial vectors, rows,
        # several dtypes, outputs that are not aligned, and one that is also an input.
        n = (8 << 20) + 5
        x = torch.arange(n, dtype=torch.float32)
        on_device = x.to(device)
        self.assertEqual(on_device + 1, x + 1)
        shifted = torch.zeros(n + 3, device=device)
        torch.add(on_device, 1, out=shifted[1:-2])
        self.assertEqual(shifted[1:-2], x + 1)
        self.assertEqual(shifted[[0, -2, -1]], torch.zeros(3))
        self.assertEqual(on_device.long(), x.long())
        self.assertEqual(on_device.mul_(2), x * 2)
        rows = x[: 2049 * 4090].view(2049, 4090)
        self.assertEqual(rows.to(device) - rows[0].to(device), rows - rows[0])
        padded = torch.zeros(2049, 4096, device=device)
        torch.neg(rows.to(device), out=padded[:, :4090])
        self.assertEqual(padded[:, :4090], -rows)
        self.assertEqual(padded[:, 4090:], torch.zeros(2049, 6))
        small = (x % 256).repeat(3)[: (17 << 20) + 9]
        for dtype in (torch.bfloat16, torch.float16):
            self.assertEqual(small.to(device, dtype) + 1, small.to(dtype) + 1)

    def test_promotion(self, device):
        i, f, h = torch.arange(-3, 4), torch.linspace(-2, 2, 7), torch.linspace(-2, 2, 7).half()
        pairs = (
            (i, f),
            (i, 1.5),
            (h, f),
            (h, 70000),
            (i.to(torch.uint8), i),
            (f > 0, i),
            (f, torch.tensor(2.5).double()),
        )
        for a, b in pairs:
            da, db = (t.to(device) if isinstance(t, torch.Tensor) else t for t in (a, b))
            for op in (torch.add, torch.mul, torch.true_divide):
                self.assertEqual(op(da, db).cpu(), op(a, b), exact_dtype=True)
        # A CPU scalar tensor is used without a copy to the device.
        self.assertEqual((f.to(device) * torch.tensor(3.0)).cpu(), f * 3)

    @dtypes(torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int16, torch.uint8, torch.bool)
    def test_casts(self, device, dtype):
        # Numbers that every dtype holds exactly, and numbers that floats round; beyond an integer's range, C++ defines
        # no result.
        x = torch.tensor([0, 1, 2, 3, 100.4, 0.5, 1.5, 2.5, 77.777]).to(dtype)
        for to in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int8, torch.bool, torch.complex64):
            self.assertEqual(x.to(device).to(to).cpu(), x.to(to), exact_dtype=True)
        self.assertEqual(torch.tensor([3 + 4j, 0j]).to(device).to(torch.bool).cpu(), torch.tensor([True, False]))

    def check_bits(self, got, expected):
        # Bit for bit, including the sign of 0; of a NaN only that it is one.
        bits = {2: torch.int16, 4: torch.int32}[expected.element_size()]
        got, nan = got.cpu(), expected.isnan()
        self.assertEqual(got.isnan(), nan)
        self.assertTrue((got.view(bits) == expected.view(bits))[~nan].all())

    @dtypes(torch.float16, torch.bfloat16)
    def test_all_16_bit_floats_are_read_and_rounded_to_nearest_even(self, device, dtype):
        x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
        floats, on_device = x.float(), x.to(device)
        self.check_bits(on_device.float(), floats)
        self.check_bits(on_device[::3].float(), floats[::3])  # one by one
        self.check_bits(on_device.float().to(dtype), x)
        # Half way to the next number, and the floats around that; the largest ones round to infinity.
        nearest = floats[floats.isfinite()]
        half_way = (nearest.double() + torch.nextafter(nearest.to(dtype), x.new_tensor(math.inf)).double()) / 2
        half_way = half_way[half_way.isfinite()].float()
        for towards in (half_way, half_way.new_tensor(math.inf), half_way.new_tensor(-math.inf)):
            y = torch.nextafter(half_way, towards)
            self.check_bits(y.to(device).to(dtype), y.to(dtype))
            self.check_bits(y.to(device)[::3].to(dtype), y[::3].to(dtype))

    def test_floats_of_any_exponent_round_to_nearest_even(self, device):
        x = torch.arange(-(2**31), 2**31, 65521, dtype=torch.int64).to(torch.int32).view(torch.float32)
        self.check_bits(x.to(device).to(torch.bfloat16), x.to(torch.bfloat16))
        self.check_bits(x.to(device).to(torch.float16), x.to(torch.float16))

    def test_gelu_over_its_range(self, device):
        # The distribution function is within 8e-8 (special/normal.h), and so is its tail, times x; the rest is
        # rounding.
        x = torch.linspace(-12, 12, 20001)
        exact, got = x.double().requires_grad_(), x.to(device).requires_grad_()
        F.gelu(exact).sum().backward()
        F.gelu(got).sum().backward()
        self.assertEqual(F.gelu(got).cpu().double(), F.gelu(exact), atol=3e-7, rtol=1.3e-6)
        self.assertEqual(got.grad.cpu().double(), exact.grad, atol=3e-7, rtol=1.3e-6)
        special = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0, -30.0])
        # torch CPU's AVX-512 code for float makes a NaN of Inf; its code for double does not.
        self.assertEqual(F.gelu(special.to(device)).cpu(), F.gelu(special.double()).float())

    def test_erf_over_its_range(self, device):
        few = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-38, -1e38])
        x = torch.cat([torch.linspace(-6, 6, 20_001), torch.logspace(-36, 38, 500), few])
        exact = torch.erf(x.double())
        # PoCL's kernel: 1.6e-7 of its polynomial, and the rounding of the exponential and the difference.
        self.assertEqual(torch.erf(x.to(device)).cpu().double(), exact, atol=0, rtol=4e-7)
        self.assertEqual(torch.erf(few.to(device)).cpu().signbit()[:4], few.signbit()[:4])

    def test_rrelu_noise_is_the_slope(self, device):
        x = torch.randn(1000)
        noise = torch.empty_like(x, device=device)
        y = torch.ops.aten.rrelu_with_noise(x.to(device), noise, 0.2, 0.6, True).cpu()
        noise = noise.cpu()
        self.assertEqual(y, x * noise)
        self.assertTrue((noise[x > 0] == 1).all())
        drawn = noise[x <= 0]
        self.assertTrue(((drawn >= 0.2) & (drawn <= 0.6)).all() and drawn.unique().numel() > 100)
        self.assertEqual(torch.nn.functional.rrelu(x.to(device), 0.2, 0.6).cpu(), torch.where(x > 0, x, x * 0.4))

    def test_empty_and_scalar(self, device):
        for shape in ((0,), (3, 0, 2), ()):
            x = torch.randn(shape)
            self.assertEqual((x.to(device) * 2 + 1).cpu(), x * 2 + 1)

    def test_forward_derivatives_of_glu(self, device):
        """jvp of glu and of its gradient, against the CPU."""
        x, tangent = torch.randn(5, 6), torch.randn(5, 6)
        x[0, 0] = torch.nan

        def second(v):
            return torch.func.grad(lambda t: F.glu(t, 1).square().nansum())(v)

        for f in (lambda v: F.glu(v, 1), second):
            with no_fallback():
                got = torch.func.jvp(f, (x.to(device),), (tangent.to(device),))
            want = torch.func.jvp(f, (x,), (tangent,))
            self.assertEqual([t.cpu() for t in got], list(want), equal_nan=True)

    def test_add_relu(self, device):
        for dtype in (torch.float32, torch.int8, torch.int32):
            x, y = (torch.randint(-9, 9, (33,)).to(dtype) for _ in range(2))
            if dtype == torch.float32:
                x[:3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
            a, b = x.to(device), y.to(device)
            with no_fallback():
                self.assertEqual(torch._VF._add_relu(a, b, alpha=2).cpu(), torch._VF._add_relu(x, y, alpha=2))
                out = torch.empty(0, dtype=dtype, device=device)
                torch._VF._add_relu(a, b, out=out)
                self.assertEqual(out.cpu(), torch._VF._add_relu(x, y))
                self.assertEqual(torch._VF._add_relu_(a, 3).cpu(), torch._VF._add_relu_(x, 3))

    def test_remainder_of_a_number(self, device):
        x = torch.tensor([3.0, -3.0, 0.0, torch.inf, torch.nan])
        with no_fallback():
            self.assertEqual(torch.remainder(7, x.to(device)).cpu(), torch.remainder(7, x))

    def test_out_and_inplace(self, device):
        x = torch.randn(4, 5)
        out = torch.empty(0, device=device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.sin(x.to(device), out=out)
        self.assertEqual(out.cpu(), x.sin())
        strided = torch.empty(5, 4, device=device).t()
        torch.add(x.to(device), 1, out=strided)
        self.assertEqual(strided.cpu(), x + 1)
        with self.assertRaisesRegex(RuntimeError, "can't be cast"):
            torch.add(x.to(device), 1, out=torch.empty(4, 5, device=device, dtype=torch.int32))
        with self.assertRaisesRegex(RuntimeError, "device"):
            x.to(device) + x

    def test_factories(self, device):
        self.assertEqual(torch.arange(2, 50, 3, device=device).cpu(), torch.arange(2, 50, 3))
        self.assertEqual(torch.arange(0, 1, 0.1, device=device).cpu(), torch.arange(0, 1, 0.1))
        self.assertEqual(torch.full((3, 4), 7, device=device).cpu(), torch.full((3, 4), 7))
        self.assertEqual(torch.ones(5, dtype=torch.bool, device=device).cpu(), torch.ones(5, dtype=torch.bool))


instantiate_device_type_tests(TestPointwise, globals(), only_for="netcl")

if __name__ == "__main__":
    run_tests()
