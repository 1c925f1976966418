"""Shared by torch_netcl.lightning and torch_netcl.pytorch_lightning: Lightning exists under two package names."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch


class Devices:
    """The methods that Lightning requires of an ``Accelerator``, for OpenCL devices by their indices."""

    def setup_device(self, device: torch.device) -> None:
        """Make `device` current; ValueError if it is not a netcl device."""
        if device.type != "netcl":
            raise ValueError(f"NetclAccelerator wants a netcl device, not {device}")
        torch.netcl.set_device(device)

    def teardown(self) -> None:
        """Return cached memory to the driver."""
        torch.netcl.empty_cache()

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, Any]:
        """``torch.netcl.memory_stats(device)``, in bytes and counts."""
        return dict(torch.netcl.memory_stats(device))

    @staticmethod
    def parse_devices(devices: int | str | list[int]) -> list[int]:
        """The indices of devices from a count, a list, or text such as "0,1"; -1 means all devices."""
        if isinstance(devices, str):
            parts = [int(part) for part in devices.split(",") if part.strip()]
            devices = parts if "," in devices else parts[0]
        if isinstance(devices, int):
            return list(range(torch.netcl.device_count() if devices == -1 else devices))
        return list(devices)

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        """The ``torch.device`` of each index."""
        return [torch.device("netcl", i) for i in devices]

    @staticmethod
    def auto_device_count() -> int:
        """The number of devices for ``devices="auto"``: one, since the others may be slower, or the same CPU again."""
        return min(1, torch.netcl.device_count())

    @staticmethod
    def is_available() -> bool:
        """Whether there is an OpenCL device."""
        return torch.netcl.is_available()

    @staticmethod
    def name() -> str:
        """The accelerator's name in Lightning's messages."""
        return "netcl"


def precision(plugins: ModuleType, device: int, dtype: torch.dtype | None) -> Any:
    """The plugin for `dtype`, or for the best dtype that the device has."""
    count = torch.netcl.device_count()
    if not 0 <= device < count:
        raise ValueError(f"device {device}: there are {count} netcl devices; `python -m torch_netcl` lists them")
    if dtype is None:
        dtype = torch.netcl.amp.autocast_dtypes(device)[0]
    if dtype == torch.float32:
        return plugins.Precision()
    if dtype == torch.bfloat16:
        return plugins.MixedPrecision("bf16-mixed", "netcl")
    if dtype == torch.float16:
        return plugins.MixedPrecision("16-mixed", "netcl", scaler=torch.amp.GradScaler("netcl"))
    raise ValueError(f"dtype {dtype}: choose torch.float16, torch.bfloat16 or torch.float32")


def define(package: str, module: str) -> tuple[type, Callable]:
    """NetclAccelerator and netcl_strategy of `module`, for the classes of Lightning in `package`.

    A Trainer takes only those of its own package. They are modelled on Lightning's ``Accelerator`` and
    ``SingleDeviceStrategy``.
    """
    base = import_module(f"{package}.accelerators").Accelerator
    single_device = import_module(f"{package}.strategies").SingleDeviceStrategy
    plugins = import_module(f"{package}.plugins.precision")
    accelerator = type("NetclAccelerator", (Devices, base), {"__module__": module, "__doc__": Devices.__doc__})

    def netcl_strategy(device: int = 0, dtype: torch.dtype | None = None) -> Any:
        """A ``SingleDeviceStrategy`` that trains under autocast in `dtype`, for ``Trainer(strategy=…)``.

        `dtype` is float16 (the loss is then scaled by ``torch.amp.GradScaler("netcl")``), bfloat16, float32 (no
        autocast), or None: the first of ``torch.netcl.amp.autocast_dtypes(device)``. Lightning's own
        ``precision="bf16-mixed"`` and ``"16-mixed"`` mean CUDA. ValueError for another dtype, or if the device does
        not exist.
        """
        plugin = precision(plugins, device, dtype)
        return single_device(torch.device("netcl", device), accelerator=accelerator(), precision_plugin=plugin)

    netcl_strategy.__module__, netcl_strategy.__qualname__ = module, "netcl_strategy"  # as pickle finds it
    return accelerator, netcl_strategy
