"""Device memory: statistics and control of the caching allocator. Names and meanings are those of ``torch.cuda``."""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import deprecated

from .device import DeviceLike, device_index

__all__ = [
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "ipc_collect",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]


def empty_cache() -> None:
    """Returns cached, unused memory to the driver."""
    torch._C._accelerator_emptyCache()


def memory_stats(device: DeviceLike = None) -> dict[str, Any]:
    """The allocator's statistics as a flat dict, with keys such as "allocated_bytes.all.current". Sizes are in bytes.
    """
    flat: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for k, v in value.items():
                walk(f"{prefix}.{k}" if prefix else k, v)
        else:
            flat[prefix] = value

    walk("", torch._C._accelerator_getDeviceStats(device_index(device)))
    return flat


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """The statistics of :func:`memory_stats`, as nested dicts."""
    return torch._C._accelerator_getDeviceStats(device_index(device))


def memory_snapshot(device: DeviceLike = None) -> list[dict[str, Any]]:
    """The allocator's segments (``cl_mem`` objects) and their blocks, in the format of torch.cuda, for one device.

    Each segment has address, total_size, allocated_size, active_size, device, stream, segment_type and blocks. A
    block has address, size, requested_size and state ("active_allocated", "active_awaiting_free" or "inactive").
    Sizes are in bytes. Unlike torch.cuda's, the snapshot is of one device (default: the current one).
    """
    index = device_index(device)
    states = ("active_allocated", "active_awaiting_free", "inactive")
    segments: dict[int, dict[str, Any]] = {}
    for base, total, address, size, requested, stream, state in torch.ops.netcl.memory_snapshot(index):
        segment = segments.setdefault(
            base,
            {
                "device": index,
                "address": base,
                "total_size": total,
                "allocated_size": 0,
                "active_size": 0,
                "stream": stream,
                "segment_type": "small" if total <= 2 << 20 else "large",
                "blocks": [],
            },
        )
        segment["allocated_size"] += size if state == 0 else 0
        segment["active_size"] += size if state < 2 else 0
        block = {"address": address, "size": size, "requested_size": requested, "state": states[state]}
        segment["blocks"].append(block)
    return list(segments.values())


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes held by tensors."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes that tensors held since the start or the last :func:`reset_peak_memory_stats`."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes taken from the driver."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes taken from the driver since the start or the last :func:`reset_peak_memory_stats`."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Starts the peaks again from the current values."""
    torch._C._accelerator_resetPeakStats(device_index(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Starts the accumulated statistics again from 0."""
    torch._C._accelerator_resetAccumulatedStats(device_index(device))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) in bytes. OpenCL tells only the total, so free is the total minus what this process has reserved.
    """
    return torch._C._accelerator_getMemoryInfo(device_index(device))


def get_allocator_backend() -> str:
    """"native": there is no other allocator than PyTorch's caching one."""
    return "native"


def ipc_collect() -> None:
    """Does nothing: OpenCL shares no memory between processes, so there is none to collect."""


@deprecated("torch.netcl.memory_cached is called memory_reserved", category=FutureWarning)
def memory_cached(device: DeviceLike = None) -> int:
    """Deprecated, as in torch.cuda: :func:`memory_reserved`."""
    return memory_reserved(device)


@deprecated("torch.netcl.max_memory_cached is called max_memory_reserved", category=FutureWarning)
def max_memory_cached(device: DeviceLike = None) -> int:
    """Deprecated, as in torch.cuda: :func:`max_memory_reserved`."""
    return max_memory_reserved(device)


@deprecated("use torch.netcl.reset_peak_memory_stats, which resets all peaks", category=FutureWarning)
def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """Deprecated, as in torch.cuda: :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


@deprecated("use torch.netcl.reset_peak_memory_stats, which resets all peaks", category=FutureWarning)
def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """Deprecated, as in torch.cuda: :func:`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


_fractions: dict[int, float] = {}


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limits reserved memory to this fraction, in (0, 1], of the device's memory; more raises torch.OutOfMemoryError.
    """
    index = device_index(device)
    torch.ops.netcl.set_memory_fraction(index, float(fraction))
    _fractions[index] = float(fraction)


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """The fraction that :func:`set_per_process_memory_fraction` set; initially 1.0."""
    return _fractions.get(device_index(device), 1.0)


def memory_summary(device: DeviceLike = None) -> str:
    """A printable table of the allocator's statistics."""
    stats = memory_stats(device)
    rows = [("", "current", "peak", "allocated", "freed")]
    for title in ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes", "allocation", "segment"):
        values = [stats.get(f"{title}.all.{k}", 0) for k in ("current", "peak", "allocated", "freed")]
        rows.append((title, *(f"{v:,}" for v in values)))
    widths = [max(len(r[i]) for r in rows) for i in range(5)]
    head = f"netcl:{device_index(device)} memory"
    lines = [
        "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    return "\n".join([head, *lines])
