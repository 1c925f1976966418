"""Cases and their timing: netcl and torch CPU in turn, in one process, warm and synchronised."""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

Run = Callable[[], object]


@dataclass
class Case:
    """A case to time.

    ``make(device)`` prepares the operands and returns the function to time. ``bytes`` and ``flops`` are the least
    that one call must move and compute. ``cpu`` is False if torch's CPU device has nothing to compare with. With
    ``once``, each call is timed alone, without warming up. ``cpu_peak`` also measures the memory that torch's CPU
    device takes. With ``enqueue``, the time is that of ENQUEUED calls until they return, without the wait for their
    results. ``float32`` makes the same case in float32, for the comparison with a 16-bit one.
    """

    name: str
    make: Callable[[str], Run]
    bytes: float = 0.0
    flops: float = 0.0
    cpu: bool = True
    once: bool = False
    cpu_peak: bool = False
    enqueue: bool = False
    float32: Callable[[str], Run] | None = None


@dataclass
class Timing:
    """Seconds per call: the median over the samples, and half the distance between the quartiles divided by the
    median."""

    seconds: float
    spread: float
    calls: int

    @staticmethod
    def of(samples: list[float], calls: int) -> Timing:
        """Summarise samples of seconds per call."""
        low, middle, high = statistics.quantiles(samples, n=4) if len(samples) > 1 else samples * 3
        return Timing(middle, (high - low) / 2 / middle, calls)


@dataclass
class Result:
    """A case's timings; ``ratio`` is CPU time divided by netcl time: above 1, netcl is faster.

    ``copy_rate`` is the bytes per second of copies that were timed in turn with the call, if memory limits it.
    ``peak_bytes`` is the most device memory that was allocated at once during a call; ``cpu_peak_bytes`` is the
    same for torch's CPU device, if requested.
    """

    name: str
    netcl: Timing
    cpu: Timing | None = None
    float32: Timing | None = None
    bytes: float = 0.0
    flops: float = 0.0
    copy_rate: float | None = None
    launches: float = 0.0
    waits: float = 0.0
    peak_bytes: int = 0
    cpu_peak_bytes: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """How many times faster than torch CPU."""
        return self.cpu.seconds / self.netcl.seconds if self.cpu else None

    def as_dict(self) -> dict:
        """The fields as a dict, for JSON."""
        return {**asdict(self), "ratio": self.ratio}


def synchronize(device: str) -> None:
    """Wait for everything that was enqueued; the CPU needs no wait."""
    if device != "cpu":
        getattr(torch, device).synchronize()


PATIENCE_SECONDS = 3.0
ENQUEUED = 256
# Threads of OpenMP and of OpenCL runtimes spin after their last work (libgomp's for 7 ms on the machine of the
# results). They would take cores from the next timing on the other device.
SETTLE_SECONDS = 0.015
# Calls that move at least this much and compute little are timed in turn with a copy, since the memory speed of a
# shared machine changes within seconds.
LARGE_BYTES, COPY_BYTES = 1 << 24, 1 << 26


def copy_within(device: str) -> Run:
    """A copy of COPY_BYTES within the device's memory."""
    source = torch.ones(COPY_BYTES // 4, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


class Timer:
    """Calls a function on one device, so many times that a sample is long enough for the clock.

    ``only`` is the one timing of a call that takes longer than PATIENCE_SECONDS.
    """

    def __init__(self, device: str, case: Case, sample_seconds: float) -> None:
        self.device, self.run, self.wait = device, case.make(device), not case.enqueue
        self.calls, self.only = ENQUEUED if case.enqueue else 1, None
        if case.once:
            return
        for _ in range(2):  # compiles kernels and fills caches
            taken = self.sample()
        if taken > PATIENCE_SECONDS:  # torch CPU without instructions for a dtype takes hundreds of times as long
            self.only = taken
            return
        while self.wait and (taken := self.sample() * self.calls) < sample_seconds / 2 and self.calls < 100_000:
            self.calls = max(self.calls + 1, int(self.calls * min(10.0, sample_seconds / max(taken, 1e-7))))

    def sample(self) -> float:
        """Seconds per call."""
        time.sleep(SETTLE_SECONDS)
        start = time.perf_counter()
        for _ in range(self.calls):
            self.run()
        if self.wait:
            synchronize(self.device)
        taken = (time.perf_counter() - start) / self.calls
        synchronize(self.device)
        return taken


def cpu_peak_of_call(run: Run) -> int:
    """The most bytes that a call allocates at once on torch's CPU device, besides those allocated before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    live = peak = 0
    for event in sorted((e for e in events if e.get("name") == "[memory]"), key=lambda e: e["ts"]):
        if event["args"].get("Device Type") == 0:  # the CPU
            live += event["args"]["Bytes"]
            peak = max(peak, live)
    return peak


def measure(case: Case, samples: int = 7, sample_seconds: float = 0.05, compare: bool = True) -> Result:
    """Time `case` on netcl, on torch CPU and in float32, one sample of each in turn, so that all meet the same noise.
    """
    torch.manual_seed(0)
    timers = [Timer("netcl", case, sample_seconds)]
    if case.once:
        return Result(case.name, Timing.of([timers[0].sample()], 1))
    if compare and case.cpu:
        timers.append(Timer("cpu", case, sample_seconds))
    # Launches, waits and fallbacks of one call, after the warm-up.
    torch.netcl.reset_cpu_fallback_ops()
    torch.netcl.reset_peak_memory_stats()
    before = torch.netcl.memory_allocated()
    launches, waits = torch.netcl.launch_count(), torch.netcl.host_sync_count()
    timers[0].run()
    launches, waits = torch.netcl.launch_count() - launches, torch.netcl.host_sync_count() - waits
    fallbacks = torch.netcl.cpu_fallback_ops()
    peak = torch.netcl.max_memory_allocated()
    cpu_peak = 0
    if case.cpu_peak and compare:
        cpu_peak = before + cpu_peak_of_call(timers[1].run)  # memory that lives between calls is the same on both
    if case.float32:  # only now, so that its tensors are not counted
        timers.append(Timer("netcl", replace(case, make=case.float32), sample_seconds))
    copy = None
    if case.bytes >= LARGE_BYTES and not case.flops and not case.enqueue:
        copy = Timer("netcl", Case("copy", copy_within), sample_seconds)
        timers.append(copy)
    seconds: list[list[float]] = [[] for _ in timers]
    gc.collect()
    gc.disable()
    try:
        for _ in range(samples):
            for timer, taken in zip(timers, seconds, strict=True):
                taken.append(timer.only or timer.sample())
    finally:
        gc.enable()
    netcl, *others = (Timing.of(taken, timer.calls) for timer, taken in zip(timers, seconds, strict=True))
    return Result(
        case.name,
        netcl,
        cpu=others[0] if compare and case.cpu else None,
        float32=others[-1 if copy is None else -2] if case.float32 else None,
        bytes=case.bytes,
        flops=case.flops,
        copy_rate=2 * COPY_BYTES / others[-1].seconds if copy else None,
        launches=launches,
        waits=waits,
        peak_bytes=peak,
        cpu_peak_bytes=cpu_peak,
        fallbacks=fallbacks,
    )


def matching(cases: Iterator[Case], patterns: list[str]) -> Iterator[Case]:
    """The cases whose name contains every word of one of `patterns` (all cases if there are none)."""
    for case in cases:
        if not patterns or any(all(word in case.name for word in p.split()) for p in patterns):
            yield case


def add_options(parser: argparse.ArgumentParser, samples: int, sample_ms: float) -> None:
    """The options of the command lines that time cases, with these defaults."""
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--samples", type=int, default=samples)
    parser.add_argument("--sample-ms", type=float, default=sample_ms, help="length of a sample, if one call is shorter")
    parser.add_argument("--no-cpu", action="store_true", help="do not time torch CPU")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
