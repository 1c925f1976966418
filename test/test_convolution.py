"""Convolutions of every kind, forward and backward, compared with float64 on the CPU."""

from itertools import product

import torch
import torch.nn.functional as F
from torch.testing import make_tensor
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl  # noqa: F401

# name: batch, channels in, channels out, spatial size, kernel, and what F.convNd takes
CASES = {
    "1d": (2, 3, 5, (17,), (3,), {"padding": 1}),
    "1d_strided_dilated": (3, 4, 6, (19,), (3,), {"stride": 2, "dilation": 2, "padding": 3}),
    "2d_3x3": (2, 7, 33, (9, 11), (3, 3), {"padding": 1}),
    "2d_strided": (2, 5, 20, (13, 10), (3, 4), {"stride": (2, 3), "padding": (1, 2)}),
    "2d_dilated": (2, 4, 6, (12, 13), (3, 3), {"stride": (2, 1), "dilation": (3, 2), "padding": 2}),
    "2d_stride_beyond_kernel": (2, 3, 4, (11, 12), (2, 1), {"stride": (3, 4)}),
    "2d_pointwise": (2, 16, 40, (6, 5), (1, 1), {}),
    "2d_pointwise_images": (3, 10, 18, (11, 13), (1, 1), {}),
    "2d_pointwise_groups": (2, 12, 18, (12, 12), (1, 1), {"groups": 2}),
    "2d_pointwise_strided": (2, 6, 17, (7, 8), (1, 1), {"stride": 2}),
    "2d_stem": (2, 3, 16, (23, 21), (7, 7), {"stride": 2, "padding": 3}),
    "2d_few_pixels": (1, 12, 70, (3, 3), (3, 3), {"padding": 1}),
    "2d_groups": (2, 6, 9, (8, 9), (3, 3), {"groups": 3, "padding": 1}),
    "2d_depthwise": (2, 5, 5, (9, 20), (3, 3), {"groups": 5, "padding": 1}),
    "2d_depthwise_strided": (2, 4, 8, (9, 21), (3, 5), {"groups": 4, "padding": (1, 2), "stride": (1, 2)}),
    "2d_depthwise_dilated": (2, 3, 3, (9, 20), (3, 3), {"groups": 3, "padding": 2, "dilation": 2}),
    # More rows than a work-item copies at once, and more taps than it has sums.
    "2d_depthwise_strips": (2, 2, 2, (70, 99), (5, 5), {"groups": 2, "padding": (2, 4)}),
    "2d_depthwise_halved": (2, 3, 6, (13, 15), (3, 3), {"groups": 3, "padding": 1, "stride": 2}),
    "2d_depthwise_cropped": (2, 3, 3, (12, 13), (2, 2), {"groups": 3, "padding": (0, 1), "stride": (3, 2)}),
    "2d_many_pixels": (2, 2, 3, (40, 40), (3, 3), {"padding": 2}),
    "3d": (2, 3, 5, (5, 6, 7), (3, 2, 3), {"stride": (1, 2, 2), "padding": (1, 0, 1)}),
    "2d_patches": (2, 3, 40, (8, 12), (4, 4), {"stride": 4}),
    "2d_patches_and_a_rest": (2, 3, 16, (9, 12), (4, 4), {"stride": 4}),
    "3d_groups_dilated": (1, 4, 4, (7, 6, 8), (2, 3, 2), {"groups": 2, "dilation": (2, 1, 3), "padding": 1}),
}
# In channels_last, vectors run along the channels: fewer than a vector, whole vectors, and some that are left.
LAST = {
    "2d_depthwise_33": (2, 33, 33, (7, 9), (3, 3), {"groups": 33, "padding": 1}),
    "2d_depthwise_17_halved": (2, 17, 17, (9, 12), (5, 3), {"groups": 17, "padding": (2, 1), "stride": 2}),
    "2d_depthwise_dilated_strided": (1, 18, 18, (13, 19), (3, 4), {"groups": 18, "dilation": (2, 3), "stride": (1, 2)}),
    "2d_groups_of_two": (2, 34, 34, (6, 7), (3, 3), {"groups": 17, "padding": 1}),
    "2d_groups_of_four": (2, 36, 36, (7, 6), (3, 3), {"groups": 9, "padding": 1, "stride": 2}),
    "2d_few_outputs": (2, 33, 3, (7, 10), (3, 3), {"padding": 1}),
    "2d_few_outputs_strided": (2, 17, 8, (9, 12), (3, 5), {"padding": (0, 3), "stride": 2, "dilation": (2, 1)}),
    "2d_few_outputs_of_groups": (1, 24, 8, (6, 9), (3, 3), {"groups": 2, "padding": 2}),
    "2d_few_inputs": (2, 3, 20, (7, 9), (3, 3), {"padding": 1, "stride": 2}),
    "3d_depthwise": (1, 6, 6, (4, 5, 6), (2, 3, 3), {"groups": 6, "padding": 1, "stride": (2, 1, 1)}),
    # A vector holds several pixels, the last one of a row fewer; or the groups of one pixel.
    "2d_depthwise_5_wide": (2, 5, 5, (7, 21), (3, 3), {"groups": 5, "padding": 1, "dilation": (2, 1)}),
    "2d_depthwise_12_halved": (1, 12, 12, (9, 11), (3, 3), {"groups": 12, "padding": 1, "stride": 2}),
    "2d_threes": (2, 6, 6, (8, 19), (3, 3), {"groups": 2, "padding": 1}),
    "2d_seven_to_two": (1, 7, 2, (9, 13), (3, 3), {"padding": 2}),
    "2d_multiplier": (2, 19, 38, (6, 9), (3, 3), {"groups": 19, "padding": 1}),
    "2d_groups_of_two_to_four": (1, 22, 44, (7, 9), (3, 3), {"groups": 11, "padding": 1}),
    # Vectors along the result's channels: in one group or over several, in blocks, with sums of several work-items.
    "2d_multiplier_of_eight": (2, 3, 24, (7, 10), (3, 3), {"groups": 3, "padding": 1}),
    "2d_groups_of_eight": (2, 32, 32, (5, 19), (3, 3), {"groups": 4, "padding": 1, "stride": (1, 2)}),
    "2d_groups_of_four_to_two": (1, 36, 18, (7, 6), (3, 5), {"groups": 9, "padding": (1, 3)}),
    "2d_groups_of_four_5_wide": (1, 16, 16, (7, 9), (3, 5), {"groups": 4, "padding": 1, "dilation": 2}),
    "2d_to_eight": (2, 5, 8, (9, 22), (3, 5), {"padding": (0, 3), "stride": 2, "dilation": (2, 1)}),
    "2d_to_one": (2, 20, 1, (7, 9), (1, 2), {}),
    "2d_depthwise_blocks": (1, 100, 100, (4, 5), (3, 3), {"groups": 100, "padding": 1}),
    "2d_depthwise_many_rows": (3, 9, 9, (60, 50), (3, 3), {"groups": 9, "padding": 1}),
    "3d_few": (1, 4, 3, (4, 5, 9), (2, 3, 3), {"padding": 1}),
    # Rows too long for copies of them.
    "2d_depthwise_long": (1, 2, 2, (6, 3000), (3, 3), {"groups": 2, "padding": 1}),
}
LAST_OF_OTHER_DTYPES = ("2d_depthwise_33", "2d_few_outputs", "2d_threes")
TRANSPOSED = {
    "1d": (2, 3, 5, (8,), (4,), {"stride": 2, "padding": 1}),
    "2d": (2, 6, 5, (5, 6), (3, 3), {}),
    "2d_pointwise_groups": (2, 18, 12, (12, 12), (1, 1), {"groups": 2}),
    "2d_strided": (2, 4, 7, (5, 6), (3, 4), {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2)}),
    "2d_groups": (
        2,
        6,
        4,
        (5, 7),
        (3, 3),
        {"groups": 2, "stride": 2, "dilation": (2, 1), "output_padding": 1},
    ),
    "2d_depthwise": (2, 4, 4, (6, 18), (3, 3), {"groups": 4, "stride": 2, "padding": 1, "output_padding": 1}),
    "3d": (1, 3, 4, (3, 4, 3), (2, 3, 3), {"stride": 2, "padding": (0, 1, 1)}),
    # The windows are adjacent patches.
    "1d_patches": (2, 9, 11, (7,), (5,), {"stride": 5}),
    "2d_patches": (2, 16, 40, (5, 6), (2, 2), {"stride": 2}),
    "2d_patches_of_groups": (2, 18, 10, (4, 5), (3, 2), {"stride": (3, 2), "groups": 2}),
    "2d_patches_apart": (2, 16, 24, (5, 6), (2, 2), {"stride": 2, "output_padding": 1}),
    "3d_patches": (1, 8, 9, (2, 3, 2), (2, 2, 3), {"stride": (2, 2, 3)}),
}


def function(dim, transposed):
    return getattr(F, f"conv{'_transpose' if transposed else ''}{dim}d")


def make_case(case, transposed, device, dtype):
    n, c_in, c_out, size, kernel, kwargs = case
    groups = kwargs.get("groups", 1)
    ends = (c_in, c_out // groups) if transposed else (c_out, c_in // groups)
    shapes = (n, c_in, *size), (*ends, *kernel), (c_out,)
    return [make_tensor(s, device=device, dtype=dtype, low=-1, high=1) for s in shapes], kwargs


def tolerance(dtype):
    """For sums of at most about 3000 terms of size 1, in fp32, rounded once."""
    # fp32: eps * sqrt(3000) * a typical partial sum of some 20 is below 1.5e-4.
    if dtype == torch.float32:
        return {"atol": 1.5e-4, "rtol": 1e-5}
    return {"atol": 1.5e-4, "rtol": torch.finfo(dtype).eps} if dtype in (torch.float16, torch.bfloat16) else {}


class TestConvolution(TestCase):
    def check(self, tensors, kwargs, transposed=False, bias=True):
        """Compares output and gradients, whose sums have at most about 3000 terms of size 1."""
        dim = tensors[0].dim() - 2
        dtype = tensors[0].dtype
        conv = function(dim, transposed)
        tensors = tensors if bias else tensors[:2]
        mine = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_() for t in tensors]
        ref = [t.detach().cpu().double().requires_grad_() for t in tensors]
        out, expected = conv(*mine, **kwargs), conv(*ref, **kwargs)
        self.assertEqual(out.dtype, dtype)
        tol = tolerance(dtype)
        self.assertEqual(out.cpu(), expected.to(dtype), **tol)
        grad = make_tensor(out.shape, device=out.device, dtype=dtype, low=-1, high=1)
        out.backward(grad)
        expected.backward(grad.cpu().double())
        for m, r in zip(mine, ref, strict=True):
            self.assertEqual(m.grad.cpu(), r.grad.to(dtype), **tol)
        return out

    @dtypes(torch.float32)
    def test_kinds(self, device, dtype):
        for name, case in CASES.items():
            with self.subTest(name):
                tensors, kwargs = make_case(case, False, device, dtype)
                self.check(tensors, kwargs)

    @dtypes(torch.float32)
    def test_transposed(self, device, dtype):
        for name, case in TRANSPOSED.items():
            with self.subTest(name):
                tensors, kwargs = make_case(case, True, device, dtype)
                self.check(tensors, kwargs, transposed=True)

    @dtypes(torch.float32, torch.bfloat16)
    def test_channels_last(self, device, dtype):
        """With input, weight or both in channels_last, the output and both gradients are channels_last."""
        formats = {2: torch.channels_last, 3: torch.channels_last_3d}
        for transposed, cases in ((False, CASES | LAST), (True, TRANSPOSED)):
            for name, case in cases.items():
                if len(case[3]) == 1 or (dtype != torch.float32 and name.startswith("3d")):
                    continue
                if dtype != torch.float32 and name in LAST and name not in LAST_OF_OTHER_DTYPES:
                    continue
                (x, w, b), kwargs = make_case(case, transposed, device, dtype)
                last = formats[len(case[3])]
                last_x, last_w = x.contiguous(memory_format=last), w.contiguous(memory_format=last)
                pairs = [(last_x, last_w), (x, last_w), (last_x, w)]
                for x, w in pairs if name in ("2d_3x3", "2d_strided") else pairs[:1]:
                    with self.subTest(name, transposed=transposed):
                        out = self.check([x, w, b], kwargs, transposed)
                        self.assertTrue(out.is_contiguous(memory_format=last))

    @dtypes(torch.float32, torch.float16)
    def test_one_channel(self, device, dtype):
        """Images and kernels of one channel are contiguous and channels_last; the gradient decides what runs."""
        for transposed, case in (
            (False, (2, 1, 8, (9, 11), (3, 3), {"padding": 1})),
            (False, (2, 1, 20, (9, 11), (5, 5), {"stride": 2})),
            (True, (2, 1, 1, (5, 6), (3, 3), {"stride": 2})),
        ):
            (x, w, _), kwargs = make_case(case, transposed, device, dtype)
            conv = function(2, transposed)
            shape = conv(x, w, **kwargs).shape
            grad = make_tensor(shape, device=device, dtype=dtype, low=-1, high=1)
            results = []
            for g in (grad, grad.contiguous(memory_format=torch.channels_last)):
                leaves = [t.detach().requires_grad_() for t in (x, w)]
                results.append(torch.autograd.grad(conv(*leaves, **kwargs), leaves, g))
            reference = [t.detach().cpu().double().requires_grad_() for t in (x, w)]
            expected = torch.autograd.grad(conv(*reference, **kwargs), reference, grad.cpu().double())
            for mine in results:
                for m, e, plain in zip(mine, expected, results[0], strict=True):
                    self.assertEqual(m.cpu(), e.to(dtype), **tolerance(dtype))
                    self.assertEqual(m.stride(), plain.stride())

    @dtypes(torch.float16, torch.float64)
    def test_dtypes_in_channels_last(self, device, dtype):
        for name in LAST_OF_OTHER_DTYPES:
            with self.subTest(name):
                (x, w, b), kwargs = make_case(LAST[name], False, device, dtype)
                last = {"memory_format": torch.channels_last}
                self.check([x.contiguous(**last), w.contiguous(**last), b], kwargs)

    @dtypes(torch.float32, torch.float64, torch.bfloat16)
    def test_weight_gradient_in_channels_last(self, device, dtype):
        last = {"memory_format": torch.channels_last}
        for case in (
            # Channels and pixels enough for whole panels of a matrix engine, which has its own way to pack them.
            (2, 64, 64, (9, 8), (3, 3), {"padding": 1}),
            # More pixels than a block of conv_gemm_blocks, more outputs than it multiplies at once, partial tiles.
            (2, 8, 136, (9, 10), (5, 5), {"padding": 2}),
            (2, 32, 80, (11, 9), (3, 3), {"stride": 2, "padding": 1, "groups": 2}),
            # One element in the kernel: by the implicit product up to 192 outputs, else by a matrix product.
            (3, 40, 70, (11, 13), (1, 1), {}),
            (3, 40, 200, (11, 13), (1, 1), {}),
        ):
            with self.subTest(case):
                (x, w, b), kwargs = make_case(case, False, device, dtype)
                self.check([x.contiguous(**last), w.contiguous(**last), b], kwargs)

    @dtypes(torch.float16, torch.bfloat16, torch.float64)
    def test_dtypes(self, device, dtype):
        for name in ("2d_3x3", "2d_few_pixels", "2d_depthwise", "2d_pointwise"):
            with self.subTest(name):
                tensors, kwargs = make_case(CASES[name], False, device, dtype)
                self.check(tensors, kwargs)
        for name in ("2d_strided", "2d_patches"):
            tensors, kwargs = make_case(TRANSPOSED[name], True, device, dtype)
            self.check(tensors, kwargs, transposed=True)

    @dtypes(torch.float32)
    def test_no_bias_and_memory_formats(self, device, dtype):
        tensors, kwargs = make_case(CASES["2d_3x3"], False, device, dtype)
        self.check(tensors, kwargs, bias=False)
        wide = make_tensor((2, 7, 9, 25), device=device, dtype=dtype, low=-1, high=1)
        self.check([wide[..., 1:23:2], tensors[1].transpose(2, 3), tensors[2]], kwargs)
        self.check([wide.expand(3, 2, 7, 9, 25)[1], tensors[1], tensors[2]], kwargs)

    @dtypes(torch.float32)
    def test_deterministic(self, device, dtype):
        for case in ("2d_3x3", "2d_few_pixels", "2d_depthwise", "2d_many_pixels"):
            (x, w, b), kwargs = make_case(CASES[case], False, device, dtype)
            grads = []
            for _ in range(2):
                leaves = [t.clone().requires_grad_() for t in (x, w, b)]
                F.conv2d(*leaves, **kwargs).square().sum().backward()
                grads.append([leaf.grad for leaf in leaves])
            self.assertEqual(grads[0], grads[1], atol=0, rtol=0)

    @dtypes(torch.float32)
    def test_output_mask(self, device, dtype):
        (x, w, b), kwargs = make_case(CASES["2d_strided"], False, device, dtype)
        out = F.conv2d(x, w, b, **kwargs)
        grad = torch.ones_like(out)
        args = (*map(list, (kwargs["stride"], kwargs["padding"], (1, 1))), False, [0, 0], 1)
        full = torch.ops.aten.convolution_backward(grad, x, w, [w.shape[0]], *args, [True] * 3)
        for k in range(3):
            mask = [i == k for i in range(3)]
            part = torch.ops.aten.convolution_backward(grad, x, w, [w.shape[0]], *args, mask)
            for i in range(3):
                if mask[i]:
                    self.assertEqual(part[i], full[i], atol=0, rtol=0)
                else:
                    self.assertTrue(part[i] is None or part[i].numel() == 0)

    @dtypes(torch.float32)
    def test_long_reduction(self, device, dtype):
        # The weight's gradient sums over 4 * 33 * 40 positions, in several parts.
        x = make_tensor((4, 3, 33, 40), device=device, dtype=dtype, low=-1, high=1)
        w = make_tensor((5, 3, 3, 3), device=device, dtype=dtype, low=-1, high=1)
        b = make_tensor((5,), device=device, dtype=dtype)
        self.check([x, w, b], {"padding": 1})

    @dtypes(torch.float32)
    def test_in_chunks(self, device, dtype):
        # The padded copy of an image takes 11 MB, so that only two fit into the scratch memory at once.
        x = make_tensor((3, 2, 1200, 1200), device=device, dtype=dtype, low=-1, high=1)
        w = make_tensor((1, 2, 2, 2), device=device, dtype=dtype, low=-1, high=1)
        out = F.conv2d(x, w, padding=1, stride=3)
        self.assertEqual(out.cpu(), F.conv2d(x.cpu(), w.cpu(), padding=1, stride=3), atol=1e-5, rtol=1e-5)
        w.requires_grad_()
        F.conv2d(x, w, padding=1, stride=3).sum().backward()
        ref = w.detach().cpu().double().requires_grad_()
        F.conv2d(x.cpu().double(), ref, padding=1, stride=3).sum().backward()
        # fp32 sums of 480,000 terms, in parts of 2048: a part has an error of eps * sqrt(2048) * 26 = 1.4e-4, 235 parts
        # sqrt(235) times as much.
        self.assertEqual(w.grad.cpu().double(), ref.grad, atol=3e-3, rtol=1e-5)

    @dtypes(torch.float32)
    def test_depthwise_in_chunks(self, device, dtype):
        x = make_tensor((3, 2, 1200, 1200), device=device, dtype=dtype, low=-1, high=1)
        w = make_tensor((2, 1, 2, 2), device=device, dtype=dtype, low=-1, high=1).requires_grad_()
        F.conv2d(x, w, padding=1, stride=3, groups=2).sum().backward()
        ref = w.detach().cpu().double().requires_grad_()
        F.conv2d(x.cpu().double(), ref, padding=1, stride=3, groups=2).sum().backward()
        # As above; 16 lanes each sum the 10,000 products of an image: eps * sqrt(10,000) * 57 * 7.
        self.assertEqual(w.grad.cpu().double(), ref.grad, atol=5e-3, rtol=1e-5)

    @dtypes(torch.float32)
    def test_empty(self, device, dtype):
        w = make_tensor((4, 3, 3, 3), device=device, dtype=dtype).requires_grad_()
        b = make_tensor((4,), device=device, dtype=dtype).requires_grad_()
        x = make_tensor((0, 3, 6, 6), device=device, dtype=dtype).requires_grad_()
        out = F.conv2d(x, w, b, padding=1)
        self.assertEqual(out.shape, (0, 4, 6, 6))
        out.sum().backward()
        self.assertEqual(x.grad.shape, x.shape)
        self.assertEqual(w.grad, torch.zeros_like(w))
        self.assertEqual(b.grad, torch.zeros_like(b))

    @dtypes(torch.float32)
    def test_special_values(self, device, dtype):
        x = make_tensor((1, 2, 6, 6), device=device, dtype=dtype, low=0.5, high=1)
        w = make_tensor((3, 2, 3, 3), device=device, dtype=dtype, low=0.5, high=1)
        x[0, 0, 2, 2], x[0, 1, 5, 5] = float("nan"), float("inf")
        self.assertEqual(
            F.conv2d(x, w, padding=1).cpu(), F.conv2d(x.cpu(), w.cpu(), padding=1), atol=1e-5, rtol=1e-5
        )

    @dtypes(torch.float32)
    def test_depthwise_weight_gradient_with_infinities(self, device, dtype):
        # Rows of 3, 9 and 21: shorter than a vector, and with a last vector that overlaps the one before it.
        # Along the channels: the last vector overlaps too, and neighbours are other channels.
        for width, layout in product((3, 9, 21), (torch.contiguous_format, torch.channels_last)):
            x = make_tensor((2, 19, 5, width + 2), device=device, dtype=dtype, low=0.5, high=1)
            x[1, 1, 2, width // 2], x[0, 15, 4, 0] = float("inf"), float("nan")
            x = x.contiguous(memory_format=layout)
            grads = []
            for source in (x, x.cpu()):
                w = torch.ones(19, 1, 3, 3, device=source.device, requires_grad=True)
                F.conv2d(source, w, groups=19).sum().backward()
                grads.append(w.grad.cpu())
            self.assertTrue(grads[0].isinf().any() and grads[0].isnan().any() and grads[0].isfinite().any())
            self.assertEqual(*grads, atol=1e-4, rtol=1e-5)

    @dtypes(torch.float32)
    def test_few_channels_weight_gradient_with_infinities(self, device, dtype):
        # No window reaches the last two columns; vectors that read them must not multiply them by zero.
        x = make_tensor((1, 3, 5, 17), device=device, dtype=dtype, low=0.5, high=1)
        x[..., 15:] = float("inf")
        x = x.contiguous(memory_format=torch.channels_last)
        grads = []
        for source in (x, x.cpu()):
            w = torch.ones(3, 1, 3, 3, device=source.device, requires_grad=True)
            F.conv2d(source, w, groups=3, stride=(1, 3)).sum().backward()
            grads.append(w.grad.cpu())
        self.assertTrue(grads[0].isfinite().all())
        self.assertEqual(*grads, atol=1e-4, rtol=1e-5)

    @dtypes(torch.float32)
    def test_unbatched_and_errors(self, device, dtype):
        x = make_tensor((3, 6, 6), device=device, dtype=dtype)
        w = make_tensor((4, 3, 3, 3), device=device, dtype=dtype)
        self.assertEqual(F.conv2d(x, w).cpu(), F.conv2d(x.cpu(), w.cpu()), atol=1e-3, rtol=1e-5)
        with self.assertRaisesRegex(RuntimeError, "should be the same"):
            F.conv2d(x[None], w.half())
        with self.assertRaisesRegex(RuntimeError, "not implemented for 'Long'"):
            F.conv2d(x[None].long(), w.long())
        with self.assertRaisesRegex(RuntimeError, "Kernel size can't be greater"):
            F.conv2d(x[None, :, :2], w)

    @dtypes(torch.float32)
    def test_no_fallback_and_layers(self, device, dtype):
        before = dict(torch.netcl.cpu_fallback_ops())
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding="same", padding_mode="zeros"),
            torch.nn.Conv2d(8, 8, 3, groups=8),
            torch.nn.ConvTranspose2d(8, 3, 2, stride=2),
        ).to(device)
        net(make_tensor((2, 3, 8, 8), device=device, dtype=dtype)).sum().backward()
        after = torch.netcl.cpu_fallback_ops()
        self.assertEqual([op for op in after if "conv" in op and after[op] != before.get(op)], [])

    @dtypes(torch.float32)
    def test_gradgrad(self, device, dtype):
        x, w = torch.randn(1, 2, 5, 5), torch.randn(3, 2, 3, 3)
        results = []
        for where in ("cpu", device):
            a, b = (t.detach().to(where).requires_grad_() for t in (x, w))
            (g,) = torch.autograd.grad(
                F.conv2d(a, b, stride=2, padding=1).square().sum(), a, create_graph=True
            )
            g.square().sum().backward()
            results.append((a.grad.cpu(), b.grad.cpu()))
        self.assertEqual(results[0], results[1], atol=1e-3, rtol=1e-5)


instantiate_device_type_tests(TestConvolution, globals(), only_for=("privateuse1", "netcl"), allow_mps=False)

if __name__ == "__main__":
    run_tests()
