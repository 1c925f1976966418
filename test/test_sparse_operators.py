"""COO and CSR operators and their gradients against the CPU: what graph networks use by name, and OpInfo's samples of
sparse tensors. No operator may end in an internal assertion; what netcl lacks is refused by name."""

import itertools
import re
import unittest

import sparse_table
import torch
from common import no_fallback
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

import torch_netcl  # noqa: F401

DEV = "netcl"
COO, CSR, CSC = torch.sparse_coo, torch.sparse_csr, torch.sparse_csc


def dense_matrix(seed, rows=6, columns=5, dtype=torch.float32):
    """Half of the elements are zeros; one row and one column have none else."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=generator)
    x[torch.rand(rows, columns, generator=generator) > 0.5] = 0
    x[3], x[:, 2] = 0, 0
    return x.to(dtype)


A, B = dense_matrix(0), dense_matrix(1)
W = torch.randn(5, 4, generator=torch.Generator().manual_seed(2))
HYBRID = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(3))
INDEX = torch.tensor([[3, 1, 3, 0, 1, 3], [0, 2, 1, 2, 2, 0]])


def plain(x):
    """Dense tensors of the CPU, in nested lists."""
    if isinstance(x, (tuple, list)):
        return [plain(i) for i in x]
    if not isinstance(x, torch.Tensor):
        return x
    x = x.detach().cpu()
    return x if x.layout == torch.strided else x.to_dense()


def with_gradients(function, *operands):
    """Results of function(operands) and its gradients."""

    def run(device):
        leaves = [x.to(device).detach().clone().requires_grad_() for x in operands]
        y = function(*leaves)
        flat = y if y.layout == torch.strided else y.to_dense()
        weights = torch.arange(flat.numel(), dtype=flat.dtype).view(flat.shape) / 7 - 1
        (flat * weights.to(device)).sum().backward()
        return [y, *(x.grad for x in leaves)]

    return run


def from_values(function):
    values = torch.arange(1.0, 7)
    return with_gradients(
        lambda v: function(torch.sparse_coo_tensor(INDEX.to(v.device), v, (6, 5), check_invariants=False)), values
    )


def conversions(device):
    coo, hybrid = A.to_sparse().to(device), HYBRID.to(device).to_sparse_csr(dense_dim=1)
    results = []
    for source, layout in itertools.product((coo, coo.to_sparse_csr(), coo.to_sparse_csc()), (COO, CSR, CSC)):
        results.append(source.to_sparse(layout=layout))
        assert results[-1].layout == layout
    results += [hybrid.to_sparse_csc(), hybrid.to_sparse(layout=CSC), hybrid.to_sparse(), hybrid.to_sparse().coalesce()]
    return [*results, HYBRID.to(device).to_sparse(2).to_sparse_csr(), coo.to_sparse_bsr((2, 1))]


def coo(function):
    return lambda device: function(A.to_sparse().to(device), B.to_sparse().to(device))


def csr(function):
    return lambda device: function(A.to_sparse_csr().to(device), B.to_sparse_csr().to(device))


def softmax(function, dim):
    return with_gradients(lambda s: function(s, dim), HYBRID.to_sparse(2))


CASES = {
    **{f"mm, {r}": with_gradients(lambda c, w, r=r: torch.sparse.mm(c, w, r), A.to_sparse_csr(), W)
       for r in ("sum", "mean", "amax", "amin", "max", "min")},
    "coo @ coo": with_gradients(torch.mm, A.to_sparse(), B.t().contiguous().to_sparse()),
    "sparse.mm(coo, coo)": with_gradients(torch.sparse.mm, A.to_sparse(), B.t().contiguous().to_sparse()),
    "csr @ csr": csr(lambda a, b: a @ b.to_sparse().t().to_sparse_csr()),
    "values, sparse.mm": from_values(lambda s: torch.sparse.mm(s, W.to(s.device))),
    "values, to_dense": from_values(lambda s: s.to_dense()),
    "values, coalesce": from_values(lambda s: s.coalesce().values()),
    **{f"sum, {dim}": with_gradients(lambda s, dim=dim: torch.sparse.sum(s, dim), HYBRID.to_sparse(2))
       for dim in ((0,), (1,), (2,), (0, 1), (0, 2), (0, 1, 2))},
    "sum of all": with_gradients(torch.sparse.sum, A.to_sparse()),
    "mask of dense": with_gradients(lambda x: x.sparse_mask(A.to_sparse().to(x.device).coalesce()), B),
    "mask of coo": with_gradients(lambda x: x.sparse_mask(A.to_sparse().to(x.device).coalesce()), B.to_sparse()),
    "conversions": conversions,
    "index_select": coo(lambda a, b: [a.index_select(d, torch.tensor([2, 0, 2, -1], device=a.device)) for d in (0, 1)]),
    "index_select, hybrid": lambda d: HYBRID.to_sparse(2).to(d).index_select(2, torch.tensor([1, 0, 1], device=d)),
    "cat": coo(lambda a, b: [torch.cat([a, b, a], d) for d in (0, 1)]),
    "stack": coo(lambda a, b: torch.stack([a, b])),
    "permute": coo(lambda a, b: [a.permute(1, 0), a.t()]),
    "unsqueeze": coo(lambda a, b: [a.unsqueeze(0), a.unsqueeze(-1)]),
    "narrow_copy": coo(lambda a, b: [a.narrow_copy(0, 1, 3), a.narrow_copy(1, 0, 2)]),
    "bmm": coo(lambda a, b: torch.bmm(torch.stack([a, b]), torch.stack([W, W * 2]).to(a.device))),
    "hspmm": coo(lambda a, b: torch.hspmm(a, W.to(a.device))),
    "sum of dims": coo(lambda a, b: [a.sum(), a.sum(0), a.sum(1, keepdim=True), a.sum((0, 1))]),
    "any": coo(lambda a, b: a.bool().any()),
    "pow": coo(lambda a, b: [a.pow(2), a.pow(3.0)]),
    "abs, sqrt, relu, isnan": coo(lambda a, b: [a.abs(), a.abs().sqrt(), a.relu(), a.sqrt().isnan()]),
    "coo * coo": coo(lambda a, b: [a * b, a * a, a.clone().mul_(b), torch.cat([a, a]) * torch.cat([b, a])]),
    "coo * coo, not coalesced": coo(lambda a, b: (a + b) * (b + a)),
    "coo * dense": coo(lambda a, b: [a * b.to_dense(), b.to_dense() * a, a * b.to_dense()[:1], a * b.to_dense()[0]]),
    **{f"softmax, {d}": softmax(torch.sparse.softmax, d) for d in (0, 1, 2)},
    **{f"log_softmax, {d}": softmax(torch.sparse.log_softmax, d) for d in (0, 1, 2)},
    "csr + csr": csr(lambda a, b: [a + a, a + b, a.to_dense() + b, torch.add(a, b, alpha=-2)]),
    "csr * csr": csr(lambda a, b: [a * a, a * b, a * b.to_dense()]),
    "sums of csr": csr(lambda a, b: [a.sum(), *(a.sum(d, keepdim=True) for d in (0, 1, (0, 1)))]),
    "prods of csr": csr(lambda a, b: [torch._sparse_csr_prod(a, d, True) for d in ((0,), (1,), (0, 1))]),
}  # fmt: skip


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestSparseOperators(TestCase):
    @parametrize("name", list(CASES))
    def test_named(self, name):
        want = plain(CASES[name]("cpu"))
        with no_fallback() if name != "conversions" else torch.no_grad():  # block layouts are made on the host
            got = CASES[name](DEV)
        self.assertEqual(plain(got), want)

    @parametrize("reduce", ["sum", "mean", "amax", "amin"])
    @parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_mm_reduce(self, reduce, dtype):
        """Rows of a hundred elements and wide matrices; an empty matrix; NaN."""
        x = dense_matrix(4, 40, 200, dtype)
        w = torch.randn(200, 37, generator=torch.Generator().manual_seed(5)).to(dtype)
        w[7, 3] = float("nan")
        for a in (x, torch.zeros_like(x)):
            a = a.to_sparse_csr()
            # The reference is computed in float64 and rounded.
            want = torch.sparse.mm(a.double(), w.double(), reduce)
            got = torch.sparse.mm(a.to(DEV), w.to(DEV), reduce)
            self.assertEqual(got.dtype, dtype)
            eps = torch.finfo(dtype).eps
            self.assertEqual(got.cpu().double(), want, rtol=eps, atol=max(1e-5 * eps / 2**-8, 1e-12))

    def test_promotion(self):
        """A sum with a sparse tensor has the dtype that both promote to, or raises where it cannot be stored."""
        sparse = torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.tensor([2.6]), (2, 2))
        for s, layout in ((sparse, "coo"), (sparse.to_sparse_csr(), "csr")):
            s = s.to(DEV)
            for method in ("add_", "sub_"):
                x = torch.ones(2, 2, dtype=torch.uint8, device=DEV)
                with self.assertRaisesRegex(RuntimeError, "[Cc]an't convert|unsupported tensor layout", msg=layout):
                    getattr(x, method)(s)
                self.assertEqual(x.cpu(), torch.ones(2, 2, dtype=torch.uint8))
            y = torch.ones(2, 2, dtype=torch.uint8, device=DEV) + s
            self.assertEqual(y.cpu(), torch.tensor([[1, 3.6], [1, 1]]))
        got = torch.ones(2, 2, device=DEV).add_(sparse.double().to(DEV))
        self.assertEqual(got.cpu(), torch.ones(2, 2).add_(sparse.double()))

    def test_page(self):
        text = sparse_table.PAGE.read_text()
        if f"torch {torch.__version__.partition('+')[0]};" not in text:
            self.skipTest("the page is of another torch")
        self.assertEqual(text, sparse_table.page(), "run test/sparse_table.py")


# What CUDA has too but netcl lacks, and what needs a layout or dtype that netcl lacks: refused by name.
REFUSED = r"aten::|netcl|not supported|not implemented|unsupported"


def sparse_samples(op, layout):
    """OpInfo's samples of a layout in float32, or none."""
    try:
        yield from itertools.islice(op.sample_inputs_sparse(layout, "cpu", torch.float32, requires_grad=False), 12)
    except (NotImplementedError, RuntimeError, AttributeError):
        return


def moved(x):
    if isinstance(x, torch.Tensor):
        return x.to(DEV)
    if isinstance(x, torch.device):
        return torch.device(DEV)
    if isinstance(x, (tuple, list)):
        return type(x)(moved(i) for i in x)
    return {k: moved(v) for k, v in x.items()} if isinstance(x, dict) else x


# Random numbers, and uninitialised memory.
UNEQUAL = ("like", "empty", "rand", "bernoulli", "dropout")


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestSparseSamples(TestCase):
    @parametrize("layout", ["coo", "csr", "csc"])
    def test_samples(self, layout):
        looked, refused, wrong = 0, set(), []
        for op in op_db:
            for sample in sparse_samples(op, {"coo": COO, "csr": CSR, "csc": CSC}[layout]):
                try:
                    want = op(sample.input, *sample.args, **sample.kwargs)
                except (RuntimeError, NotImplementedError):
                    continue
                looked += 1
                try:
                    got = op(moved(sample.input), *moved(sample.args), **moved(sample.kwargs))
                    if not any(part in op.name for part in UNEQUAL):
                        self.assertEqual(plain(got), plain(want))
                except (RuntimeError, NotImplementedError) as error:
                    refused.add(op.name)
                    if "INTERNAL ASSERT" in str(error) or not re.search(REFUSED, str(error)):
                        wrong.append(f"{op.name}: {error}"[:300])
                except AssertionError as error:
                    wrong.append(f"{op.name}: {error}"[:300])
        print(layout, "samples:", looked, "refused:", sorted(refused))
        self.assertEqual(wrong, [])
        self.assertGreater(looked, 25)  # 30 of CSC, more of the others


instantiate_parametrized_tests(TestSparseOperators)
instantiate_parametrized_tests(TestSparseSamples)

if __name__ == "__main__":
    run_tests()
