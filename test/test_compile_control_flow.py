"""torch.compile of graphs with graphs inside: cond, while_loop, map, scan, and regions that are compiled once."""

import pytest
import torch
from common import DEVICE
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.compiler import nested_compile_region

pytestmark = pytest.mark.skipif(not torch.netcl.is_available(), reason="no OpenCL device")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):  # map and scan need it on every device
        yield


def wave(*xs):
    """Several launches of one kernel, which become one."""
    return [x.sin() + 1 for x in xs]


@nested_compile_region
def layer(x, w):
    return (x @ w).relu()


CASES = {
    "cond": lambda p, x: torch.cond(p > 0, lambda x: x @ x, lambda x: x.softmax(1), (x,)),
    "cond in cond": lambda p, x: torch.cond(
        p > 0, lambda x: torch.cond(x.amax() > 1, lambda x: x * 3, lambda x: x.sin(), (x,)), lambda x: x.cos(), (x,)
    ),
    "one kernel inside and outside": lambda p, x: torch.cond(
        p > 0, lambda *xs: tuple(wave(*xs)), lambda *xs: tuple(wave(*reversed(xs))), tuple(wave(*x.unbind()))
    ),
    "while_loop": lambda p, x: while_loop(
        lambda i, x: i < 5, lambda i, x: (i + 1, (x @ x).softmax(-1)), (p.new_zeros((), dtype=torch.long), x)
    )[1],
    "map": lambda p, x: map_rows(lambda row, p: row * p + 1, x, p),
    "scan": lambda p, x: scan(lambda total, row: (total + row, total * row), x[0] * 0, x)[1],
    "region": lambda p, x: layer(layer(x, x * p), x + p),
}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", CASES)
def test_results(name, sign):
    p, x = torch.tensor(2.0 * sign), torch.randn(6, 6)
    got, want = torch.compile(CASES[name])(p.to(DEVICE), x.to(DEVICE)), CASES[name](p, x)
    torch.testing.assert_close(torch.utils._pytree.tree_map(torch.Tensor.cpu, got), want)


@pytest.mark.parametrize("name", ["cond", "cond in cond", "region"])
def test_gradients(name):
    p, x = torch.tensor(2.0), torch.randn(6, 6)
    mine, reference = x.to(DEVICE).requires_grad_(), x.clone().requires_grad_()
    torch.compile(CASES[name])(p.to(DEVICE), mine).square().sum().backward()
    CASES[name](p, reference).square().sum().backward()
    torch.testing.assert_close(mine.grad.cpu(), reference.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", ["cond in cond", "one kernel inside and outside", "region"])
def test_autocast(name, compiled):
    p, x = torch.tensor(2.0), torch.randn(6, 6)
    f = torch.compile(CASES[name]) if compiled else CASES[name]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = CASES[name](p, x)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        got = f(p.to(DEVICE), x.to(DEVICE))
    got = torch.utils._pytree.tree_map(torch.Tensor.cpu, got)
    torch.testing.assert_close(got, want, atol=0.05, rtol=0.05)  # a few roundings to bfloat16, of 2^-9 each
