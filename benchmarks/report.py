"""Tables of results, the targets they are held against, and the machine they were seen on."""

from __future__ import annotations

import fnmatch
import os
import platform
from datetime import date

import torch

from . import roofline
from .harness import Result

# (pattern of case names, ratio to torch CPU on Intel's runtime, on PoCL). The first that fits counts.
TARGETS = [
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
]
# Seconds: an absolute target.
ENQUEUE_SECONDS = 6e-6


def target(name: str, pocl: bool) -> float | None:
    """The ratio that a case is held to, if any."""
    for pattern, intel_ratio, pocl_ratio in TARGETS:
        if fnmatch.fnmatch(name, pattern):
            return pocl_ratio if pocl else intel_ratio
    return None


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
        "measured copy, GB/s": round(roofline.copy_bandwidth() * 1e-9, 1),
        "measured float32 multiply-adds, GFLOP/s": round(roofline.peak_flops() * 1e-9),
        "instructions": [name for name in known if name in flags.split()],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": date.today().isoformat(),
    }


def seconds(value: float) -> str:
    """Three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def verdict(result: Result, pocl: bool) -> str:
    """What the target is and whether it is met."""
    if result.name == "overhead/add_16":
        return f"≤ {seconds(ENQUEUE_SECONDS)}: {'met' if result.netcl.seconds <= ENQUEUE_SECONDS else 'missed'}"
    wanted = target(result.name, pocl)
    if wanted is None or result.ratio is None:
        return ""
    return f"≥ {wanted}: {'met' if result.ratio >= wanted else 'missed'}"


def rate(value: float, most: object) -> str:
    """A rate, and what part it is of the most that the device can do; nothing where a case counts none."""
    return f"{value:.3g} ({value / float(str(most)):.0%})" if value else ""


def markdown(results: list[Result], facts: dict[str, object], baseline: dict[str, float] | None = None) -> str:
    """A table of all results; `baseline` maps names to netcl's seconds in an earlier run."""
    pocl = "portable" in str(facts["platform"]).lower()
    lines = [f"# {facts['device']}, {facts['platform']}", ""]
    lines += [f"- {key}: {', '.join(value) if isinstance(value, list) else value}" for key, value in facts.items()]
    lines += [
        "",
        "Medians, ± half the distance between the quartiles. Ratio: torch CPU's time over netcl's; above 1, netcl is",
        "faster. GB/s and GFLOP/s: least bytes and operations of a call over its time, and their part of the measured",
        "copy and multiply-adds (more than 100 % of a copy: in cache). Peak: device memory in use at once.",
        "",
    ]
    head = ["case", "netcl", "torch CPU", "ratio", "target", "GB/s", "GFLOP/s", "launches", "peak"]
    if baseline:
        head.append("before / now")
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in results:
        row = [
            r.name + (" (on the host: " + ", ".join(r.fallbacks) + ")" if r.fallbacks else ""),
            f"{seconds(r.netcl.seconds)} ± {r.netcl.spread:.0%}",
            f"{seconds(r.cpu.seconds)} ± {r.cpu.spread:.0%}" if r.cpu else "",
            f"{r.ratio:.2f}" if r.ratio else "",
            verdict(r, pocl),
            rate(r.bytes / r.netcl.seconds * 1e-9, facts["measured copy, GB/s"]),
            rate(r.flops / r.netcl.seconds * 1e-9, facts["measured float32 multiply-adds, GFLOP/s"]),
            f"{r.launches:g}",
            f"{r.peak_bytes / 2**20:.1f} MiB",
        ]
        if baseline:
            row.append(f"{baseline[r.name] / r.netcl.seconds:.2f}" if r.name in baseline else "")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"
