"""Shared by torch_netcl.lightning and torch_netcl.pytorch_lightning: Lightning exists under two package names."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from ._library_hooks import netcl_is_accelerator, wrap


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


class Watch:
    """A callback that logs ``amp/scale`` and ``amp/skipped`` (0 or 1) of each step.

    ``skips`` lists the steps whose gradients held an Inf or a NaN, each with its :class:`torch_netcl.amp.Blame`. It
    waits for the device once a step.
    """

    def __init__(self) -> None:
        self.skips: list[tuple[int, list[Any]]] = []
        self._skipped = False

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        """Looks at the gradients."""
        found = torch.netcl.amp.blame(module)
        self._skipped = bool(found)
        if found:
            self.skips.append((trainer.global_step, found))

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        """Logs the scale that the next step has, and whether this one was skipped."""
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if scaler is not None:
            module.log_dict({"amp/scale": scaler.get_scale(), "amp/skipped": float(self._skipped)})


def define(package: str, module: str) -> tuple[type, Callable, type]:
    """NetclAccelerator, netcl_strategy and AmpCallback of `module`, for the classes of Lightning in `package`.

    A Trainer takes only those of its own package. They are modelled on Lightning's ``Accelerator`` and
    ``SingleDeviceStrategy``.
    """
    import_module(package)  # in which the hook may define them
    return _classes(package, module)


@functools.cache
def _classes(package: str, module: str) -> tuple[type, Callable, type]:
    base = import_module(f"{package}.accelerators").Accelerator
    single_device = import_module(f"{package}.strategies").SingleDeviceStrategy
    plugins = import_module(f"{package}.plugins.precision")
    accelerator = type("NetclAccelerator", (Devices, base), {"__module__": module, "__doc__": Devices.__doc__})

    def netcl_strategy(device: int = 0, dtype: torch.dtype | None = None) -> Any:
        """A ``SingleDeviceStrategy`` that trains under autocast in `dtype`, for ``Trainer(strategy=…)``.

        `dtype` is float16 (the loss is then scaled by ``torch.amp.GradScaler("netcl")``), bfloat16, float32 (no
        autocast), or None: what the Trainer's ``precision`` says, and without it the first of
        ``torch.netcl.amp.autocast_dtypes(device)``. ValueError for another dtype, or if the device does not exist.
        """
        plugin = precision(plugins, device, dtype)
        strategy = single_device(torch.device("netcl", device), accelerator=accelerator(), precision_plugin=plugin)
        strategy._netcl_dtype = dtype
        return strategy

    netcl_strategy.__module__, netcl_strategy.__qualname__ = module, "netcl_strategy"  # as pickle finds it
    base = import_module(f"{package}.callbacks").Callback
    callback = type("AmpCallback", (Watch, base), {"__module__": module, "__doc__": Watch.__doc__})
    return accelerator, netcl_strategy, callback


def _mixed_precision(module: ModuleType, flag: str) -> Any:
    """Lightning's own plugin for "16-mixed" or "bf16-mixed", for netcl instead of CUDA."""
    if flag == "16-mixed" and torch.float16 not in torch.netcl.amp.autocast_dtypes():
        text = "16-mixed: the device has no fp16, so bf16-mixed is used; NETCL_FP16=storage allows fp16"
        warnings.warn(text, stacklevel=2)
        flag = "bf16-mixed"
    scaler = torch.amp.GradScaler("netcl") if flag == "16-mixed" else None
    return module.MixedPrecision(flag, "netcl", scaler)


def hook(module: ModuleType) -> None:
    """Teaches the module in which a Trainer, or Fabric, chooses accelerator, strategy and precision about netcl."""
    package = module.__name__.partition(".")[0]
    if fabric := package == "lightning_fabric" or module.__name__.startswith("lightning.fabric"):
        connector, registry = module._Connector, module.ACCELERATOR_REGISTRY
        accelerator = type(f"NetclAccelerator_{package}", (Devices, module.Accelerator), {"__module__": __name__})
        globals()[accelerator.__name__] = accelerator  # where pickle looks for it
    else:
        connector, registry = module._AcceleratorConnector, module.AcceleratorRegistry
        accelerator = _classes(module.__name__.partition(".trainer.")[0], f"torch_netcl.{package}")[0]
    registry.register("netcl", accelerator, description="OpenCL devices (torch_netcl)", override=True)
    choose_auto = connector._choose_auto_accelerator

    def auto() -> str:
        found = choose_auto()
        return "netcl" if found == "cpu" and netcl_is_accelerator() else found

    def strategy(original: Callable, self: Any) -> Any:
        chosen = original(self)
        if isinstance(self.accelerator, Devices) and isinstance(chosen, module.SingleDeviceStrategy):
            return module.SingleDeviceStrategy(device=self._parallel_devices[0])  # Lightning says "cpu" here
        return chosen

    def precision(original: Callable, self: Any) -> Any:
        flag, given = (self._precision_input, self._precision_instance) if fabric else (
            self._precision_flag, self._precision_plugin_flag)
        mixed = given is None and flag in ("16-mixed", "bf16-mixed") and isinstance(self.accelerator, Devices)
        return _mixed_precision(module, flag) if mixed else original(self)

    def check(original: Callable, self: Any, *args: Any, **kwargs: Any) -> None:
        chosen = kwargs.get("strategy")
        if kwargs.get("precision") is not None and hasattr(chosen, "_netcl_dtype"):
            if chosen._netcl_dtype is not None:
                raise ValueError(f"netcl_strategy(dtype={chosen._netcl_dtype}) and precision={kwargs['precision']!r}: "
                                 "give one of them")
            chosen._precision_plugin = None
        original(self, *args, **kwargs)

    connector._choose_auto_accelerator = staticmethod(auto)
    wrap(connector, "_choose_strategy", strategy)
    wrap(connector, "_check_and_init_precision", precision)
    wrap(connector, "_check_config_and_set_final_flags", check)
