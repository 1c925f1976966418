"""``python -m benchmarks balance --gpu``: the launches of training steps that would leave most of a GPU idle.

A step is captured in a graph, which lists its launches and runs none, so the models have their usual sizes and no GPU
is needed. NETCL_DEVICE_CLASS=gpu chooses the kernels, NETCL_COMPUTE_UNITS the compute units that they are split for.

A launch is thin if it has fewer than LEAST_ITEMS work-items for more than MOST_WORK of work: multiply-adds of a
product, else elements of its largest buffer. WHY says why a kernel has such launches.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import astuple, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from . import gpu_cases, training

UNITS = 132  # of an H100 or H200
LEAST_ITEMS, MOST_WORK = 10_000, 1_000_000
DUMPED = re.compile(r"(\S+) for (.+), global \[(.+?)\], local \[.+?\], buffers of \[(.*?)\] bytes")
PRODUCTS = re.compile("(gemm|conv)_(tiled|units)")
WHY = {
    "gemm_tiled": "a thousand multiply-adds per work-item, or fewer; slices of a short k would cost a launch",
    "nll_parts": "one work-item per loss, which reads one score of its row",
    "nll_backward": "one work-item per loss, which writes one score of its row",
    "reduce_combine": "one work-item per result; it adds partial sums, and reads one element of its input",
}


class UNet(nn.Module):
    """Pairs of 3x3 convolutions at 5 sizes; bilinear upsampling and a 1x1 convolution between them on the way up."""

    def __init__(self, width: int = 64, classes: int = 4) -> None:
        super().__init__()
        widths = [width << i for i in range(5)]
        self.down = nn.ModuleList(self.pair(a, b) for a, b in zip([3, *widths[:-1]], widths, strict=True))
        self.narrow = nn.ModuleList(nn.Conv2d(b, a, 1) for a, b in zip(widths, widths[1:], strict=False))
        self.up = nn.ModuleList(self.pair(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv2d(width, classes, 1)

    @staticmethod
    def pair(channels: int, width: int) -> nn.Sequential:
        """Two convolutions with batch norm."""
        layers: list[nn.Module] = []
        for c in (channels, width):
            layers += [nn.Conv2d(c, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) -> (N, H, W, classes)."""
        levels = []
        for i, level in enumerate(self.down):
            x = level(F.max_pool2d(x, 2) if i else x)
            levels.append(x)
        for before, narrow, level in reversed(list(zip(levels, self.narrow, self.up, strict=False))):
            x = F.interpolate(narrow(x), scale_factor=2, mode="bilinear", align_corners=False)
            x = level(torch.cat([before, x], 1))
        return self.head(x).permute(0, 2, 3, 1)


def unet(count: int = 4, side: int = 256) -> tuple[nn.Module, training.Batch]:
    """A U-Net on `count` images, with a class per pixel."""
    return UNet(), (torch.randn(count, 3, side, side), torch.randint(4, (count, side, side)))


MODELS = {
    "mlp": training.mlp, "lstm": training.lstm, "unet": unet, "gpt2": gpu_cases.gpt2, "vit": gpu_cases.vit,
    "resnet50": gpu_cases.resnet50,
}  # fmt: skip


@dataclass
class Launch:
    """A kernel's launch: its work-items, and its multiply-adds or elements."""

    kernel: str
    operator: str
    items: int
    work: int

    @property
    def thin(self) -> bool:
        return self.items < LEAST_ITEMS and self.work > MOST_WORK


@dataclass
class Call:
    """A call of an operator that launches: the range of its launches, the elements of its largest tensor or of its list
    of tensors, and the multiply-adds of its products."""

    begin: int
    end: int
    elements: int
    element_size: int
    is_list: bool
    multiplies: int

    def launches(self, lines: list[str]) -> Iterator[Launch]:
        """Those of this call, of which the graph has `lines`; launches of one kernel share the work by their items."""
        found = [DUMPED.match(line).groups() for line in lines]
        names = [kernel for kernel, *_ in found]
        products = {name for name in names if PRODUCTS.match(name)}  # as for both gradients of a convolution
        items = [math.prod(map(int, sizes.split(", "))) for _, _, sizes, _ in found]
        for name, n, (_, operator, _, buffers) in zip(names, items, found, strict=True):
            total = sum(m for m, other in zip(items, names, strict=True) if other == name)
            sizes = [int(size) // self.element_size for size in buffers.split(", ") if size]
            if name in products:
                work = self.multiplies * n // (total * len(products))
            elif self.is_list or not sizes or not all(sizes):  # a table of tensors, or a tensor within an allocation
                work = self.elements * n // total
            else:
                work = max(sizes)
            yield Launch(name, operator, n, work)


class Calls(TorchDispatchMode):
    """Notes the calls of operators that launch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Call] = []
        self.first = torch.ops.netcl.launch_count()

    def __torch_dispatch__(self, f, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        kwargs = kwargs or {}
        begin = torch.ops.netcl.launch_count() - self.first
        result = f(*args, **kwargs)
        end = torch.ops.netcl.launch_count() - self.first
        if end > begin:
            largest = max((x for x in tree_leaves((args, kwargs, result)) if isinstance(x, Tensor)), key=Tensor.numel)
            listed = [x for x in args[0] if isinstance(x, Tensor)] if args and isinstance(args[0], list) else []
            elements = sum(map(Tensor.numel, listed)) or largest.numel()
            flops = flop_registry.get(f._overloadpacket)
            multiplies = flops(*args, **kwargs, out_val=result) // 2 if flops else 0
            self.seen.append(Call(begin, end, elements, largest.element_size(), bool(listed), multiplies))
        return result


def warm_up() -> None:
    """What may wait once: the buffer of assertions, and the tables of operators over many tensors."""
    layer = nn.Linear(8, 8).to("netcl")
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    rows = nn.Embedding(4, 8).to("netcl")(torch.zeros(4, dtype=torch.long, device="netcl"))
    F.cross_entropy(layer(rows), torch.zeros(4, dtype=torch.long, device="netcl")).backward()
    optimizer.step()
    torch.netcl.synchronize()


def captured(model: str) -> tuple[list[str], list[Call]]:
    """The launches of a step, as the graph lists them, and the calls of operators."""
    run = training.training_step(MODELS[model], None)("netcl")
    pool = None
    for _ in range(2):  # the first step also writes tables that are kept
        graph = torch.accelerator.Graph(pool=pool) if pool else torch.accelerator.Graph()
        with torch.Stream(device="netcl"), graph, Calls() as calls:
            run()
        pool = graph.pool()
    with tempfile.NamedTemporaryFile("r") as file:
        graph.debug_dump(file.name)
        return [line for line in file.read().splitlines() if DUMPED.match(line)], calls.seen


def launches(model: str) -> list[Launch]:
    """Those of a training step in float32, in this process, which has the variables of `measure`."""
    warm_up()
    lines, calls = captured(model)
    if sum(call.end - call.begin for call in calls) != len(lines):
        raise RuntimeError("operators and launches do not match")
    return [launch for call in calls for launch in call.launches(lines[call.begin : call.end])]


def measure(model: str) -> list[Launch]:
    """The launches in a process that believes in a GPU."""
    env = {"NETCL_DEVICE_CLASS": "gpu", "NETCL_COMPUTE_UNITS": str(UNITS), "NETCL_COMPILE_NOTICE": "-1"}
    command = [sys.executable, "-m", "benchmarks.thin", model]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    return [Launch(*row) for row in json.loads(done.stdout.splitlines()[-1])]


def table(models: list[str]) -> list[str]:
    """A row per model, then one per kernel of it with thin launches: the one with most work per item."""
    lines = ["| model | launches | thin | the worst of a kernel | why |", "|---|--:|--:|---|---|"]
    for model in models:
        found = measure(model)
        thin: dict[tuple[str, str], list[Launch]] = {}
        for x in found:
            if x.thin:
                thin.setdefault((x.kernel, x.operator), []).append(x)
        lines.append(f"| {model} | {len(found)} | {sum(map(len, thin.values()))} | | |")
        for (kernel, operator), same in thin.items():
            worst = max(same, key=lambda x: x.work / x.items)
            text = f"{kernel} ({operator}): {worst.items:,} items for {worst.work / 1e6:.1f} M"
            lines.append(f"| | | {len(same)} | {text} | {WHY.get(kernel, '')} |")
        print(lines[-1], file=sys.stderr)
    return lines


if __name__ == "__main__":
    print(json.dumps([astuple(x) for x in launches(sys.argv[1])]))
    sys.stdout.flush()
    os._exit(0)  # kernels that the graph would have needed may still be compiled
