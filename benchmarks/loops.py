"""``python -m benchmarks loops [WORDS ...]``: training loops as people write them, with the waits that they contain.

A loop that reads ``loss.item()``, or whose GradScaler asks whether a gradient overflowed, waits for the device in each
step. Each loop is timed in turn with itself without these waits, and with torch CPU. A wait should cost nothing but its
own time, so the two times should be equal, and all units of the device should be busy. The processor's time per time
shows that: with two units it is 2.0.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from . import library_loops, report, training
from .harness import SETTLE_SECONDS, add_options, synchronize
from .library_loops import Make, Steps, repeat

LEAST_SHARE, LEAST_BUSY, LARGE_MS = 0.95, 0.95, 10.0


@dataclass
class Loop:
    """A loop to time: ``make(device, waits)`` prepares it and returns a function that makes so many steps of it."""

    name: str
    make: Make
    cpu: bool = True
    shared: bool = False  # other processes take part, whose processor time is not counted


@dataclass
class Timing:
    """Milliseconds per step, and the processor's time divided by that time, of the shortest sample."""

    ms: float
    cores: float


@dataclass
class Row:
    """The timings of a loop: as written, without its waits, and on torch CPU."""

    name: str
    netcl: Timing
    unwaited: Timing
    cpu: Timing | None
    shared: bool

    @property
    def share(self) -> float:
        """The time without waits, divided by the time with them: 1 if waits cost nothing."""
        return self.unwaited.ms / self.netcl.ms

    def met(self, units: int) -> bool:
        """Whether the waits are free, and in loops whose work is large enough all units are busy."""
        busy = self.shared or self.netcl.ms < LARGE_MS or self.netcl.cores >= LEAST_BUSY * units
        return self.share >= LEAST_SHARE and busy


def digits() -> tuple[nn.Module, training.Batch]:
    """The convolutional net of examples/digits.py on 64 images of 8x8."""
    from digits import DigitNet

    return DigitNet(dropout=0.0), (torch.randn(64, 1, 8, 8), torch.randint(10, (64,)))


def small_gpt() -> tuple[nn.Module, training.Batch]:
    """The GPT of examples/gpt.py on 16 sequences of 128 bytes."""
    tokens = torch.randint(256, (16, 129))
    return training.GPT(), (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())


MODELS = {
    "digits": digits,
    "gpt_demo": small_gpt,
    "gpt": training.gpt,
    "resnet18": lambda: training.resnet(64),
    "lstm": training.lstm,
}
DTYPES = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def train(way: str, build: Callable[[], tuple[nn.Module, training.Batch]], dtype: torch.dtype | None) -> Make:
    """A `make` for a training step with the waits that `way` names."""

    def make(device: str, waits: bool) -> Steps:
        torch.manual_seed(0)
        model, batch = build()
        model, (x, y) = model.to(device), (t.to(device) for t in batch)
        kind = torch.optim.SGD if way == "sgd" else torch.optim.AdamW
        # What a default optimizer does without a wait in GradScaler.step() is the step alone.
        optimizer = kind(model.parameters(), lr=1e-4, fused=None if way in ("default", "sgd") else True)
        scaled = dtype is torch.float16 or (way == "default" and dtype is not None)
        scaler = torch.amp.GradScaler(device, enabled=scaled)
        parameters, count = list(model.parameters()), 0

        def step() -> None:
            nonlocal count
            optimizer.zero_grad()
            with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
                loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
            scaler.scale(loss).backward()
            if way == "clip":
                scaler.unscale_(optimizer)
                norm = nn.utils.clip_grad_norm_(parameters, 1.0)
            if waits or not scaler.is_enabled() or way not in ("default", "sgd"):
                scaler.step(optimizer)
            else:
                scaler.unscale_(optimizer)
                optimizer.step()
            scaler.update()
            count += 1
            if waits and way == "clip":
                norm.item()
            if waits and (way in ("item", "sgd") or (way == "item10" and count % 10 == 0)):
                loss.item()

        return repeat(step)

    return make


def validate(build: Callable[[], tuple[nn.Module, training.Batch]], dtype: torch.dtype | None) -> Make:
    """A `make` for the validation of a batch, whose right answers the host counts."""

    def make(device: str, waits: bool) -> Steps:
        torch.manual_seed(0)
        model, batch = build()
        model, (x, y) = model.to(device).eval(), (t.to(device) for t in batch)
        total: float | Tensor = 0

        @torch.no_grad()
        def step() -> None:
            nonlocal total
            with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
                right = model(x).argmax(-1).eq(y).sum()
            total = total + (right.item() if waits else right)

        return repeat(step)

    return make


def loops() -> Iterator[Loop]:
    """All loops, in the order of the table."""
    for model, build in MODELS.items():
        for name, dtype in DTYPES.items():
            for way in ("item", "item10", "default", "sgd", "clip"):
                yield Loop(f"loops/{model}/{name}/{way}", train(way, build, dtype), cpu=dtype is None)
            yield Loop(f"loops/{model}/{name}/validate", validate(build, dtype), cpu=dtype is None)
    for name, make, cpu, shared in library_loops.ALL:
        yield Loop(f"loops/{name}", make, cpu, shared)


class Timer:
    """Times steps of a loop on one device: so many at a time that a sample is long enough."""

    def __init__(self, device: str, make: Make, waits: bool, seconds: float) -> None:
        self.device, self.run, self.steps = device, make(device, waits), 3
        self.samples: list[tuple[float, float]] = []
        for _ in range(2):  # compiles kernels and fills caches
            ms, _ = self.sample()
        self.steps = max(3, min(1000, int(seconds * 1e3 / ms)))

    def sample(self) -> tuple[float, float]:
        """Milliseconds per step and cores in use."""
        time.sleep(SETTLE_SECONDS)
        start, busy = time.perf_counter(), time.process_time()
        self.run(self.steps)
        synchronize(self.device)
        taken, busy = time.perf_counter() - start, time.process_time() - busy
        return taken * 1e3 / self.steps, busy / taken

    def take(self) -> None:
        """Keeps a sample."""
        self.samples.append(self.sample())

    def timing(self) -> Timing:
        """The shortest sample: the machine's other work only adds time."""
        return Timing(*min(self.samples))


def measure(loop: Loop, samples: int, seconds: float, compare: bool) -> Row:
    """Times a loop in turn with itself without waits, and with torch CPU."""
    timers = [Timer("netcl", loop.make, True, seconds), Timer("netcl", loop.make, False, seconds)]
    if compare and loop.cpu:
        timers.append(Timer("cpu", loop.make, True, seconds))
    for _ in range(samples):
        for timer in timers:
            timer.take()
    timings = [timer.timing() for timer in timers]
    return Row(loop.name, timings[0], timings[1], timings[2] if len(timings) > 2 else None, loop.shared)


def table(rows: list[Row], facts: dict[str, object]) -> str:
    """The results as Markdown."""
    units = int(str(facts["units"]))
    lines = [f"# Training loops: {facts['device']}, {facts['platform']}", ""]
    lines += [f"- {key}: {', '.join(value) if isinstance(value, list) else value}" for key, value in facts.items()]
    lines += [
        "",
        "Milliseconds per step, as written and without the loop's waits, and the processor's time per time (all units",
        f"busy: {units}.0). Share: the time without waits over the time with them. Target: {LEAST_SHARE:g}, and",
        f"{LEAST_BUSY * units:g} cores in use if a step takes {LARGE_MS:g} ms or more. Shortest samples.",
        "",
        f"Targets: {sum(r.met(units) for r in rows)} of {len(rows)} met.",
        "",
        "| loop | ms | cores | without waits | cores | share | torch CPU | cores | torch CPU / netcl |",
        "|" + "---|" * 9,
    ]
    for r in rows:
        cpu = [f"{r.cpu.ms:.2f}", f"{r.cpu.cores:.2f}", f"{r.cpu.ms / r.netcl.ms:.2f}"] if r.cpu else ["", "", ""]
        cells = [r.name, f"{r.netcl.ms:.2f}", f"{r.netcl.cores:.2f}", f"{r.unwaited.ms:.2f}", f"{r.unwaited.cores:.2f}"]
        cells += [f"{r.share:.2f}" + ("" if r.met(units) else " (missed)"), *cpu]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks loops", description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="loops whose name contains all words of one of these")
    add_options(parser, 5, 400.0)
    args = parser.parse_args(arguments)
    wanted = [x for x in loops() if not args.only or any(all(w in x.name for w in p.split()) for p in args.only)]
    if args.list:
        print(*(x.name for x in wanted), sep="\n")
        return 0
    if not wanted:
        print("no loop of that name; see --list", file=sys.stderr)
        return 1
    facts, rows = report.environment(), []
    for loop in (bar := tqdm(wanted, disable=None)):
        bar.set_description(loop.name)
        rows.append(measure(loop, args.samples, args.sample_ms / 1e3, not args.no_cpu))
        torch.netcl.empty_cache()
        if args.markdown:  # after each loop: a run takes a quarter of an hour, and may be stopped
            args.markdown.write_text(table(rows, facts))
    report.write(args, table(rows, facts), facts, results=[{**asdict(r), "share": r.share} for r in rows])
    return 0
