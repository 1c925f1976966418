"""Pooling, padding and sliding windows, forward and backward, compared with the CPU."""

import itertools
import math
import re

import torch
import torch.nn.functional as F
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl  # noqa: F401

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)

MAX = [
    (F.max_pool1d, (2, 3, 17), {"kernel_size": 3, "stride": 2, "padding": 1}),
    (F.max_pool2d, (2, 3, 17, 18), {"kernel_size": 3, "stride": 2, "padding": 1}),
    (F.max_pool2d, (2, 3, 16, 64), {"kernel_size": 2}),
    (F.max_pool2d, (3, 9, 40), {"kernel_size": (3, 2), "stride": 1, "dilation": (2, 3)}),
    (F.max_pool2d, (1, 2, 9, 37), {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    (F.max_pool3d, (2, 2, 7, 8, 9), {"kernel_size": (2, 3, 3), "stride": (1, 2, 2), "padding": (1, 0, 1)}),
    (F.max_pool3d, (2, 7, 8, 9), {"kernel_size": 2, "ceil_mode": True, "dilation": (1, 2, 1)}),
    (F.adaptive_max_pool1d, (2, 3, 17), {"output_size": 5}),
    (F.adaptive_max_pool2d, (2, 3, 17, 11), {"output_size": (5, 11)}),
    (F.adaptive_max_pool3d, (2, 3, 5, 7, 6), {"output_size": (2, 3, 9)}),
]
AVERAGE = [
    (F.avg_pool1d, (2, 3, 17), {"kernel_size": 3, "stride": 2, "padding": 1}),
    (F.avg_pool2d, (2, 3, 17, 40), {"kernel_size": 3, "stride": 2, "padding": 1}),
    (F.avg_pool2d, (2, 3, 16, 34), {"kernel_size": 2}),
    (
        F.avg_pool2d,
        (3, 9, 10),
        {"kernel_size": (3, 2), "stride": 1, "padding": 1, "count_include_pad": False},
    ),
    (F.avg_pool2d, (1, 2, 9, 10), {"kernel_size": 3, "stride": 2, "ceil_mode": True, "padding": 1}),
    (F.avg_pool2d, (1, 2, 9, 10), {"kernel_size": 3, "divisor_override": 5}),
    (F.avg_pool3d, (2, 2, 7, 8, 9), {"kernel_size": (2, 3, 3), "stride": (1, 2, 2), "padding": (1, 0, 1)}),
    (
        F.avg_pool3d,
        (2, 7, 8, 9),
        {"kernel_size": 3, "stride": 2, "ceil_mode": True, "count_include_pad": False},
    ),
    (F.adaptive_avg_pool1d, (2, 3, 17), {"output_size": 5}),
    (F.adaptive_avg_pool2d, (2, 3, 17, 11), {"output_size": (5, 11)}),
    (F.adaptive_avg_pool2d, (2, 3, 7, 7), {"output_size": 1}),
    (F.adaptive_avg_pool2d, (2, 3, 4, 5), {"output_size": (7, 3)}),
    (F.adaptive_avg_pool3d, (2, 3, 5, 7, 6), {"output_size": (2, 3, 9)}),
]
# Sizes of images and windows for tests of memory formats and of gradients: steps of 1, 2 and more, windows that leave
# gaps, overlap or reach beyond the image, and that differ in size.
WINDOWS = [
    ((13, 11), {"kernel_size": 3, "stride": 1, "padding": 1}),
    ((12, 19), {"kernel_size": (2, 3), "stride": 2, "ceil_mode": True}),
    ((9, 40), {"kernel_size": (3, 5), "stride": (1, 2), "padding": (0, 2)}),
    ((8, 23), {"kernel_size": (2, 4), "stride": (3, 5), "padding": 1}),
    ((5, 6, 10), {"kernel_size": (2, 3, 3), "stride": (2, 1, 1), "padding": 1}),
    ((4, 5, 9), {"kernel_size": 2, "stride": 2, "ceil_mode": True}),
]
ADAPTIVE = [
    ((13, 11), (5, 4)),
    ((4, 5), (6, 9)),
    ((9, 21), 2),
    ((14, 6), (7, 2)),
    ((5, 6, 7), (2, 3, 4)),
    ((6, 7), 1),
    ((4, 6, 8), 2),
]
PADS = [
    ((2, 3, 9), (3, 2)),
    ((3, 9), (0, 8)),
    ((2, 3, 7, 9), (3, 2, 0, 6)),
    ((3, 7, 9), (3, -2, -1, 4)),
    ((2, 2, 4, 5, 6), (1, 2, 3, 4, 2, 3)),
]


class TestPooling(TestCase):
    def compare(self, function, x, kwargs, make_reference=lambda t: t):
        """Compares output and gradient with the CPU; `make_reference` may widen the CPU's input."""
        a = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        b = make_reference(x.detach().cpu()).requires_grad_()
        out, expected = function(a, **kwargs), function(b, **kwargs)
        self.assertEqual(out.cpu(), expected.to(x.dtype))
        grad = make_tensor(expected.shape, device="cpu", dtype=x.dtype, low=-1, high=1)
        out.backward(grad.to(x.device))
        expected.backward(grad.to(expected.dtype))
        # A gradient sums at most 27 terms below 1 in fp32: 27 * eps = 3e-6 where they cancel.
        tol = {torch.float32: {"atol": 1e-5, "rtol": 1.3e-6}}.get(
            x.dtype, {"atol": 1e-5, "rtol": max(torch.finfo(x.dtype).eps, 1e-7)}
        )
        self.assertEqual(a.grad.cpu(), b.grad.to(x.dtype), **tol)

    @dtypes(*FLOATS)
    def test_max(self, device, dtype):
        for function, shape, kwargs in MAX if dtype == torch.float32 else MAX[:6]:
            with self.subTest(f"{function.__name__} {kwargs}"):
                x = make_tensor(shape, device=device, dtype=dtype)
                self.compare(function, x, kwargs, lambda t: t.double())
                out, index = function(x, **kwargs, return_indices=True)
                expected, expected_index = function(x.cpu(), **kwargs, return_indices=True)
                self.assertEqual(out.cpu(), expected)
                self.assertEqual(index.cpu(), expected_index)

    @dtypes(*FLOATS)
    def test_average(self, device, dtype):
        for function, shape, kwargs in AVERAGE:
            with self.subTest(f"{function.__name__} {kwargs}"):
                self.compare(function, make_tensor(shape, device=device, dtype=dtype), kwargs, lambda t: t.double())

    @dtypes(torch.int64, torch.int32, torch.int8, torch.uint8)
    def test_integers(self, device, dtype):
        x = make_tensor((2, 3, 9, 10), device=device, dtype=dtype)
        for kwargs in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}):
            out = torch.ops.aten.max_pool2d_with_indices(
                x,
                [kwargs["kernel_size"]],
                *map(list, [[kwargs.get("stride", 2)], [kwargs.get("padding", 0)]]),
            )
            expected = torch.ops.aten.max_pool2d_with_indices(
                x.cpu(),
                [kwargs["kernel_size"]],
                *map(list, [[kwargs.get("stride", 2)], [kwargs.get("padding", 0)]]),
            )
            self.assertEqual([t.cpu() for t in out], list(expected))
            if dtype == torch.int64:
                self.assertEqual(F.avg_pool2d(x, **kwargs).cpu(), F.avg_pool2d(x.cpu(), **kwargs))

    @dtypes(torch.float32)
    def test_special_values(self, device, dtype):
        x = make_tensor((1, 2, 8, 40), device=device, dtype=dtype)
        x[0, 0, 2, 3:5], x[0, 0, 4, 20] = float("nan"), float("inf")
        x[0, 1] = -float("inf")
        for kwargs in ({"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 2}):
            out = F.max_pool2d(x, **kwargs, return_indices=True)
            self.assertEqual([t.cpu() for t in out], list(F.max_pool2d(x.cpu(), **kwargs, return_indices=True)))
            self.assertEqual(F.avg_pool2d(x, **kwargs).cpu(), F.avg_pool2d(x.cpu(), **kwargs))
        self.assertEqual(F.adaptive_max_pool2d(x, 3).cpu(), F.adaptive_max_pool2d(x.cpu(), 3))

    @dtypes(torch.float32)
    def test_layouts(self, device, dtype):
        x = make_tensor((2, 3, 8, 10), device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)
        for function, kwargs in (
            (F.max_pool2d, {"kernel_size": 2}),
            (F.avg_pool2d, {"kernel_size": 2}),
            (F.adaptive_avg_pool2d, {"output_size": 3}),
        ):
            out, expected = function(x, **kwargs), function(x.cpu(), **kwargs)
            self.assertEqual(out.cpu(), expected)
            self.assertEqual(out.stride(), expected.stride())
            self.compare(function, x, kwargs)
            self.compare(function, make_tensor((2, 3, 8, 21), device=device, dtype=dtype)[:, 1:, :, 1::2], kwargs)
        empty = torch.empty(0, 3, 8, 8, device=device, requires_grad=True)
        F.max_pool2d(empty, 2).sum().backward()
        self.assertEqual(empty.grad.shape, empty.shape)
        out = torch.empty(0, device=device)
        torch.ops.aten.avg_pool2d.out(x, [2], out=out)
        self.assertEqual(out.cpu(), F.avg_pool2d(x.cpu(), 2))

    @dtypes(*FLOATS)
    def test_max_backward_of_overlapping_windows(self, device, dtype):
        """Windows that share inputs, NaN, infinities and equal values, in each memory format of input and gradient."""
        for function, shape, last, kwargs in (
            (F.max_pool2d, (2, 5, 13, 11), torch.channels_last, {"kernel_size": 3, "stride": 1, "padding": 1}),
            (F.max_pool2d, (2, 5, 13, 11), torch.channels_last, {"kernel_size": (4, 3), "stride": 2, "dilation": 2}),
            (F.max_pool3d, (2, 3, 6, 7, 9), torch.channels_last_3d, {"kernel_size": 3, "stride": (2, 1, 2)}),
            (F.adaptive_max_pool2d, (2, 5, 13, 11), torch.channels_last, {"output_size": (7, 15)}),
        ):
            x = make_tensor(shape, device="cpu", dtype=dtype, low=-3, high=3).round()
            x[0, 0].view(-1)[3:40:9] = math.nan
            x[1, 1], x[1, 2].view(-1)[::5] = -math.inf, math.inf
            for form in (torch.contiguous_format, last):
                b = x.double().clone().requires_grad_()
                a = x.to(device).contiguous(memory_format=form).requires_grad_()
                out, expected = function(a, **kwargs), function(b, **kwargs)
                grad = make_tensor(expected.shape, device="cpu", dtype=dtype, low=-1, high=1)
                expected.backward(grad.double())
                for grad_form in (torch.contiguous_format, last):
                    a.grad = None
                    out.backward(grad.to(device).contiguous(memory_format=grad_form), retain_graph=True)
                    # Sums of at most 27 terms below 1 in fp32, rounded once.
                    tol = {"atol": 27 * 2**-23, "rtol": torch.finfo(dtype).eps}
                    self.assertEqual(a.grad.cpu(), b.grad.to(dtype), **tol)
        gradient = torch.ops.aten.max_pool2d_with_indices_backward.grad_input
        out, index = F.max_pool2d(x, 3, 1, return_indices=True)
        apart = torch.empty(2, 5, 13, 22, dtype=dtype, device=device)[..., ::2]  # dense in no memory format
        window = ([3], [1], [0], [1], False)
        gradient(out.to(device), x.to(device), *window, index.to(device), grad_input=apart)
        self.assertEqual(apart.stride(-1), 2)
        self.assertEqual(apart.cpu(), torch.ops.aten.max_pool2d_with_indices_backward(out, x, *window, index))

    def compare_formats(self, pool, shape, dtype, device):
        """Compares output, strides and gradient with the CPU's of float64, for channels that come last and first."""
        last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        x = make_tensor(shape, device="cpu", dtype=dtype, low=-9, high=9).round()  # with equal values
        for form in (last, torch.contiguous_format):
            a = x.to(device).clone(memory_format=form).requires_grad_()
            b = x.double().clone(memory_format=form).requires_grad_()
            out, expected = [r if isinstance(r, tuple) else (r,) for r in (pool(a), pool(b))]
            for mine, reference in zip(out, expected, strict=True):
                self.assertEqual(mine.cpu(), reference.to(mine.dtype))
                self.assertEqual(mine.stride(), reference.stride())
            grad = make_tensor(expected[0].shape, device="cpu", dtype=dtype, low=-1, high=1)
            out[0].backward(grad.to(device).contiguous(memory_format=form))
            expected[0].backward(grad.double().contiguous(memory_format=form))
            self.assertEqual(a.grad.stride(), b.grad.stride())
            # Sums of at most 64 terms below 1 in fp32, rounded once; a term's factor is rounded too.
            tol = {"atol": 128 * 2**-23, "rtol": torch.finfo(dtype).eps}
            self.assertEqual(a.grad.cpu(), b.grad.to(dtype), **tol)

    @dtypes(*FLOATS)
    def test_formats(self, device, dtype):
        """Few and many channels, also such that no vector divides; the shapes above are those of single channels."""
        some = [70, 3, 16, 37, 2, 9, 24, 5, 130, 1, 8, 33, 4, 58] if dtype == torch.float32 else [37, 3, 40]
        channels = itertools.cycle(some)
        part = slice(None) if dtype == torch.float32 else slice(None, None, 2)
        for size, kwargs in WINDOWS[part]:
            maximum, average = (F.max_pool2d, F.avg_pool2d) if len(size) == 2 else (F.max_pool3d, F.avg_pool3d)
            for function, more in (
                (maximum, {"return_indices": True}),
                (average, {}),
                (average, {"count_include_pad": False}),
                (average, {"divisor_override": 7}),
            ):
                shape = (2, next(channels), *size)
                with self.subTest(f"{function.__name__} {shape} {kwargs} {more}"):
                    self.compare_formats(lambda t: function(t, **kwargs, **more), shape, dtype, device)
        for size, out in ADAPTIVE[part]:
            two = len(size) == 2
            maximum = F.adaptive_max_pool2d if two else F.adaptive_max_pool3d
            average = torch.ops.aten._adaptive_avg_pool2d if two else torch.ops.aten._adaptive_avg_pool3d
            target = out if isinstance(out, tuple) else (out,) * len(size)
            for name, pool in (("max", lambda t: maximum(t, target, True)), ("avg", lambda t: average(t, target))):
                shape = (2, next(channels), *size)
                with self.subTest(f"adaptive {name} {shape} {out}"):
                    self.compare_formats(pool, shape, dtype, device)

    @dtypes(torch.float32)
    def test_long_rows(self, device, dtype):
        """Rows that the gradient of the average takes in parts, and windows that are too long for it."""
        for width, kwargs in (
            (600, {"kernel_size": (2, 3), "stride": (2, 1), "padding": (0, 1)}),
            (531, {"kernel_size": (1, 2), "stride": (1, 2)}),
            (700, {"kernel_size": (2, 140), "stride": 1}),
            (700, {"kernel_size": (2, 40), "stride": (2, 30), "ceil_mode": True, "padding": (0, 20)}),
        ):
            self.compare_formats(lambda t: F.avg_pool2d(t, **kwargs), (1, 3, 4, width), dtype, device)
        for width, out in ((700, 300), (30, 400), (300, 7)):
            self.compare_formats(lambda t: F.adaptive_avg_pool2d(t, (3, out)), (1, 3, 4, width), dtype, device)

    @dtypes(torch.int64, torch.int32, torch.int8, torch.uint8)
    def test_integers_with_channels_last(self, device, dtype):
        pool = torch.ops.aten.max_pool2d_with_indices
        for channels in (3, 37):
            x = make_tensor((2, channels, 9, 10), device="cpu", dtype=dtype)
            x = x.contiguous(memory_format=torch.channels_last)
            expected = pool(x, [3], [2], [1])
            out = pool(x.to(device), [3], [2], [1])
            self.assertEqual([t.cpu() for t in out], list(expected))
            if dtype == torch.int64:
                self.assertEqual(F.avg_pool2d(x.to(device), 3, 2, 1).cpu(), F.avg_pool2d(x, 3, 2, 1))
                gradient = [
                    torch.ops.aten.avg_pool2d_backward(g, like, [3], [2], [1], False, True, None)
                    for g, like in ((expected[0], x), (out[0], x.to(device)))
                ]
                self.assertEqual(gradient[1].cpu(), gradient[0])

    @dtypes(torch.float32)
    def test_special_values_with_channels_last(self, device, dtype):
        x = make_tensor((1, 37, 8, 9), device="cpu", dtype=dtype)
        x[0, 0, 2, 3:5], x[0, 5, 4, 6], x[0, 36, 1, 1], x[0, 36, 2, 2] = math.nan, math.inf, math.nan, math.inf
        x[0, 1] = -math.inf
        for form in (torch.contiguous_format, torch.channels_last):
            x = x.contiguous(memory_format=form)
            for kwargs in ({"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 2}):
                out = F.max_pool2d(x.to(device), **kwargs, return_indices=True)
                self.assertEqual([t.cpu() for t in out], list(F.max_pool2d(x, **kwargs, return_indices=True)))
                self.assertEqual(F.avg_pool2d(x.to(device), **kwargs).cpu(), F.avg_pool2d(x, **kwargs))
            for size in (1, 3, (4, 3)):
                out = F.adaptive_max_pool2d(x.to(device), size, return_indices=True)
                self.assertEqual([t.cpu() for t in out], list(F.adaptive_max_pool2d(x, size, return_indices=True)))
            grad = x[..., :7].contiguous(memory_format=form)
            gradient = [
                torch.ops.aten.avg_pool2d_backward(g, like, [2, 3], [1], [0], False, True, None)
                for g, like in ((grad[:, :, 1:], x), (grad[:, :, 1:].to(device), x.to(device)))
            ]
            self.assertEqual(gradient[1].cpu(), gradient[0])

    @dtypes(torch.float32)
    def test_views_with_channels_last(self, device, dtype):
        """Parts of the channels or of the image, an output in another format, and the input as output."""
        x = make_tensor((2, 40, 9, 12), device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)
        for part in (x[:, 3:20], x[:, :, 1:, 2:], x[:, ::2]):
            for pool in (
                lambda t: F.max_pool2d(t, 3, 2, 1, return_indices=True),
                lambda t: (F.avg_pool2d(t, 3, 2, 1),),
            ):
                self.assertEqual([t.cpu() for t in pool(part)], list(pool(part.cpu())))
        out = torch.empty(2, 40, 4, 6, device=device)
        torch.ops.aten.avg_pool2d.out(x, [2], out=out)
        self.assertEqual(out.cpu(), F.avg_pool2d(x.cpu(), 2))
        self.assertTrue(out.is_contiguous())
        expected = F.avg_pool2d(x.cpu(), 3, 1, 1)
        torch.ops.aten.avg_pool2d.out(x, [3], [1], [1], out=x)
        self.assertEqual(x.cpu(), expected)

    @dtypes(torch.float32)
    def test_max_backward_reports_indices(self, device, dtype):
        x, index = torch.ones(1, 2, 4, 4, device=device), torch.full((1, 2, 2, 2), 16, device=device)
        last = {"memory_format": torch.channels_last}
        for wrong in (index, index - 17):
            with self.assertRaisesRegex(IndexError, "max_pool2d_with_indices_backward"):
                like = x.contiguous(**last), [2], [2], [0], [1], False, wrong.contiguous(**last)
                torch.ops.aten.max_pool2d_with_indices_backward(x[..., :2, :2], *like)
                torch.netcl.synchronize()
            with self.assertRaisesRegex(IndexError, "max_pool2d_with_indices_backward"):
                torch.ops.aten.max_pool2d_with_indices_backward(x[..., :2, :2], x, [2], [2], [0], [1], False, wrong)
                torch.netcl.synchronize()
            with self.assertRaisesRegex(IndexError, "fractional_max_pool2d_backward"):
                torch.ops.aten.fractional_max_pool2d_backward(x[..., :2, :2], x, [2, 2], [2, 2], wrong)
                torch.netcl.synchronize()

    @dtypes(torch.float32, torch.float16)
    def test_unpool(self, device, dtype):
        for function, back, shape in (
            (F.max_pool2d, F.max_unpool2d, (2, 3, 8, 10)),
            (F.max_pool3d, F.max_unpool3d, (2, 3, 4, 6, 8)),
            (F.max_pool1d, F.max_unpool1d, (2, 3, 8)),
        ):
            x = make_tensor(shape, device=device, dtype=dtype)
            out, index = function(x, 2, return_indices=True)
            mine = out.detach().requires_grad_()
            ref = out.detach().cpu().requires_grad_()
            result, expected = back(mine, index, 2), back(ref, index.cpu(), 2)
            self.assertEqual(result.cpu(), expected)
            result.square().sum().backward()
            expected.square().sum().backward()
            self.assertEqual(mine.grad.cpu(), ref.grad)

    def test_an_image_of_channels_last_3d_without_a_batch(self, device):
        x = torch.randn(1, 4, 6, 6, 6).to(memory_format=torch.channels_last_3d)[0]
        y = x.to(device)
        for got, want in zip(*(F.max_pool3d(t, 2, return_indices=True) for t in (y, x)), strict=True):
            self.assertEqual(got.cpu(), want)
            self.assertEqual(got.stride(), want.stride())

    @dtypes(torch.float32)
    def test_errors(self, device, dtype):
        for f in (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d):
            with self.assertRaisesRegex(NotImplementedError, "'Long'"):
                f(torch.ones(1, 2, 4, 4, 4, dtype=torch.int64, device=device)[(0,) * (3 - int(f.__name__[-2]))], 2)
        x = make_tensor((2, 3, 8, 10), device=device, dtype=dtype)
        with self.assertRaisesRegex(RuntimeError, "pad should be at most half"):
            F.max_pool2d(x, 2, padding=2)
        with self.assertRaisesRegex(RuntimeError, "Output size is too small"):
            F.avg_pool2d(x, 20)
        index = torch.full((2, 3, 4, 5), 1000, device=device)
        with self.assertRaisesRegex(IndexError, "max_unpool2d"):
            F.max_unpool2d(x[..., :4, :5], index, 2)
            torch.netcl.synchronize()

    @dtypes(torch.float32)
    def test_unpool_errors(self, device, dtype):
        unpool2d, unpool3d = torch.ops.aten.max_unpool2d, torch.ops.aten.max_unpool3d
        two, three, zero = [2] * 2, [2] * 3, [0] * 3
        for case in (
            lambda x, i: unpool2d(x, i.float(), two),
            lambda x, i: unpool2d(x, i[:, 1:], two),
            lambda x, i: unpool2d(x, i, three),
            lambda x, i: unpool2d(x[0, 0], i[0, 0], two),
            lambda x, i: unpool2d(x[:, :0], i[:, :0], two),
            lambda x, i: unpool3d(x, i.float(), three, three, zero),
            lambda x, i: unpool3d(x, i, two, three, zero),
            lambda x, i: unpool3d(x, i, three, two, zero),
            lambda x, i: unpool3d(x, i, three, three, [0]),
            lambda x, i: unpool3d(x, i, three, [2, 0, 2], zero),
            lambda x, i: unpool3d(x[0], i[0], three, three, zero),
            lambda x, i: unpool3d(x[:, :, :0], i[:, :, :0], three, three, zero),
        ):
            x, index = torch.ones(2, 3, 4, 5), torch.zeros(2, 3, 4, 5, dtype=torch.long)
            with self.assertRaises(RuntimeError) as expected:
                case(x, index)
            with self.assertRaises(RuntimeError) as raised:
                case(x.to(device), index.to(device))
            words = re.sub(r"^\w+\(\): ", "", str(expected.exception)).split(" but got")[0]
            self.assertIn(words, str(raised.exception))

    # The random numbers are passed as arguments, so both sides use the same pooling regions.
    @dtypes(torch.float32, torch.bfloat16)
    def test_fractional(self, device, dtype):
        for pool, size, out, kernel in (
            (F.fractional_max_pool2d, (11, 8), (5, 1), (2, 3)),
            (F.fractional_max_pool3d, (7, 9, 6), (3, 4, 2), (2, 2, 3)),
        ):
            x = make_tensor((2, 3, *size), device=device, dtype=dtype)
            x[0, 1, 2, 2] = math.nan
            drawn = make_tensor((2, 3, len(size)), device="cpu", dtype=dtype, low=0, high=1)
            a, b = x.clone().requires_grad_(), x.cpu().requires_grad_()
            got = pool(a, kernel, output_size=out, _random_samples=drawn.to(device), return_indices=True)
            expected = pool(b, kernel, output_size=out, _random_samples=drawn, return_indices=True)
            self.assertEqual([t.cpu() for t in got], list(expected))
            grad = torch.ones_like(expected[0])
            got[0].backward(grad.to(device))
            expected[0].backward(grad)
            self.assertEqual(a.grad.cpu(), b.grad)

    @dtypes(torch.float32)
    def test_fractional_without_elements(self, device, dtype):
        for name, dims in (("fractional_max_pool2d", 2), ("fractional_max_pool3d", 3)):
            x, drawn = torch.randn(1, 3, *[9] * dims), torch.rand(1, 3, dims)
            args = ([0] * dims, [2] * dims)
            expected = getattr(torch.ops.aten, name)(x, *args, drawn)
            got = getattr(torch.ops.aten, name)(x.to(device), *args, drawn.to(device))
            self.assertEqual([t.cpu() for t in got], list(expected))

    @dtypes(torch.float32)
    def test_backward_checks_its_planes(self, device, dtype):
        """Errors that ATen's own checks miss: a kernel would read beyond the smaller tensor."""
        aten = torch.ops.aten

        def x(*shape):
            return torch.ones(shape, device=device, dtype=dtype)

        def at(*shape, dtype=torch.int64):
            return torch.zeros(shape, device=device, dtype=dtype)

        for grad, like in [
            (x(1), x(1)),
            (x(2, 2), x(2, 2)),
            (x(1, 2, 2, 2, 2), x(8, 2, 2, 2, 2)),
            (x(8, 1, 2, 2, 2), x(8, 2, 2, 2, 2)),
        ]:
            for op in (aten._adaptive_avg_pool2d_backward, aten._adaptive_avg_pool3d_backward):
                if op is aten._adaptive_avg_pool3d_backward or grad.dim() != 5:
                    self.assertRaises(RuntimeError, op, grad, like)
        y = x(2, 4, 4)
        for grad, indices in [
            (x(2, 2, 2), at(2, 2, 1)),
            (x(2, 2, 2), at(2, 2, 2, dtype=torch.int32)),
            (x(1, 2, 2), at(1, 2, 2)),
        ]:
            self.assertRaises(RuntimeError, aten.adaptive_max_pool2d_backward, grad, y, indices)


class TestPadding(TestCase):
    @dtypes(*FLOATS)
    def test_modes(self, device, dtype):
        for mode in ("reflect", "replicate", "constant"):
            for shape, pads in PADS:
                with self.subTest(f"{mode} {shape} {pads}"):
                    x = make_tensor(shape, device=device, dtype=dtype, low=-1, high=1)
                    a, b = x.clone().requires_grad_(), x.cpu().double().requires_grad_()
                    out, expected = F.pad(a, pads, mode), F.pad(b, pads, mode)
                    self.assertEqual(out.cpu(), expected.to(dtype), atol=0, rtol=0)
                    grad = make_tensor(out.shape, device="cpu", dtype=dtype, low=-1, high=1)
                    out.backward(grad.to(device))
                    expected.backward(grad.double())
                    # Sums of at most 60 terms in fp32, rounded once.
                    self.assertEqual(a.grad.cpu(), b.grad.to(dtype), atol=2e-5, rtol=torch.finfo(dtype).eps)

    @dtypes(torch.int64, torch.bool, torch.complex64, torch.uint8)
    def test_other_dtypes(self, device, dtype):
        x = make_tensor((2, 3, 7, 9), device=device, dtype=dtype)
        for mode in ("reflect", "replicate"):
            if dtype == torch.bool:
                reference = F.pad(x.cpu().to(torch.uint8), (2, 3, 1, 0), mode).bool()
            else:
                reference = F.pad(x.cpu(), (2, 3, 1, 0), mode)
            self.assertEqual(F.pad(x, (2, 3, 1, 0), mode).cpu(), reference)

    @dtypes(*FLOATS)
    def test_unfold_fold(self, device, dtype):
        for shape, kwargs in (
            ((2, 3, 7, 9), {"kernel_size": 3, "padding": 1}),
            ((2, 3, 8, 9), {"kernel_size": (2, 3), "stride": (2, 1), "dilation": (1, 2)}),
            ((3, 8, 9), {"kernel_size": 2, "stride": 3, "padding": 1}),
        ):
            x = make_tensor(shape, device=device, dtype=dtype, low=-1, high=1)
            a, b = x.clone().requires_grad_(), x.cpu().double().requires_grad_()
            out, expected = F.unfold(a, **kwargs), F.unfold(b, **kwargs)
            self.assertEqual(out.cpu(), expected.to(dtype), atol=0, rtol=0)
            grad = make_tensor(out.shape, device="cpu", dtype=dtype, low=-1, high=1)
            out.backward(grad.to(device))
            expected.backward(grad.double())
            tol = {"atol": 1e-5, "rtol": torch.finfo(dtype).eps}
            self.assertEqual(a.grad.cpu(), b.grad.to(dtype), **tol)
            folded = F.fold(grad.to(device), shape[-2:], **kwargs)
            self.assertEqual(folded.cpu(), F.fold(grad.double(), shape[-2:], **kwargs).to(dtype), **tol)

    @dtypes(torch.float32)
    def test_shuffles(self, device, dtype):
        x = make_tensor((2, 8, 4, 6), device=device, dtype=dtype)
        self.assertEqual(F.pixel_shuffle(x, 2).cpu(), F.pixel_shuffle(x.cpu(), 2))
        self.assertEqual(F.pixel_unshuffle(x, 2).cpu(), F.pixel_unshuffle(x.cpu(), 2))
        self.assertEqual(F.channel_shuffle(x, 4).cpu(), F.channel_shuffle(x.cpu(), 4))

    @dtypes(torch.float32)
    def test_errors_and_out(self, device, dtype):
        x = make_tensor((2, 3, 7, 9), device=device, dtype=dtype)
        with self.assertRaisesRegex(RuntimeError, "Padding size should be less"):
            F.pad(x, (9, 0, 0, 0), "reflect")
        out = torch.empty(0, device=device)
        torch.ops.aten.reflection_pad2d.out(x, [1, 2, 3, 4], out=out)
        self.assertEqual(out.cpu(), F.pad(x.cpu(), (1, 2, 3, 4), "reflect"))
        last = x.contiguous(memory_format=torch.channels_last)
        self.assertEqual(F.pad(last, (1, 2, 3, 4), "replicate").cpu(), F.pad(x.cpu(), (1, 2, 3, 4), "replicate"))
        self.assertEqual(F.pad(last, (1, 2, 3, 4), "reflect").cpu(), F.pad(x.cpu(), (1, 2, 3, 4), "reflect"))

    def test_negative_padding_leaves_nothing(self, device):
        x = torch.randn(2, 3, 4, 5)
        for mode in ("constant", "replicate", "reflect"):
            for pads in ((-2, -3, 0, 1), (1, 2, -1, -3), (-5, 0, 0, 0)):
                self.assertEqual(F.pad(x.to(device), pads, mode).cpu(), F.pad(x, pads, mode))


for case in (TestPooling, TestPadding):
    instantiate_device_type_tests(case, globals(), only_for=("privateuse1", "netcl"))

if __name__ == "__main__":
    run_tests()
