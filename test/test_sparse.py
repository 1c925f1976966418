"""Sparse tensors on netcl: COO as far as sparse gradients need it, CSR, and products with dense matrices; against the
CPU."""

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
            (lambda: dev + torch.ones(5, 2, device=DEV), "Use add.dense, sparse. instead"),
            (lambda: torch.ones(4, 2, device=DEV) + dev, "to have same size"),
        ):
            with self.assertRaisesRegex((RuntimeError, NotImplementedError), error):
                function()

    def matrices(self, dtype, index=torch.int64):
        """A random sparse matrix with an empty row and an empty column, dense, in COO, CSR and CSC, on both devices."""
        generator = torch.Generator().manual_seed(0)
        dense = torch.randn(40, 30, generator=generator).to(dtype)
        if dtype.is_complex:
            dense = torch.complex(dense.real, torch.randn(40, 30, generator=generator).to(dense.real.dtype))
        dense[torch.rand(40, 30, generator=generator) > 0.2] = 0
        dense[3], dense[:, 5] = 0, 0
        csr = dense.to_sparse_csr()
        csr = torch.sparse_csr_tensor(csr.crow_indices().to(index), csr.col_indices().to(index), csr.values(), (40, 30))
        return dense, dense.to_sparse(), csr

    @parametrize("index", [torch.int64, torch.int32])
    def test_csr(self, index):
        """Construction, parts, conversions and arithmetic on the values."""
        dense, coo, csr = self.matrices(torch.float32, index)
        with no_fallback():
            mine = csr.to(DEV)
            for a, b in (
                (mine, csr),
                (mine.clone(), csr),
                (mine * 2, csr * 2),
                (-mine, -csr),
                (mine.relu(), csr.relu()),
                (torch.zeros_like(mine), torch.zeros_like(csr)),
                (mine.to_sparse(), csr.to_sparse()),
                (mine.to_sparse_csc(), csr.to_sparse_csc()),
                (mine.t(), csr.t()),
                (coo.to(DEV).to_sparse_csr(), coo.to_sparse_csr()),
                (dense.to(DEV).to_sparse_csr(), dense.to_sparse_csr()),
                (dense.to(DEV).to_sparse_csc(), dense.to_sparse_csc()),
            ):
                self.assertSame(a, b)
            self.assertEqual(mine.crow_indices().cpu(), csr.crow_indices())
            self.assertEqual(mine.col_indices().cpu(), csr.col_indices())
            self.assertEqual(mine.values().cpu(), csr.values())
            self.assertEqual(mine.to_dense().cpu(), dense)
            self.assertEqual(mine._nnz(), csr._nnz())
            self.assertEqual(mine.sum().cpu(), csr.sum())
        self.assertIn("layout=torch.sparse_csr", repr(mine))

    @parametrize(
        "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128]
    )
    def test_products(self, dtype):
        """Sparse x dense and dense x sparse, of all layouts, for widths of the kernel's tiles, vectors and the rest."""
        dense, coo, csr = self.matrices(dtype)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        repeated = torch.cat([coo.indices(), coo.indices()], 1), torch.cat([coo.values(), coo.values()])
        eps = torch.finfo(dtype).eps
        # Some six products are added in float and rounded once; each is below 10.
        tolerance = {"atol": max(60 * eps, 1e-5) if eps < 1e-3 else eps, "rtol": max(eps, 1e-6)}
        for n in (1, 3, 16, 35, 150):
            x, y = torch.randn(30, n).to(dtype), torch.randn(n, 40).to(dtype)
            add = torch.randn(40, n).to(dtype)
            with no_fallback():
                for a in (coo.to(DEV), csr.to(DEV), csr.to(DEV).to_sparse_csc()):
                    got = a @ x.to(DEV)
                    self.assertEqual(got.dtype, dtype)
                    self.assertEqual(got.cpu().to(wide), dense.to(wide) @ x.to(wide), **tolerance)
                    got = torch.addmm(add.to(DEV), a, x.to(DEV), beta=0.5, alpha=2)
                    want = 0.5 * add.to(wide) + 2 * (dense.to(wide) @ x.to(wide))
                    self.assertEqual(got.cpu().to(wide), want, **tolerance)
                    got = y.to(DEV) @ a
                    self.assertEqual(got.cpu().to(wide), y.to(wide) @ dense.to(wide), **tolerance)
                    # A column-major operand, a view, and an expanded addend.
                    got = torch.addmm(add[0].to(DEV), a, x.t().contiguous().to(DEV).t())
                    want = add[0].to(wide) + dense.to(wide) @ x.to(wide)
                    self.assertEqual(got.cpu().to(wide), want, **tolerance)
                twice = torch.sparse_coo_tensor(*(t.to(DEV) for t in repeated), (40, 30)) @ x.to(DEV)
                self.assertEqual(twice.cpu().to(wide), 2 * (dense.to(wide) @ x.to(wide)), **tolerance)
        with no_fallback():
            for a in (coo.to(DEV), csr.to(DEV)):
                self.assertEqual((a @ x[:, 0].to(DEV)).cpu().to(wide), dense.to(wide) @ x[:, 0].to(wide), **tolerance)
                self.assertEqual((a @ torch.empty(30, 0, dtype=dtype, device=DEV)).shape, (40, 0))

    def test_products_keep_nan(self):
        _, _, csr = self.matrices(torch.float32)
        x = torch.randn(30, 70)
        x[2, 1], x[7, 69] = torch.nan, torch.inf
        self.assertEqual((csr.to(DEV) @ x.to(DEV)).cpu(), csr @ x, equal_nan=True)

    @parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
    def test_sampled_addmm(self, dtype):
        dense, _, csr = self.matrices(dtype)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        mask = dense != 0
        for k in (1, 5, 40):
            a, b = torch.randn(40, k).to(dtype), torch.randn(k, 30).to(dtype)
            with no_fallback():
                got = torch.sparse.sampled_addmm(csr.to(DEV), a.to(DEV), b.to(DEV), beta=0.5, alpha=2)
            want = torch.where(mask, 0.5 * dense.to(wide) + 2 * (a.to(wide) @ b.to(wide)), 0)
            eps = torch.finfo(dtype).eps
            self.assertEqual(got.layout, torch.sparse_csr)
            self.assertEqual(got.cpu().to_dense().to(wide), want, atol=max(1e-5, eps), rtol=max(1e-5, eps))

    @parametrize("layout", ["coo", "csr"])
    def test_gradients_of_products(self, layout):
        _, coo, csr = self.matrices(torch.float32)
        x, g = torch.randn(30, 20), torch.randn(40, 20)
        grads = []
        for dev in ("cpu", DEV):
            with no_fallback():
                a = (coo if layout == "coo" else csr).to(dev).detach().requires_grad_()
                leaf = x.to(dev).detach().requires_grad_()
                torch.sparse.mm(a, leaf).backward(g.to(dev))
            grads.append((a.grad.cpu().to_dense(), leaf.grad.cpu()))
        self.assertEqual(grads[1], grads[0], atol=1e-5, rtol=1e-5)

    def test_refused_products(self):
        _, coo, csr = self.matrices(torch.float32)
        a, x = csr.to(DEV), torch.randn(30, 4, device=DEV)
        for function, error in (
            (lambda: a @ x.t(), "cannot be multiplied"),
            (lambda: a @ x.double(), "same dtype"),
            (lambda: torch.sparse.sampled_addmm(a, x, x), "cannot be multiplied"),
            (lambda: torch.sparse.sampled_addmm(coo.to(DEV), x, x), "sampled_addmm"),
        ):
            with self.assertRaisesRegex((RuntimeError, NotImplementedError), error):
                function()
        # Indices that nobody checked.
        with torch.sparse.check_sparse_tensor_invariants(False):
            col = csr.col_indices().clone()
            col[7] = 1 << 40
            bad = torch.sparse_csr_tensor(csr.crow_indices(), col, csr.values(), (40, 30), device=DEV)
            with self.assertRaisesRegex(IndexError, "addmm"):
                (bad @ x).cpu()

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

    def test_no_sparse_dimension(self):
        values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        for entries in (0, 1, 2):
            x = torch.sparse_coo_tensor(torch.empty(0, entries, dtype=torch.long), values[:entries], (2,))
            y = torch.sparse_coo_tensor(x._indices().to(DEV), x._values().to(DEV), (2,))
            self.assertEqual(y.to_dense().cpu(), x.to_dense())
            self.assertEqual((y + y).to_dense().cpu(), (x + x).to_dense())
            self.assertEqual(y.coalesce().to_dense().cpu(), x.coalesce().to_dense())



instantiate_parametrized_tests(TestSparse)

if __name__ == "__main__":
    run_tests()
