"""``python -m benchmarks compile [WORDS ...]``: torch.compile beside eager mode, on netcl and on torch CPU.

The four take turns within one process. The cases "cold" and "warm" time the first training step of a GPT in a process
of its own.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from tqdm import tqdm

from . import report
from .harness import Case, Run, Timer, Timing, add_options
from .operators import of
from .training import MODELS, optimizer_step, training_step

#: (column, device, whether compiled)
VARIANTS = (
    ("netcl eager", "netcl", False),
    ("netcl compiled", "netcl", True),
    ("CPU eager", "cpu", False),
    ("CPU Inductor", "cpu", True),
)


#: Why a target is missed, by the name of the case.
REASONS = {
    "norm_gelu": "The error function of gelu takes most of the time of both.",
    "dropout": "Both draw the same random numbers, which take most of the time.",
    "step_": "Matrix products, convolutions, attention and LSTM cells, most of the step, run eager kernels.",
    "small": "Dynamo's and AOTAutograd's checks before the one launch take longer than eager mode's five launches.",
    "/layer_norm": "Both read and write each element once; memory limits both.",
    "/rms_norm": "Both read and write each element once; memory limits both.",
    "/softmax": "Both read and write each element once; memory limits both.",
}


@dataclass
class Pair:
    """A case to time. ``make(device, compiled)`` prepares the operands and returns the function to time.

    ``limits`` are the targets on Intel's runtime and on PoCL: the most that the compiled time may be of eager mode's,
    and how many times faster than torch CPU's Inductor it must be; None stands for no target. With ``enqueue``, the
    time is that of calls until they return.
    """

    name: str
    make: Callable[[str, bool], Run]
    of_eager: tuple[float, float] = (1.0, 1.0)
    over_cpu: tuple[float, float] | None = None
    enqueue: bool = False


@dataclass
class Measured:
    """The timings of a case by column, and launches per call of netcl, eager and compiled. If a target is missed,
    ``profiles`` says what the device's time of both was spent on."""

    name: str
    times: dict[str, Timing]
    launches: tuple[int, int]
    judged: list[tuple[str, bool]] = field(default_factory=list)
    profiles: dict[str, str] = field(default_factory=dict)


def pair(function: Callable, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable:
    """A `make` for a function of random operands."""
    return lambda device, compiled: of(torch.compile(function) if compiled else function, *shapes, dtype=dtype)(device)


def step(name: str, dtype: torch.dtype | None = None) -> Callable[[str, bool], Run]:
    """A `make` for a training step of a model of training.py; the optimiser is the fused one."""
    return lambda device, compiled: training_step(MODELS[name], dtype, torch.compile if compiled else None)(device)


def adamw(device: str, compiled: bool) -> Run:
    """A step of AdamW over 100 parameters of 100,000 elements: the fused one, or the compiled one."""
    how = {"foreach": True} if compiled else {"fused": True}
    run = optimizer_step(torch.optim.AdamW, capturable=device != "cpu" and compiled, **how)(device)
    return torch.compile(run) if compiled else run


def chain(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(x * a + b) * torch.sigmoid(x)


def polynomial(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return ((x * 0.3 + a) * x + b).clamp(-1, 1) * x


def residual_norm(x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(residual + F.dropout(x + bias, 0.1), [1024])


def sliding_window(device: str, compiled: bool) -> Run:
    """flex_attention of 4,096 tokens, each of which sees the last 256; eager mode computes all scores."""
    q, k, v = (torch.randn(1, 4, 4096, 64).to(device) for _ in range(3))
    blocks = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 256), None, None, 4096, 4096, device=device)
    function = torch.compile(flex_attention) if compiled else flex_attention
    return lambda: function(q, k, v, block_mask=blocks)


def small(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.gelu(x * a + b) + x, [32])


def cases(n: int = 1 << 24) -> Iterator[Pair]:
    """The cases whose time is measured within this process."""
    rows, square = (n // 1024, 1024), (4096, n // 4096)
    chains = {"of_eager": (0.6, 0.75), "over_cpu": (1.5, 1.1)}
    yield Pair("compile/chain_gelu_sigmoid", pair(chain, (n,), (n,), (n,)), **chains)
    yield Pair("compile/chain_polynomial", pair(polynomial, (n,), (n,), (n,)), **chains)
    yield Pair("compile/softmax", pair(lambda x: x.softmax(1), square))
    yield Pair("compile/layer_norm", pair(lambda x, w, b: F.layer_norm(x, [1024], w, b), rows, (1024,), (1024,)))
    yield Pair("compile/rms_norm", pair(lambda x, w: F.rms_norm(x, [1024], w), rows, (1024,)))

    def entropy(device: str, compiled: bool) -> Run:
        scores, labels = torch.randn(n // 4096, 4096).to(device), torch.arange(n // 4096).to(device)
        function = torch.compile(F.cross_entropy) if compiled else F.cross_entropy
        return lambda: function(scores, labels)

    yield Pair("compile/cross_entropy", entropy)
    fused = {"of_eager": (0.7, 0.7)}
    yield Pair("compile/add_norm_gelu", pair(lambda x, y: F.gelu(F.layer_norm(x + y, [1024])), rows, rows), **fused)
    yield Pair("compile/bias_dropout_residual_norm", pair(residual_norm, rows, (1024,), rows), **fused)
    yield Pair("compile/flex_window", sliding_window, of_eager=(0.25, 0.25), over_cpu=(1.0, 1.0))
    for name in ("mlp", "resnet18_64", "lstm", "gpt"):
        yield Pair(f"compile/step_{name}", step(name), of_eager=(0.85, 0.85), over_cpu=(1.0, 1.0))
    yield Pair("compile/step_gpt_bfloat16", step("gpt", torch.bfloat16), of_eager=(0.8, 0.8), over_cpu=(1.0, 1.0))
    yield Pair("compile/adamw_100x100k", adamw)
    yield Pair("compile/small_graph_enqueue", pair(small, (32, 32), (32,), (32,)), enqueue=True)


FIRST_STEP = """
import sys, time
import torch
from benchmarks.compile import step
run = step("gpt")("netcl", True)
torch.netcl.synchronize()
begin = time.perf_counter()
run()
torch.netcl.synchronize()
print(time.perf_counter() - begin, torch.netcl.kernel_cache_stats()["compiled"])
"""


def first_step(folder: str) -> tuple[float, int]:
    """Seconds of the GPT's first compiled step with these caches, and how many kernels it compiled."""
    folders = {name: os.path.join(folder, name) for name in ("NETCL_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")}
    folders["POCL_CACHE_DIR"] = os.path.join(folder, "pocl")
    for path in folders.values():
        os.makedirs(path, mode=0o700, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", FIRST_STEP], env={**os.environ, **folders}, check=True, capture_output=True, text=True
    )
    seconds, compiled = done.stdout.split()[-2:]
    return float(seconds), int(compiled)


def measure(case: Pair, samples: int, sample_seconds: float, pocl: bool, cpu: bool) -> Measured:
    """Times the variants of a case, one sample of each in turn."""
    timers: dict[str, Timer] = {}
    for name, device, compiled in VARIANTS:
        if device == "netcl" or cpu:
            torch.manual_seed(0)
            torch._dynamo.reset()
            make = Case(case.name, lambda d, compiled=compiled: case.make(d, compiled), enqueue=case.enqueue)
            timers[name] = Timer(device, make, sample_seconds)
    launches = []
    for name in ("netcl eager", "netcl compiled"):
        before = torch.netcl.launch_count()
        timers[name].run()
        launches.append(torch.netcl.launch_count() - before)
    seconds: dict[str, list[float]] = {name: [] for name in timers}
    gc.collect()
    gc.disable()
    try:
        for _ in range(samples):
            for name, timer in timers.items():
                seconds[name].append(timer.only or timer.sample())
    finally:
        gc.enable()
    times = {name: Timing.of(taken, timers[name].calls) for name, taken in seconds.items()}
    result = Measured(case.name, times, tuple(launches))
    judge(case, result, pocl)
    if not all(met for _, met in result.judged):
        result.profiles = {name: profiled(timers[name].run) for name in ("netcl eager", "netcl compiled")}
    return result


def profiled(run: Run, shown: int = 5) -> str:
    """The time of a call's kernels, and the parts of it that the longest ones take; generated kernels count as one."""
    torch.netcl.synchronize()
    begin = time.perf_counter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.PrivateUse1]) as profile:
        run()
        torch.netcl.synchronize()
        wall = time.perf_counter() - begin
    spent: Counter[str] = Counter()
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.PrivateUse1:
            name = "generated kernels" if event.name.startswith("compiled_") else event.name
            spent[name] += event.time_range.elapsed_us() * 1e-6
    total = sum(spent.values()) or 1.0
    parts = [f"{name} {taken / total:.0%}" for name, taken in spent.most_common(shown)]
    return f"kernels {report.seconds(total)} of {report.seconds(wall)}: {', '.join(parts)}"


def judge(case: Pair, result: Measured, pocl: bool) -> None:
    """Adds a text and whether the target is met, for each target of the case."""
    mine = result.times["netcl compiled"].seconds
    part = mine / result.times["netcl eager"].seconds
    limit = case.of_eager[pocl]
    result.judged.append((f"{part:.2f} of eager (≤ {limit:g})", part <= limit))
    if case.over_cpu and "CPU Inductor" in result.times:
        faster = result.times["CPU Inductor"].seconds / mine
        limit = case.over_cpu[pocl]
        result.judged.append((f"{faster:.2f} x CPU Inductor (≥ {limit:g})", faster >= limit))


def table(results: list[Measured], firsts: list[tuple[str, float, int, float]], facts: dict) -> str:
    """The results as Markdown."""
    columns = [name for name, _, _ in VARIANTS]
    lines = ["# torch.compile", "", *(f"- {key}: {value}" for key, value in facts.items()), ""]
    lines += ["Medians; launches of netcl, eager → compiled.", ""]
    lines += ["| case | " + " | ".join(columns) + " | launches | targets |", "|" + "---|" * (len(columns) + 3)]
    for r in results:
        cells = [report.seconds(r.times[c].seconds) if c in r.times else "" for c in columns]
        targets = "; ".join(f"{text} {'met' if ok else 'missed'}" for text, ok in r.judged)
        lines.append(f"| {r.name} | {' | '.join(cells)} | {r.launches[0]} → {r.launches[1]} | {targets} |")
    for name, seconds, compiled, limit in firsts:
        verdict = "met" if seconds <= limit else "missed"
        lines.append(f"| {name} | | {seconds:.1f} s | | | {compiled} kernels compiled | ≤ {limit:g} s {verdict} |")
    lines += ["", "## Missed", ""]
    lines += ["What the device spends a call on, under the profiler.", ""]
    for r in results:
        missed = "; ".join(text for text, ok in r.judged if not ok)
        lines += [f"- {r.name}: {missed}."] if missed else []
        lines += [f"  {next((reason for name, reason in REASONS.items() if name in r.name), '')}"] if missed else []
        lines += [f"  - {name}: {text}" for name, text in r.profiles.items()]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compile", description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="cases whose name contains one of these")
    add_options(parser, 7, 50.0)
    parser.add_argument("--size", type=int, default=1 << 24, help="elements of the operands (default: 16M)")
    args = parser.parse_args(arguments)
    wanted = [c for c in cases(args.size) if not args.only or any(word in c.name for word in args.only)]
    first = [n for n in ("compile/cold_gpt", "compile/warm_gpt") if not args.only or any(w in n for w in args.only)]
    if args.list:
        print(*(c.name for c in wanted), *first, sep="\n")
        return 0
    if not wanted and not first:
        print("no case of that name; see --list", file=sys.stderr)
        return 1
    facts = report.environment()
    results = []
    for case in (bar := tqdm(wanted, disable=None)):
        bar.set_description(case.name)
        results.append(measure(case, args.samples, args.sample_ms / 1e3, report.Run(facts).pocl, not args.no_cpu))
        torch.netcl.empty_cache()
    firsts = []
    if first:
        with tempfile.TemporaryDirectory() as folder:
            cold, warm = first_step(folder), first_step(folder)
        both = {"compile/cold_gpt": (*cold, 40.0), "compile/warm_gpt": (*warm, 8.0)}
        firsts = [(name, *both[name]) for name in first]
    content = {"results": [asdict(r) for r in results], "first": firsts}
    report.write(args, table(results, firsts, facts), facts, **content)
    return 0
