"""Many numbers of half precision that are added to one place: operators and gradients add in float and round once."""

import unittest

import torch
import torch.nn.functional as F
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

import torch_netcl  # noqa: F401

DEV = "netcl"
N, WIDTH, ROWS = 1200, 5, 7


def gradient(function, *shape):
    """The gradient of function(w) at a w of this shape, for random gradients of its result."""

    def run(make):
        w = make(*shape).requires_grad_()
        y = function(w)
        y.backward(make(*y.shape))
        return w.grad.to_dense() if w.grad.is_sparse else w.grad

    return run


def places(size=ROWS, n=N, device="cpu"):
    """Indices of which most are 3."""
    index = torch.full((n,), 3)
    index[::10] = torch.arange(len(index[::10])) % size
    return index.to(device)


def rows(w):
    return places(device=w.device)


def wide(w):
    return rows(w)[:, None].expand(N, WIDTH).contiguous()


def reduce(name):
    return lambda make: make(ROWS, WIDTH).scatter_reduce_(0, wide(make(1)), make(N, WIDTH), name)


def index_reduce(name):
    return lambda make: make(ROWS, WIDTH).index_reduce_(0, rows(make(1)), make(N, WIDTH), name)


def many_dimensions(make):
    x = make(2, 2, 2, 2, 2, 2, 2, ROWS).transpose(0, 3).transpose(5, 7)
    return x.index_add(5, rows(x), make(2, 2, 2, 2, 2, N, 2, 2))


def coo(make, width=()):
    w = make(1)
    return torch.sparse_coo_tensor(rows(w)[None], make(N, *width), (ROWS, *width), check_invariants=False)


CASES = {
    "index_add": lambda make: make(ROWS, WIDTH).index_add_(0, rows(make(1)), make(N, WIDTH)),
    "index_add, alpha": lambda make: make(ROWS, WIDTH).index_add_(0, rows(make(1)), make(N, WIDTH), alpha=0.5),
    "index_add, columns": lambda make: make(WIDTH, ROWS).t().index_add_(0, rows(make(1)), make(N, WIDTH)),
    "index_add, a part": lambda make: make(3, 90, 40)[1, 5 : 5 + ROWS, 2 : 2 + WIDTH].index_add_(
        0, rows(make(1)), make(N, WIDTH)
    ),
    "index_add, few of many": lambda make: make(40000, WIDTH).index_add_(0, rows(make(1)), make(N, WIDTH)),
    "index_add, one dimension": lambda make: make(ROWS).index_add_(0, rows(make(1)), make(N)),
    "index_add, many dimensions": many_dimensions,
    "scatter_add": lambda make: make(ROWS, WIDTH).scatter_add_(0, wide(make(1)), make(N, WIDTH)),
    "scatter_add, few of many": lambda make: make(40000, WIDTH).scatter_add_(0, wide(make(1)), make(N, WIDTH)),
    "scatter_add, along rows": lambda make: make(WIDTH, ROWS).scatter_add_(1, wide(make(1)).t(), make(WIDTH, N)),
    "scatter, add": lambda make: make(ROWS, WIDTH).scatter_(0, wide(make(1)), make(N, WIDTH), reduce="add"),
    "scatter_reduce, sum": reduce("sum"),
    "scatter_reduce, mean": reduce("mean"),
    "index_reduce, mean": index_reduce("mean"),
    "index_put": lambda make: make(ROWS, WIDTH).index_put_((rows(make(1)),), make(N, WIDTH), accumulate=True),
    "index_put, two": lambda make: make(ROWS, WIDTH).index_put_(
        (rows(make(1)), rows(make(1)) % WIDTH), make(N), accumulate=True
    ),
    "index_put, few of many": lambda make: make(90, 40000).index_put_(
        (rows(make(1)), rows(make(1))), make(N), accumulate=True
    ),
    "put": lambda make: make(ROWS, WIDTH).put_(rows(make(1)), make(N), accumulate=True),
    "gradient of indexing": gradient(lambda w: w[rows(w)], ROWS, WIDTH),
    "gradient of two indices": gradient(lambda w: w[rows(w), :, rows(w) % 2], ROWS, WIDTH, 2),
    "gradient of indices apart": gradient(lambda w: w[None, :, rows(w) % 2, :, rows(w)], WIDTH, 2, 3, ROWS),
    "gradient of gather": gradient(lambda w: w.gather(0, wide(w)), ROWS, WIDTH),
    "gradient of index_select": gradient(lambda w: w.index_select(0, rows(w)), ROWS, WIDTH),
    "gradient of take": gradient(lambda w: w.take(rows(w)), ROWS, WIDTH),
    "gradient of take_along_dim": gradient(lambda w: w.take_along_dim(wide(w), 0), ROWS, WIDTH),
    "gradient of repeat_interleave": gradient(lambda w: w.repeat_interleave(300, 0), ROWS, WIDTH),
    "gradient of repeat": gradient(lambda w: w.repeat(300, 1), ROWS, WIDTH),
    "gradient of expand": gradient(lambda w: w.expand(1200, ROWS, WIDTH), ROWS, WIDTH),
    "gradient of unfold": gradient(lambda w: w.unfold(0, 600, 1), 1200),
    "gradient of as_strided": gradient(lambda w: w.as_strided((600, 600), (1, 1)), 1200),
    "gradient of embedding": gradient(lambda w: F.embedding(rows(w), w), ROWS, WIDTH),
    "gradient of embedding, sparse": gradient(lambda w: F.embedding(rows(w), w, sparse=True), ROWS, WIDTH),
    "gradient of embedding_bag": gradient(lambda w: F.embedding_bag(rows(w).view(-1, 4), w, mode="sum"), ROWS, WIDTH),
    "gradient of fold": gradient(lambda w: F.unfold(w, 20), 1, 1, 40, 40),
    "gradient of reflection_pad": gradient(lambda w: F.pad(w, (1, 1), mode="reflect"), 1, 3, 4),
    "gradient of replication_pad": gradient(lambda w: F.pad(w, (900, 3), mode="replicate"), 1, 3, 4),
    "gradient of circular pad": gradient(lambda w: F.pad(w, (4, 3), mode="circular"), 1, 3, 4),
    "gradient of interpolate, nearest": gradient(lambda w: F.interpolate(w, scale_factor=40.0), 1, 3, 4, 5),
    "gradient of interpolate, bilinear": gradient(
        lambda w: F.interpolate(w, scale_factor=40.0, mode="bilinear"), 1, 3, 4, 5
    ),
    "gradient of max_pool": gradient(lambda w: F.max_pool2d(w, 20, 1), 1, 1, 40, 40),
    "gradient of avg_pool": gradient(lambda w: F.avg_pool2d(w, 20, 1), 1, 1, 40, 40),
    "gradient of grid_sample": gradient(
        lambda w: F.grid_sample(
            w, torch.zeros(1, 40, 40, 2, dtype=w.dtype, device=w.device) + 0.25, align_corners=True
        ), 1, 2, 3, 3,
    ),
    "fold": lambda make: F.fold(make(1, 400, 441), (40, 40), 20),
    "coalesce": lambda make: coo(make).coalesce().to_dense(),
    "coalesce, hybrid": lambda make: coo(make, (WIDTH,)).coalesce().to_dense(),
    "to_dense": lambda make: coo(make).to_dense(),
    "dense + sparse": lambda make: make(ROWS, WIDTH) + coo(make, (WIDTH,)),
    "segment_reduce": lambda make: torch.segment_reduce(
        make(N, WIDTH).float(), "sum", lengths=torch.tensor([N], device=make(1).device)
    ),
}  # fmt: skip


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestSumsByIndex(TestCase):
    @parametrize("mode", ["bfloat16", "float16", "deterministic"])
    @parametrize("name", list(CASES))
    def test_sums(self, name, mode):
        dtype = torch.float16 if mode == "float16" else torch.bfloat16

        def results(device, compute):
            generator = torch.Generator().manual_seed(0)
            return CASES[name](lambda *s: torch.rand(*s, generator=generator).to(dtype).to(compute).to(device))

        torch.use_deterministic_algorithms(mode == "deterministic")
        self.addCleanup(torch.use_deterministic_algorithms, False)
        got = results(DEV, dtype).cpu()
        # float64 sums of the same rounded numbers. The rounding of the result, and float's own errors, far below it.
        want = results("cpu", torch.float64)
        self.assertEqual(got.double(), want.double(), rtol=1.01 * torch.finfo(dtype).eps / 2 + 2e-5, atol=1e-6)


    @parametrize("dtype", [torch.float32, torch.int64, torch.int8, torch.bfloat16])
    def test_many_sums_of_few(self, dtype):
        """Compute units of a CPU add to copies of the destination; whole numbers make every order the same."""
        g = torch.Generator().manual_seed(0)
        for n, width in ((40_001, 1), (9_001, 3), (5_000, 40)):
            index, base = torch.randint(0, 9, (n,), generator=g), torch.randint(-3, 4, (9, width), generator=g)
            source = torch.randint(-2, 3, (n, width), generator=g)
            results = []
            for device in ("cpu", DEV):
                b, s, i = base.to(device, dtype), source.to(device, dtype), index.to(device)
                out = torch.zeros(12, width * 2, dtype=dtype, device=device)[2:11, ::2]
                results.append(
                    (
                        b.scatter_add(0, i[:, None].expand(n, width), s),
                        b.t().contiguous().index_add(1, i, s.t(), alpha=3),
                        out.copy_(b).index_put_((i,), s, accumulate=True),
                        torch.zeros(9, dtype=dtype, device=device).index_add_(0, i, s[:, 0]),
                    )
                )
            exact = dtype != torch.bfloat16
            for mine, right in zip(*reversed(results), strict=True):
                if exact:
                    self.assertEqual(mine.cpu(), right)
        if not exact:  # the CPU rounds at each addition
            ones = torch.ones(1000, dtype=dtype, device=DEV)
            total = torch.zeros(2, dtype=dtype, device=DEV).index_add_(0, ones.long(), ones)
            self.assertEqual(total.tolist(), [0, 1000])


instantiate_parametrized_tests(TestSumsByIndex)

if __name__ == "__main__":
    run_tests()
