"""Single operators: element-wise, reductions, matrices, convolutions, attention, indexing, random numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from .harness import Case, Run

HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
DTYPES = {"float32": torch.float32, **HALVES}


def rand(*shape: int, dtype: torch.dtype = torch.float32, device: str) -> torch.Tensor:
    """Standard normal numbers, the same on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(device, dtype)


def of(function: Callable, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[str], Run]:
    """A `make` that calls `function` on random operands of these shapes."""

    def make(device: str) -> Run:
        operands = [rand(*shape, dtype=dtype, device=device) for shape in shapes]
        return lambda: function(*operands)

    return make


def grad_of(function: Callable, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[str], Run]:
    """A `make` for the backward pass of `function` alone."""

    def make(device: str) -> Run:
        operands = [rand(*shape, dtype=dtype, device=device).requires_grad_() for shape in shapes]
        result = function(*operands)
        grad = torch.ones_like(result)
        return lambda: torch.autograd.grad(result, operands, grad, retain_graph=True)

    return make


def elementwise(n: int = 1 << 24) -> Iterator[Case]:
    """16M elements, contiguous, strided, broadcast and mixed."""
    side = math.isqrt(n)
    for name, dtype in DTYPES.items():
        size = dtype.itemsize
        yield Case(f"elementwise/add/{name}", of(torch.add, (n,), (n,), dtype=dtype), 3 * size * n)
    yield Case("elementwise/copy/float32", of(torch.clone, (n,)), 8 * n)
    yield Case("elementwise/mul_scalar/float32", of(lambda x: x * 1.5, (n,)), 8 * n)
    yield Case("elementwise/relu/float32", of(torch.relu, (n,)), 8 * n)
    yield Case("elementwise/gelu/float32", of(F.gelu, (n,)), 8 * n)
    yield Case("elementwise/exp/float32", of(torch.exp, (n,)), 8 * n)
    yield Case("elementwise/add_transposed/float32", of(lambda x, y: x + y.t(), (side, side), (side, side)), 12 * n)
    yield Case("elementwise/add_row/float32", of(torch.add, (side, side), (side,)), 8 * n)
    yield Case("elementwise/add_column/float32", of(torch.add, (side, side), (side, 1)), 8 * n)
    yield Case("elementwise/cast_float16/float32", of(lambda x: x.to(torch.float16), (n,)), 6 * n)

    def mixed(device: str) -> Run:
        x, y = rand(n, device=device), rand(n, dtype=torch.bfloat16, device=device)
        return lambda: x + y

    yield Case("elementwise/add_mixed/bfloat16+float32", mixed, 10 * n)


def reductions(n: int = 1 << 24) -> Iterator[Case]:
    """Sums and maxima of 16M elements; softmax and layer norm of as many."""
    side = math.isqrt(n)
    square = (side, side)
    yield Case("reduction/sum_full", of(torch.sum, (n,)), 4 * n)
    yield Case("reduction/sum_inner", of(lambda x: x.sum(1), square), 4 * n)
    yield Case("reduction/sum_outer", of(lambda x: x.sum(0), square), 4 * n)
    yield Case("reduction/max_inner", of(lambda x: x.amax(1), square), 4 * n)
    yield Case("reduction/argmax_inner", of(lambda x: x.argmax(1), square), 4 * n)
    yield Case("reduction/var_inner", of(lambda x: x.var(1), square), 4 * n)
    yield Case("reduction/sum_inner/bfloat16", of(lambda x: x.sum(1), square, dtype=torch.bfloat16), 2 * n)
    yield Case("reduction/cumsum", of(lambda x: x.cumsum(1), square), 8 * n)
    yield Case("softmax/forward", of(lambda x: x.softmax(1), (n // 1024, 1024)), 8 * n)
    yield Case("softmax/backward", grad_of(lambda x: x.softmax(1), (n // 1024, 1024)), 12 * n)
    norm = lambda x, w, b: F.layer_norm(x, (1024,), w, b)  # noqa: E731
    yield Case("layer_norm/forward", of(norm, (n // 1024, 1024), (1024,), (1024,)), 8 * n)
    yield Case("layer_norm/backward", grad_of(norm, (n // 1024, 1024), (1024,), (1024,)), 12 * n)


def matrices() -> Iterator[Case]:
    """Products of matrices, square, transposed, skinny and batched."""
    for name, dtype in DTYPES.items():
        for n in (128, 256, 512, 1024, 2048, 4096):
            product = of(torch.mm, (n, n), (n, n), dtype=dtype)
            half = dtype in HALVES.values()
            own = of(torch.mm, (n, n), (n, n)) if half else None
            cpu = n <= 512 or not half  # torch CPU takes minutes without 16-bit products
            yield Case(f"gemm/{name}/{n}", product, 3 * dtype.itemsize * n**2, 2 * n**3, cpu=cpu, float32=own)
    n = 1024
    for name, f in {
        "nt": lambda a, b: a @ b.t(),
        "tn": lambda a, b: a.t() @ b,
        "tt": lambda a, b: a.t() @ b.t(),
    }.items():
        yield Case(f"gemm/float32/{n}/{name}", of(f, (n, n), (n, n)), 12 * n**2, 2 * n**3)
    for m, k, n in ((1, 4096, 4096), (16, 4096, 4096), (4096, 16, 4096), (4096, 4096, 16), (64, 50000, 64)):
        shape = f"{m}x{k}x{n}"
        yield Case(f"gemm/skinny/{shape}", of(torch.mm, (m, k), (k, n)), 4 * (m * k + k * n + m * n), 2 * m * k * n)
    for b, n in ((256, 64), (64, 128), (16, 256)):
        yield Case(f"gemm/batched/{b}x{n}", of(torch.bmm, (b, n, n), (b, n, n)), 12 * b * n**2, 2 * b * n**3)
    layer = of(lambda x, w, b: F.gelu(F.linear(x, w, b)), (2048, 384), (1536, 384), (1536,))
    yield Case("gemm/linear_bias_gelu", layer, 0, 2 * 2048 * 384 * 1536)


def quantized(n: int = 5632, k: int = 1024, group: int = 128) -> Iterator[Case]:
    """Linear layers of text generation, in bf16 and with int8 and int4 weights; 1 row and 16."""

    def bf16(device: str, x: torch.Tensor) -> Run:
        w = rand(n, k, dtype=torch.bfloat16, device=device)
        return lambda: F.linear(x, w)

    def int8(device: str, x: torch.Tensor) -> Run:
        w = rand(n, k, device="cpu").mul(40).clamp(-127, 127).to(device, torch.int8)
        scales = torch.full((n,), 1 / 40, dtype=torch.bfloat16, device=device)
        return lambda: torch._weight_int8pack_mm(x, w, scales)

    def int4(device: str, x: torch.Tensor) -> Run:
        w = rand(n, k, device="cpu").mul(3).add(8).clamp(0, 15)
        pairs = torch.full((k // group, n, 2), 1 / 3, dtype=torch.bfloat16, device=device)
        if device == "cpu":
            packed = torch._convert_weight_to_int4pack_for_cpu(w.int(), 2)
            return lambda: torch._weight_int4pack_mm_for_cpu(x, packed, group, pairs)
        w = w.byte().to(device)
        packed = torch._convert_weight_to_int4pack(w[:, ::2] << 4 | w[:, 1::2], 2)
        return lambda: torch._weight_int4pack_mm(x, packed, group, pairs)

    for rows in (1, 16):
        for layer, bits in ((bf16, 16), (int8, 8), (int4, 4)):

            def make(device: str, rows: int = rows, layer: Callable[..., Run] = layer) -> Run:
                return layer(device, rand(rows, k, dtype=torch.bfloat16, device=device))

            read = n * k * bits // 8 + 2 * rows * (n + k)
            yield Case(f"linear/{layer.__name__}/{rows}x{k}x{n}", make, read, 2 * rows * n * k)


# (name, batch, in channels, out channels, side, kernel, stride, groups)
CONVOLUTIONS = [
    ("stem_7x7", 8, 3, 64, 224, 7, 2, 1),
    ("3x3_64", 8, 64, 64, 56, 3, 1, 1),
    ("3x3_128_s2", 8, 64, 128, 56, 3, 2, 1),
    ("3x3_128", 8, 128, 128, 28, 3, 1, 1),
    ("3x3_256", 8, 256, 256, 14, 3, 1, 1),
    ("3x3_512", 8, 512, 512, 7, 3, 1, 1),
    ("1x1_64_s2", 8, 64, 128, 56, 1, 2, 1),
    ("1x1_256_64", 8, 256, 64, 56, 1, 1, 1),
    ("1x1_64_256", 8, 64, 256, 56, 1, 1, 1),
    ("depthwise_3x3_96", 8, 96, 96, 56, 3, 1, 96),
    ("depthwise_3x3_576", 8, 576, 576, 14, 3, 1, 576),
    ("few_outputs", 8, 64, 3, 56, 3, 1, 1),
]
# Also in channels_last.
CHANNELS_LAST = ("stem_7x7", "3x3_64", "1x1_256_64", "depthwise_3x3_96", "few_outputs")


DIRECTIONS = ("forward", "grad_input", "grad_weight")


def convolution(
    which: str,
    shape: tuple[int, ...],
    device: str,
    *,
    dtype: torch.dtype = torch.float32,
    layout: torch.memory_format = torch.contiguous_format,
) -> Run:
    """One of `DIRECTIONS` of a convolution; its shape is a row of `CONVOLUTIONS` without the name."""
    n, cin, cout, side, k, stride, groups = shape
    out = (side + 2 * (k // 2) - k) // stride + 1
    x = rand(n, cin, side, side, dtype=dtype, device=device).contiguous(memory_format=layout)
    w = rand(cout, cin // groups, k, k, dtype=dtype, device=device).contiguous(memory_format=layout)
    if which == "forward":
        return lambda: F.conv2d(x, w, None, stride, k // 2, 1, groups)
    g = rand(n, cout, out, out, dtype=dtype, device=device).contiguous(memory_format=layout)
    mask = [which == "grad_input", which == "grad_weight", False]
    two = lambda v: [v, v]  # noqa: E731
    return lambda: torch.ops.aten.convolution_backward(
        g, x, w, None, two(stride), two(k // 2), two(1), False, two(0), groups, mask
    )


def convolutions() -> Iterator[Case]:
    """The shapes of ResNet-18, ResNet-50's 1x1 and MobileNet's depthwise layers, in three directions; some of them in
    channels_last as well."""
    layouts = [(c, torch.contiguous_format) for c in CONVOLUTIONS]
    layouts += [((f"channels_last/{c[0]}", *c[1:]), torch.channels_last) for c in CONVOLUTIONS if c[0] in CHANNELS_LAST]
    for (name, n, cin, cout, side, k, stride, groups), layout in layouts:
        out = (side + 2 * (k // 2) - k) // stride + 1
        flops = 2 * n * cout * out * out * (cin // groups) * k * k

        shape = (n, cin, cout, side, k, stride, groups)
        for which in DIRECTIONS:
            make = functools.partial(convolution, which, shape, layout=layout)
            yield Case(f"convolution/{name}/{which}", make, 0, flops)


def attention() -> Iterator[Case]:
    """Causal attention of 8 heads of 64, without the L x L matrix in memory."""
    attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    for length in (128, 512, 1024, 2048, 4096):
        batch = max(1, 2048 // length)
        shape = (batch, 8, length, 64)
        flops = 2 * batch * 8 * length * length * 64  # half of the work of two full products
        yield Case(f"attention/forward/{length}", of(attend, shape, shape, shape), 0, flops)
        if length <= 2048:
            yield Case(f"attention/backward/{length}", grad_of(attend, shape, shape, shape), 0, 2.5 * flops)


def indexing() -> Iterator[Case]:
    """Embedding, sort, top-k, index, scatter."""

    def indices(high: int, *shape: int, device: str) -> torch.Tensor:
        return torch.randint(high, shape, generator=torch.Generator().manual_seed(2)).to(device)

    def embedding(device: str) -> Run:
        w, i = rand(50000, 384, device=device), indices(50000, 64, 256, device=device)
        return lambda: F.embedding(i, w)

    def embedding_backward(device: str) -> Run:
        w, i = rand(50000, 384, device=device).requires_grad_(), indices(50000, 64, 256, device=device)
        y = F.embedding(i, w)
        g = torch.ones_like(y)
        return lambda: torch.autograd.grad(y, w, g, retain_graph=True)

    def scatter_add(device: str) -> Run:
        x, i, s = (
            torch.zeros(1 << 16, device=device),
            indices(1 << 16, 1 << 22, device=device),
            rand(1 << 22, device=device),
        )
        return lambda: x.scatter_add_(0, i, s)

    def index(device: str) -> Run:
        x, i = rand(1 << 16, 64, device=device), indices(1 << 16, 1 << 16, device=device)
        return lambda: x[i]

    def gather(device: str) -> Run:
        x, i = rand(4096, 1024, device=device), indices(1024, 4096, 1024, device=device)
        return lambda: x.gather(1, i)

    yield Case("indexing/embedding", embedding, 8 * 64 * 256 * 384)
    yield Case("indexing/embedding_backward", embedding_backward, 4 * 50000 * 384)
    yield Case("indexing/index", index, 8 << 22)
    yield Case("indexing/gather", gather, 16 << 22)
    yield Case("indexing/scatter_add", scatter_add, 12 << 22)
    yield Case("sort/1M", of(torch.sort, (1 << 20,)))
    yield Case("sort/1024x1024", of(lambda x: x.sort(1), (1024, 1024)))
    yield Case("sort/topk_32_of_50000", of(lambda x: x.topk(32), (16, 50000)))


def random_numbers(n: int = 1 << 24) -> Iterator[Case]:
    """Random fills of 16M elements."""
    yield Case("random/uniform", of(lambda x: x.uniform_(), (n,)), 4 * n)
    yield Case("random/normal", of(lambda x: x.normal_(), (n,)), 4 * n)
    yield Case("random/dropout", of(lambda x: F.dropout(x, 0.1), (n,)), 8 * n)


def overheads() -> Iterator[Case]:
    """The cost of small things: a launch (until it is enqueued, in sequence, and waited for), an allocation, a copy."""

    def waited(function: Callable[[torch.Tensor], object], *shape: int) -> Callable[[str], Run]:
        def make(device: str) -> Run:
            x = rand(*shape, device=device)
            wait = torch.netcl.synchronize if device != "cpu" else lambda: None

            def run() -> None:
                function(x)
                wait()

            return run

        return make

    yield Case("overhead/add_16_enqueue", of(torch.add, (16,), (16,)), enqueue=True)
    yield Case("overhead/add_16", of(torch.add, (16,), (16,)))
    yield Case("overhead/add_16_inplace", of(lambda x: x.add_(1.0), (16,)))
    yield Case("overhead/mm_16", of(torch.mm, (16, 16), (16, 16)))
    yield Case("overhead/add_16_and_wait", waited(lambda x: x + x, 16))
    yield Case("overhead/item", waited(lambda x: x[0].item(), 16))
    yield Case("overhead/empty", of(lambda x: torch.empty_like(x), (1 << 16,)))
    for name, n in (("4kB", 1 << 10), ("64MB", 1 << 24)):

        def upload(device: str, n: int = n) -> Run:
            x = rand(n, device="cpu")
            return lambda: x.to(device, copy=True)

        def download(device: str, n: int = n) -> Run:
            x = rand(n, device=device)
            return lambda: x.to("cpu", copy=True)

        yield Case(f"copy/to_device_{name}", upload, 8 * n)
        yield Case(f"copy/to_host_{name}", download, 8 * n)


def scale() -> Iterator[Case]:
    """How the cost grows with elements and with tensors."""
    for power in range(3, 9):
        n = 10**power
        yield Case(f"scale/add_1e{power}", of(lambda x: x + 1.0, (n,)), 8 * n)
    for count in (1, 10, 100, 1000, 10_000):

        def many(device: str, count: int = count) -> Run:
            tensors = [torch.ones(100, device=device) for _ in range(count)]
            return lambda: torch._foreach_add_(tensors, 1.0)

        yield Case(f"scale/foreach_add_{count}_tensors", many)


def cases() -> Iterator[Case]:
    """All cases of this file."""
    for family in (
        overheads,
        elementwise,
        reductions,
        matrices,
        quantized,
        convolutions,
        attention,
        indexing,
        random_numbers,
        scale,
    ):
        yield from family()
