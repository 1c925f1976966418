"""scaled_dot_product_attention, forward and backward, with the fused and the composite path."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401

DEVICE = "netcl"
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
            self.assertEqual(
                a.cpu(), e.to(dtype), msg=lambda text, name=name: f"{name}: {text}", **TOLERANCE[dtype]
            )

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
        before = torch.netcl.launch_count()
        got = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        self.assertLessEqual(torch.netcl.launch_count() - before, 3)
        self.assertEqual(got.stride(), q.stride())
        self.assertEqual(got.cpu().float(), want, atol=0.02, rtol=0.02)

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
        out.backward(torch.ones_like(out))
        self.assertEqual(dict(torch.netcl.cpu_fallback_ops()), before)


instantiate_parametrized_tests(TestAttention)

if __name__ == "__main__":
    run_tests()
