"""``python -m benchmarks balance``: how a training step's launches would share a CPU of many cores.

NETCL_COMPUTE_UNITS lets the library split its work for n units. STEPS steps run per n with their launches logged and
timed, as one unit's time per work-group; a launch's shortest time counts. On n units a launch of g groups then takes
ceil(g / n) rounds, so its imbalance, the largest part over the mean, is ceil(g / n) * n / g. It is a model: groups
count as equal, and memory as fast enough.

Of launches that take LEAST_US or more on n units, the imbalance should be below MOST. A launch of fewer groups than
units should not take more than SHARE of the step.

``--gpu`` lists launches of too few work-items for a GPU instead (thin.py).
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from . import gpu_cases, thin, training

UNITS = (1, 4, 16, 64, 128)
LEAST_US, MOST, SHARE = 100.0, 1.15, 0.05
STEPS = 10
LAUNCH = re.compile(r"launch (\S+) for (.+?) on netcl.*global \[(.+?)\], local (?:\[(.+?)\]|chosen)")


@dataclass
class Launch:
    """A kernel's launch: its work-groups, and the microseconds that they take one after another."""

    kernel: str
    operator: str
    groups: int
    us: float

    def on(self, units: int) -> float:
        """Microseconds on so many units."""
        return self.us / self.groups * -(-self.groups // units)

    def imbalance(self, units: int) -> float:
        """The largest part of a unit over the mean."""
        return self.on(units) * units / self.us


MODELS = {"mlp": training.mlp, "gpt": training.gpt, "resnet50": lambda: gpu_cases.resnet50(4, 128)}


def count(sizes: str) -> int:
    """The product of the numbers in a text like `64, 2`."""
    return math.prod(int(n) for n in sizes.split(","))


def launches(model: str, units: int) -> list[Launch]:
    """Those of a training step in float32 on a device of so many units, in this process, which has NETCL_LOG=launch."""
    run = training.training_step(MODELS[model], None)("netcl")
    run()
    torch.netcl.synchronize()
    steps = [timed(run, units) for _ in range(STEPS)]
    kinds = [[(x.kernel, x.operator, x.groups) for x in step] for step in steps]
    # Autograd's threads may enqueue in another order.
    alike = [step for step, kind in zip(steps, kinds, strict=True) if kind == kinds[-1]]
    return [min(same, key=lambda x: x.us) for same in zip(*alike, strict=True)]


def timed(run: Callable[[], None], units: int) -> list[Launch]:
    """The launches of one step."""
    with tempfile.TemporaryFile("w+") as text:
        stderr = os.dup(2)
        os.dup2(text.fileno(), 2)
        try:
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as steps:
                run()
                torch.netcl.synchronize()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        text.seek(0)
        logged = [found.groups() for line in text if (found := LAUNCH.search(line))]
    events = [e for e in steps.events() if e.device_type != torch.autograd.DeviceType.CPU]
    events = sorted((e for e in events if not e.name.startswith("Mem")), key=lambda e: e.time_range.start)
    result = []
    for event, (kernel, operator, items, local) in zip(events, logged, strict=True):
        groups = count(items) // (count(local) if local else 1)
        us = event.time_range.elapsed_us() * min(groups, units)
        result.append(Launch(kernel, operator, groups, us))
        if kernel not in event.name:
            raise RuntimeError(f"{event.name} was timed where {kernel} was launched")
    return result


def measure(model: str, units: int) -> list[Launch]:
    """The launches in a process that believes in so many units."""
    real = torch.netcl.get_device_properties().max_compute_units
    env = {"NETCL_LOG": "launch", "NETCL_COMPUTE_UNITS": str(units), "NETCL_IMMEDIATE_MICROSECONDS": "0"}
    command = [sys.executable, "-m", "benchmarks.balance", "--worker", model, str(real)]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    return [Launch(*row) for row in json.loads(done.stdout.splitlines()[-1])]


def rows(model: str, units: int, found: list[Launch]) -> list[str]:
    """A row of the table for the step, then one per kernel whose launches miss a target."""
    total = sum(x.on(units) for x in found)
    ideal = sum(x.us for x in found) / units
    missed: dict[tuple[str, str], list[Launch]] = {}
    for x in found:
        uneven = x.on(units) >= LEAST_US and x.imbalance(units) >= MOST
        if uneven or (x.groups < units and x.on(units) > SHARE * total):
            missed.setdefault((x.kernel, x.operator), []).append(x)
    late = sum(x.on(units) for same in missed.values() for x in same)
    lines = [
        f"| {model} | {units} | {len(found)} | {total / ideal:.2f} | {sum(map(len, missed.values()))} | "
        f"{late / total:.0%} | |"
    ]
    for (kernel, operator), same in sorted(missed.items(), key=lambda item: -sum(x.on(units) for x in item[1])):
        worst = max(same, key=lambda x: x.on(units))
        text = f"{kernel} ({operator}): {worst.groups} groups, {worst.imbalance(units):.2f}, {worst.on(units):.0f} us"
        lines.append(f"| | | | | {len(same)} | {sum(x.on(units) for x in same) / total:.0%} | {text} |")
    return lines


def table(models: list[str], units: Sequence[int]) -> list[str]:
    """The rows of all models and numbers of units, with a header."""
    lines = [
        "| model | units | launches | step / even step | uneven | their share | the longest of a kernel |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    for model in models:
        for n in units:
            lines += rows(model, n, measure(model, n))
            print(lines[-1], file=sys.stderr)
    return lines


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks balance", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--gpu", action="store_true", help=f"too thin launches on a GPU; of {', '.join(thin.MODELS)}")
    parser.add_argument("--units", type=int, nargs="+", default=UNITS, help="numbers of units")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    args = parser.parse_args(arguments)
    known = thin.MODELS if args.gpu else MODELS
    if unknown := set(args.models) - set(known):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    lines = (thin.table if args.gpu else functools.partial(table, units=args.units))(args.models or list(known))
    print(*lines, sep="\n")
    if args.markdown:
        args.markdown.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        print(json.dumps([astuple(x) for x in launches(sys.argv[2], int(sys.argv[3]))]))
    else:
        sys.exit(main(sys.argv[1:]))
