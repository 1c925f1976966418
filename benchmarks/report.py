"""Tables of results, the targets they are compared with, and the machine they were measured on."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

import torch

from . import roofline
from .harness import Result

COPY, FMA = "measured copy, GB/s", "measured float32 multiply-adds, GFLOP/s"


@dataclass
class Run:
    """The facts of the environment."""

    facts: dict[str, object]

    @property
    def pocl(self) -> bool:
        """Whether PoCL's targets apply, not those of Intel's runtime."""
        return "portable" in str(self.facts["platform"]).lower()

    def has(self, instructions: str) -> bool:
        """Whether the processor has these instructions."""
        return instructions in self.facts["instructions"]


Measure = Callable[[Result, Run], float | None]


def ratio(result: Result, run: Run) -> float | None:
    """Torch CPU's time divided by netcl's."""
    return result.ratio


def of_copy(result: Result, run: Run) -> float | None:
    """The call's rate for its least bytes, divided by a copy's."""
    return result.bytes / result.netcl.seconds / copy_rate(result, run) if result.bytes else None


def copy_rate(result: Result, run: Run) -> float:
    """Bytes per second of the copies that were timed in turn with the call, or else before all cases."""
    return result.copy_rate or float(str(run.facts[COPY])) * 1e9


def of_own_bytes(result: Result, run: Run) -> float | None:
    """The call's time divided by that of copying its least bytes."""
    return 1 / of_copy(result, run)


def of_float32(result: Result, run: Run) -> float | None:
    """Netcl's time in float32 divided by that in this dtype."""
    return result.float32.seconds / result.netcl.seconds if result.float32 else None


def memory(result: Result, run: Run) -> float | None:
    """The most memory at once, divided by torch CPU's."""
    return result.peak_bytes / result.cpu_peak_bytes if result.cpu_peak_bytes else None


def beyond_cpu(result: Result, run: Run) -> float | None:
    """Microseconds per call beyond torch CPU's, which uses the same dispatcher, iterator and allocation."""
    return (result.netcl.seconds - result.cpu.seconds) * 1e6 if result.cpu else None


def milliseconds(result: Result, run: Run) -> float | None:
    """The time of a call."""
    return result.netcl.seconds * 1e3


def bfloat16_engine(run: Run) -> float:
    """How much faster than float32 the products of bfloat16 should be."""
    return 3.0 if run.has("amx_bf16") else 1.6 if run.has("avx512_bf16") else 1.0


# The targets: patterns of the cases' names (the first that fits counts), and the least or greatest value on Intel's
# runtime and on PoCL. None: no target.
Limit = float | Callable[[Run], float] | None
TARGETS: list[tuple[str, Measure, str, list[tuple[str, Limit, Limit]]]] = [
    (
        "of torch CPU",
        ratio,
        "≥",
        [
            ("gemm/skinny/*", 0.8, 0.7),
            ("gemm/batched/*", 0.8, 0.7),
            ("gemm/float32/128*", None, None),
            ("gemm/float32/*", 0.95, 0.85),
            ("convolution/depthwise*", 0.7, 0.7),
            ("convolution/*", 0.8, 0.7),
            ("elementwise/*", 0.95, 0.9),
            ("reduction/*", 0.95, 0.9),
            ("softmax/*", 0.95, 0.9),
            ("layer_norm/*", 0.95, 0.9),
            ("training/*/float32", 0.9, 0.75),
        ],
    ),
    (
        "of a copy",
        of_copy,
        "≥",
        [(f"{family}/*", 0.85, 0.85) for family in ("elementwise", "reduction", "softmax", "layer_norm")],
    ),
    ("x its bytes", of_own_bytes, "≤", [("optimizer/unscale", 1.3, 1.3), ("optimizer/adamw_fused", 1.3, 1.3)]),
    (
        "of own float32",
        of_float32,
        "≥",
        [
            ("gemm/bfloat16/*", bfloat16_engine, bfloat16_engine),
            ("gemm/float16/*", *[lambda run: 1.5 if run.has("amx_bf16") else 1.0] * 2),
            ("training/gpt/bfloat16", 1.5, 1.5),
            ("training/mlp/bfloat16", 1.5, 1.5),
            ("training/*/float16", 1.0, 1.0),
        ],
    ),
    ("x torch CPU's memory", memory, "≤", [("training/*/float32", 1.15, 1.15)]),
    ("µs more than torch CPU", beyond_cpu, "≤", [("overhead/add_16_enqueue", 6.0, 6.0)]),
    ("ms", milliseconds, "≤", [("start/warm", 5e3, 5e3), ("start/cold", 60e3, 60e3)]),
]


def environment() -> dict[str, object]:
    """Device, driver, machine, versions."""
    device = torch.netcl.get_device_properties("netcl")
    flags = ""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as f:
            flags = next((line for line in f if line.startswith("flags")), "")
    known = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8")
    return {
        "device": device.name,
        "platform": device.platform_name,
        "driver": device.driver_version,
        "units": device.max_compute_units,
        "cores": os.cpu_count(),
        "threads of torch CPU": torch.get_num_threads(),
        COPY: round(roofline.copy_bandwidth() * 1e-9, 1),
        FMA: round(roofline.peak_flops() * 1e-9),
        "instructions": [name for name in known if name in flags.split()],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": date.today().isoformat(),
    }


def write(args: argparse.Namespace, text: str, facts: dict[str, object], **content: object) -> None:
    """Prints the page, and writes the files that the options of harness.add_options ask for."""
    print(text)
    if args.markdown:
        args.markdown.write_text(text)
    if args.json:
        args.json.write_text(json.dumps({"environment": facts, **content}, indent=1) + "\n")


def seconds(value: float) -> str:
    """A time with three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def verdicts(result: Result, run: Run) -> list[tuple[str, bool]]:
    """Each target of the case, as text, and whether it is met."""
    found = []
    for unit, measure, sign, limits in TARGETS:
        limit = next((row[1 + run.pocl] for row in limits if fnmatch.fnmatch(result.name, row[0])), None)
        value = None if limit is None else measure(result, run)
        if value is None:
            continue
        limit = limit(run) if callable(limit) else limit
        met = value >= limit if sign == "≥" else value <= limit
        found.append((f"{value:.3g} {unit} ({sign} {limit:g}{'' if met else ': missed'})", met))
    return found


def rate(value: float, most: object) -> str:
    """A rate, and its share of the device's peak; empty if the case does not count it."""
    return f"{value:.3g} ({value / float(str(most)):.0%})" if value else ""


def markdown(results: list[Result], facts: dict[str, object], baseline: dict[str, float] | None = None) -> str:
    """A table of all results; `baseline` maps names to netcl's seconds in an earlier run."""
    run = Run(facts)
    lines = [f"# {facts['device']}, {facts['platform']}", ""]
    lines += [f"- {key}: {', '.join(value) if isinstance(value, list) else value}" for key, value in facts.items()]
    lines += [
        "",
        "Medians, ± half the distance between the quartiles. Ratio: torch CPU's time over netcl's; above 1, netcl is",
        "faster. GB/s and GFLOP/s: least bytes and operations of a call over its time, and their part of the measured",
        "copy and multiply-adds (more than 100 % of a copy: in cache). What moves 16 MiB or more and computes little",
        "is timed in turn with a copy, the one it is then compared with. Peak: device memory in use at once.",
        "",
        "TARGETS",
        "",
    ]
    head = ["case", "netcl", "torch CPU", "ratio", "targets", "GB/s", "GFLOP/s", "launches", "peak"]
    if baseline:
        head.append("before / now")
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    count = met = 0
    for r in results:
        judged = verdicts(r, run)
        count += len(judged)
        met += sum(ok for _, ok in judged)
        row = [
            r.name + (" (on the host: " + ", ".join(r.fallbacks) + ")" if r.fallbacks else ""),
            f"{seconds(r.netcl.seconds)} ± {r.netcl.spread:.0%}",
            f"{seconds(r.cpu.seconds)} ± {r.cpu.spread:.0%}" if r.cpu else "",
            f"{r.ratio:.2f}" if r.ratio else "",
            "; ".join(text for text, _ in judged),
            rate(r.bytes / r.netcl.seconds * 1e-9, copy_rate(r, run) * 1e-9),
            rate(r.flops / r.netcl.seconds * 1e-9, facts[FMA]),
            f"{r.launches:g}",
            f"{r.peak_bytes / 2**20:.1f} MiB",
        ]
        if baseline:
            row.append(f"{baseline[r.name] / r.netcl.seconds:.2f}" if r.name in baseline else "")
        lines.append("| " + " | ".join(row) + " |")
    lines[lines.index("TARGETS")] = f"Targets: {met} of {count} met."
    return "\n".join(lines) + "\n"
