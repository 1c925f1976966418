"""scaled_dot_product_attention, forward and backward, with the fused and the composite path."""

import math
import os
import unittest

import torch
import torch.nn.functional as F
from common import check_gpu_shape
from processes import python
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401

DEVICE = "netcl"
# PoCL takes ten seconds and more for each kernel of blocks, so `make test-full` alone tests all of them there.
SLOW_COMPILER = (
    torch.netcl.get_device_properties(0).platform_name == "Portable Computing Language"
    and os.environ.get("NETCL_TEST_FULL", "0") == "0"
)
GPU_SHAPE = os.environ.get("NETCL_DEVICE_CLASS") == "gpu"
# Probabilities are at most 1 and sums of products of numbers of size 1 have up to 64 terms: fp32's 2^-24
# times a few hundred roundings. Narrow results are rounded once, from fp32; the reference's inputs are equal.
TOLERANCE = {
    torch.float32: dict(atol=2e-5, rtol=1e-5),
    torch.float16: dict(atol=4e-3, rtol=2.0**-9),
    torch.bfloat16: dict(atol=3e-2, rtol=2.0**-6),
}


def inputs(dtype, batch=2, heads=4, queries=9, keys=9, width=16, value_width=None, kv_heads=None):
    g = torch.Generator().manual_seed(queries * 100 + keys)
    q = torch.randn(batch, heads, queries, width, generator=g)
    k = torch.randn(batch, kv_heads or heads, keys, width, generator=g)
    v = torch.randn(batch, kv_heads or heads, keys, value_width or width, generator=g)
    return [t.to(dtype) for t in (q, k, v)]


class TestAttention(TestCase):
    def check(self, q, k, v, backend=None, **options):
        """Compares output and gradients with the CPU in fp32."""
        dtype = q.dtype

        def run(tensors, options, device):
            leaves = [t.detach().clone().requires_grad_() for t in tensors]
            out = F.scaled_dot_product_attention(*leaves, **options)
            weight = torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(device=device, dtype=out.dtype)
            return [out.detach(), *torch.autograd.grad(out, leaves, weight)]

        mask = options.get("attn_mask")
        on_device = dict(options, attn_mask=mask.to(DEVICE)) if mask is not None else options
        if mask is not None and mask.dtype != torch.bool:
            options = dict(options, attn_mask=mask.float())
        expected = run([t.float() for t in (q, k, v)], options, "cpu")
        tensors = [t.to(DEVICE) for t in (q, k, v)]
        if backend is None:
            actual = run(tensors, on_device, DEVICE)
        else:
            with sdpa_kernel(backend):
                actual = run(tensors, on_device, DEVICE)
        for name, a, e in zip(("out", "dq", "dk", "dv"), actual, expected, strict=True):
            self.assertEqual(a.dtype, dtype)
            self.assertEqual(a.cpu(), e.to(dtype), msg=lambda text, name=name: f"{name}: {text}", **TOLERANCE[dtype])

    @parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    @parametrize("causal", [False, True])
    def test_shapes(self, dtype, causal):
        for sizes in [
            dict(),
            dict(queries=1, keys=1),
            dict(queries=33, keys=17),
            dict(queries=5, keys=40, width=8),
            dict(queries=64, keys=64, width=32, value_width=20, batch=1),
        ]:
            with self.subTest(**sizes):
                self.check(*inputs(dtype, **sizes), is_causal=causal)

    @parametrize("backend", [SDPBackend.MATH, SDPBackend.OVERRIDEABLE])
    def test_masks(self, backend):
        q, k, v = inputs(torch.float32, queries=7, keys=20)
        g = torch.Generator().manual_seed(0)
        for shape in [(7, 20), (1, 20), (2, 1, 7, 20), (2, 4, 7, 20), (2, 1, 1, 20), (4, 7, 1)]:
            with self.subTest(shape=shape):
                self.check(q, k, v, backend, attn_mask=torch.randn(shape, generator=g))
                self.check(q, k, v, backend, attn_mask=torch.rand(shape, generator=g) > 0.3)
        self.check(q, k, v, backend, attn_mask=torch.randn(20, 7, generator=g).T)

    def test_query_that_sees_nothing(self):
        q, k, v = inputs(torch.float32)
        mask = torch.rand(9, 9) > 0.5
        mask[3] = False
        self.check(q, k, v, attn_mask=mask)
        out = F.scaled_dot_product_attention(*(t.to(DEVICE) for t in (q, k, v)), attn_mask=mask.to(DEVICE))
        self.assertEqual(out[:, :, 3].cpu(), torch.zeros(2, 4, 16))

    def test_non_finite(self):
        q, k, v = inputs(torch.float32)
        k[0, 1, 2, 3] = float("nan")
        v[1, 2, 3, 4] = float("inf")
        expected = F.scaled_dot_product_attention(q, k, v)
        actual = F.scaled_dot_product_attention(q.to(DEVICE), k.to(DEVICE), v.to(DEVICE))
        self.assertEqual(actual.cpu(), expected, **TOLERANCE[torch.float32])

    @parametrize("backend", [SDPBackend.MATH, SDPBackend.OVERRIDEABLE])
    def test_grouped_queries(self, backend):
        self.check(*inputs(torch.float32, heads=6, kv_heads=2), backend, enable_gqa=True)
        self.check(*inputs(torch.float32, heads=4, kv_heads=1), backend, enable_gqa=True, is_causal=True)
        for causal in (False, True):
            one = inputs(torch.float32, heads=6, kv_heads=2, queries=1)
            self.check(*one, backend, enable_gqa=True, is_causal=causal)

    def test_one_query_reads_shared_keys_in_place(self):
        q = torch.randn(2, 1, 6, 16).to(torch.bfloat16).transpose(1, 2)
        cache = torch.randn(2, 2, 2, 40, 16).to(torch.bfloat16)
        k, v = cache[:, :, :, :33].unbind(0)
        want = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), enable_gqa=True)
        q, (k, v) = q.to(DEVICE), cache.to(DEVICE)[:, :, :, :33].unbind(0)
        F.scaled_dot_product_attention(q, k, v, enable_gqa=True)  # the first call makes the constants
        before = torch.netcl.launch_count()
        got = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        self.assertLessEqual(torch.netcl.launch_count() - before, 3)
        self.assertEqual(got.stride(), q.stride())
        self.assertEqual(got.cpu().float(), want, atol=0.02, rtol=0.02)

    @parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    def test_one_query_takes_one_launch(self, dtype):
        """Heads that share keys, columns that are no multiple of a tile, NaN and infinite scores."""
        tolerance = {"atol": 0.02, "rtol": 0.02} if dtype != torch.float32 else TOLERANCE[dtype]
        cpu = os.environ.get("NETCL_DEVICE_CLASS") != "gpu"
        for heads, kv_heads, keys, depth, width in ((6, 2, 33, 64, 64), (4, 4, 1, 16, 24), (8, 2, 70, 32, 17),
                                                    (16, 2, 5, 48, 80)):  # fmt: skip
            q, k, v = (torch.randn(2, *shape).to(dtype) for shape in (
                (heads, 1, depth), (kv_heads, keys, depth), (kv_heads, keys, width)))  # fmt: skip
            k[0, 0, 0, 0], v[1, 1, keys - 1, 3] = torch.nan, torch.inf
            q[1, 0, 0, :2] = torch.tensor([torch.inf, 0])
            want = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), enable_gqa=True)
            on_device = [t.to(DEVICE) for t in (q, k, v)]
            F.scaled_dot_product_attention(*on_device, enable_gqa=True)  # the first call makes the constants
            before = torch.netcl.launch_count()
            got = F.scaled_dot_product_attention(*on_device, enable_gqa=True)
            if cpu:
                self.assertEqual(torch.netcl.launch_count() - before, 1)
            self.assertEqual(got.cpu().float(), want, **tolerance)

    def test_gradients_have_the_memory_order_of_the_operands(self):
        # PyTorch's meta function says so, and compiled graphs rely on it.
        for kv_heads in (4, 2):
            tensors = inputs(torch.float32, kv_heads=kv_heads)
            q, k, v = (t.detach().to("netcl").transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
                       for t in tensors)  # fmt: skip
            out = F.scaled_dot_product_attention(q, k, v, enable_gqa=kv_heads != 4)
            for t, grad in zip((q, k, v), torch.autograd.grad(out.sum(), (q, k, v)), strict=True):
                self.assertEqual(grad.stride(), torch.empty_like(t).stride())

    def test_scale_and_views(self):
        q, k, v = inputs(torch.float32)
        self.check(q, k, v, scale=0.7)
        qkv = torch.randn(2, 9, 3, 4, 16)
        q, k, v = (t.to(DEVICE) for t in qkv.permute(2, 0, 3, 1, 4).unbind(0))
        packed = qkv.to(DEVICE).permute(2, 0, 3, 1, 4).unbind(0)
        expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        self.assertEqual(F.scaled_dot_product_attention(*packed, is_causal=True), expected)
        # Three dimensions use the composite path.
        self.assertEqual(F.scaled_dot_product_attention(q[0], k[0], v[0], is_causal=True), expected[0])

    def test_dropout(self):
        q, k, v = (t.to(DEVICE) for t in inputs(torch.float32, queries=64, keys=64))
        ones = torch.ones_like(v)
        out = F.scaled_dot_product_attention(q, k, ones, dropout_p=0.5)
        # Half of the probabilities count double: the mean stays 1. The sum of p^2 of a row is below 1, so the
        # mean over 512 rows has a deviation below 1 / sqrt(512) = 0.044.
        self.assertEqual(out.mean().item(), 1.0, atol=0.25, rtol=0)
        self.assertGreater(out.std().item(), 0)

    def test_mask_gradient(self):
        q, k, v = inputs(torch.float32)
        mask = torch.randn(9, 9)
        grads = []
        for device in ("cpu", DEVICE):
            m = mask.to(device).requires_grad_()
            out = F.scaled_dot_product_attention(q.to(device), k.to(device), v.to(device), attn_mask=m)
            grads.append(torch.autograd.grad(out.square().sum(), m)[0].cpu())
        # Summed over 8 heads.
        self.assertEqual(grads[1], grads[0], atol=2e-4, rtol=1e-4)

    def test_multihead_attention_module(self):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        x = torch.randn(3, 7, 16)
        mask = torch.nn.Transformer.generate_square_subsequent_mask(7)
        expected = layer(x, src_mask=mask, is_causal=True)
        actual = layer.to(DEVICE)(x.to(DEVICE), src_mask=mask.to(DEVICE), is_causal=True)
        # Two layer norms and two linear layers on numbers of size 1.
        self.assertEqual(actual.cpu(), expected, atol=5e-5, rtol=1e-4)

    def test_in_parts(self):
        # More queries and keys than one part under a causal mask; parts are summed in half precision.
        for shape in ((600, 600), (300, 700), (700, 300)):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(shape=shape, dtype=dtype):
                    queries, keys = shape
                    q, k, v = inputs(dtype, batch=1, heads=4, queries=queries, keys=keys, width=8, kv_heads=2)
                    self.check(q, k, v, is_causal=True, enable_gqa=True)
                    mask = (
                        torch.randn(4, queries, keys)
                        .to(dtype)
                        .masked_fill(torch.rand(4, queries, keys) < 0.1, -math.inf)
                    )
                    self.check(q, k, v, attn_mask=mask, enable_gqa=True)

    def test_memory_grows_with_the_length_only(self):
        def peak(length):
            q = torch.randn(1, 1, length, 8, device=DEVICE, requires_grad=True)
            torch.netcl.synchronize()
            torch.netcl.reset_peak_memory_stats()
            before = torch.netcl.memory_allocated()
            F.scaled_dot_product_attention(q, q, q).sum().backward()
            return torch.netcl.max_memory_allocated() - before

        # Scores of all queries with all keys would take 1 GiB, twice that in the backward pass.
        self.assertLess(peak(16384), 2**28)

    def test_launches_and_no_fallback(self):
        q, k, v = (t.to(DEVICE).requires_grad_() for t in inputs(torch.float32))
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(torch.ones_like(q))
        before, launches = dict(torch.netcl.cpu_fallback_ops()), torch.netcl.launch_count()
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        self.assertLessEqual(torch.netcl.launch_count() - launches, 5)
        weight, launches = torch.ones_like(out), torch.netcl.launch_count()
        torch.autograd.grad(out, (q, k, v), weight)
        if not GPU_SHAPE:
            self.assertEqual(torch.netcl.launch_count() - launches, 1)
        self.assertEqual(dict(torch.netcl.cpu_fallback_ops()), before)

    def test_blocks(self):
        # Lengths below, at and above those of a GPU's tiles (32 and 64), and widths that its registers divide in
        # different ways, or that rows cannot be read in 16 bytes.
        for causal, dtype, sizes in [
            (False, torch.float32, dict(queries=65, keys=130, width=64)),
            (True, torch.float32, dict(queries=130, keys=65, width=16)),
            (True, torch.float32, dict(queries=70, keys=33, width=128)),
            (True, torch.float32, dict(queries=33, keys=70, width=20, value_width=75)),
            (False, torch.float32, dict(queries=64, keys=128, width=80, value_width=30)),
            (True, torch.float16, dict(queries=65, keys=70, width=64)),
            (False, torch.float16, dict(queries=16, keys=97, width=96)),
            (True, torch.bfloat16, dict(queries=65, keys=70, width=64)),
            (False, torch.bfloat16, dict(queries=40, keys=33, width=36, value_width=17)),
        ]:
            with self.subTest(**sizes, causal=causal, dtype=dtype):
                self.check(*inputs(dtype, batch=1, heads=2, **sizes), is_causal=causal)

    def test_blocks_with_masks(self):
        q, k, v = inputs(torch.float32, queries=40, keys=70, heads=2)
        g = torch.Generator().manual_seed(0)
        for shape in [(40, 70), (1, 70), (40, 1), (2, 1, 40, 70), (2, 2, 1, 70), (2, 1, 1, 1)]:
            with self.subTest(shape=shape):
                self.check(q, k, v, attn_mask=torch.randn(shape, generator=g))
                self.check(q, k, v, attn_mask=torch.rand(shape, generator=g) > 0.3)
        self.check(q, k, v, attn_mask=torch.randn(70, 40, generator=g).T)
        self.check(q, k, v, attn_mask=torch.rand(40, 140, generator=g)[:, ::2] > 0.5)
        # A whole block of keys that one query does not see, before and after those that it sees.
        for seen in (slice(0, 3), slice(67, 70)):
            mask = torch.zeros(40, 70, dtype=torch.bool)
            mask[:, seen] = True
            self.check(q, k, v, attn_mask=mask)
        mask[5] = False
        out = F.scaled_dot_product_attention(*(t.to(DEVICE) for t in (q, k, v)), attn_mask=mask.to(DEVICE))
        self.assertEqual(out[:, :, 5].cpu(), torch.zeros(2, 2, 16))
        self.check(q, k, v, attn_mask=mask)
        for dtype in (torch.float16, torch.bfloat16):
            self.check(*inputs(dtype, queries=40, keys=70), attn_mask=torch.randn(40, 70, generator=g).to(dtype))

    def test_blocks_of_heads_that_share_keys(self):
        for causal in (False, True):
            q, k, v = inputs(torch.float32, heads=6, kv_heads=2, queries=40, keys=70, width=32)
            self.check(q, k, v, enable_gqa=True, is_causal=causal)
        self.check(q, k, v, enable_gqa=True, attn_mask=torch.randn(2, 6, 40, 70))
        self.check(*inputs(torch.bfloat16, heads=4, kv_heads=1, queries=3, keys=40), enable_gqa=True)

    def test_blocks_with_strides(self):
        qkv = torch.randn(2, 40, 3, 2, 24)
        views = [t.permute(0, 2, 1, 3) for t in qkv.unbind(2)]
        self.check(*views, is_causal=True)
        columns = [torch.randn(2, 2, 24, 40).transpose(2, 3) for _ in range(3)]
        device = [t.to(DEVICE) for t in columns]
        self.assertEqual(device[0].stride(3), 40)
        for dtype in (torch.float32, torch.bfloat16):
            base = torch.randn(2 * 2 * 40 * 24 + 3).to(dtype)
            shifted = base.to(DEVICE)[3:].view(2, 2, 40, 24)  # rows do not begin at 16 bytes
            expected = F.scaled_dot_product_attention(*[base[3:].view(2, 2, 40, 24).float()] * 3)
            actual = F.scaled_dot_product_attention(shifted, shifted, shifted)
            self.assertEqual(actual.cpu(), expected.to(dtype), **TOLERANCE[dtype])
        leaves = [t.clone().requires_grad_() for t in columns]
        out = F.scaled_dot_product_attention(*leaves)
        expected = torch.autograd.grad(out.sum(), leaves)  # the output's gradient has strides of 0
        leaves = [t.to(DEVICE).requires_grad_() for t in columns]
        got = F.scaled_dot_product_attention(*leaves)
        self.assertEqual(got.cpu(), out, **TOLERANCE[torch.float32])
        for a, e in zip(torch.autograd.grad(got.sum(), leaves), expected, strict=True):
            self.assertEqual(a.cpu(), e, **TOLERANCE[torch.float32])

    def test_blocks_with_non_finite_numbers(self):
        for place, value in ((0, "nan"), (1, "nan"), (1, "inf"), (2, "nan"), (2, "inf"), (2, "-inf")):
            tensors = inputs(torch.float32, queries=40, keys=70)
            tensors[place][0, 1, 33, 3] = float(value)
            with self.subTest(place=place, value=value):
                expected = F.scaled_dot_product_attention(*tensors)
                actual = F.scaled_dot_product_attention(*(t.to(DEVICE) for t in tensors))
                self.assertEqual(actual.cpu(), expected, **TOLERANCE[torch.float32])
        # A key, or its value, that only the last block of queries sees leaves the gradients of the others finite.
        for place in (1, 2):
            tensors = inputs(torch.float32, queries=300, keys=300)
            tensors[place][:, :, 250, 3] = math.nan
            leaves = [t.to(DEVICE).requires_grad_() for t in tensors]
            out = F.scaled_dot_product_attention(*leaves, is_causal=True)
            grads = torch.autograd.grad(out, leaves, torch.ones_like(out))
            self.assertTrue(grads[0][:, :, :192].isfinite().all())
            self.assertTrue(grads[0][:, :, 250:].isnan().any(-1).all())

    def test_large_scores(self):
        # Without the maximum, the exponentials would overflow; from block to block it grows by hundreds.
        q, k, v = inputs(torch.float32, queries=40, keys=200)
        k *= torch.linspace(1, 100, 200)[:, None]
        expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
        actual = F.scaled_dot_product_attention(q.to(DEVICE), k.to(DEVICE), v.to(DEVICE))
        # Scores reach 500 and are rounded to 2^-24 of that, a few times: 1e-4 of a probability.
        self.assertEqual(actual.cpu(), expected.float(), atol=2e-4, rtol=1e-4)

    def test_operator(self):
        """The operator itself: the sums' logarithms, no keys, and some gradients only."""
        q, k, v = (t.to(DEVICE) for t in inputs(torch.float32, queries=40, keys=70))
        out, lse, *_ = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(q, k, v)
        expected = (q.cpu().double() @ k.cpu().double().transpose(2, 3) / 4).logsumexp(3)
        self.assertEqual(lse.cpu(), expected.float(), atol=1e-5, rtol=1e-6)
        backward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
        rest = (out, lse, None, None, 40, 70, 0.0, False, torch.zeros(()), torch.zeros(()))
        whole = backward(torch.ones_like(out), q, k, v, None, [True, True, True, False], *rest)
        for i in range(3):
            wanted = [i == j for j in range(3)]
            grads = backward(torch.ones_like(out), q, k, v, None, [*wanted, False], *rest)
            self.assertEqual([g is not None for g in grads[:3]], wanted)
            self.assertEqual(grads[i], whole[i], atol=0, rtol=0)
        out, lse, *_ = torch.ops.aten._scaled_dot_product_fused_attention_overrideable(q, k[:, :, :0], v[:, :, :0])
        self.assertEqual(out, torch.zeros_like(out))
        self.assertEqual(lse, torch.full_like(lse, float("-inf")))

    def test_gradients_are_the_same_each_time(self):
        q, k, v = (t.to(DEVICE).requires_grad_() for t in inputs(torch.float32, queries=70, keys=70, kv_heads=2))
        runs = [
            torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, enable_gqa=True).square().sum(), (q, k, v))
            for _ in range(3)
        ]
        for again in runs[1:]:
            self.assertEqual(again, runs[0], atol=0, rtol=0)

    def test_first_call_in_inference_mode(self):
        """What the first call keeps for later ones may be saved for backward."""
        code = """if True:
            import torch
            x = torch.ones(1, 1, 4, 8, device="netcl")
            with torch.inference_mode():
                torch.nn.functional.scaled_dot_product_attention(x, x, x)
            x.requires_grad_()
            torch.nn.functional.scaled_dot_product_attention(x, x, x).sum().backward()
            print(x.grad.shape)
        """
        done = python(code)
        self.assertEqual(done.stdout, "torch.Size([1, 1, 4, 8])\n", done.stderr)

    def test_gradcheck(self):
        if not torch.netcl.get_device_properties(0).has_fp64:
            self.skipTest("gradcheck needs float64, which the device has not")
        q, k, v = (t.double().to(DEVICE).requires_grad_() for t in inputs(torch.float32, 1, 2, 17, 18, 3, kv_heads=1))
        attend = lambda *t: F.scaled_dot_product_attention(*t, is_causal=True, enable_gqa=True)  # noqa: E731
        self.assertTrue(torch.autograd.gradcheck(attend, (q, k, v), fast_mode=True))

    def test_memory_is_linear_in_the_length(self):
        if not GPU_SHAPE:
            self.skipTest("CPUs keep the scores of some queries; test_memory_grows_with_the_length_only checks them")

        def peak(length):
            q = torch.randn(1, 2, length, 32, device=DEVICE, requires_grad=True)
            torch.netcl.synchronize()
            torch.netcl.reset_peak_memory_stats()
            before = torch.netcl.memory_allocated()
            F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
            return torch.netcl.max_memory_allocated() - before

        # Output, gradients and sums: some copies of the operands, whatever the length.
        for length in (256, 1024):
            self.assertLess(peak(length), 12 * 2 * length * 32 * 4)

    def test_launches_in_gpu_shape(self):
        if not GPU_SHAPE:
            self.skipTest("test_launches_and_no_fallback counts those of CPUs")
        for width, most in ((64, 3), (128, 4)):
            q, k, v = (t.to(DEVICE).requires_grad_() for t in inputs(torch.float32, queries=64, keys=64, width=width))
            weight = torch.ones_like(q)
            before = torch.netcl.launch_count()
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            self.assertEqual(torch.netcl.launch_count() - before, 1)
            before = torch.netcl.launch_count()
            torch.autograd.grad(out, (q, k, v), weight)
            self.assertLessEqual(torch.netcl.launch_count() - before, most)

    def test_gpu_shape(self):
        names = "blocks or large_scores or operator or same_each_time or linear or launches_in"
        check_gpu_shape(self, __file__, "share or same_each_time" if SLOW_COMPILER else names)

    @unittest.skipIf(SLOW_COMPILER, "PoCL compiles these kernels for minutes")
    def test_small_groups(self):
        """The kernels of devices with groups of 64 work-items and 16 KiB of local memory."""
        if GPU_SHAPE:
            self.skipTest("test_gpu_shape's process would start another one")
        check_gpu_shape(self, __file__, "test_blocks and not masks", NETCL_DISABLE="work_groups,local_memory")


instantiate_parametrized_tests(TestAttention)

if __name__ == "__main__":
    run_tests()
