"""``python -m benchmarks gpu``: a first look at a GPU.

Its stages are the self-test, a part of the test suite, the tuner, products, convolutions, attention and training. Each
is a process of its own with a limit of time, 15 minutes in all. If one fails, crashes or hangs, the page says so and
the others still run. The page goes to ``benchmarks/results/gpu-<device>.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from . import operators, report, training
from .harness import Case, matching, measure

ROOT = Path(__file__).resolve().parent.parent
TESTS = "api autocast grad_scaler training gemm convolution reduce normalization softmax attention pooling sort"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
# The most that torch CPU is asked to compute, for comparison.
CPU_FLOPS = 1 << 35
LAST_LINES = 12
ROW = '{"name"'  # a case that was timed, as JSON


def products() -> Iterator[Case]:
    """Square products of 512 to 8192, skinny and batched ones; the smallest come first."""
    shapes: list[tuple[int, ...]] = [(n, n, n) for n in (512, 1024, 2048)]
    shapes += [(1, 4096, 4096), (16, 4096, 4096), (4096, 16, 4096), (64, 50000, 64), (64, 128, 128, 128)]
    shapes += [(n, n, n) for n in (4096, 8192)]
    for shape in shapes:
        *batch, m, k, n = shape
        work = 2 * m * k * n * (batch[0] if batch else 1)
        for dtype in DTYPES:
            make = operators.of(torch.matmul, (*batch, m, k), (*batch, k, n), dtype=dtype)
            name = f"gemm/{str(dtype).removeprefix('torch.')}/{'x'.join(map(str, shape))}"
            yield Case(name, make, 0, work, cpu=dtype is torch.float32 and work <= CPU_FLOPS)


def resnet50() -> tuple[nn.Module, training.Batch]:
    """ResNet-50 on 16 images of 224 x 224."""
    from transformers import ResNetConfig, ResNetForImageClassification

    return Logits(ResNetForImageClassification(ResNetConfig(num_labels=1000))), images(16)


def vit() -> tuple[nn.Module, training.Batch]:
    """ViT-B/16 on 16 images of 224 x 224."""
    from transformers import ViTConfig, ViTForImageClassification

    return Logits(ViTForImageClassification(ViTConfig(num_labels=1000))), images(16)


def images(count: int) -> training.Batch:
    """Random images and their classes."""
    return torch.randn(count, 3, 224, 224), torch.randint(1000, (count,))


class Logits(nn.Module):
    """A model of transformers that returns its scores alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of each class."""
        return self.model(x).logits


def training_steps() -> Iterator[Case]:
    """Steps in float32 and under autocast (float16 with GradScaler where the device has it, or else bfloat16)."""
    half = torch.float16 if torch.float16 in torch.netcl.amp.autocast_dtypes() else torch.bfloat16
    for name, build in {"gpt": training.gpt, "resnet50": resnet50, "vit": vit}.items():
        yield Case(f"training/{name}/float32", training.training_step(build, None))
        yield Case(
            f"training/{name}/{str(half).removeprefix('torch.')}", training.training_step(build, half), cpu=False
        )


class Stage(NamedTuple):
    """A part of the run: a command, or cases that `python -m benchmarks gpu --run NAME` times."""

    seconds: int
    command: list[str] | None = None
    cases: Callable[[], Iterator[Case]] | None = None


def python(*arguments: str) -> list[str]:
    """A command of this interpreter."""
    return [sys.executable, *arguments]


STAGES = {
    "device": Stage(30, python("-m", "torch_netcl")),
    "check": Stage(60, python("-m", "torch_netcl", "--check")),
    "tests": Stage(240, python("-m", "pytest", "-v", "--tb=line", *(f"test/test_{name}.py" for name in TESTS.split()))),
    "tuner": Stage(60, python("-m", "torch_netcl.tune")),
    "gemm": Stage(150, cases=products),
    "convolution": Stage(110, cases=lambda: matching(operators.cases(), ["convolution/"])),
    "attention": Stage(60, cases=lambda: matching(operators.cases(), ["attention/"])),
    "training": Stage(180, cases=training_steps),
}


def time_on_cuda(case: Case) -> float | None:
    """Seconds of a call on torch's CUDA device, the fastest of five; None without such a device."""
    if not torch.cuda.is_available():
        return None
    call, taken = case.make("cuda"), []
    for _ in range(6):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return min(taken[1:])


def time_cases(name: str, seconds: float) -> int:
    """Times the cases of a stage until its time is over; prints a line of JSON for each. Returns the exit status."""
    end, failed = time.monotonic() + seconds, 0
    for case in STAGES[name].cases():
        if time.monotonic() > end:
            print(json.dumps({"name": case.name, "problem": "no time left"}), flush=True)
            continue
        try:
            row = measure(case, samples=3, sample_seconds=0.02).as_dict() | {"cuda": time_on_cuda(case)}
        except Exception as error:
            failed, row = 1, {"name": case.name, "problem": str(error).splitlines()[0]}
        print(json.dumps(row), flush=True)
        torch.netcl.empty_cache()
    return failed


def run_stage(command: list[str], seconds: float) -> tuple[str, str]:
    """(what the command printed, how it failed: empty if it did not). Ends it, and its children, after `seconds`."""
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        output, problem = child.communicate(timeout=seconds)[0], ""
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, problem = child.communicate()[0], f"stopped after {seconds:.0f} s"
    if not problem and child.returncode:
        problem = f"signal {-child.returncode}" if child.returncode < 0 else f"exit status {child.returncode}"
    return output, problem


def table(rows: list[dict]) -> list[str]:
    """A table of the cases that a stage has timed."""
    lines = ["| case | netcl | TFLOP/s | torch CUDA | torch CPU | launches |", "|---|---|---|---|---|---|"]
    for row in rows:
        if "problem" in row:
            lines.append(f"| {row['name']} | {row['problem']} | | | | |")
            continue
        own, cpu = row["netcl"]["seconds"], row["cpu"]
        cells = [
            row["name"],
            report.seconds(own),
            f"{row['flops'] / own * 1e-12:.3g}" if row["flops"] else "",
            report.seconds(row["cuda"]) if row["cuda"] else "",
            report.seconds(cpu["seconds"]) if cpu else "",
            f"{row['launches']:g}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def tests(printed: list[str]) -> list[str]:
    """How many tests ended how, and which failed, even if pytest was stopped before it could sum up."""
    ends = re.findall(r" (PASSED|SKIPPED|FAILED|ERROR) ", "\n".join(printed))
    counts = ", ".join(f"{ends.count(end)} {end.lower()}" for end in dict.fromkeys(ends))
    return [counts or "none ended", *(line for line in printed if re.search(" (FAILED|ERROR) ", line))]


def section(name: str, output: str, problem: str, taken: float) -> list[str]:
    """The part of the page for a stage."""
    lines = [f"## {name}: {problem or 'ok'} ({taken:.0f} s)", ""]
    printed = output.strip().splitlines()
    rows = [json.loads(line) for line in printed if line.startswith(ROW) and line.endswith("}")]
    if rows:
        lines += [*table(rows), ""]
    text = [line for line in printed if not line.startswith(ROW)]
    if name == "tests":
        text = [*tests(text), *(text[-LAST_LINES:] if problem else [])]
    elif name != "device":
        text = text[-LAST_LINES:]
    if text and (STAGES[name].command or problem):
        lines += ["```", *text, "```", ""]
    return lines


def find_gpu() -> str:
    """The name of the current device, which another process tells, since a driver may crash. Exits if it is no GPU."""
    ask = "d = torch.netcl.get_device_properties(); print(d.device_class, d.name)"
    output, problem = run_stage(python("-c", f"import torch; {ask}"), 60)
    last = (output.strip().splitlines() or [""])[-1]
    if problem or not last.startswith("gpu "):
        sys.exit(
            f"the first device is no GPU ({problem or last}); see python -m torch_netcl. NETCL_DEVICE_CLASS=gpu "
            "gives a CPU the GPU's kernels."
        )
    return last.removeprefix("gpu ")


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit status: 1 if a stage failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu", description=__doc__.splitlines()[0])
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)} (default: all)")
    parser.add_argument("--minutes", type=float, default=15.0, help="the limit of all stages together")
    parser.add_argument("--page", type=Path, metavar="FILE", help="default: benchmarks/results/gpu-<device>.md")
    parser.add_argument("--run", choices=list(STAGES), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if unknown := set(args.stages) - set(STAGES):
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    share = args.minutes * 60 / sum(stage.seconds for stage in STAGES.values())
    if args.run:
        # A quarter of the time is left for the start, and for the last case.
        return time_cases(args.run, STAGES[args.run].seconds * share * 0.75)
    device = find_gpu()
    slug = re.sub("[^a-z0-9]+", "-", device.lower()).strip("-")
    page = args.page or ROOT / "benchmarks" / "results" / f"gpu-{slug}.md"
    lines, failed = [f"# {device}, {date.today().isoformat()}", ""], []
    for name in args.stages or STAGES:
        stage, start = STAGES[name], time.monotonic()
        timed = python("-m", "benchmarks", "gpu", "--run", name, "--minutes", str(args.minutes))
        output, problem = run_stage(stage.command or timed, stage.seconds * share)
        lines += section(name, output, problem, time.monotonic() - start)
        failed += [name] if problem else []
        page.write_text("\n".join(lines))
        print(f"{name}: {problem or 'ok'}", flush=True)
    print(page)
    return 1 if failed else 0
