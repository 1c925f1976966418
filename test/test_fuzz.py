"""Random shapes, strides, dtypes, offsets and views compared with the CPU. NETCL_TEST_FULL=1 tries 10,000 cases."""

import os
from typing import NamedTuple

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch.testing._internal.common_utils import TestCase, run_tests

D = torch.device("netcl", 0)
FULL = os.environ.get("NETCL_TEST_FULL", "0") != "0"
FP64 = torch.netcl.get_device_properties(D).has_fp64

FLOATS = [torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
# Each dtype of an operand compiles another program, so the quick tier uses four.
QUICK = [torch.float32, torch.float16, torch.int64, torch.bool]
DTYPES = FLOATS + INTEGERS + ([torch.float64] if FP64 else []) if FULL else QUICK

LARGEST = 6.0  # of the normal numbers that are drawn
TERMS = 33  # terms of a sum: no dimension is longer


def sums(dtype: torch.dtype, largest: float) -> dict[str, float]:
    """Bounds for a sum of TERMS numbers of at most `largest`, added in another order.

    Each of TERMS additions may be off by half a unit of the sum of all sizes, on either side; a result in a narrow type
    is rounded once more, which may go either way.
    """
    if not dtype.is_floating_point:
        return {"rtol": 0, "atol": 0}
    unit = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    return {"rtol": torch.finfo(dtype).eps, "atol": 2 * TERMS * unit * TERMS * largest}


class Case(NamedTuple):
    """A view of a base tensor: the (name, arguments) of the methods that make one from the other."""

    shape: tuple
    dtype: torch.dtype
    views: tuple
    seed: int


def base(case: Case) -> torch.Tensor:
    generator = torch.Generator().manual_seed(case.seed)
    if case.dtype.is_floating_point:
        x = torch.randn(case.shape, generator=generator, dtype=torch.float32)
        flat = x.view(-1)
        for value in (float("nan"), float("inf"), -0.0):
            if flat.numel() and case.seed % 5 == 0:
                flat[torch.randint(flat.numel(), (1,), generator=generator)] = value
        return x.to(case.dtype)
    low, high = (0, 2) if case.dtype is torch.bool else (0, 100) if case.dtype is torch.uint8 else (-100, 100)
    return torch.randint(low, high, case.shape, generator=generator).to(case.dtype)


def view(x: torch.Tensor, case: Case) -> torch.Tensor:
    for name, arguments in case.views:
        x = x[arguments] if name == "slice" else getattr(x, name)(*arguments)
    return x


@st.composite
def cases(draw, dtypes=DTYPES, max_dims=4, max_size=9):
    dims = draw(st.integers(0, max_dims))
    shape = [draw(st.one_of(st.integers(1, max_size), st.sampled_from([0, 1, 17, 33]))) for _ in range(dims)]
    while torch.Size(shape).numel() > 20_000:
        shape[shape.index(max(shape))] = 3
    x = torch.empty(shape, device="meta")
    views = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["transpose", "slice", "unsqueeze", "expand", "as_strided", "select", "flatten"]))
        if kind == "transpose" and x.dim() > 1:
            step = (kind, (draw(st.integers(0, x.dim() - 1)), draw(st.integers(0, x.dim() - 1))))
        elif kind == "slice" and x.dim():
            index = []
            for n in x.shape:
                start = draw(st.integers(0, n))
                index.append(slice(start, draw(st.integers(start, n)), draw(st.integers(1, 3))))
            step = (kind, tuple(index))
        elif kind == "unsqueeze" and x.dim() < 6:
            step = (kind, (draw(st.integers(0, x.dim())),))
        elif kind == "expand":
            sizes = [draw(st.integers(0, 5)) if n == 1 else n for n in x.shape]
            step = (kind, (sizes,))
        elif kind == "as_strided" and x.numel() > 0 and not views:
            # Overlapping windows of the base's memory, from a random offset on.
            offset = draw(st.integers(0, x.numel() - 1))
            strides = [draw(st.integers(0, 4)) for _ in range(draw(st.integers(0, 3)))]
            room = x.numel() - 1 - offset
            sizes = []
            for s in strides:
                n = draw(st.integers(1, min(6, 1 + (room // s if s else 5))))
                sizes.append(n)
                room -= (n - 1) * s
            step = (kind, (sizes, strides, offset))
        elif kind == "select" and x.dim() and x.shape[0]:
            step = (kind, (0, draw(st.integers(0, x.shape[0] - 1))))
        else:
            continue
        views.append(step)
        x = x[step[1]] if step[0] == "slice" else getattr(x, step[0])(*step[1])
    return Case(tuple(shape), draw(st.sampled_from(dtypes)), tuple(views), draw(st.integers(0, 10_000)))


def fuzz(quick: int, full: int):
    """The decorators of a test; it is derandomised, so every run tries the same cases."""
    return settings(
        max_examples=full if FULL else quick,
        derandomize=True,
        deadline=None,
        database=None,
        print_blob=False,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


FAILURES = (RuntimeError, IndexError, ValueError, TypeError)


class TestFuzz(TestCase):
    def check(self, function, *inputs, indexing=False, **tolerances):
        """Applies `function` to views of the same bases on both devices: the results must be equal, or both must fail.

        As on CUDA, with `indexing`, an index out of range is not noticed if there is nothing to read.
        """
        on_cpu = [view(base(c), c) for c in inputs]
        on_device = [view(base(c).to(D), c) for c in inputs]
        try:
            expected = function(*on_cpu)
        except FAILURES as e:
            try:
                got = function(*on_device)
                torch.netcl.synchronize()
            except FAILURES:
                return
            self.assertTrue(indexing and got.numel() == 0, f"only the CPU refuses: {e}")
            return
        got = function(*on_device)
        self.assertEqual((got.dtype, got.shape), (expected.dtype, expected.shape))
        self.assertEqual(got.cpu(), expected, **tolerances)

    @fuzz(60, 2500)
    @given(cases(), cases())
    def test_element_wise(self, a, b):
        self.check(lambda x, y: x + y[(0,) * y.dim()] if y.numel() else x + y, a, b)
        self.check(lambda x: torch.where(x > 1, x, x * 2), a)

    @fuzz(60, 2000)
    @given(cases(), st.integers(-4, 3), st.booleans())
    def test_reductions(self, a, dim, keep):
        self.check(lambda x: x.sum(dim, keepdim=keep), a, **sums(a.dtype, LARGEST))
        self.check(lambda x: x.amax(dim, keepdim=keep), a)
        self.check(lambda x: (x != 0).any(dim), a)

    @fuzz(60, 2000)
    @given(cases(), st.lists(st.integers(-40, 40), max_size=6), st.integers(-3, 3))
    def test_indexing(self, a, indices, dim):
        def select(x):
            return x.index_select(dim, torch.tensor(indices, dtype=torch.int64, device=x.device))

        self.check(select, a, indexing=True)
        self.check(lambda x: x.flip(dim), a)

    @fuzz(60, 2000)
    @given(cases(), st.sampled_from(DTYPES))
    def test_copies(self, a, dtype):
        finite = a._replace(seed=a.seed * 5 + 1)  # each device may convert NaN to an integer as it likes
        self.check(lambda x: x.to(dtype), finite)
        self.check(
            lambda x: (
                torch.zeros(x.shape[::-1], dtype=x.dtype, device=x.device).permute(*range(x.dim() - 1, -1, -1)).copy_(x)
            ),
            a,
        )

    @fuzz(40, 1000)
    @given(cases(), cases(), st.integers(-2, 2))
    def test_cat(self, a, b, dim):
        self.check(lambda x, y: torch.cat([x, y, x], dim), a, b)
        self.check(lambda x: torch.cat([x, x[:1], x]) if x.dim() else x, a)

    @fuzz(40, 500)
    @given(cases(dtypes=FLOATS, max_dims=3), cases(dtypes=FLOATS, max_dims=3))
    def test_matmul(self, a, b):
        b = b._replace(dtype=a.dtype)
        self.check(torch.matmul, a, b, **sums(a.dtype, LARGEST**2))
        self.check(lambda x: x @ x.mT if x.dim() > 1 else x.dot(x) if x.dim() else x, a, **sums(a.dtype, LARGEST**2))


if __name__ == "__main__":
    run_tests()
