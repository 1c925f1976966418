"""Nested tensors, strided and jagged, and the inference paths of torch.nn that use them, compared with the CPU."""

import itertools

import torch
import torch.nn.functional as F
from common import no_fallback
from processes import python
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

D = torch.device("netcl", 0)
# Kernels for nested tensors on the CPU that netcl does not need: pinning is for host memory; the others are PyTorch's
# tests of its dispatcher, and kernels for all keys except named ones.
NOT_OURS = ("is_pinned", "_pin_memory", "_test_autograd_multiple_dispatch", "_fused_sdp_choice")


def kernels_of(key):
    return {n for n in torch._C._dispatch_get_registrations_for_dispatch_key(key) if n.startswith("aten::")}


def components(*shapes):
    g = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(s, generator=g) for s in shapes]


def dense(x):
    """The parts of a result to compare: the components of a nested tensor, on the CPU."""
    if isinstance(x, (tuple, list)):
        return [dense(t) for t in x]
    if isinstance(x, torch.Tensor):
        return [t.detach().cpu() for t in x.unbind()] if x.is_nested else x.detach().cpu()
    return x


UNARY = [
    torch.abs, torch.sgn, torch.logical_not, torch.cos, torch.sin, torch.neg, torch.relu, F.gelu, F.silu, torch.tanh,
    torch.isnan, torch.isinf, torch.isposinf, torch.isneginf, torch.clone, torch.zeros_like, torch.ones_like,
    lambda t: t.sqrt().isnan(), lambda t: t.detach() + t, lambda t: t * 2.5, lambda t: t / 3, lambda t: t - t * 2,
    lambda t: t / (t * t + t), lambda t: t == 0.5, lambda t: t >= 0, lambda t: t > 0, lambda t: t.eq(t[0, 0, 0].cpu()),
    lambda t: t.half().float(), lambda t: t.sum(-1, keepdim=True), lambda t: F.softmax(t, -1),
    lambda t: F.softmax(t, 1),
    lambda t: t.transpose(1, 2).contiguous(), lambda t: t.unsqueeze(1), lambda t: t.unsqueeze(-1).squeeze(-1),
    lambda t: t.chunk(2, -1), lambda t: t.split_with_sizes([1, 3], -1), lambda t: t.select(0, 1), lambda t: t[0],
    lambda t: torch.nested.to_padded_tensor(t, 1.5), lambda t: torch.nested.to_padded_tensor(t, 0.0, (3, 9, 4)),
    lambda t: torch.nested.to_padded_tensor(t, 0.0, (3, 6, 7)),
    lambda t: torch.matmul(t, t.transpose(1, 2)), lambda t: torch.bmm(t, t.transpose(1, 2)),
    lambda t: t.reshape(3, -1, 2, 2), lambda t: t.view(3, -1, 2, 2), lambda t: torch.cat([t, t], 0),
    lambda t: t.masked_fill(t > 0, 2.0), lambda t: t.values(),
    lambda t: t.clone().mul_(2).add_(t).relu_(), lambda t: t.clone().fill_(3), lambda t: t.clone().zero_(),
    lambda t: t.clone().abs_().neg_().tanh_(), lambda t: t.clone().copy_(t * 2), lambda t: torch.empty_like(t).fill_(1),
    lambda t: t.logical_not().all(-1, keepdim=True), lambda t: F.dropout(t, 0.0, True),
    lambda t: torch.narrow(t, 0, 1, 2), lambda t: t.size(0), lambda t: t._nested_tensor_size(),
    lambda t: t._nested_tensor_strides(), lambda t: t._nested_tensor_storage_offsets(), lambda t: t.is_same_size(t),
]  # fmt: skip
DIFFERENTIABLE = [
    lambda t: t.relu() * t, lambda t: F.gelu(t) * F.silu(t), lambda t: t.sum(-1, keepdim=True),
    lambda t: F.softmax(t, -1) * t, lambda t: torch.matmul(t, t.transpose(1, 2)), lambda t: t.unbind()[1].square(),
    lambda t: torch.nested.to_padded_tensor(t, 1.0).square(), lambda t: t.select(0, 2).cos(),
    lambda t: F.layer_norm(t, (4,), torch.linspace(1, 2, 4, device=t.device), torch.ones(4, device=t.device)) * t,
    lambda t: F.linear(t, torch.arange(12.0, device=t.device).view(3, 4) / 9, torch.ones(3, device=t.device)).relu(),
]  # fmt: skip


class TestStrided(TestCase):
    def make(self, tensors, device, **options):
        return torch.nested.nested_tensor(tensors, device=device, **options)

    def test_every_kernel_of_the_cpu_is_there(self):
        ours, cpu = kernels_of("NestedTensorPrivateUse1"), kernels_of("NestedTensorCPU")
        missing = sorted(n for n in cpu - ours if not n.removeprefix("aten::").startswith(NOT_OURS))
        self.assertEqual(missing, [])
        self.assertGreater(len(ours), 90)

    def test_operators(self):
        tensors = components((2, 4), (6, 4), (3, 4))
        for i, f in enumerate(UNARY):
            with self.subTest(i=i), no_fallback():
                expected, got = f(self.make(tensors, "cpu")), f(self.make(tensors, D))
                self.assertEqual(dense(got), dense(expected), atol=1e-5, rtol=1e-5)

    def test_other_shapes(self):
        for shapes in [((2, 3), (4, 5)), ((3,), (1,), (5,)), ((2, 3, 4), (2, 5, 4)), ((), ()), ((0, 4), (3, 4)), ()]:
            tensors = components(*shapes)
            for f in (
                torch.relu, torch.clone, lambda t: t + t, lambda t: torch.nested.to_padded_tensor(t, -1.0),
                lambda t: F.softmax(t, -1), lambda t: t.sum(-1, keepdim=True),
            ):  # fmt: skip
                with self.subTest(shapes=shapes):
                    try:
                        expected = f(self.make(tensors, "cpu"))
                    except (RuntimeError, IndexError) as error:
                        self.assertRaises(type(error), lambda: f(self.make(tensors, D)))
                        continue
                    with no_fallback():
                        self.assertEqual(dense(f(self.make(tensors, D))), dense(expected), atol=1e-5, rtol=1e-5)

    def test_gradients(self):
        tensors = components((2, 4), (6, 4), (3, 4))
        for i, f in enumerate(DIFFERENTIABLE):
            grads = []
            for device in ("cpu", D):
                leaves = [t.to(device).requires_grad_() for t in tensors]
                with self.subTest(i=i), no_fallback():
                    out = f(torch.nested.as_nested_tensor(leaves))
                    out = torch.nested.to_padded_tensor(out, 0.0) if out.is_nested else out
                    grads.append([g.cpu() for g in torch.autograd.grad(out.sum() + out.square().mean(), leaves)])
            with self.subTest(i=i):
                self.assertEqual(grads[1], grads[0], atol=1e-4, rtol=1e-4)

    def test_moves_and_prints(self):
        nested = self.make(components((2, 4), (6, 4)), "cpu")
        moved = nested.to(D)
        self.assertEqual(moved.device, D)
        self.assertEqual(dense(moved.cpu()), dense(nested))
        self.assertIn("nested_tensor", repr(moved))

    def test_leaf_that_requires_grad(self):
        # Autograd asks for the sizes in code that must not raise, so this runs in a new process.
        code = (
            "import torch\n"
            "leaf = torch.randn(2, 3, device='netcl', requires_grad=True)\n"
            "nested = torch.nested.as_nested_tensor([leaf])\n"
            "torch.nested.to_padded_tensor(nested, 0.).sum().backward()\n"
            "assert leaf.grad.eq(1).all().item()\n"
        )
        done = python(code)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])

    def test_masks(self):
        x = torch.randn(3, 5, 4)
        for lengths in ((5, 3, 1), (2, 2, 2), (0, 4, 5)):
            mask = torch.arange(5) < torch.tensor(lengths)[:, None]
            for m in (mask, mask.flip(1)):
                with self.subTest(lengths=lengths), no_fallback():
                    expected = torch._nested_tensor_from_mask_left_aligned(x, m)
                    self.assertEqual(torch._nested_tensor_from_mask_left_aligned(x.to(D), m.to(D)), expected)
                    if expected:
                        got = torch._nested_tensor_from_mask(x.to(D), m.to(D))
                        self.assertEqual(dense(got), dense(torch._nested_tensor_from_mask(x, m)))
                    else:
                        with self.assertRaisesRegex(RuntimeError, "left-aligned"):
                            torch._nested_tensor_from_mask(x.to(D), m.to(D))
        with self.assertRaisesRegex(RuntimeError, "do not fit"):
            torch._nested_from_padded(x.to(D), torch.tensor([[5, 4], [6, 4], [1, 4]]))

    def test_garbage(self):
        x, sizes = torch.randn(3, 5, 4, device=D), torch.tensor([[5, 4], [2, 4], [1, 4]])
        for bad in (sizes.to(D), sizes.float(), sizes[0], sizes[:0], -sizes, sizes.int(), sizes.t(), sizes.to("meta")):
            with self.assertRaises((RuntimeError, NotImplementedError)):
                torch._nested_from_padded(x, bad)
            with self.assertRaises((RuntimeError, NotImplementedError)):
                torch._nested_view_from_buffer(x.flatten(), bad, sizes.clone(), torch.tensor([0, 5, 7]))
            with self.assertRaises((RuntimeError, NotImplementedError)):
                torch._nested_view_from_buffer(x.flatten(), sizes, sizes.clone(), bad)
        with self.assertRaises((RuntimeError, NotImplementedError)):
            torch._nested_from_padded(x, sizes, True)
        for name in ("_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets"):
            with self.assertRaises((RuntimeError, NotImplementedError)):
                getattr(x, name)()


class TestJagged(TestCase):
    @parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.float64, torch.bool])
    def test_padded(self, dtype):
        for index, tail, lengths in itertools.product(
            (torch.int32, torch.int64), ((), (3,), (2, 17)), ((4,), (0, 3, 7), (2, 0, 0, 40))
        ):
            offsets = torch.tensor((0, *lengths)).cumsum(0)
            values = torch.randn(sum(lengths), *tail).mul(9).to(dtype)
            there = offsets.to(D, index)
            for length in (max(lengths), max(lengths) + 5, 2):
                with self.subTest(index=index, tail=tail, lengths=lengths, length=length), no_fallback():
                    padded = torch.ops.aten._jagged_to_padded_dense_forward(values, [offsets], [length], 1.0)
                    got = torch.ops.aten._jagged_to_padded_dense_forward(values.to(D), [there], [length], 1.0)
                    self.assertEqual(got.cpu(), padded)
                    if length >= max(lengths):
                        for total in (sum(lengths), None):
                            back = torch.ops.aten._padded_dense_to_jagged_forward(got, [there], total)
                            self.assertEqual(back.cpu(), values)

    def test_complex(self):
        values, offsets = torch.randn(10, 17, dtype=torch.complex128), torch.tensor([0, 4, 10])
        padded = torch.ops.aten._jagged_to_padded_dense_forward(torch.view_as_real(values), [offsets], [7], 0.0)
        got = torch.ops.aten._jagged_to_padded_dense_forward(values.to(D), [offsets.to(D)], [7], 0.0)
        self.assertEqual(torch.view_as_real(got.cpu()), padded)
        self.assertEqual(torch.ops.aten._padded_dense_to_jagged_forward(got, [offsets.to(D)], 10).cpu(), values)

    def test_views_and_truncated_rows(self):
        values, offsets = torch.randn(3, 10).t(), torch.tensor([0, 4, 10])
        padded = torch.ops.aten._jagged_to_padded_dense_forward(values, [offsets], [6], 0.5)
        got = torch.ops.aten._jagged_to_padded_dense_forward(values.to(D), [offsets.to(D)], [6], 0.5)
        self.assertEqual(got.cpu(), padded)
        # Beyond the padded length a sequence is zero, as on CUDA; the CPU raises an error.
        back = torch.ops.aten._padded_dense_to_jagged_forward(padded[:, :5].to(D), [offsets.to(D)], 10)
        self.assertEqual(back.cpu(), torch.cat([values[:9], torch.zeros(1, 3)]))

    def test_bad_offsets(self):
        values = torch.randn(10, 3, device=D)
        for offsets in ([0, 4, 11], [-1, 4, 10], [0, 12, 10]):
            with self.subTest(offsets=offsets), self.assertRaises(IndexError):
                o = torch.tensor(offsets, device=D)
                torch.ops.aten._jagged_to_padded_dense_forward(values, [o], [6], 0.0)
                torch.netcl.synchronize()
            with self.subTest(offsets=offsets), self.assertRaises(IndexError):
                o = torch.tensor(offsets, device=D)
                torch.ops.aten._padded_dense_to_jagged_forward(values.view(2, 5, 3), [o], 10)
                torch.netcl.synchronize()
        for bad in ([], [torch.zeros(2, 2, device=D, dtype=torch.int64)], [torch.zeros(3, device=D)], [torch.zeros(3)]):
            with self.assertRaises((RuntimeError, NotImplementedError)):
                torch.ops.aten._jagged_to_padded_dense_forward(values, bad, [6], 0.0)

    def test_padded_gradients(self):
        tensors, grads = components((2, 3, 4), (5, 3, 4)), []
        for device in ("cpu", D):
            leaf = torch.nested.nested_tensor(tensors, device=device, layout=torch.jagged, requires_grad=True)
            with no_fallback():
                out = torch.nested.to_padded_tensor(leaf, 2.0)
                (grad,) = torch.autograd.grad(out.square().sum() + (out * out.detach().flip(1)).sum(), leaf)
            grads.append(grad.values().cpu())
        self.assertEqual(grads[1], grads[0], atol=1e-5, rtol=1e-5)

    @parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_attention(self, dtype):
        lengths = (3, 1, 6)

        def run(device, **options):
            g = torch.Generator().manual_seed(0)
            leaves = [
                torch.nested.nested_tensor([torch.randn(n, 2, 8, generator=g).to(dtype) for n in lengths],
                                           device=device, layout=torch.jagged, requires_grad=True)  # fmt: skip
                for _ in range(3)
            ]
            out = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in leaves), **options).transpose(1, 2)
            grads = torch.autograd.grad(out.values().float().square().sum(), leaves)
            return [out.values().detach().cpu(), *(t.values().cpu() for t in grads)]

        for options in ({}, {"scale": 0.3}):
            with self.subTest(**options):
                expected = run("cpu", **options)
                with no_fallback():
                    got = run(D, **options)
                # Gradients are sums of 6 terms of size below 10; bfloat16 rounds each of the ten operators on the way.
                tolerance = 2e-5 if dtype == torch.float32 else 0.15
                self.assertEqual(got, expected, atol=tolerance, rtol=tolerance)

    def test_causal_attention_is_refused(self):
        """torch.nested chooses in Python: causal attention of jagged tensors is for CUDA's own kernels only."""
        for device in ("cpu", D):
            tensors = [torch.randn(n, 2, 8, device=device) for n in (3, 5)]
            x = torch.nested.nested_tensor(tensors, layout=torch.jagged).transpose(1, 2)
            with self.subTest(device), self.assertRaisesRegex(RuntimeError, "No viable backend"):
                F.scaled_dot_product_attention(x, x, x, is_causal=True)


class TestInference(TestCase):
    """Under no_grad, torch.nn calls whole layers as one operator, and uses nested tensors if keys are padded."""

    def check(self, module, *args, **kwargs):
        with torch.no_grad():
            expected = module(*args, **kwargs)
        there = {}  # the layer recognises self-attention by identical arguments

        def move(t):
            return there.setdefault(t, t.to(D)) if isinstance(t, torch.Tensor) else t

        with torch.no_grad(), no_fallback():
            got = module.to(D)(*map(move, args), **{k: move(v) for k, v in kwargs.items()})
        module.cpu()
        # Layer norms scale numbers to size 1 after each of up to two layers: 2^-24 times some hundred roundings.
        self.assertEqual(dense(got), dense(expected), atol=2e-5, rtol=2e-5)

    def layer(self, **options):
        torch.manual_seed(0)
        options = {"batch_first": True, "dim_feedforward": 24, **options}
        layer = torch.nn.TransformerEncoderLayer(16, 4, **options).eval()
        for p in layer.parameters():
            torch.nn.init.normal_(p, std=0.3)
        return layer

    @parametrize("norm_first", [False, True])
    @parametrize("activation", ["relu", "gelu"])
    def test_encoder_layer(self, norm_first, activation):
        layer = self.layer(norm_first=norm_first, activation=activation)
        x = torch.randn(3, 5, 16)
        padding = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]], dtype=torch.bool)
        causal = torch.nn.Transformer.generate_square_subsequent_mask(5)
        self.check(layer, x)
        self.check(layer, x, src_key_padding_mask=padding)
        self.check(layer, x, src_mask=causal)
        self.check(layer, x, src_mask=causal.isinf(), src_key_padding_mask=padding)
        self.check(layer, x, src_mask=torch.rand(12, 5, 5) > 0.9)
        self.check(layer, x[:0])

    @parametrize("norm_first", [False, True])
    def test_encoder_layer_autocast(self, norm_first):
        """PyTorch skips the fused layer under CUDA's autocast only; here it must do as the layer that is not fused."""
        layer = self.layer(norm_first=norm_first).to(D)
        x = torch.randn(3, 5, 16, device=D)
        padding = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]], dtype=torch.bool, device=D)
        causal = torch.nn.Transformer.generate_square_subsequent_mask(5, device=D)
        slopes = -(torch.arange(5) - torch.arange(5)[:, None]).abs().float().to(D)
        masks = [{}, {"src_key_padding_mask": padding}, {"src_mask": causal}, {"src_mask": slopes}]
        masks += [{"src_mask": slopes, "src_key_padding_mask": padding.float() * -3}]
        for options in masks:
            results = []
            for fused in (True, False):
                torch.backends.mha.set_fastpath_enabled(fused)
                self.addCleanup(torch.backends.mha.set_fastpath_enabled, True)
                with torch.no_grad(), torch.autocast("netcl", torch.bfloat16):
                    results.append(layer(x, **options))
                    results.append(layer.self_attn(x, x, x, need_weights=False)[0])
            self.assertEqual([r.dtype for r in results], [torch.float32, torch.bfloat16] * 2)
            # Numbers around 3, of which matrix products round to 2^-8.
            self.assertEqual(results[0], results[2], atol=0.04, rtol=0.01)
            self.assertEqual(results[1], results[3], atol=0.04, rtol=0.01)
            if norm_first and not options:
                self.assertNotEqual(results[0], results[0].bfloat16().float())  # residuals are not rounded

    @parametrize("norm_first", [False, True])
    def test_encoder_with_padding(self, norm_first):
        # norm_first refuses nested tensors, other layers accept them.
        encoder = torch.nn.TransformerEncoder(self.layer(norm_first=norm_first), 2, torch.nn.LayerNorm(16)).eval()
        x = torch.randn(3, 5, 16)
        for lengths in ((5, 3, 1), (4, 4, 4), (5, 5, 5)):
            padding = torch.arange(5) >= torch.tensor(lengths)[:, None]
            with self.subTest(lengths=lengths):
                self.check(encoder, x, src_key_padding_mask=padding)
                self.check(encoder, x, src_key_padding_mask=padding.flip(1))

    def test_attention_module(self):
        torch.manual_seed(0)
        x, y = torch.randn(3, 5, 16), torch.randn(3, 5, 16)
        padding = torch.arange(5) >= torch.tensor([5, 3, 1])[:, None]
        nothing = torch.arange(5) >= torch.tensor([5, 3, 0])[:, None]
        attention = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
        torch.nn.init.normal_(attention.in_proj_bias)
        for weights, average in ((False, True), (True, True), (True, False)):
            options = {"need_weights": weights, "average_attn_weights": average}
            with self.subTest(**options):
                self.check(attention, x, x, x, **options)
                self.check(attention, x, y, y, **options)
                self.check(attention, x, y, x, **options)
                self.check(attention, x, x, x, key_padding_mask=padding, **options)
                self.check(attention, x, x, x, attn_mask=torch.rand(5, 5) > 0.8, **options)
                self.check(attention, x, x, x, attn_mask=torch.rand(12, 5, 5) > 0.8, **options)
                # The result is NaN if a query sees no key.
                self.check(attention, x, x, x, key_padding_mask=nothing, **options)

    def test_nested_attention(self):
        torch.manual_seed(0)
        attention = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()
        nested = torch.nested.nested_tensor(components((2, 16), (6, 16), (3, 16)))
        self.check(attention, nested, nested, nested, need_weights=False)
        self.check(self.layer(), nested)

    def test_rescaled_projection(self):
        qkv, bias = torch.randn(2, 3, 24), torch.randn(24)
        expected = torch._transform_bias_rescale_qkv(qkv, bias, 4)
        with no_fallback():
            got = torch._transform_bias_rescale_qkv(qkv.to(D), bias.to(D), 4)
        self.assertEqual([t.cpu() for t in got], list(expected))

    def test_wrong_arguments(self):
        x, w, b = torch.randn(2, 3, 8, device=D), torch.randn(24, 8, device=D), torch.randn(24, device=D)
        out = (torch.randn(8, 8, device=D), torch.randn(8, device=D))
        for arguments in (
            (x, x, x, 8, 3, w, b, *out), (x[0], x, x, 8, 2, w, b, *out), (x, x[:, :2], x, 8, 2, w, b, *out),
            (x, x, x, 8, 2, w[:8], b, *out), (x, x, x, 8, 2, w, b[:8], *out), (x, x, x, 6, 2, w, b, *out),
            (x, x, x, 8, 0, w, b, *out),
        ):  # fmt: skip
            with self.assertRaises(RuntimeError):
                torch._native_multi_head_attention(*arguments, need_weights=False)


instantiate_parametrized_tests(TestJagged)
instantiate_parametrized_tests(TestInference)

if __name__ == "__main__":
    run_tests()
