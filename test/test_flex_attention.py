"""flex_attention, eager and compiled, with its gradients, block masks and autocast, against the CPU."""

from types import SimpleNamespace

import pytest
import torch
from common import DEVICE
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

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


DOCUMENTS = torch.tensor([0, 5, 130, 131, 300])


def document(length):
    """The number of the document of each token."""
    return torch.searchsorted(DOCUMENTS, torch.arange(length), right=True)


def compared(mine, wanted, function, formula, atol=1e-5):
    """Results and gradients of both, which are random for the operands in `mine`."""
    y, z = function(*mine), formula(*wanted)
    torch.testing.assert_close(y.cpu(), z, atol=atol, rtol=1e-4)
    grad = torch.randn(z.shape)
    y.backward(grad.to(DEVICE))
    z.backward(grad)
    for a, b in zip(mine, wanted, strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad, atol=10 * atol, rtol=1e-4)


def operands(queries, keys, heads=(4, 2), batch=2, width=24):
    torch.manual_seed(2)
    shapes = [(batch, heads[0], queries, 16), (batch, heads[1], keys, 16), (batch, heads[1], keys, width)]
    wanted = [torch.randn(s).requires_grad_() for s in shapes]
    return [t.detach().to(DEVICE).requires_grad_() for t in wanted], wanted


MASKS = {
    "window": lambda h, i, j: (i >= j) & (i - j < 70),
    "documents": lambda h, i, j: document(1000)[i] == document(1000)[j],
    "one per head": lambda h, i, j: (i + 40 * h) >= j,
    "some rows see nothing": lambda h, i, j: (i > 150) & (i >= j),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", [(300, 300), (129, 517)], ids=str)
def test_blocks_are_skipped(mask, sizes):
    """Blocks that no query sees, that all see, and that some see, of 128 and at the ends of other lengths. The kernel
    takes no memory for all scores."""
    documents = document(1000).to(DEVICE)
    there = {
        **MASKS,
        "documents": lambda h, i, j: documents[i] == documents[j],
    }[mask]
    blocks = create_block_mask(lambda b, h, i, j: there(h, i, j), None, 4, *sizes, device=DEVICE)
    function = torch.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks, enable_gqa=True))
    mine, wanted = operands(*sizes)

    def formula(*given):
        seen = MASKS[mask](torch.arange(4)[:, None, None], torch.arange(sizes[0])[:, None], torch.arange(sizes[1]))
        some = seen.any(-1, keepdim=True)
        return torch.where(some, reference(*given, SCORES["plain"], lambda b, h, i, j: seen | ~some), 0.0)

    compared(mine, wanted, function, formula)


#: Of a score, its places, and the tensors that are captured.
FUNCTIONS = {
    "alibi": lambda s, b, h, i, j, t: s - (i - j).abs() * t.slopes[h],
    "relative": lambda s, b, h, i, j, t: s + t.bias[h, i - j + 160],
    "masked": lambda s, b, h, i, j, t: torch.where(i >= j, s, -float("inf")),
    "clamped": lambda s, b, h, i, j, t: torch.clamp(s, -1, 1) * torch.exp(-(((i - j) / 30.0) ** 2)) + torch.sigmoid(s),
    "blocks": lambda s, b, h, i, j, t: s + (i // 16 == j // 16) * 0.5 + ((i % 3) == 0) * 0.1,
    "waves": lambda s, b, h, i, j, t: s * torch.cos(i * 0.1) + torch.log1p(j * 1.0) + torch.maximum(s, s * 0.1),
    "erf": lambda s, b, h, i, j, t: torch.erf(s) + torch.minimum(s, s.new_zeros(()) + 0.3),
    "integers": lambda s, b, h, i, j, t: s + torch.minimum(i - j, (i - j) * 0 + 5) * 0.01,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    """Score functions of many kinds, with lengths that a captured tensor has."""
    torch.manual_seed(3)
    tensors = {"slopes": torch.rand(4) / 8, "bias": torch.randn(4, 320), "lengths": torch.tensor([100, 160])}
    here, there = (SimpleNamespace(**{k: v.to(d) for k, v in tensors.items()}) for d in ("cpu", DEVICE))
    blocks = create_block_mask(lambda b, h, i, j: j < there.lengths[b], 2, None, 160, 160, device=DEVICE)

    def score(s, b, h, i, j):
        return FUNCTIONS[name](s, b, h, i, j, there)

    function = torch.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=score, block_mask=blocks))

    def formula(*given):
        b = torch.arange(2)[:, None, None, None]
        inside = lambda _, h, i, j: j < here.lengths[b]  # noqa: E731
        return reference(*given, lambda s, _, h, i, j: FUNCTIONS[name](s, b, h, i, j, here), inside)

    compared(*operands(160, 160, (4, 4)), function, formula)


@pytest.mark.skipif(not torch.netcl.get_device_properties(0).has_fp64, reason="the device has no float64")
def test_functions_of_float64():
    slopes = torch.rand(4, dtype=torch.float64)
    there = slopes.to(DEVICE)
    function = torch.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + torch.tanh(there[h]).float())
    )
    added = torch.tanh(slopes).float()
    formula = lambda *given: reference(*given, lambda s, b, h, i, j: s + added[h], lambda b, h, i, j: j >= 0)  # noqa: E731
    compared(*operands(50, 50, (4, 4)), function, formula)


def test_transposed_operands():
    """Whose last dimension is not adjacent; strided ones, as of a projection of all three."""
    function = torch.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + j / 50))
    formula = lambda *given: reference(*given, lambda s, b, h, i, j: s + j / 50, lambda b, h, i, j: j >= 0)  # noqa: E731
    columns, pairs = lambda t: t.mT.contiguous().mT, lambda t: torch.stack([t, t], 3)[:, :, :, 1]  # noqa: E731
    for view in (columns, pairs):
        mine, wanted = operands(50, 50, (4, 4), width=16)
        compared(mine, wanted, lambda *given, view=view: function(given[0], *map(view, given[1:])), formula)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_functions_of_16_bit_operands(dtype):
    """Their products may run on a matrix engine."""
    slopes = torch.rand(4) / 8
    there = slopes.to(DEVICE)
    function = torch.compile(
        lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: torch.tanh(s) - (i - j) * there[h])
    )
    given = [torch.randn(1, 4, 100, 32).to(dtype) for _ in range(3)]
    mine, wanted = ([t.to(to).requires_grad_() for t in given] for to in (DEVICE, torch.float64))
    everything = lambda b, h, i, j: j >= 0  # noqa: E731
    y = function(*mine)
    z = reference(*wanted, lambda s, b, h, i, j: torch.tanh(s) - (i - j) * slopes[h], everything)
    y.sum().backward()
    z.sum().backward()
    # Probabilities, scores' gradients and results are rounded to 8 bits at least; each is off by 2^-9 of the largest.
    for a, b in ((y, z), *((m.grad, w.grad) for m, w in zip(mine, wanted, strict=True))):
        torch.testing.assert_close(a.cpu().double(), b, atol=4 * 2**-9 * b.abs().max().item(), rtol=0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_memory_is_linear(dynamic):
    length, heads = 1024, 2
    blocks = create_block_mask(lambda b, h, i, j: i - j < 64, None, None, length, length, device=DEVICE)
    function = torch.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks), dynamic=dynamic)
    mine, _ = operands(length, length, (heads, heads), 1, 16)
    if torch.netcl.get_device_properties(0).device_class != "cpu":
        pytest.skip("GPUs use the formula with all scores")
    function(*mine).sum().backward()
    before = torch.netcl.memory_allocated()
    torch.netcl.reset_peak_memory_stats()
    function(*mine).sum().backward()
    assert torch.netcl.max_memory_allocated() - before < heads * length * length * 4


def test_lists_without_a_function():
    """A BlockMask may have lists alone."""
    number, index = torch.tensor([[[1, 2]]], dtype=torch.int32), torch.tensor([[[[1, 0], [0, 1]]]], dtype=torch.int32)
    blocks = BlockMask.from_kv_blocks(number.to(DEVICE), index.to(DEVICE), BLOCK_SIZE=32)
    if torch.netcl.get_device_properties(0).device_class != "cpu":
        pytest.skip("the formula with all scores asks the function alone, as PyTorch's does")
    mine, wanted = operands(64, 64)
    function = torch.compile(lambda q, k, v: flex_attention(q, k, v, block_mask=blocks, enable_gqa=True))
    seen = torch.ones(64, 64, dtype=torch.bool)
    seen[:32, :32] = False
    compared(mine, wanted, function, lambda *given: reference(*given, SCORES["plain"], lambda b, h, i, j: seen))


@pytest.mark.parametrize("learned", [False, True])
def test_captured_tensors(learned):
    """Read by places, and by what was read; with a gradient, which the kernel leaves to the formula."""
    bias, bucket = torch.randn(4, 200), torch.randint(200, (90,))
    mine, wanted = operands(90, 90)
    there, bucket_there = bias.to(DEVICE).requires_grad_(learned), bucket.to(DEVICE)
    bias.requires_grad_(learned)

    def score(s, b, h, i, j):
        return s + there[h, bucket_there[j]] * (i - j) / 90 + there[b, j]

    function = torch.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=score, enable_gqa=True), fullgraph=True)

    def formula(*given):
        i, j = torch.arange(90)[:, None], torch.arange(90)
        added = bias[:, bucket][:, None] * (i - j) / 90 + bias[:2, None, None, :90]
        return reference(*given, lambda s, b, h, i, j: s + added, lambda b, h, i, j: j >= 0)

    compared(mine, wanted, function, formula)
    if learned:
        torch.testing.assert_close(there.grad.cpu(), bias.grad, atol=1e-4, rtol=1e-4)


def test_an_index_out_of_range_is_reported():
    places = torch.arange(64, device=DEVICE) + 3
    bias = torch.zeros(64, device=DEVICE)
    function = torch.compile(lambda q: flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + bias[places[j]]))
    q = torch.randn(1, 1, 64, 16, device=DEVICE)
    with pytest.raises(IndexError, match="flex_attention|compiled"):
        function(q)
        torch.netcl.synchronize()


def test_the_logarithm_of_the_sums():
    """return_lse, and its gradient."""
    mine, wanted = operands(70, 70)

    def formula(q, k, v):
        scores = (q @ k.repeat_interleave(2, 1).mT / 4).tril()
        seen = torch.ones(70, 70, dtype=torch.bool).tril()
        return scores.masked_fill(~seen, float("-inf")).logsumexp(-1) + 0 * v.sum()

    blocks = create_block_mask(causal, None, None, 70, 70, device=DEVICE)

    def function(q, k, v):
        out, lse = flex_attention(q, k, v, block_mask=blocks, enable_gqa=True, return_lse=True)
        return lse + 0 * out.sum()

    compared(mine, wanted, torch.compile(function), formula)


@pytest.mark.parametrize("dynamic", [None, True])
def test_other_lengths(dynamic):
    """With a captured tensor of each length. From the second one on, sizes are arguments."""
    torch.manual_seed(6)
    table = torch.randn(4, 400)

    def attention(q, k, v, blocks, bias, places):
        def score(s, b, h, i, j):
            return s + bias[h, j] + bias[h, places[i]]

        return flex_attention(q, k, v, score_mod=score, block_mask=blocks, enable_gqa=True)

    function = torch.compile(attention, dynamic=dynamic)
    for length in (64, 200, 333, 390):
        blocks = create_block_mask(causal, None, None, length, length, device=DEVICE)
        bias, places = table[:, :length].contiguous(), torch.arange(length).flip(0)
        there = bias.to(DEVICE), places.to(DEVICE)

        def formula(*given, bias=bias, places=places):
            added = bias[:, None] + bias[:, places][:, :, None]
            return reference(*given, lambda s, b, h, i, j: s + added, causal)

        compared(
            *operands(length, length), lambda *g, blocks=blocks, there=there: function(*g, blocks, *there), formula
        )
        if length == 333:
            before = torch.netcl.kernel_cache_stats()["compiled"]
    assert torch.netcl.kernel_cache_stats()["compiled"] == before


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
