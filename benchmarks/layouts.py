"""``python -m benchmarks.layouts [WORDS ...]``: are operators of image models slower in channels_last than in NCHW?

Each case is timed forward and in its gradients, one sample of each layout in turn. The ratio is channels_last over
NCHW, of the shortest samples: above 1, channels_last is slower. A case above LIMIT is sampled again, ROUNDS times at
most. Exits with 1 if one stays above it.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from statistics import median

import torch
import torch.nn.functional as F

from .harness import Run
from .operators import rand

LIMIT = 1.05
ROUNDS = 8
SAMPLES = 6
SAMPLE_SECONDS = 0.003


@dataclass
class Shape:
    """A convolution of square images; ``side`` is the input's."""

    name: str
    c_in: int
    c_out: int
    side: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    transposed: bool = False
    directions = ("forward", "grad_input", "grad_weight")

    def run(self, direction: str, images: int, layout: torch.memory_format) -> Run:
        """The function to time."""
        reach = self.dilation * (self.kernel - 1)
        patches = self.stride == self.kernel  # as in patch embeddings: adjacent windows, without padding
        padding = 0 if patches else reach // 2
        extra = self.stride - 1 if self.transposed and not patches else 0
        if self.transposed:
            out = (self.side - 1) * self.stride - 2 * padding + reach + 1 + extra
            weight = (self.c_in, self.c_out // self.groups)
        else:
            out = (self.side + 2 * padding - reach - 1) // self.stride + 1
            weight = (self.c_out, self.c_in // self.groups)
        of = lambda *sizes: rand(*sizes, device="netcl").contiguous(memory_format=layout)  # noqa: E731
        x, w = of(images, self.c_in, self.side, self.side), of(*weight, self.kernel, self.kernel)
        g = of(images, self.c_out, out, out)
        two = lambda v: [v, v]  # noqa: E731
        options = two(self.stride), two(padding), two(self.dilation), self.transposed, two(extra), self.groups
        if direction == "forward":
            return lambda: torch.ops.aten.convolution(x, w, None, *options)
        mask = [direction == "grad_input", direction == "grad_weight", False]
        return lambda: torch.ops.aten.convolution_backward(g, x, w, None, *options, mask)


def shapes() -> Iterator[Shape]:
    """Dense convolutions, groups, depthwise ones, multipliers, few channels, transposed ones."""
    for k, stride, c_in, c_out, side in (
        *((1, 1, *c) for c in ((64, 256, 28), (256, 64, 28), (256, 64, 56), (512, 128, 7), (24, 144, 28))),
        *((1, 2, *c) for c in ((64, 128, 56), (256, 512, 14))),
        *((3, 1, *c) for c in ((64, 64, 28), (128, 128, 14), (512, 512, 7), (16, 16, 56), (3, 32, 56), (20, 20, 28))),
        *((3, 2, *c) for c in ((64, 128, 28), (3, 32, 112), (256, 256, 14))),
        *((5, 1, *c) for c in ((32, 64, 14), (1, 16, 28))),
        (5, 2, 16, 32, 28),
        (7, 2, 3, 64, 112),
        (7, 1, 3, 16, 32),
        (16, 16, 3, 96, 112),
        (4, 4, 3, 96, 56),
    ):
        yield Shape(f"{k}x{k}_s{stride}_{c_in}_{c_out}_{side}", c_in, c_out, side, k, stride)
    for c, side in ((64, 28), (16, 33)):
        yield Shape(f"3x3_d2_{c}_{side}", c, c, side, 3, dilation=2)
    for c, side in ((3, 56), (8, 56), (12, 28), (16, 56), (24, 28), (32, 56), (96, 28), (100, 9), (512, 7)):
        for k, stride, dilation in ((3, 1, 1), (3, 2, 1), (5, 1, 1), (7, 1, 1), (3, 1, 2)):
            if k < 7 or c in (3, 32, 96):
                yield Shape(f"depthwise_{k}x{k}_s{stride}_d{dilation}_{c}_{side}", c, c, side, k, stride, dilation, c)
    for c_in, c_out, groups, side in (
        *((64, 64, 32, 28), (64, 64, 16, 28), (64, 64, 8, 28), (128, 128, 4, 14), (64, 128, 2, 14)),
        *((12, 12, 6, 28), (6, 6, 2, 28), (32, 64, 16, 28), (64, 32, 16, 28)),
    ):
        yield Shape(f"groups{groups}_{c_in}_{c_out}_{side}", c_in, c_out, side, 3, groups=groups)
    for c, times, stride, side in ((3, 2, 1, 56), (3, 8, 1, 56), (16, 2, 1, 28), (32, 4, 2, 28), (64, 2, 1, 28)):
        yield Shape(f"multiplier{times}_s{stride}_{c}_{side}", c, c * times, side, 3, stride, groups=c)
    for c_in, c_out, k, side in (
        *((1, 1, 3, 28), (1, 2, 3, 56), (2, 1, 3, 28), (2, 4, 5, 28), (3, 3, 3, 56), (3, 1, 1, 56), (4, 4, 3, 28)),
        *((6, 3, 3, 28), (7, 2, 3, 28), (8, 3, 3, 28), (16, 1, 1, 28), (64, 3, 3, 28), (64, 1, 1, 28), (32, 8, 3, 28)),
        *((1, 8, 3, 28), (2, 8, 3, 28), (4, 8, 3, 28), (3, 64, 1, 28)),
    ):
        yield Shape(f"few_{k}x{k}_{c_in}_{c_out}_{side}", c_in, c_out, side, k)
    for c_in, c_out, k, stride, groups, side in (
        *((64, 32, 2, 2, 1, 14), (64, 32, 4, 2, 1, 14), (32, 32, 3, 1, 1, 28), (64, 3, 4, 2, 1, 28)),
        *((16, 16, 4, 2, 16, 28), (32, 32, 3, 2, 8, 14), (128, 64, 1, 1, 1, 14), (4, 2, 3, 2, 1, 28)),
    ):
        name = f"transposed_{k}x{k}_s{stride}_g{groups}_{c_in}_{c_out}_{side}"
        yield Shape(name, c_in, c_out, side, k, stride, groups=groups, transposed=True)


@dataclass
class Operator:
    """A function of square images."""

    name: str
    function: Callable[[torch.Tensor], torch.Tensor]
    channels: int
    side: int
    directions = ("forward", "backward")

    def run(self, direction: str, images: int, layout: torch.memory_format) -> Run:
        """The function to time."""
        x = rand(images, self.channels, self.side, self.side, device="netcl").contiguous(memory_format=layout)
        if direction == "forward":
            return lambda: self.function(x)
        y = self.function(x.requires_grad_())
        g = torch.rand_like(y)
        return lambda: torch.autograd.grad(y, x, g, retain_graph=True)


def operators() -> Iterator[Operator]:
    """What image models have between their convolutions; some channels fill no vector."""
    for c, side in ((24, 112), (58, 28), (64, 56), (256, 14)):
        w, b, mean, var = (rand(c, device="netcl") for _ in range(4))
        scale = rand(1, c, 1, 1, device="netcl")
        groups = next(g for g in (32, 29, 8) if c % g == 0)
        functions: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "batch_norm_train": lambda x, w=w, b=b: F.batch_norm(x, None, None, w, b, training=True),
            "batch_norm_eval": lambda x, w=w, b=b, mean=mean, var=var: F.batch_norm(x, mean, var, w, b),
            "group_norm": lambda x, w=w, b=b, groups=groups: F.group_norm(x, groups, w, b),
            "max_pool_3x3_s2": lambda x: F.max_pool2d(x, 3, 2, 1),
            "max_pool_2x2_s2": lambda x: F.max_pool2d(x, 2),
            "avg_pool_3x3_s1": lambda x: F.avg_pool2d(x, 3, 1, 1),
            "avg_pool_2x2_s2": lambda x: F.avg_pool2d(x, 2),
            "adaptive_avg_pool_1": lambda x: F.adaptive_avg_pool2d(x, 1),
            "adaptive_avg_pool_7": lambda x: F.adaptive_avg_pool2d(x, 7),
            "adaptive_max_pool_7": lambda x: F.adaptive_max_pool2d(x, 7),
            "nearest": lambda x: F.interpolate(x, scale_factor=2),
            "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
            "relu": F.relu,
            "hardswish": F.hardswish,
            "add": lambda x: x + x,
            "channel_scale": lambda x, scale=scale: x * scale,
            "prelu": lambda x, w=w: F.prelu(x, w),
            "dropout": F.dropout,
            "dropout2d": F.dropout2d,
            "cat_channels": lambda x: torch.cat([x, x, x], 1),
            "half_channels": lambda x: F.relu(x.chunk(2, 1)[1]),
            "crop": lambda x: x[:, :, 1:, 1:].clone(),
            "pad": lambda x: F.pad(x, (1, 1, 1, 1)),
            "reflection_pad": lambda x: F.pad(x, (1, 1, 1, 1), "reflect"),
            "softmax_channels": lambda x: F.softmax(x, 1),
            "max_channels": lambda x: x.max(1).values,
            "mean_pixels": lambda x: x.mean((2, 3)),
        }
        for name, function in functions.items():
            yield Operator(f"{name}_{c}_{side}", function, c, side)
        if c % 4 == 0:
            yield Operator(f"pixel_shuffle_{c}_{side}", lambda x: F.pixel_shuffle(x, 2), c, side)


class Sampler:
    """Calls a function so many times that a sample is long enough for the clock."""

    def __init__(self, run: Run) -> None:
        self.run, self.calls = run, 1
        for _ in range(2):  # compiles kernels and fills caches
            taken = self.sample()
        self.calls = max(1, min(200, int(SAMPLE_SECONDS / taken)))

    def sample(self) -> float:
        """Seconds per call."""
        torch.netcl.synchronize()
        start = time.perf_counter()
        for _ in range(self.calls):
            self.run()
        torch.netcl.synchronize()
        return (time.perf_counter() - start) / self.calls


def compare(shape: Shape | Operator, direction: str, images: int) -> tuple[float, float]:
    """The least seconds per call in NCHW and in channels_last."""
    samplers = [Sampler(shape.run(direction, images, f)) for f in (torch.contiguous_format, torch.channels_last)]
    least = [float("inf")] * 2
    for _ in range(ROUNDS):
        for _ in range(SAMPLES):
            least = [min(t, s.sample()) for t, s in zip(least, samplers, strict=True)]
        if least[1] <= LIMIT * least[0]:
            break
    return least[0], least[1]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.layouts", description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="cases whose name contains all words of one of these")
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8])
    args = parser.parse_args()
    ratios = {}
    print("| case | NCHW, us | channels_last, us | ratio |\n|---|--:|--:|--:|")
    gc.disable()
    for shape in chain(shapes(), operators()):
        for images in args.batch:
            for direction in shape.directions:
                name = f"{shape.name}/batch{images}/{direction}"
                if args.only and not any(all(w in name for w in words.split()) for words in args.only):
                    continue
                rows, last = compare(shape, direction, images)
                ratios[name] = last / rows
                print(f"| {name} | {rows * 1e6:.1f} | {last * 1e6:.1f} | {ratios[name]:.2f} |", flush=True)
    if not ratios:
        raise SystemExit("no case of that name")
    slower = [r for r in ratios.values() if r > LIMIT]
    print(f"\n{len(ratios)} cases, median {median(ratios.values()):.2f}; above {LIMIT}: {len(slower)}")
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
