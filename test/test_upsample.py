"""Interpolation, forward and backward, against the CPU."""

import itertools
import math

import torch
import torch.nn.functional as F
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl  # noqa: F401

SHAPES = {1: (2, 3, 7), 2: (2, 3, 5, 7), 3: (1, 2, 3, 4, 5)}
CASES = [
    ("nearest", (1, 2, 3), (None,)),
    ("nearest-exact", (1, 2, 3), (None,)),
    ("linear", (1,), (False, True)),
    ("bilinear", (2,), (False, True)),
    ("trilinear", (3,), (False, True)),
    ("bicubic", (2,), (False, True)),
]


class TestUpsample(TestCase):
    def check(self, device, dtype, shape, channels_last=False, **kwargs):
        x = torch.randn(shape).to(dtype)
        if channels_last:
            x = x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
        a, b = x.to(device).requires_grad_(), x.double().requires_grad_()
        y, ref = F.interpolate(a, **kwargs), F.interpolate(b, **kwargs)
        # Coordinates of size ~10 have an error of 1e-6 in float32, and so have the weights; longer lines have more.
        eps = torch.finfo(dtype).eps
        least = 1e-5 * max(1, x.shape[-1] / 15)
        tolerance = {"rtol": max(2 * eps, least), "atol": max(2 * eps, least)}
        self.assertEqual(y.dtype, dtype)
        self.assertEqual(y.detach().cpu(), ref.detach().to(dtype), **tolerance)
        self.assertEqual(y.stride(), ref.stride())
        g = torch.randn_like(ref).to(dtype)
        y.backward(g.to(device))
        ref.backward(g.double())
        self.assertEqual(a.grad.stride(), a.stride())
        # A gradient of n terms of size ~1: n is at most 64 here.
        self.assertEqual(a.grad.cpu(), b.grad.to(dtype), rtol=max(4 * eps, least), atol=max(4 * eps, 6 * least))

    @dtypes(torch.float32, torch.float16)
    def test_interpolate(self, device, dtype):
        torch.netcl.reset_cpu_fallback_ops()
        for mode, ndims, aligns in CASES:
            for n in ndims:
                for align in aligns:
                    kwargs = {"mode": mode} if align is None else {"mode": mode, "align_corners": align}
                    with self.subTest(mode=mode, n=n, align=align):
                        self.check(device, dtype, SHAPES[n], scale_factor=2, **kwargs)
                        self.check(device, dtype, SHAPES[n], size=[4, 9, 3][:n], **kwargs)
                        if not align:
                            self.check(
                                device,
                                dtype,
                                SHAPES[n],
                                scale_factor=1.7,
                                recompute_scale_factor=False,
                                **kwargs,
                            )
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    @dtypes(torch.float32, torch.bfloat16, torch.float64)
    def test_layouts(self, device, dtype):
        """Widths and channels that are whole vectors and that are not, in both layouts; several blocks of columns."""
        shapes = [(2, 3, 4, 41), (1, 16, 3, 7), (2, 21, 17, 3), (1, 1, 2, 50), (1, 3, 2, 3, 18)]
        for mode, ndims, aligns in CASES:
            for shape, align, last in itertools.product(shapes, aligns, (False, True)):
                if len(shape) - 2 not in ndims:
                    continue
                kwargs = {"mode": mode} if align is None else {"mode": mode, "align_corners": align}
                with self.subTest(shape=shape, channels_last=last, **kwargs):
                    self.check(device, dtype, shape, channels_last=last, scale_factor=2, **kwargs)
                    self.check(device, dtype, shape, channels_last=last, size=[6, 5, 7][: len(shape) - 2], **kwargs)
        for last in (False, True):
            # More columns than a block has, and more outputs of one input than its tables hold.
            self.check(device, dtype, (1, 5, 2, 300), channels_last=last, size=(3, 700), mode="bicubic")
            self.check(device, torch.float64, (1, 5, 1, 1), channels_last=last, size=(2, 300), mode="bilinear")
            self.check(device, torch.float64, (1, 5, 1, 1), channels_last=last, size=(2, 1200), mode="nearest")

    def test_mixed_layouts(self, device):
        """The gradient has the other layout than the input."""
        for mode in ("nearest", "bilinear"):
            for last in (False, True):
                formats = [torch.contiguous_format, torch.channels_last]
                x = torch.randn(2, 6, 5, 7).contiguous(memory_format=formats[last])
                g = torch.randn(2, 6, 10, 14).contiguous(memory_format=formats[not last])
                a, b = x.to(device).requires_grad_(), x.clone().requires_grad_()
                F.interpolate(a, scale_factor=2, mode=mode).backward(g.to(device))
                F.interpolate(b, scale_factor=2, mode=mode).backward(g)
                # 16 terms of size ~1.
                self.assertEqual(a.grad.cpu(), b.grad, atol=1e-5, rtol=1e-5)

    def test_not_finite(self, device):
        """A tap with weight 0 counts too: it makes NaN of an infinity, as on the CPU."""
        for value, shape in itertools.product((float("inf"), float("nan")), ((1, 2, 3, 40), (1, 18, 3, 6))):
            for last in (False, True):
                x = torch.randn(shape)
                x[:, :, 1, ::4] = value
                x[:, 1, 0, 1] = value
                x = x.contiguous(memory_format=torch.channels_last) if last else x
                for mode in ("nearest", "bilinear"):
                    want = F.interpolate(x, scale_factor=2, mode=mode)
                    got = F.interpolate(x.to(device), scale_factor=2, mode=mode)
                    self.assertEqual(got.cpu(), want, atol=1e-5, rtol=1e-5)
                    a, b = torch.zeros(shape).to(device).requires_grad_(), torch.zeros(shape).requires_grad_()
                    g = want.clone()
                    F.interpolate(a, scale_factor=2, mode=mode).backward(g.to(device))
                    F.interpolate(b, scale_factor=2, mode=mode).backward(g)
                    self.assertEqual(a.grad.cpu(), b.grad, atol=1e-5, rtol=1e-5)

    @dtypes(torch.float32, torch.bfloat16)
    def test_antialias(self, device, dtype):
        torch.netcl.reset_cpu_fallback_ops()
        newer = ("lanczos",) if hasattr(torch.ops.aten, "_upsample_lanczos2d_aa") else ()
        for mode in ("bilinear", "bicubic", *newer):
            aligned = {"size": (9, 5), "align_corners": True}
            for kwargs in ({"size": (3, 4)}, {"size": (1, 1)}, {"size": (11, 23)}, aligned, {"scale_factor": 0.37}):
                if mode == "lanczos" and kwargs is aligned:
                    continue  # F.interpolate refuses it
                with self.subTest(mode=mode, **kwargs):
                    self.check(device, dtype, (2, 3, 9, 16), mode=mode, antialias=True, **kwargs)
        self.check(device, dtype, (2, 3, 9, 16), channels_last=True, mode="bilinear", size=(4, 5), antialias=True)
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    def test_bytes(self, device):
        """uint8 equals the CPU bit for bit: both add integers in the same passes."""
        g = torch.Generator().manual_seed(0)
        torch.netcl.reset_cpu_fallback_ops()
        sizes = [(3, 4), (1, 1), (11, 23), (9, 16), (9, 5), (40, 16), (2, 60)]
        forms = [{"size": s, "align_corners": a} for s in sizes for a in (False, True)]
        forms += [{"scale_factor": f} for f in (0.37, 1.7, (2.0, 0.4))]
        modes = [(m, aa) for m in ("bilinear", "bicubic") for aa in (False, True)]
        modes += [("lanczos", True)] if hasattr(torch.ops.aten, "_upsample_lanczos2d_aa") else []
        images = {
            "noise": torch.randint(256, (2, 3, 9, 16), dtype=torch.uint8, generator=g),
            "extremes": 255 * torch.randint(2, (1, 5, 9, 16), dtype=torch.uint8, generator=g),
            "channels last": torch.randint(256, (2, 3, 9, 16), dtype=torch.uint8, generator=g).contiguous(
                memory_format=torch.channels_last),
            "small": torch.randint(256, (1, 1, 3, 5), dtype=torch.uint8, generator=g),
        }  # fmt: skip
        for (mode, antialias), (name, image), form in itertools.product(modes, images.items(), forms):
            if mode == "lanczos" and form.get("align_corners"):
                continue  # F.interpolate refuses it
            with self.subTest(mode=mode, antialias=antialias, image=name, **form):
                # For up to 4 channels, torch raises an internal assertion if the output is one pixel.
                few = form.get("size") != (1, 1)
                source = image if few else image.repeat(1, 5, 1, 1)
                want = F.interpolate(source, mode=mode, antialias=antialias, **form)[:, : image.shape[1]]
                got = F.interpolate(image.to(device), mode=mode, antialias=antialias, **form)
                self.assertEqual(got.cpu(), want, atol=0, rtol=0)
                self.assertEqual(got.dtype, torch.uint8)
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})
        for mode, shape in (("linear", (1, 2, 9)), ("trilinear", (1, 2, 4, 5, 6))):
            with self.assertRaisesRegex(RuntimeError, "floating-point"):
                F.interpolate(torch.zeros(shape, dtype=torch.uint8, device=device), scale_factor=2, mode=mode)

    def test_grid_sample(self, device):
        torch.netcl.reset_cpu_fallback_ops()
        x = torch.randn(2, 3, 5, 7)
        # In and around the image, not on the borders between pixels, where gradients jump.
        grid = torch.rand(2, 4, 3, 2) * 3.1 - 1.57
        for mode in ("bilinear", "nearest", "bicubic"):
            for padding in ("zeros", "border", "reflection"):
                for align in (False, True):
                    with self.subTest(mode=mode, padding=padding, align=align):
                        kwargs = {"mode": mode, "padding_mode": padding, "align_corners": align}
                        a, b = x.to(device).requires_grad_(), x.clone().requires_grad_()
                        p, q = grid.to(device).requires_grad_(), grid.clone().requires_grad_()
                        y, ref = F.grid_sample(a, p, **kwargs), F.grid_sample(b, q, **kwargs)
                        # Coordinates of size 7 in float32: weights have an error of about 1e-6.
                        self.assertEqual(y.detach().cpu(), ref.detach(), atol=1e-5, rtol=1e-5)
                        g = torch.randn_like(ref)
                        y.backward(g.to(device))
                        ref.backward(g)
                        self.assertEqual(a.grad.cpu(), b.grad, atol=2e-5, rtol=1e-5)
                        self.assertEqual(p.grad.cpu(), q.grad, atol=1e-4, rtol=1e-5)
        x3, grid3 = torch.randn(2, 3, 4, 5, 6), torch.rand(2, 2, 4, 3, 3) * 3.1 - 1.57
        for mode, padding, align in (
            ("bilinear", "zeros", False),
            ("nearest", "border", True),
            ("bilinear", "reflection", False),
        ):
            kwargs = {"mode": mode, "padding_mode": padding, "align_corners": align}
            a, b = x3.to(device).requires_grad_(), x3.clone().requires_grad_()
            p, q = grid3.to(device).requires_grad_(), grid3.clone().requires_grad_()
            y, ref = F.grid_sample(a, p, **kwargs), F.grid_sample(b, q, **kwargs)
            self.assertEqual(y.detach().cpu(), ref.detach(), atol=1e-5, rtol=1e-5)
            g = torch.randn_like(ref)
            y.backward(g.to(device))
            ref.backward(g)
            self.assertEqual(a.grad.cpu(), b.grad, atol=2e-5, rtol=1e-5)
            self.assertEqual(p.grad.cpu(), q.grad, atol=1e-4, rtol=1e-5)
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})
        with self.assertRaisesRegex(RuntimeError, "only supports|bicubic"):
            torch.grid_sampler_3d(x3.to(device), grid3.to(device), 2, 0, False)
        half = F.grid_sample(x.half().to(device), grid.half().to(device), align_corners=False)
        ref = F.grid_sample(x.half().float(), grid.half().float(), align_corners=False).half()
        self.assertEqual(half.cpu(), ref)
        # Pixels that taps outside the image must not touch, and more points than a work-item takes at once.
        x[0, 1, 0, 0], x[1, 0, 4, 6], x[1, 2, 2, 2] = math.inf, math.nan, -math.inf
        many = torch.rand(2, 60, 50, 2) * 3.1 - 1.57
        for mode in ("bilinear", "nearest"):
            ref = F.grid_sample(x, many, mode, align_corners=False)
            self.assertEqual(F.grid_sample(x.to(device), many.to(device), mode, align_corners=False).cpu(), ref)
        self.assertEqual(F.grid_sample(x.to(device), grid[:, :0].to(device), align_corners=False).shape, (2, 3, 0, 3))
        with self.assertRaisesRegex(RuntimeError, "one dtype|same dtype"):
            F.grid_sample(x.to(device), grid.half().to(device), align_corners=False)

    def test_layouts_and_dtypes(self, device):
        self.check(device, torch.float64, (1, 2, 4, 5), scale_factor=1.5, mode="bilinear")
        self.check(device, torch.bfloat16, (1, 2, 4, 5), scale_factor=2, mode="bilinear")
        self.check(device, torch.float32, (2, 4, 4, 5), channels_last=True, scale_factor=2, mode="bilinear")
        x = torch.randint(255, (1, 2, 3, 4), dtype=torch.uint8)
        self.assertEqual(F.interpolate(x.to(device), scale_factor=2).cpu(), F.interpolate(x, scale_factor=2))
        x = torch.randn(0, 2, 3, 3, device=device)
        self.assertEqual(F.interpolate(x, scale_factor=2).shape, (0, 2, 6, 6))


instantiate_device_type_tests(TestUpsample, globals(), only_for="netcl")

if __name__ == "__main__":
    run_tests()
