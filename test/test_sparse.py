"""Sparse COO tensors on netcl, as far as sparse gradients need them, against the CPU."""

import unittest

import torch
from common import no_fallback
from torch import nn
from torch.testing._internal.common_utils import (
    TestCase,
    instantiate_parametrized_tests,
    parametrize,
    run_tests,
)

import torch_netcl  # noqa: F401

DEV = "netcl"
# Some indices twice, some not in order; one and two sparse dimensions; with and without dense ones.
CASES = {
    "rows": ([[3, 1, 3, 0, 1, 3]], (2,), (5, 2)),
    "matrix": ([[3, 1, 3, 0, 1, 3], [0, 2, 1, 2, 2, 0]], (), (4, 3)),
    "hybrid": ([[3, 1, 3, 0, 1, 3], [0, 2, 1, 2, 2, 0]], (3, 2), (4, 3, 3, 2)),
    "single": ([[2], [1]], (2,), (4, 3, 2)),
    "empty": ([[], []], (2,), (4, 3, 2)),
}


def make(name, dtype=torch.float32):
    """The same sparse tensor on the CPU and on netcl. Small integers, so that sums are exact in any order."""
    indices, dense, sizes = CASES[name]
    index = torch.tensor(indices, dtype=torch.int64)
    values = torch.arange(index.shape[1] * max(1, torch.Size(dense).numel()), dtype=dtype).view(-1, *dense) + 1
    return [torch.sparse_coo_tensor(index.to(d), values.to(d), sizes, check_invariants=False) for d in ("cpu", DEV)]


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestSparse(TestCase):
    def assertSame(self, got, want):
        self.assertEqual(got.device.type, DEV)
        self.assertEqual(got.layout, want.layout)
        self.assertEqual(got.dtype, want.dtype)
        self.assertEqual(got.cpu().to_dense(), want.to_dense(), atol=0, rtol=0)

    @parametrize("name", list(CASES))
    def test_makes_and_moves(self, name):
        cpu, dev = make(name)
        self.assertSame(dev, cpu)
        self.assertSame(cpu.to(DEV), cpu)
        self.assertSame(dev.to_dense(), cpu.to_dense())
        self.assertSame(dev.clone(), cpu)
        self.assertSame(torch.zeros_like(dev), torch.zeros_like(cpu))
        self.assertEqual(dev._nnz(), cpu._nnz())
        self.assertEqual((dev.sparse_dim(), dev.dense_dim()), (cpu.sparse_dim(), cpu.dense_dim()))
        self.assertIn("layout=torch.sparse_coo", repr(dev))

    @parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64])
    @parametrize("name", list(CASES))
    def test_coalesce(self, name, dtype):
        cpu, dev = (t.coalesce() for t in make(name, dtype))
        self.assertTrue(dev.is_coalesced())
        self.assertIs(dev.coalesce(), dev)
        self.assertEqual(dev.indices().cpu(), cpu.indices())
        self.assertEqual(dev.values().cpu(), cpu.values(), atol=0, rtol=0)

    def test_half_precision_is_summed_in_float32(self):
        # In fp16 2048 + 1 is 2048.
        values = torch.tensor([2048.0] + [1.0] * 8, dtype=torch.float16, device=DEV)
        total = torch.sparse_coo_tensor(torch.zeros(1, 9, dtype=torch.int64, device=DEV), values, (1,)).coalesce()
        self.assertEqual(total.values().item(), 2056.0)

    @parametrize("name", list(CASES))
    def test_arithmetic(self, name):
        cpu, dev = make(name)
        x = torch.randn(cpu.shape, generator=torch.Generator().manual_seed(0))
        for alpha in (1, -0.5):
            self.assertEqual(x.to(DEV).add(dev, alpha=alpha).cpu(), x.add(cpu, alpha=alpha))
            self.assertEqual(x.to(DEV).add_(dev, alpha=alpha).cpu(), x.clone().add_(cpu, alpha=alpha))
            self.assertSame(dev.add(dev, alpha=alpha), cpu.add(cpu, alpha=alpha))
            self.assertSame(dev.sub(dev * 3, alpha=alpha), cpu.sub(cpu * 3, alpha=alpha))
            self.assertSame(dev.clone().add_(dev * 2, alpha=alpha), cpu.clone().add_(cpu * 2, alpha=alpha))
        two = torch.full((), 2.0)
        for function in (
            lambda t, two: t * 2,
            lambda t, two: t * two,
            lambda t, two: t.clone().mul_(two),
            lambda t, two: t / 4,
            lambda t, two: -t,
            lambda t, two: t.clone().zero_(),
            lambda t, two: t.half(),
        ):
            self.assertSame(function(dev, two.to(DEV)), function(cpu, two))
        self.assertEqual(dev.coalesce().norm().cpu(), cpu.coalesce().norm())
        self.assertSame(x.to(DEV).sparse_mask(dev.coalesce()), x.sparse_mask(cpu.coalesce()))

    def test_from_dense(self):
        x = torch.randn(5, 4, 3).relu_()
        x[2] = 0
        with no_fallback():
            for dims in (1, 2, 3):
                self.assertSame(x.to(DEV).to_sparse(dims), x.to_sparse(dims))
            self.assertSame(x.to(DEV).to_sparse(), x.to_sparse())
            self.assertEqual(x.to(DEV).to_sparse(2).to_dense().cpu(), x)

    def test_refusals(self):
        _, dev = make("rows")
        for function, error in (
            (lambda: dev * dev, "can only be multiplied by a number; call to_dense"),
            (lambda: dev.sparse_mask(dev), "call to_dense"),
            (lambda: dev + torch.ones(5, 2, device=DEV), "Use add.dense, sparse. instead"),
            (lambda: torch.ones(4, 2, device=DEV) + dev, "to have same size"),
            (lambda: dev.sin(), "aten::sin"),
        ):
            with self.assertRaisesRegex((RuntimeError, NotImplementedError), error):
                function()

    @parametrize("mode", ["embedding", "sum", "mean"])
    @parametrize("optimizer", ["SGD", "momentum", "SparseAdam", "Adagrad"])
    def test_training(self, mode, optimizer):
        make_optimizer = {
            "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
            "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            "SparseAdam": lambda p: torch.optim.SparseAdam(p, lr=0.1),
            "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
        }[optimizer]
        weights = []
        for dev in ("cpu", DEV):
            torch.manual_seed(0)
            if mode == "embedding":
                table = nn.Embedding(10, 4, sparse=True).to(dev)
            else:
                table = nn.EmbeddingBag(10, 4, mode=mode, sparse=True).to(dev)
            opt = make_optimizer(list(table.parameters()))
            for step in range(3):
                opt.zero_grad()
                for first in (2, 7):  # two gradients are added up
                    table(torch.tensor([[1, first, 1, step]], device=dev)).square().sum().backward()
                self.assertTrue(table.weight.grad.is_sparse)
                opt.step()
            weights.append(table.weight.detach().cpu())
        self.assertEqual(weights[1], weights[0])

    def test_stays_on_the_device(self):
        before = torch.netcl.cpu_fallback_ops()
        table = nn.Embedding(10, 4, sparse=True, device=DEV)
        opt = torch.optim.SparseAdam(table.parameters(), lr=0.1)
        table(torch.tensor([1, 3, 1], device=DEV)).sum().backward()
        opt.step()
        self.assertEqual(torch.netcl.cpu_fallback_ops(), before)


instantiate_parametrized_tests(TestSparse)

if __name__ == "__main__":
    run_tests()
