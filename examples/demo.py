"""What ``make demo`` runs: both examples, their figures, and whether they reached their goals.

Exit status 1 when an accuracy or loss goal is missed or when an operator of a training loop ran on the host.
"""

from __future__ import annotations

import time

START = time.perf_counter()  # before torch is imported: that is part of the time to the first training step

import argparse  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

import common  # noqa: E402
import digits  # noqa: E402
import gpt  # noqa: E402
import torch  # noqa: E402


def options(example: argparse.ArgumentParser, args: argparse.Namespace, name: str) -> argparse.Namespace:
    """The example's own defaults, changed by what was given to the demo."""
    result = example.parse_args([])
    result.device, result.amp, result.seed, result.compile = args.device, args.amp, args.seed, args.compile
    result.steps = args.steps or result.steps
    result.batch_size = args.batch_size or result.batch_size
    result.lr = args.lr or result.lr
    result.csv = args.csv / f"{name}.csv"
    result.png = args.png / f"{name}.png"
    return result


def cache_rows(device: torch.device) -> list[tuple[str, str]]:
    """How many kernels were compiled in this process and how many came from the disk cache."""
    if device.type != "netcl":
        return []
    stats = torch.netcl.kernel_cache_stats()
    return [("kernels compiled", str(stats["compiled"])), ("kernels from disk", str(stats["disk_hits"]))]


def parse_args() -> argparse.Namespace:
    """The command line; options that are not given keep each example's own default."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="netcl", help="torch device, e.g. netcl, netcl:1, cpu")
    parser.add_argument("--amp", choices=["auto", "fp16", "bf16", "off"], default="auto")
    parser.add_argument("--compile", action="store_true", help="train with torch.compile")
    parser.add_argument("--steps", type=int, help="optimisation steps, for a short look")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--csv", type=Path, default=Path("demo-output"), metavar="DIR", help="folder for CSV files"
    )
    parser.add_argument(
        "--png", type=Path, default=Path("demo-output"), metavar="DIR", help="folder for PNG files"
    )
    return parser.parse_args()


def next_command() -> str:
    """What to type after `make demo`, which leaves the shell outside the environment that it made."""
    command = f"python {os.path.relpath(Path(__file__).with_name('gpt.py'))} --steps 300"
    if sys.prefix == sys.base_prefix:  # no virtual environment
        return command
    return f"source {os.path.relpath(Path(sys.prefix, 'bin/activate'))} && {command}"


def main() -> int:
    """Run both examples; returns the exit status."""
    args = parse_args()
    device = common.pick_device(args.device)
    print(f"torch {torch.__version__}, device {device}: {common.device_name(device)}", flush=True)
    first_step: list[float] = []

    def on_first_step() -> None:
        if not first_step:
            first_step.append(time.perf_counter() - START)

    results = []
    for name, example in (("digits", digits), ("gpt", gpt)):
        opts = options(example.parser(), args, name)
        result = example.run(opts, on_first_step)
        common.finish(result, device, opts)
        print(flush=True)
        results.append(result)

    total = time.perf_counter() - START
    common.print_table(
        [
            ("first training step done", f"{first_step[0]:.1f} s after the start"),
            ("whole demo", f"{total:.0f} s"),
            *cache_rows(device),
            ("CSV and PNG files", str(args.csv)),
            ("next", next_command()),
        ]
    )
    failures = [f"{r.name}: {r.metric} {r.value:.4f}" for r in results if not r.passed]
    failures += [
        f"{r.name}: operators ran on the host: {', '.join(r.fallback)}" for r in results if r.fallback
    ]
    for failure in failures:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
