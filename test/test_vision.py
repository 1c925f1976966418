"""torchvision's operators on netcl, forward and backward, against plain PyTorch on the CPU, and against torchvision's
own CPU kernels if they can be loaded."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

import torch
import torchvision_ops
from common import DEVICE, check_gpu_shape
from torch.testing._internal.common_utils import (
    DeterministicGuard,
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401

ops = torchvision_ops.load()
FP64 = torch.netcl.is_available() and torch.netcl.get_device_properties().has_fp64
DTYPES = [torch.float32, torch.float16, torch.bfloat16] + [torch.float64] * FP64
ROI = ["roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"]


def boxes(n, size=50.0):
    corner = torch.rand(n, 2) * size
    return torch.cat([corner, corner + torch.rand(n, 2) * size / 2], 1)


def regions(images, height, width):
    """Regions within the image, beyond its edges, of no size, with swapped edges, and large ones, of all images."""
    size = torch.tensor([width, height, width, height])
    rois = torch.tensor([
        [0.1, 0.2, 0.6, 0.9], [-0.3, -0.2, 0.4, 0.5], [0.7, 0.6, 1.4, 1.3], [0.3, 0.3, 0.3, 0.3], [0.8, 0.7, 0.2, 0.1],
        [1.5, 1.5, 2.0, 2.0], [-2.0, -1.0, 3.0, 2.0], [0.0, 0.0, 1.0, 1.0],
    ])  # fmt: skip
    rois = rois + torch.rand(rois.shape) * 0.03
    image = torch.arange(len(rois))[:, None] % images
    return torch.cat([image, 2 * rois * size], 1)  # the scale is 0.5


def arguments(name, sampling=2, aligned=True, scale=0.5, size=(3, 2)):
    extra = {"roi_align": (sampling, aligned), "ps_roi_align": (sampling,)}
    return (scale, *size, *extra.get(name, ()))


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestVision(TestCase):
    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        torch.netcl.reset_cpu_fallback_ops()

    def tearDown(self):
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})
        super().tearDown()

    def check_nms(self, b, scores, threshold):
        got = ops.nms(b.to(DEVICE), scores.to(DEVICE), threshold)
        self.assertEqual(got.dtype, torch.int64)
        # 16-bit boxes are compared in float.
        wide = b if b.dtype == torch.float64 else b.float()
        self.assertEqual(got.cpu(), torchvision_ops.nms(wide, scores, threshold), msg=f"{len(b)} {threshold}")

    @parametrize("dtype", DTYPES)
    def test_nms(self, dtype):
        for n in (1, 3, 63, 64, 65, 300):
            for threshold in (0.0, 0.3, 0.7):
                self.check_nms(boxes(n).to(dtype), torch.rand(n).to(dtype), threshold)
        # Few boxes are left of many, and nearly all.
        self.check_nms(boxes(500, 5.0).to(dtype), torch.rand(500), 0.2)
        self.check_nms(boxes(500, 5000.0).to(dtype), torch.rand(500), 0.2)

    def test_nms_unusual(self):
        b, scores = boxes(130), torch.rand(130)
        self.check_nms(b.repeat(2, 1), scores.repeat(2), 0.999)  # each box twice, with equal scores
        self.check_nms(b, torch.ones(130), 0.5)
        self.check_nms(b[:, [2, 3, 0, 1]], scores, 0.5)  # swapped edges
        self.check_nms(torch.zeros(5, 4), torch.rand(5), 0.5)  # 0 / 0
        odd = b.clone()
        odd[::3, 1], odd[1::3, 2] = torch.nan, torch.inf
        self.check_nms(odd, scores, 0.5)
        self.check_nms(b, scores, -1.0)
        wide = torch.rand(130, 9) * 50
        wide[:, 5:] += 25
        self.check_nms(wide[:, 1::2], torch.rand(260)[::2], 0.3)  # strided
        empty = ops.nms(torch.empty(0, 4, device=DEVICE), torch.empty(0, device=DEVICE), 0.5)
        self.assertEqual((empty.shape, empty.dtype), ((0,), torch.int64))
        scores[::7] = torch.nan
        self.check_nms(b, scores, 0.5)

    def test_nms_errors(self):
        b, s = torch.rand(3, 4, device=DEVICE), torch.rand(3, device=DEVICE)
        for args, text in (
            ((b[0], s), "boxes should be a 2d tensor, got 1D"),
            ((b[:, :3], s), "boxes should have 4 elements in dimension 1, got 3"),
            ((b, b), "scores should be a 1d tensor, got 2D"),
            ((b, s[:2]), "boxes and scores should have same number of elements in dimension 0, got 3 and 2"),
            ((b.long(), s), "not implemented for 'Long'"),
        ):
            with self.assertRaisesRegex(RuntimeError, text):
                ops.nms(*args, 0.5)

    def check_regions(self, name, x, rois, args):
        """Result, place or channel of each, and gradient, against the reference."""
        a, b = x.to(DEVICE).requires_grad_(), x.clone().requires_grad_()
        got, want = getattr(ops, name)(a, rois.to(DEVICE), *args), torchvision_ops.REFERENCES[name](b, rois, *args)
        if isinstance(want, tuple):
            self.assertEqual(got[1].cpu(), want[1])
            got, want = got[0], want[0]
        self.assertEqual(got.dtype, x.dtype)
        # The coordinates are computed in float, with an error of eps times the image's size of 16.
        eps = torch.finfo(x.dtype).eps
        self.assertEqual(got.detach().cpu(), want.detach(), atol=max(2 * eps, 2e-5), rtol=2 * eps)
        g = torch.randn(want.shape).to(x.dtype)
        got.backward(g.to(DEVICE))
        if name == "ps_roi_pool":
            want = torchvision_ops.ps_roi_pool(b, rois, *args, less=0)[0]
        want.backward(g)
        # Up to 8 regions with 6 bins add to a pixel; the CPU's sums of 16-bit numbers are rounded at each.
        self.assertEqual(a.grad.cpu(), b.grad, atol=max(48 * eps, 1e-4), rtol=max(8 * eps, 1e-5))

    @parametrize("dtype", DTYPES)
    @parametrize("name", ROI)
    def test_regions(self, name, dtype):
        x = torch.randn(2, 12, 13, 16)
        rois = regions(2, 13, 16)
        if name == "ps_roi_align":  # 0 / 0 if the region's size is 0; see test_regions_without_points
            rois = rois[[0, 1, 2, 5, 6, 7]]
        for sampling, aligned in ((2, True), (-1, True), (0, False), (3, False)):
            if "align" in name or sampling == 2:
                self.check_regions(name, x.to(dtype), rois.to(dtype), arguments(name, sampling, aligned))

    @parametrize("name", ROI)
    def test_regions_in_other_layouts(self, name):
        """More channels than a work-item takes, one image, one region, and strided tensors."""
        rois = regions(1, 13, 16)[:3]
        self.check_regions(name, torch.randn(1, 42, 13, 16), rois, arguments(name))
        self.check_regions(name, torch.randn(1, 6, 13, 16), rois[:1], arguments(name))
        x = torch.randn(2, 13, 16, 12).permute(0, 3, 1, 2)
        self.check_regions(name, x, torch.randn(3, 10)[:, ::2].abs().clamp(max=1.4), arguments(name, scale=2.0))
        self.check_regions(name, torch.randn(2, 12, 1, 1), regions(2, 1, 1)[:3], arguments(name))

    @parametrize("name", ROI)
    def test_empty(self, name):
        call = getattr(ops, name)
        for shape, k in (((2, 6, 5, 5), 0), ((0, 6, 5, 5), 0), ((2, 0, 5, 5), 3), ((2, 6, 0, 5), 3)):
            x = torch.zeros(shape, device=DEVICE, requires_grad=True)
            got = call(x, torch.zeros(k, 5, device=DEVICE), *arguments(name))
            got = got[0] if isinstance(got, tuple) else got
            channels = shape[1] // (6 if name.startswith("ps") else 1)
            self.assertEqual(got.shape, (k, channels, 3, 2))
            self.assertEqual(got.abs().sum().item(), 0)
            got.sum().backward()
            self.assertEqual(x.grad.shape, shape)

    @parametrize("name", ROI)
    def test_nan_and_huge_regions(self, name):
        """They read nothing outside of the input, and end."""
        x = torch.randn(1, 6, 5, 5)
        odd = [torch.nan, torch.inf, -torch.inf, 1e9, -1e9, 1e30, 3e38]
        rois = torch.tensor([[0, *([v] * 4)] for v in odd] + [[0, -v, -v, v, v] for v in odd] + [[0, 1, 1, 3, 3.0]])
        for sampling in (0, 2):
            leaf = x.to(DEVICE).requires_grad_()
            got = getattr(ops, name)(leaf, rois.to(DEVICE), *arguments(name, sampling, scale=1.0))
            got = got[0] if isinstance(got, tuple) else got
            got.nan_to_num(0.0).sum().backward()
            want = torchvision_ops.REFERENCES[name](x, rois[-1:], *arguments(name, sampling, scale=1.0))
            want = want[0] if isinstance(want, tuple) else want
            self.assertEqual(got[-1:].detach().cpu(), want)
            self.assertTrue(leaf.grad.isfinite().all().item())

    def test_nan_in_the_input(self):
        """A NaN makes those bins NaN that take its pixel; roi_pool takes no NaN, and nothing below -FLT_MAX."""
        x, spot = torch.randn(1, 6, 7, 7), torch.zeros(1, 6, 7, 7)
        x[0, :, 2, 2], spot[0, :, 2, 2] = torch.nan, 1
        rois = torch.tensor([[0.0, 1, 1, 6, 6], [0, 0, 0, 1, 1]])
        for name in ("roi_align", "ps_roi_align", "ps_roi_pool"):
            args = arguments(name, scale=1.0)
            got = getattr(ops, name)(x.to(DEVICE), rois.to(DEVICE), *args)
            want, share = (torchvision_ops.REFERENCES[name](t, rois, *args) for t in (x.nan_to_num(0.0), spot))
            if isinstance(got, tuple):
                got, want, share = got[0], want[0], share[0]
            got = got.cpu()
            self.assertTrue(got[share > 0].isnan().all().item())
            self.assertTrue((share > 0).any().item() and got[1].isfinite().all().item())
            self.assertEqual(got[got == got], want[got == got])
        x[0, 0] = -torch.inf
        got, places = ops.roi_pool(x.to(DEVICE), rois.to(DEVICE), *arguments("roi_pool", scale=1.0))
        self.assertEqual(got[0, 0].unique().tolist(), [torch.finfo(torch.float32).min])
        self.assertEqual(places[0, 0].unique().tolist(), [-1])
        self.assertTrue(got.isfinite().all().item())

    def test_regions_without_points(self):
        """torchvision divides by their number, 0."""
        x, rois = torch.randn(1, 6, 5, 5), torch.tensor([[0.0, 2, 2, 2, 2]])
        got = ops.ps_roi_align(x.to(DEVICE), rois.to(DEVICE), 1.0, 3, 2, 0)[0]
        self.assertTrue(got.isnan().all().item())
        self.assertEqual(ops.roi_align(x.to(DEVICE), rois.to(DEVICE), 1.0, 3, 2, 0, True).abs().sum().item(), 0)

    @parametrize("name", ROI)
    def test_errors(self, name):
        x, rois = torch.randn(2, 6, 5, 5, device=DEVICE), torch.tensor([[0.0, 1, 1, 3, 3]], device=DEVICE)
        call = getattr(ops, name)
        for a, b, text in (
            (x, rois[:, :4], r"shape as Tensor\[K, 5\]"),
            (x, rois.half(), "to have the same type as tensor for argument #2 'rois'"),
            (x.long(), rois.long(), "not implemented for 'Long'"),
            (x[0], rois, "of 4 dimensions, got 3"),
            (x, rois.cpu(), "rois should be on the same device"),
        ):
            with self.assertRaisesRegex(RuntimeError, text):
                call(a, b, *arguments(name))
        if name.startswith("ps"):
            with self.assertRaisesRegex(RuntimeError, r"multiple of pooling height \* pooling width"):
                call(x[:, :5], rois, *arguments(name))
        for image in (2.0, -1.0):
            rois[0, 0] = image
            call(x, rois, *arguments(name))
            with self.assertRaisesRegex(IndexError, f"torchvision::{name}"):
                torch.netcl.synchronize()

    def check_deform(self, dtype, channels, out, groups, offset_groups, geometry, use_mask, size=(2, 9, 8)):
        """Result and all gradients against the reference in float64."""
        n, height, width = size
        (kh, kw), (sh, sw), (ph, pw), (dh, dw) = geometry
        oh, ow = (height + 2 * ph - dh * (kh - 1) - 1) // sh + 1, (width + 2 * pw - dw * (kw - 1) - 1) // sw + 1
        points = offset_groups * kh * kw
        tensors = [
            torch.randn(n, channels, height, width), torch.randn(out, channels // groups, kh, kw),
            torch.randn(n, 2 * points, oh, ow) * 2, torch.rand(n, points, oh, ow) if use_mask else torch.zeros(n, 1),
            torch.randn(out),
        ]  # fmt: skip
        tensors[2][:, :, 0] = 0  # no displacement: points on pixels, and with padding on the edge
        tensors = [t.to(dtype) for t in tensors]
        rest = (sh, sw, ph, pw, dh, dw, groups, offset_groups, use_mask)
        a = [t.to(DEVICE).requires_grad_() for t in tensors]
        b = [t.double().requires_grad_() for t in tensors]
        got, want = ops.deform_conv2d(*a, *rest), torchvision_ops.deform_conv2d(*b, *rest)
        # Sums of k terms of size 1, rounded, and in 16 bits the columns and the bias's addition, too.
        k, eps = channels // groups * kh * kw, torch.finfo(dtype).eps
        self.assertEqual(got.dtype, dtype)
        self.assertEqual(got.detach().cpu().double(), want.detach(), atol=4 * eps * k, rtol=2 * eps)
        g = torch.randn(want.shape).to(dtype)
        got.backward(g.to(DEVICE))
        want.backward(g.double())
        for name, x, y in zip(("input", "weight", "offset", "mask", "bias"), a, b, strict=True):
            if name == "mask" and not use_mask:
                continue
            # Sums over pixels and channels of products of two rounded numbers of size 1; weights and differences of
            # pixels amplify them a little.
            terms = {"weight": n * oh * ow, "bias": n * oh * ow}.get(name, out * kh * kw * channels)
            atol = 8 * eps * max(terms**0.5, y.grad.abs().max().item())
            self.assertEqual(x.grad.cpu().double(), y.grad, atol=atol, rtol=8 * eps, msg=name)

    @parametrize("dtype", DTYPES)
    @parametrize("use_mask", [False, True])
    def test_deform_conv2d(self, dtype, use_mask):
        same, odd = ((3, 3), (1, 1), (1, 1), (1, 1)), ((2, 3), (2, 1), (0, 2), (1, 2))
        self.check_deform(dtype, 4, 6, 1, 1, same, use_mask)
        self.check_deform(dtype, 8, 6, 2, 4, odd, use_mask)
        self.check_deform(dtype, 3, 5, 1, 3, same, use_mask, size=(1, 4, 5))

    def test_deform_conv2d_in_passes(self):
        """Images beyond the memory of one pass: 64 channels of 9 taps and 64 x 64 pixels take 7 images."""
        x, w = torch.randn(9, 64, 64, 64, device=DEVICE), torch.randn(2, 64, 3, 3, device=DEVICE)
        offset, mask, bias = torch.randn(9, 18, 64, 64, device=DEVICE), torch.zeros(9, 1), torch.zeros(2)
        args = (mask.to(DEVICE), bias.to(DEVICE), 1, 1, 1, 1, 1, 1, 1, 1, False)
        got = ops.deform_conv2d(x, w, offset, *args)
        last = ops.deform_conv2d(x[8:], w, offset[8:], args[0][8:], *args[1:])
        self.assertEqual(got[8:], last, atol=1e-4, rtol=1e-5)

    def test_deform_conv2d_unusual(self):
        rest = (1, 1, 1, 1, 1, 1, 1, 1, True)
        t = [torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3), torch.zeros(2, 18, 5, 5), torch.ones(2, 9, 5, 5),
             torch.randn(4)]  # fmt: skip
        plain = torch.nn.functional.conv2d(t[0], t[1], t[4], padding=1)
        self.assertEqual(ops.deform_conv2d(*(x.to(DEVICE) for x in t), *rest).cpu(), plain, atol=1e-4, rtol=1e-5)
        t[2][0, :, 2, 3] = torch.nan
        t[2][1, :, 1, 1] = torch.inf
        t[2][1, :, 0, 1] = -1e30
        a = [x.to(DEVICE).requires_grad_() for x in t]
        got = ops.deform_conv2d(*a, *rest)
        at_nan = torch.zeros(2, 1, 5, 5, dtype=torch.bool)
        at_nan[0, 0, 2, 3] = True
        self.assertEqual(got.detach().isnan().cpu(), at_nan.expand(2, 4, 5, 5))
        self.assertEqual(got[1, :, 1, 1].detach().cpu(), t[4])
        self.assertEqual(got[1, :, 0, 1].detach().cpu(), t[4])
        got.nan_to_num(0.0).sum().backward()
        self.assertTrue(a[0].grad[1].isfinite().all().item())
        none = [x[:0].to(DEVICE) if x.dim() == 4 and x.shape[0] == 2 else x.to(DEVICE) for x in t]
        none = [x.requires_grad_() for x in none]
        out = ops.deform_conv2d(*none, *rest)
        self.assertEqual(out.shape, (0, 4, 5, 5))
        out.sum().backward()
        self.assertEqual(none[1].grad.abs().sum().item(), 0)

    def test_deform_conv2d_errors(self):
        t = [torch.randn(2, 4, 5, 5), torch.randn(4, 4, 3, 3), torch.zeros(2, 18, 5, 5), torch.ones(2, 9, 5, 5),
             torch.randn(4)]  # fmt: skip
        t = [x.to(DEVICE) for x in t]
        right = (1, 1, 1, 1, 1, 1, 1, 1, True)
        for tensors, rest, text in (
            ([t[0][0], *t[1:]], right, "input of 4 dimensions, got 3"),
            ([*t[:2], t[2][:, :17], *t[3:]], right, "offset.shape.1. is not valid: got: 17 expected: 18"),
            ([*t[:3], t[3][:, :8], t[4]], right, "mask.shape.1. is not valid: got: 8 expected: 9"),
            ([*t[:2], t[2][:1], *t[3:]], right, "invalid batch size of offset"),
            ([*t[:2], t[2][..., :4], *t[3:]], right, r"offset output dims: \(5, 4\) - computed output dims: \(5, 5\)"),
            (t, (0, *right[1:]), "stride_h: 0 stride_w: 1"),
            (t, (1, 1, -1, *right[3:]), "pad_h: -1 pad_w: 1"),
            (t, (1, 1, 1, 1, 1, 0, 1, 1, True), "dilation_h: 1 dilation_w: 0"),
            (t, (1, 1, 1, 1, 1, 1, 2, 1, True), "2 groups of a weight of shape"),
            (t, (1, 1, 1, 1, 1, 1, 1, 3, True), "cannot be divided into 3 groups of offsets"),
            ([t[0].half(), *t[1:]], right, "to have the same type"),
        ):
            with self.assertRaisesRegex(RuntimeError, text):
                ops.deform_conv2d(*tensors, *rest)

    @parametrize("name", [*ROI, "deform_conv2d"])
    def test_deterministic(self, name):
        """The same bits twice, although many regions meet in each pixel."""
        grads = []
        with DeterministicGuard(True):
            for _ in range(2):
                torch.manual_seed(3)
                x = torch.randn(2, 12, 9, 9, device=DEVICE, requires_grad=True)
                if name == "deform_conv2d":
                    rest = (torch.randn(2, 18, 9, 9), torch.zeros(2, 1), torch.zeros(4))
                    rest = (torch.randn(4, 12, 3, 3), *rest)
                    y = ops.deform_conv2d(x, *(t.to(DEVICE) for t in rest), 1, 1, 1, 1, 1, 1, 1, 1, False)
                else:
                    rois = torch.cat([torch.randint(2, (99, 1)).float(), boxes(99, 9.0)], 1).to(DEVICE)
                    y = getattr(ops, name)(x, rois, *arguments(name, scale=1.0))
                y = y[0] if isinstance(y, tuple) else y
                y.backward(torch.randn(y.shape).to(DEVICE))
                grads.append(x.grad)
        self.assertEqual(grads[0], grads[1], atol=0, rtol=0)

    @parametrize("first", ["torch_netcl", "torchvision_ops"])
    def test_order_of_imports(self, first):
        """The operators may be defined before the library is loaded or after it; neither gives a warning."""
        code = f"""
import warnings
warnings.simplefilter("error")
import {first}
import torch, torch_netcl, torchvision_ops
if {first == "torchvision_ops"}:
    torchvision_ops.load()
with_library = torch.ops.torchvision if {first == "torchvision_ops"} else torchvision_ops.load()
boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 6, 6]], device="netcl")
torch.netcl.set_cpu_fallback_mode("error")
print(torch.ops.torchvision.nms(boxes, torch.tensor([1.0, 2, 3], device="netcl"), 0.5).tolist())
"""
        early = "" if first == "torch_netcl" else "0"  # otherwise PyTorch loads the library by itself
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        env |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": early} if early else {}
        run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stdout), (0, "[2, 1]\n"), run.stderr)
        self.assertEqual(run.stderr, "")


class TestOtherShape(TestCase):
    def test_gpu_shaped_kernels(self):
        """GPUs use atomics and a work-group for nms, so some checks run again in a process with GPU kernels."""
        names = "test_nms_float32 or test_regions_float32 or test_deform_conv2d_float32_use_mask_True"
        check_gpu_shape(self, __file__, names)


@unittest.skipUnless(torchvision_ops.compiled(), "torchvision is not installed, or its compiled part does not load")
class TestReferences(TestCase):
    def test_same_as_torchvision(self):
        """The references, against torchvision's kernels for the CPU."""
        torch.manual_seed(1)
        for n in (1, 65, 300):
            b, s = boxes(n), torch.rand(n)
            self.assertEqual(torchvision_ops.nms(b, s, 0.4), ops.nms(b, s, 0.4))
        for name in ROI:
            for sampling, aligned in ((2, True), (-1, True), (0, False)):
                x, rois = torch.randn(2, 12, 13, 16), regions(2, 13, 16)
                if name == "ps_roi_align":  # the reference's gradient is NaN too where its result is 0 / 0
                    rois = rois[[0, 1, 2, 5, 6, 7]]
                a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
                args = arguments(name, sampling, aligned)
                got, want = torchvision_ops.REFERENCES[name](a, rois, *args), getattr(ops, name)(b, rois, *args)
                if isinstance(want, tuple):
                    self.assertEqual(got[1], want[1])
                    got, want = got[0], want[0]
                self.assertEqual(got, want, atol=2e-5, rtol=1e-5)
                g = torch.randn(want.shape)
                if name == "ps_roi_pool":
                    got = torchvision_ops.ps_roi_pool(a, rois, *args, less=0)[0]
                got.backward(g)
                want.backward(g)
                self.assertEqual(a.grad, b.grad, atol=1e-4, rtol=1e-5)
        t = [torch.randn(2, 8, 9, 8), torch.randn(6, 4, 3, 3), torch.randn(2, 36, 9, 8), torch.rand(2, 18, 9, 8),
             torch.randn(6)]  # fmt: skip
        t[2][:, :, 0] = 0
        a, b = ([x.double().requires_grad_() for x in t] for _ in range(2))
        rest = (1, 1, 1, 1, 1, 1, 2, 2, True)
        got, want = torchvision_ops.deform_conv2d(*a, *rest), ops.deform_conv2d(*b, *rest)
        self.assertEqual(got, want)
        got.sum().backward()
        want.sum().backward()
        self.assertEqual([x.grad for x in a], [x.grad for x in b])


instantiate_parametrized_tests(TestVision)

if __name__ == "__main__":
    run_tests()
