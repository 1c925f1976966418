"""``python -m torch_netcl.tune``: finds the best tile of matrix multiplication for a GPU, and stores it.

Each candidate is first compared with the CPU, then timed. The fastest is stored beside the compiled kernels, by
device and driver, and every later process uses it. CPU devices multiply with another kernel, which has nothing to
tune.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

_ops = torch.ops.netcl


class Candidate(NamedTuple):
    """A tile and its result."""

    tile: tuple[int, ...]
    """Work-items x, work-items y, elements of each in x and in y, levels in local memory."""
    seconds: float | None
    """The median time of one product; None if the candidate was not right."""
    problem: str = ""
    """Why it was not timed."""

    def __str__(self) -> str:
        x, y, cols, rows, depth = self.tile
        return f"{x} x {y} work-items, {x * cols} x {y * rows} elements, {depth} levels"


def _check(device: torch.device, dtype: torch.dtype) -> str:
    """The error in products of all layouts, with sizes that are no multiples of any tile; empty if there is none."""
    generator = torch.Generator().manual_seed(0)
    m, n, k = 141, 133, 77
    for transpose_a in (False, True):
        for transpose_b in (False, True):
            a = torch.randn(k, m, generator=generator).t() if transpose_a else torch.randn(m, k, generator=generator)
            b = torch.randn(n, k, generator=generator).t() if transpose_b else torch.randn(k, n, generator=generator)
            got = torch.mm(a.to(device, dtype), b.to(device, dtype)).cpu().double()
            off = (got - torch.mm(a.double(), b.double())).abs().max().item()
            # The k products of numbers near 1 are each off by at most 2^-24; the factor allows for the largest of them.
            if not off <= 16 * k * 2**-24:
                return f"off by {off:.2g}"
    return ""


def _seconds(device: torch.device, dtype: torch.dtype, size: int, samples: int) -> float:
    """The median time in seconds of a product of two size x size matrices."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    times = []
    for _ in range(samples + 1):  # the first one warms up
        torch.netcl.synchronize(device)
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        torch.netcl.synchronize(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def tune(
    device: torch.device | str = "netcl",
    dtype: torch.dtype = torch.float32,
    size: int = 2048,
    samples: int = 9,
    keep: bool = True,
    report: Callable[[Candidate], None] | None = None,
) -> list[Candidate]:
    """Try every tile that fits `device` on products of size x size matrices, and use the fastest from now on.

    `dtype` is the type of the sums: float32 (also for float16 and bfloat16) or float64. With `keep`, the choice is
    stored for later processes. `report` is called with each candidate as soon as it is timed. Returns the
    candidates, fastest first. RuntimeError if none gives correct results.
    """
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"tune: dtype {dtype}: choose torch.float32 (for 16-bit floats as well) or torch.float64")
    device = torch.device(device)
    index = torch.netcl.current_device() if device.index is None else device.index
    device = torch.device("netcl", index)
    before = _ops.gemm_tile(index, dtype)
    candidates = []
    for tile in _ops.gemm_tiles(index, dtype):
        try:
            _ops.set_gemm_tile(index, dtype, tile, False)
            problem = _check(device, dtype)
            seconds = None if problem else _seconds(device, dtype, size, samples)
        except RuntimeError as e:  # a driver may refuse what the device claims to support
            problem, seconds = str(e).splitlines()[0], None
        candidates.append(Candidate(tuple(tile), seconds, problem))
        if report:
            report(candidates[-1])
    candidates.sort(key=lambda c: (c.seconds is None, c.seconds))
    if candidates[0].seconds is None:
        _ops.set_gemm_tile(index, dtype, before, False)
        raise RuntimeError(f"tune: no tile gives right results on {device}: {candidates[0].problem}")
    _ops.set_gemm_tile(index, dtype, list(candidates[0].tile), keep)
    return candidates


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m torch_netcl.tune", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="netcl", help="e.g. netcl:1 (default: the current one)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--size", type=int, default=2048, help="of the square matrices that are timed")
    parser.add_argument("--samples", type=int, default=9, help="products to time for each candidate")
    parser.add_argument("--dry-run", action="store_true", help="store nothing")
    args = parser.parse_args(arguments)
    if not torch.netcl.is_available():
        print("no OpenCL device; python -m torch_netcl says what is missing", file=sys.stderr)
        return 1
    properties = torch.netcl.get_device_properties(args.device)
    print(f"{args.device}: {properties.name}, {properties.platform_name}")
    if properties.device_class == "cpu":
        print("its kernels are those for CPUs, which have nothing to tune (NETCL_DEVICE_CLASS=gpu: those for GPUs)")
        return 0
    dtype = getattr(torch, args.dtype)

    def show(c: Candidate) -> None:
        said = f"{2e-9 * args.size**3 / c.seconds:9.1f} GFLOP/s" if c.seconds else f"not used: {c.problem}"
        print(f"{c!s:58} {said}", flush=True)

    best = tune(args.device, dtype, args.size, args.samples, not args.dry_run, show)[0]
    print(f"{'would use' if args.dry_run else 'kept'}: {best}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
