"""Devices: their number, the current one, and their properties. Names and meanings are those of ``torch.cuda``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

__all__ = [
    "DeviceProperties",
    "can_device_access_peer",
    "cpu_fallback_ops",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_arch_list",
    "get_cpu_fallback_mode",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "get_sync_debug_mode",
    "has_half",
    "has_magma",
    "host_sync_count",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "kernel_cache_stats",
    "launch_count",
    "reset_cpu_fallback_ops",
    "set_cpu_fallback_mode",
    "set_device",
    "set_sync_debug_mode",
    "synchronize",
]

_netcl = torch.ops.netcl

DeviceLike = torch.device | str | int | None


def device_index(device: DeviceLike = None) -> int:
    """The index of `device`, which may be a device, an index, or None (the current one). Raises ValueError for other
    devices."""
    if device is None:
        return current_device()
    if isinstance(device, int) and not isinstance(device, bool):
        return current_device() if device < 0 else device
    device = torch.device(device)
    if device.type != "netcl":
        raise ValueError(f"Expected a netcl device, but got: {device}")
    return current_device() if device.index is None else device.index


def is_available() -> bool:
    """True if an OpenCL loader and at least one device were found. Never raises."""
    return device_count() > 0


def is_initialized() -> bool:
    """True once this process has used a device. From then on a forked child can use none."""
    return _netcl.is_started() and not _is_in_bad_fork()


def init() -> None:
    """Looks for devices now instead of at their first use. Raises RuntimeError if there is none, or in a child that
    was forked from a process that had used one."""
    _netcl.start()


def device_count() -> int:
    """The number of visible devices (see NETCL_VISIBLE_DEVICES); 0 if there is none. Until a device is used, a child
    process counts them, so that processes forked later can use them."""
    return _netcl.device_count()


def current_device() -> int:
    """The index of the current device."""
    return torch._C._accelerator_getDeviceIndex()


def set_device(device: DeviceLike) -> None:
    """Makes `device` current. Raises RuntimeError if the index does not exist."""
    index = device_index(device)
    if index >= 0:
        torch._C._accelerator_setDeviceIndex(index)


class device:
    """Context manager that makes a device current and restores the previous one. A negative index does nothing."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if isinstance(device, int) and device < 0 else device_index(device)
        self.prev_idx = -1

    def __enter__(self) -> device:
        self.prev_idx = current_device()
        if self.idx >= 0:
            set_device(self.idx)
        return self

    def __exit__(self, *args: object) -> None:
        set_device(self.prev_idx)


class device_of(device):
    """Context manager that makes the device of a tensor current; does nothing for tensors on other types of devices."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device.index if tensor.device.type == "netcl" else -1)


@dataclass(frozen=True)
class DeviceProperties:
    """The properties that an OpenCL device reports. Sizes are in bytes."""

    name: str
    vendor: str
    version: str
    driver_version: str
    platform_name: str
    platform_version: str
    device_type: str  # "cpu", "gpu" or "accelerator"
    device_class: str  # the class of kernels that it gets: "cpu" or "gpu"
    extensions: tuple[str, ...]
    has_fp16: bool  # cl_khr_fp16
    has_fp64: bool  # cl_khr_fp64
    has_int64_atomics: bool
    has_subgroups: bool
    host_unified_memory: bool
    global_mem_size: int
    max_mem_alloc_size: int
    local_mem_size: int
    max_compute_units: int
    max_work_group_size: int
    cl_device_id: int  # the handle, for interop

    @property
    def supports_fp16(self) -> bool:
        """The same as has_fp16."""
        return self.has_fp16

    @property
    def total_memory(self) -> int:
        """The same as global_mem_size, under torch.cuda's name."""
        return self.global_mem_size

    @property
    def multi_processor_count(self) -> int:
        """The same as max_compute_units, under torch.cuda's name."""
        return self.max_compute_units

    @property
    def max_threads_per_multi_processor(self) -> int:
        """The number by which Inductor divides reductions: 2048, as on most GPUs, since OpenCL does not tell."""
        return 2048

    @property
    def warp_size(self) -> int:
        """The number of lanes that Inductor assumes to run together: 32."""
        return 32


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """The properties of a device (default: the current one)."""
    index = device_index(device)
    strings: dict[str, Any] = dict(_netcl.device_strings(index))
    numbers: dict[str, Any] = dict(_netcl.device_numbers(index))
    strings["extensions"] = tuple(strings["extensions"].split())
    for name in [n for n in numbers if n.startswith("has_") or n == "host_unified_memory"]:
        numbers[name] = bool(numbers[name])
    return DeviceProperties(**strings, **numbers)


def get_device_name(device: DeviceLike = None) -> str:
    """The name of a device."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """The OpenCL version of a device as (major, minor)."""
    major, minor = get_device_properties(device).version.split()[1].split(".")[:2]
    return int(major), int(minor)


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """False: OpenCL devices cannot access each other's memory, so copies between them go through the host."""
    for each in (device, peer_device):
        get_device_properties(each)
    return False


def synchronize(device: DeviceLike = None) -> None:
    """Waits for all streams of a device, and raises errors that its kernels have reported since the last wait."""
    torch._C._accelerator_synchronizeDevice(device_index(device))


def _is_in_bad_fork() -> bool:
    """True in a child that was forked from a process that had used netcl; torch.manual_seed then does not seed netcl.
    """
    return _netcl.in_bad_fork()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: every device stores bfloat16 and computes it in float32."""
    return including_emulation


#: As in torch.cuda: float16 tensors exist on every device.
has_half = True
#: As in torch.cuda: there is no MAGMA.
has_magma = False


def get_arch_list() -> list[str]:
    """[]: kernels are compiled for the device at hand when they are first used, and for none beforehand."""
    return []


def get_gencode_flags() -> str:
    """"", as :func:`get_arch_list` is empty."""
    return ""


# --- counters -----------------------------------------------------------------------------------------------


def cpu_fallback_ops() -> dict[str, int]:
    """The operators that ran on the CPU since the last reset because they have no kernel, with the number of calls."""
    return dict(_netcl.cpu_fallback_ops())


def reset_cpu_fallback_ops() -> None:
    """Forgets the counts of :func:`cpu_fallback_ops`."""
    _netcl.reset_cpu_fallback_ops()


def get_cpu_fallback_mode() -> str:
    """The mode that :func:`set_cpu_fallback_mode` set: "warn", "error" or "silent"."""
    return _netcl.cpu_fallback_mode()


def set_cpu_fallback_mode(mode: str) -> None:
    """Sets what happens if an operator has no kernel: "warn" (once per operator), "error" or "silent".

    The environment variable NETCL_CPU_FALLBACK gives the initial mode. Raises ValueError for another word.
    """
    _netcl.set_cpu_fallback_mode(mode)


def host_sync_count() -> int:
    """How often this process has waited for a device so far."""
    return _netcl.host_sync_count()


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Sets what happens if an operator makes the host wait for a device.

    These do: copies to the host (``item()``, ``cpu()``, ``tolist()``), operators with an output whose size depends on
    values (``nonzero``, indexing by a mask), copies of more than 1 MiB from pageable memory, copies between devices.

    Args:
        debug_mode: 0 or "default": nothing happens. 1 or "warn": a warning names the operator, and the line of the
            program; ``warnings.simplefilter("always")`` shows it every time. 2 or "error": RuntimeError, and nothing
            is read or written.

    The mode is the process's. ``synchronize()`` of a device, stream or event may always wait, and so may a copy to a
    device that waits only because other streams are in use.

    Raises:
        RuntimeError: another mode.
    """
    modes = {"default": 0, "warn": 1, "error": 2}
    mode = modes.get(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if mode not in modes.values():
        raise RuntimeError(f"invalid debug_mode {debug_mode!r}: expected 0 or 'default', 1 or 'warn', 2 or 'error'")
    _netcl.set_sync_debug_mode(mode)


def get_sync_debug_mode() -> int:
    """The mode that :func:`set_sync_debug_mode` set, as a number."""
    return _netcl.sync_debug_mode()


def launch_count() -> int:
    """How many kernels this process has launched so far."""
    return _netcl.launch_count()


def kernel_cache_stats() -> dict[str, float]:
    """Counts of this process: programs compiled and loaded from disk, kernels found in memory.

    The keys are `compiled`, `disk_hits`, `memory_hits` and `compile_seconds`, the time spent in the compiler.
    """
    stats = dict(_netcl.kernel_cache_stats())
    return {k: v if k == "compile_seconds" else int(v) for k, v in stats.items()}
