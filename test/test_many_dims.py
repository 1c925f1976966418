"""Tensors of more than 8 dimensions of which none are neighbours in memory. The kernels of reductions, scans and
sorting count 8, so such tensors are copied."""

import unittest

import torch
from common import DEVICE, no_fallback
from torch.testing._internal.common_utils import TestCase, instantiate_parametrized_tests, parametrize, run_tests

import torch_netcl  # noqa: F401

EVEN = (0, 2, 4, 6, 8)
OPERATORS = {
    "sum": lambda x: x.sum(1),
    "sum of some": lambda x: x.sum(EVEN),
    "sum of most": lambda x: x.sum(tuple(range(x.dim() - 1))),
    "sum of all": lambda x: x.sum(),
    "sum, keepdim": lambda x: x.sum(1, keepdim=True),
    "sum as double": lambda x: x.sum(1, dtype=torch.float64),
    "mean": lambda x: x.mean(1),
    "prod": lambda x: x.prod(1),
    "nansum": lambda x: x.nansum(1),
    "amax": lambda x: x.amax(1),
    "amin of some": lambda x: x.amin((1, 3)),
    "aminmax": lambda x: x.aminmax(dim=1),
    "max": lambda x: x.max(1),
    "min": lambda x: x.min(1),
    "max of all": lambda x: x.max(),
    "argmax": lambda x: x.argmax(1),
    "argmin, keepdim": lambda x: x.argmin(1, keepdim=True),
    "argmax of all": lambda x: x.argmax(),
    "any": lambda x: (x > 200).any(1),
    "all of some": lambda x: (x > -200).all(1).all(2),
    "all": lambda x: (x > -200).all(1),
    "count_nonzero": lambda x: x.count_nonzero(1),
    "var": lambda x: x.var(1),
    "std_mean": lambda x: torch.std_mean(x, 1),
    "var_mean of some": lambda x: torch.var_mean(x, EVEN),
    "norm": lambda x: torch.linalg.vector_norm(x, 2, 1),
    "norm, inf": lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
    "logsumexp": lambda x: x.logsumexp(1),
    "complex sum": lambda x: torch.complex(x, -x).sum(1),
    "complex norm": lambda x: torch.linalg.vector_norm(torch.complex(x, -x), 2, 1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(1),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "cumsum in place": lambda x: x.clone(memory_format=torch.preserve_format).cumsum_(1),
    "sort": lambda x: x.sort(dim=1, stable=True),
    "sort, descending": lambda x: x.sort(dim=1, stable=True, descending=True),
    "argsort": lambda x: x.argsort(dim=1, stable=True),
    "topk": lambda x: x.topk(1, 1),
    "kthvalue": lambda x: x.kthvalue(2, 1),
    "median": lambda x: x.median(1),
    "median of all": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(1),
    "mode": lambda x: x.mode(1),
    "quantile": lambda x: x.quantile(0.3, 1),
    "unique": lambda x: x.unique(),
    "diff": lambda x: x.diff(dim=1),
    "copy": lambda x: x.contiguous(),
    "cast": lambda x: x.half(),
    "add": lambda x: x + x.flip(0),
    "where": lambda x: torch.where(x > 0, x, x.flip(1)),
    "gather": lambda x: x.gather(1, (x > 0).long()),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(1, (x > 0).long(), x),
    "index_select": lambda x: x.index_select(1, torch.zeros(2, dtype=torch.long, device=x.device)),
    "index_add": lambda x: x.index_add(1, torch.zeros(3, dtype=torch.long, device=x.device), x.flip(1)),
    "masked_fill": lambda x: x.masked_fill(x > 0, 3.0),
    "cat": lambda x: torch.cat([x, x], 1),
    "bincount": lambda x: (x.long() + x.numel()).flatten().bincount(),
}
# Those whose out= takes tensors of any strides.
OUTPUTS = {
    "sum": lambda x, **out: torch.sum(x, 1, **out),
    "amax": lambda x, **out: torch.amax(x, 1, **out),
    "argmax": lambda x, **out: torch.argmax(x, 1, **out),
    "max": lambda x, **out: torch.max(x, 1, **out),
    "var": lambda x, **out: torch.var(x, 1, **out),
    "cumsum": lambda x, **out: torch.cumsum(x, 1, **out),
    "cummax": lambda x, **out: torch.cummax(x, 1, **out),
    "logcumsumexp": lambda x, **out: torch.logcumsumexp(x, 1, **out),
    "sort": lambda x, **out: torch.sort(x, dim=1, stable=True, **out),
    "topk": lambda x, **out: torch.topk(x, 2, 1, **out),
    "kthvalue": lambda x, **out: torch.kthvalue(x, 2, 1, **out),
    "mode": lambda x, **out: torch.mode(x, 1, **out),
}


def strided(dims, kind, device):
    """Distinct values, so that positions are defined, of which sums are exact; no two dimensions merge."""
    sizes = [3 if d == 1 else 2 for d in range(dims)]
    n = torch.Size(sizes).numel()
    values = (torch.randperm(n) - n // 2).float()
    if kind == "transposed":
        order = [*range(1, dims), 0][::-1]
        x = torch.empty([sizes[d] for d in order]).permute([order.index(d) for d in range(dims)])
    elif kind == "strided":
        x = torch.empty([size + 1 for size in sizes])[tuple(slice(1, None) for _ in sizes)]
    else:  # expanded between the others
        x = torch.empty([1 if d % 3 == 2 else size + 1 for d, size in enumerate(sizes)])
        x = x[tuple(slice(None) if d % 3 == 2 else slice(1, None) for d in range(dims))]
        x.copy_(values[: x.numel()].view(x.shape))
        return on(x, device).expand(sizes)
    x.copy_(values.view(sizes))
    return on(x, device)


def on(x, device):
    """The same strides on the device."""
    whole = torch.empty(sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1)
    whole.as_strided(x.shape, x.stride()).copy_(x)
    return whole.to(device).as_strided(x.shape, x.stride())


@unittest.skipUnless(torch.netcl.is_available(), "no OpenCL device")
class TestManyDims(TestCase):
    def inputs(self, dims, kind):
        torch.manual_seed(5)
        mine = strided(dims, kind, DEVICE)
        torch.manual_seed(5)
        return mine, strided(dims, kind, "cpu")

    @parametrize("kind", ["transposed", "strided", "expanded"])
    @parametrize("dims", [9, 10])
    def test_every_operator(self, dims, kind):
        mine, x = self.inputs(dims, kind)
        self.assertEqual(mine.stride(), x.stride())
        for name, f in OPERATORS.items():
            if kind == "expanded" and ("arg" in name or name in ("max", "min", "max of all")):
                continue  # equal values: any position will do
            with self.subTest(name), no_fallback():
                self.assertEqual(f(mine), f(x), rtol=1e-5, atol=1e-4)

    def test_outputs(self):
        mine, x = self.inputs(10, "strided")
        for name, f in OUTPUTS.items():
            with self.subTest(name), no_fallback():
                reference = f(x)
                reference = (reference,) if isinstance(reference, torch.Tensor) else tuple(reference)
                # Each out is every second element of a larger tensor.
                out = [torch.zeros([2 * n for n in t.shape], dtype=t.dtype, device=DEVICE) for t in reference]
                out = [t[tuple(slice(None, None, 2) for _ in t.shape)] for t in out]
                address = [t.data_ptr() for t in out]
                f(mine, out=out[0] if len(out) == 1 else tuple(out))
                self.assertEqual([t.data_ptr() for t in out], address)
                self.assertEqual(tuple(out), reference, rtol=1e-5, atol=1e-4)


instantiate_parametrized_tests(TestManyDims)

if __name__ == "__main__":
    run_tests()
