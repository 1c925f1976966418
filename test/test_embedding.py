"""Embedding tables: look-up, gradient, renormalisation, against the CPU."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

import torch_netcl  # noqa: F401

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class TestEmbedding(TestCase):
    def check(self, device, dtype, rows, width, index, **kwargs):
        table = torch.randn(rows, width).to(dtype)
        leaf, ref = table.to(device).requires_grad_(), table.double().requires_grad_()
        y, expected = F.embedding(index.to(device), leaf, **kwargs), F.embedding(index, ref, **kwargs)
        self.assertEqual(y.detach().cpu(), expected.detach().to(dtype))
        g = torch.randn(expected.shape).to(dtype)
        y.backward(g.to(device))
        expected.backward(g.double())
        # Sums of up to index.numel() terms in float32, rounded once to the dtype.
        self.assertEqual(
            leaf.grad.cpu(), ref.grad.to(dtype), atol=1e-5, rtol=max(1e-5, torch.finfo(dtype).eps)
        )

    @dtypes(*FLOATS)
    def test_embedding(self, device, dtype):
        index = torch.randint(11, (4, 9))
        for width in (1, 7, 16, 100):
            with self.subTest(width=width):
                self.check(device, dtype, 11, width, index)
        self.check(device, dtype, 11, 8, index.int())
        self.check(device, dtype, 11, 8, index.t()[1:])
        self.check(device, dtype, 11, 8, index, padding_idx=3)
        self.check(device, dtype, 11, 8, index, padding_idx=-1, scale_grad_by_freq=True)
        self.check(device, dtype, 3, 8, torch.randint(3, (500,)))
        self.check(device, dtype, 11, 8, torch.tensor(4))
        self.check(device, dtype, 11, 8, torch.empty(0, 3, dtype=torch.long))

    def test_runs_of_indices(self, device):
        """A GPU sorts the indices and sums runs of equal ones in chunks of 32: runs that end at a chunk's border, cross
        one or several, or fill all."""
        for lengths in ((32, 33, 31, 64), (1, 200, 3), (100,), (31, 1, 32, 32, 5), (40, 70)):
            index = torch.cat([torch.full((n,), 2 * k) for k, n in enumerate(lengths)])
            shuffled = index[torch.randperm(index.numel())]
            for width in (1, 70):
                self.check(device, torch.float32, 11, width, shuffled)
            self.check(device, torch.float32, 11, 5, shuffled.int(), padding_idx=2, scale_grad_by_freq=True)
        with self.assertRaisesRegex(IndexError, "embedding"):
            torch.ops.aten.embedding_dense_backward(
                torch.randn(200, 4, device=device), torch.arange(200, device=device), 199, -1, False
            ).cpu()

    def test_double(self, device):
        self.check(device, torch.float64, 5, 3, torch.randint(5, (8,)))

    def test_index_out_of_range(self, device):
        table = torch.randn(5, 4, device=device)
        with self.assertRaises(IndexError):
            F.embedding(torch.tensor([1, 5], device=device), table).cpu()
        g = torch.randn(2, 4, device=device)
        with self.assertRaisesRegex(IndexError, "embedding"):
            torch.ops.aten.embedding_dense_backward(
                g, torch.tensor([1, 5], device=device), 5, -1, False
            ).cpu()

    def test_deterministic(self, device):
        g, index = torch.randn(3000, 40, device=device), torch.randint(4, (3000,), device=device)
        first = torch.ops.aten.embedding_dense_backward(g, index, 4, -1, False)
        self.assertEqual(
            torch.ops.aten.embedding_dense_backward(g, index, 4, -1, False).cpu(), first.cpu(), atol=0, rtol=0
        )

    def test_renorm(self, device):
        index = torch.tensor([[0, 2, 2], [4, 0, 0]])
        for p in (1.0, 2.0, 3.0, float("inf")):
            table = torch.randn(6, 9)
            mine = table.to(device)
            F.embedding(index, table, max_norm=0.9, norm_type=p)
            F.embedding(index.to(device), mine, max_norm=0.9, norm_type=p)
            self.assertEqual(mine.cpu(), table)

    @dtypes(torch.float32, torch.float16)
    def test_embedding_bag(self, device, dtype):
        index = torch.randint(10, (14,))
        offsets = torch.tensor([0, 3, 3, 9])  # the second bag is empty
        for mode in ("sum", "mean", "max"):
            for width in (3, 20):
                for kwargs in ({}, {"padding_idx": 2}, {"include_last_offset": True}):
                    table = torch.randn(10, width).to(dtype)
                    a, b = table.to(device).requires_grad_(), table.double().requires_grad_()
                    y = F.embedding_bag(index.to(device), a, offsets.to(device), mode=mode, **kwargs)
                    ref = F.embedding_bag(index, b, offsets, mode=mode, **kwargs)
                    # Sums of at most 14 numbers in float32, rounded once.
                    eps = torch.finfo(dtype).eps
                    tolerance = {"atol": max(eps, 1e-5), "rtol": max(eps, 1e-5)}
                    self.assertEqual(y.detach().cpu(), ref.detach().to(dtype), **tolerance)
                    g = torch.randn(ref.shape).to(dtype)
                    y.backward(g.to(device))
                    ref.backward(g.double())
                    self.assertEqual(a.grad.cpu(), b.grad.to(dtype), **tolerance)

    def test_embedding_bag_many(self, device):
        index, weights = torch.randint(9, (300,)), torch.rand(300)
        offsets = torch.tensor([0, 0, 100, 101, 250])
        for mode in ("sum", "mean", "max"):
            for kwargs in ({}, {"padding_idx": 2}, {"per_sample_weights": weights}):
                if "per_sample_weights" in kwargs and mode != "sum":
                    continue
                a, b = (torch.randn(9, 20).to(d).requires_grad_() for d in (device, "cpu"))
                with torch.no_grad():
                    b.copy_(a)
                on_device = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
                y = F.embedding_bag(index.to(device), a, offsets.to(device), mode=mode, **on_device)
                ref = F.embedding_bag(index, b, offsets, mode=mode, **kwargs)
                g = torch.randn(ref.shape)
                y.backward(g.to(device))
                ref.backward(g)
                # Sums of at most 300 numbers below 5 in float32, in another order.
                self.assertEqual(a.grad.cpu(), b.grad, atol=1e-4, rtol=1e-5)

    def test_embedding_bag_options(self, device):
        torch.netcl.reset_cpu_fallback_ops()
        index, weights = torch.randint(7, (3, 4)), torch.rand(3, 4)
        table = torch.randn(7, 5)
        a, b = table.to(device).requires_grad_(), table.clone().requires_grad_()
        u, v = weights.to(device).requires_grad_(), weights.clone().requires_grad_()
        y = F.embedding_bag(index.to(device), a, per_sample_weights=u, mode="sum")
        ref = F.embedding_bag(index, b, per_sample_weights=v, mode="sum")
        self.assertEqual(y.detach().cpu(), ref.detach())
        y.backward(y.detach())
        ref.backward(ref.detach())
        self.assertEqual(a.grad.cpu(), b.grad)
        self.assertEqual(u.grad.cpu(), v.grad)
        a.grad = b.grad = None
        y = F.embedding_bag(index.int().to(device), a, scale_grad_by_freq=True)
        # The CPU divides by the count of a wrong index, so compute the reference here.
        ref = F.embedding_bag(index, b)
        y.backward(y.detach())
        ref.backward(ref.detach())
        counts = index.view(-1).bincount(minlength=7).clamp(min=1)
        self.assertEqual(a.grad.cpu(), b.grad / counts[:, None])
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})
        with self.assertRaisesRegex(IndexError, "embedding_bag"):
            F.embedding_bag(torch.tensor([[7]], device=device), a).cpu()

    def test_embedding_bag_checks(self, device):
        """netcl refuses what the CPU refuses: dtypes and shapes at once, indices and offsets at the next synchronising
        call."""
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(2)  # with one thread, the CPU accepts offsets that decrease
        index, first, table, ones = torch.tensor([0, 1, 2, 4]), torch.tensor([0, 2]), torch.randn(5, 3), torch.ones(4)
        cases = [
            (index.float(), first, {}),
            (index.short(), first.short(), {}),
            (index, first.double(), {}),
            (index, first + 1, {}),
            (index, first + 3, {}),
            (index, torch.tensor([0, 9]), {}),
            (index, torch.tensor([0, -1]), {}),
            (index, torch.tensor([0, 3, 1]), {}),
            (index, torch.tensor([0, 2, 9]), {"include_last_offset": True}),
            (index, first[None], {}),
            (index, first[:0], {"include_last_offset": True}),
            (index + 1, first, {}),
            (index - 1, first, {}),
            (index - 1, first, {"padding_idx": 2}),
            (index, first, {"per_sample_weights": ones}),
            (index, first, {"per_sample_weights": ones.double(), "mode": 0}),
            (index, first, {"per_sample_weights": ones[:3], "mode": 0}),
        ]
        for i, (indices, offsets, kwargs) in enumerate(cases):
            defaults = {"mode": 1, "padding_idx": None, "include_last_offset": False, "per_sample_weights": None}
            arguments = {**defaults, **kwargs}
            for where in ("cpu", device):
                with self.assertRaises((RuntimeError, IndexError), msg=f"case {i} on {where}"):
                    weights = arguments["per_sample_weights"]
                    torch.embedding_bag(
                        table.to(where), indices.to(where), offsets.to(where), False, arguments["mode"], False,
                        weights if weights is None else weights.to(where), arguments["include_last_offset"],
                        arguments["padding_idx"],
                    )
                    torch.netcl.synchronize()
        y = torch.embedding_bag(table.to(device), index.int().to(device), first.to(device))[0]
        self.assertEqual(y.cpu(), torch.embedding_bag(table, index.int(), first)[0])

    def test_module_needs_no_cpu(self, device):
        module = nn.Embedding(10, 6, padding_idx=0).to(device)
        index = torch.randint(10, (3, 4)).to(device)
        torch.netcl.reset_cpu_fallback_ops()
        y = module(index)
        y.backward(y.detach())
        self.assertEqual(module.weight.grad[0].cpu(), torch.zeros(6))
        self.assertEqual(torch.netcl.cpu_fallback_ops(), {})

    @dtypes(torch.float32, torch.float64)
    def test_renorm_norms(self, device, dtype):
        table, index = torch.randn(6, 5, dtype=dtype), torch.tensor([0, 2, 2, 5])
        table[2, 1] = float("nan")
        for p in (0.0, 1.0, 2.0, 1 / 3, 7.0, float("inf"), float("-inf")):
            with self.subTest(p=p):
                mine = torch.embedding_renorm_(table.to(device), index.to(device), 0.1, p)
                self.assertEqual(mine.cpu(), torch.embedding_renorm_(table.clone(), index, 0.1, p))

    def test_bag_backward_checks_its_arguments(self, device):
        backward = torch.ops.aten._embedding_bag_dense_backward
        grad, index = torch.ones(3, 2, device=device), torch.zeros(4, dtype=torch.long, device=device)
        nothing, three = index[:0], index[:3]
        cases = ((1, nothing, three, nothing), (1, index, nothing, nothing), (2, index, three, three))
        for mode, bags, sizes, most in cases:
            with self.assertRaises(RuntimeError):
                backward(grad, index, bags, sizes, most, 5, False, mode, None)



instantiate_device_type_tests(TestEmbedding, globals(), only_for="netcl")

if __name__ == "__main__":
    run_tests()
