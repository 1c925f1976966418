"""flex_attention, eager and compiled, with its gradients, block masks and autocast, against the CPU."""

import pytest
import torch
from common import DEVICE
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

pytestmark = pytest.mark.skipif(not torch.netcl.is_available(), reason="no OpenCL device")
LENGTH = 48


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i - j).abs() < 9


def reference(q, k, v, score, mask):
    """The formula, with all scores."""
    groups = q.size(1) // k.size(1)
    k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
    i, j = torch.arange(q.size(2))[:, None], torch.arange(k.size(2))
    h = torch.arange(q.size(1))[:, None, None]
    scores = score(q @ k.mT / q.size(-1) ** 0.5, 0, h, i, j)
    return scores.masked_fill(~mask(0, h, i, j), float("-inf")).softmax(-1) @ v


SCORES = {
    "plain": lambda s, b, h, i, j: s,
    "relative": lambda s, b, h, i, j: s + (i - j) * 0.1 * (h + 1),
    "soft cap": lambda s, b, h, i, j: 5 * torch.tanh(s / 5),
}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def inputs(heads):
    torch.manual_seed(1)
    return [torch.randn(2, n, LENGTH, 16) for n in (4, heads, heads)]


@pytest.mark.parametrize("mask", [causal, window])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_against_the_formula(compiled, score, mask):
    heads = 2 if score == "relative" else 4
    block_mask = create_block_mask(mask, None, None, LENGTH, LENGTH, device=DEVICE)
    function = torch.compile(flex_attention, fullgraph=True) if compiled else flex_attention
    mine = [t.to(DEVICE).requires_grad_() for t in inputs(heads)]
    wanted = [t.requires_grad_() for t in inputs(heads)]
    y = function(*mine, score_mod=SCORES[score], block_mask=block_mask, enable_gqa=heads != 4)
    z = reference(*wanted, SCORES[score], mask)
    torch.testing.assert_close(y.cpu(), z, atol=1e-5, rtol=1e-4)
    y.square().sum().backward()
    z.square().sum().backward()
    for a, b in zip(mine, wanted, strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_bias_that_is_read(compiled):
    bias = torch.randn(LENGTH, LENGTH)
    there = bias.to(DEVICE)
    function = torch.compile(flex_attention, fullgraph=True) if compiled else flex_attention
    y = function(*(t.to(DEVICE) for t in inputs(4)), score_mod=lambda s, b, h, i, j: s + there[i, j])
    everything = lambda b, h, i, j: j >= 0  # noqa: E731
    z = reference(*inputs(4), lambda s, b, h, i, j: s + bias, everything)
    torch.testing.assert_close(y.cpu(), z, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_autocast(compiled):
    """The result has autocast's dtype, as on CUDA."""
    function = torch.compile(flex_attention) if compiled else flex_attention
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        y = function(*(t.to(DEVICE) for t in inputs(4)))
    z = reference(*inputs(4), SCORES["plain"], lambda b, h, i, j: j >= 0)
    assert y.dtype == torch.bfloat16
    # Products of rounded factors: each is off by 2^-9 at most.
    torch.testing.assert_close(y.float().cpu(), z, atol=4 * 2**-9 * z.abs().max().item(), rtol=0)


def test_other_devices_are_checked():
    q = torch.ones(1, 1, 16, 16, requires_grad=True)
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex_attention(q, q, q)
