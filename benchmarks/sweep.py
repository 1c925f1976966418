"""``python -m benchmarks.sweep [NAMES ...]``: every operator of PyTorch's OpInfo database at three sizes, beside torch
CPU, forward and backward.

A sample of OpInfo is enlarged by repeating its tensors along the dimensions that they share with the first one, so
values stay in the operator's domain. Of the ways to do so, the first that torch CPU accepts is timed: along the first
and the last dimension alike, along the first, along the last. Operators that accept none are listed. The page names
those that take more than LIMIT of torch CPU's time at 100,000 elements or more.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map
from tqdm import tqdm

from . import report
from .harness import Case, Run, measure

SIZES = (1_000, 100_000, 10_000_000)
GROWTH = SIZES[1] // SIZES[0]
LIMIT = 1.5
SAMPLES = 3
SAMPLE_SECONDS = 0.02
PATIENCE_SECONDS = 0.3  # a call that is likely to take longer is left out
DIMENSIONS = {"both": (0, -1), "first": (0,), "last": (-1,)}


@dataclass
class Row:
    """A case's name, direction and number of elements, milliseconds per call on netcl and on torch CPU, and how often
    operators ran on the host."""

    name: str
    direction: str
    elements: int
    netcl: float
    cpu: float
    host: int

    @property
    def slower(self) -> float:
        """How many times longer than torch CPU."""
        return self.netcl / self.cpu


def is_tensor(x: Any) -> bool:
    """Whether the leaf of a sample is a strided tensor."""
    return isinstance(x, Tensor) and x.layout == torch.strided


def first_tensor(sample: tuple) -> Tensor | None:
    """The tensor whose elements are counted."""
    return next((t for t in tree_leaves(sample) if is_tensor(t)), None)


def enlarged(sample: tuple, wanted: int, way: str) -> tuple | None:
    """The sample with about `wanted` elements in its first tensor; None if it has nothing to repeat."""
    first = first_tensor(sample)
    if first is None or first.dim() == 0 or first.numel() == 0:
        return None
    # Dimensions are counted from the end, as broadcasting does. One that both ends mean is enlarged once.
    dims = sorted({d % first.dim() - first.dim() for d in DIMENSIONS[way]})
    times = max(1, round((wanted / first.numel()) ** (1 / len(dims))))

    def grow(t: Any) -> Any:
        if not is_tensor(t):
            return t
        shared = [d for d in dims if t is first or (t.dim() >= -d and t.size(d) == first.size(d) > 1)]
        repeats = [times if d - t.dim() in shared else 1 for d in range(t.dim())]
        return t.detach().repeat(repeats).requires_grad_(t.requires_grad)

    return tree_map(grow, sample)


def samples_of(op: Any) -> list[tuple]:
    """Some of the operator's samples, the largest first."""
    backward = op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu")
    dtype = torch.float32 if torch.float32 in op.supported_dtypes("cpu") else torch.int64
    found = op.sample_inputs("cpu", dtype, requires_grad=backward and dtype.is_floating_point)
    samples = [(s.input, tuple(s.args), dict(s.kwargs)) for s in islice(found, 40)]

    def size(sample: tuple) -> tuple[bool, int]:
        first = first_tensor(sample)
        return (first.dim() > 1, first.numel()) if first is not None else (False, 0)

    return sorted(samples, key=size, reverse=True)[:8]


def fitting(op: Any, choices: list[tuple[tuple, str]], wanted: int) -> tuple[tuple, str, tuple, dict[str, Run]]:
    """The first choice of a sample and a way that torch CPU accepts, the large sample, and what to time on the CPU."""
    error: Exception = ValueError("nothing to repeat")
    for sample, way in choices:
        large = enlarged(sample, wanted, way)
        if large is None:
            continue
        try:
            return sample, way, large, runs(op.op, large, "cpu")
        except (RuntimeError, ValueError, IndexError, TypeError) as e:
            error = e
    raise error


def gradients(outputs: Any, inputs: list[Tensor]) -> Run | None:
    """A function that computes the gradients of all inputs; None if there are none."""
    outputs = [t for t in tree_leaves(outputs) if is_tensor(t) and t.requires_grad]
    if not outputs or not inputs:
        return None
    ones = [torch.ones_like(t) for t in outputs]
    return lambda: torch.autograd.grad(outputs, inputs, ones, retain_graph=True, allow_unused=True)


def runs(function: Callable[..., Any], sample: tuple, device: str) -> dict[str, Run]:
    """The functions to time on this device: forward, and backward if there are gradients."""
    on_device = tree_map(
        lambda t: t.detach().to(device).requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t, sample
    )
    value, args, kwargs = on_device
    inputs = [t for t in tree_leaves(on_device) if isinstance(t, Tensor) and t.requires_grad]
    backward = gradients(function(value, *args, **kwargs), inputs)

    def forward() -> None:
        with torch.no_grad():
            function(value, *args, **kwargs)

    return {"forward": forward} | ({"backward": backward} if backward else {})


def rows_of(op: Any) -> Iterator[Row]:
    """The timings of an operator; raises what torch CPU raises if no sample can be enlarged."""
    torch.manual_seed(0)
    choices = [(sample, way) for sample in samples_of(op) for way in DIMENSIONS]
    longest: dict[str, float] = {}
    for wanted in SIZES:
        if min(longest.values(), default=0) * GROWTH > PATIENCE_SECONDS:
            return
        sample, way, large, on_cpu = fitting(op, choices, wanted)
        choices = [(sample, way)]
        both = {"cpu": on_cpu, "netcl": runs(op.op, large, "netcl")}
        for direction in sorted(on_cpu.keys() & both["netcl"].keys(), reverse=True):
            if longest.get(direction, 0) * GROWTH > PATIENCE_SECONDS:
                continue
            case = Case(op.formatted_name, lambda device, both=both, d=direction: both[device][d])
            result = measure(case, SAMPLES, SAMPLE_SECONDS)
            netcl, cpu = result.netcl.seconds, result.cpu.seconds
            longest[direction] = max(netcl, cpu)
            host = sum(result.fallbacks.values())
            yield Row(case.name, direction, first_tensor(large).numel(), netcl * 1e3, cpu * 1e3, host)


def page(rows: list[Row], failed: dict[str, str], facts: dict[str, object]) -> str:
    """The page of results."""
    large = [r for r in rows if r.elements >= SIZES[1] / 2]
    slow = sorted((r for r in large if r.slower > LIMIT), key=lambda r: -r.slower)
    median = statistics.median(r.slower for r in large) if large else math.nan
    lines = [
        "# Every operator beside torch CPU",
        "",
        f"`python -m benchmarks.sweep` on {facts['cores']} cores of {facts['device']}",
        f"({' '.join(facts['instructions'])}), {facts['platform']}, {facts['date']}: {len({r.name for r in rows})} "
        "operators of OpInfo in float32",
        f"at up to three sizes, forward and backward, {len(rows)} cases. Of the {len(large)} cases with about 100,000",
        f"elements or 10 million, {len(slow)} take more than {LIMIT} of torch CPU's time; the median is {median:.2f}.",
        "",
        "| operator | elements | | netcl, ms | torch CPU, ms | times slower | on the host |",
        "|---|--:|---|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {r.name} | {r.elements:,} | {r.direction} | {r.netcl:.3f} | {r.cpu:.3f} | {r.slower:.1f} | {r.host or ''} |"
        for r in slow
    ]
    if failed:
        lines += ["", "Not timed, since the sample cannot be enlarged so:", ""]
        lines += [", ".join(f"`{name}`" for name in sorted(failed))]
    return "\n".join(lines) + "\n"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="operators of these names")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    args = parser.parse_args()
    ops = [op for op in op_db if not args.only or op.name in args.only]
    if not ops:
        print("no operator of that name", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")
    torch.netcl.set_cpu_fallback_mode("silent")
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for op in (bar := tqdm(ops, disable=None)):
        bar.set_description(op.formatted_name)
        try:
            rows.extend(rows_of(op))
        except Exception as e:  # one operator must not end the sweep
            failed[op.formatted_name] = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
        torch.netcl.empty_cache()
    facts = report.environment()
    report.write(args, page(rows, failed, facts), facts, rows=[asdict(r) for r in rows], failed=failed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
