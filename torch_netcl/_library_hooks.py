"""Small changes to libraries that choose among the devices they know, applied after their import.

If netcl is torch's accelerator, a library that would fall back to the CPU takes netcl instead; a GPU that the library
finds itself stays its choice, and so does a device that the program names. docs/libraries.md lists the hooks and says
why each is needed. ``NETCL_LIBRARY_HOOKS=0`` switches all of them off.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from ._after_import import after_import


def netcl_is_accelerator() -> bool:
    """Whether netcl is torch's accelerator and has a device."""
    accelerator = torch.accelerator.current_accelerator()
    return accelerator is not None and accelerator.type == "netcl" and torch.netcl.is_available()


def _instead_of_cpu(found: Any) -> Any:
    """netcl instead of the CPU, as a name or a device; what else a library has found stays."""
    if str(found) != "cpu" or not netcl_is_accelerator():
        return found
    return "netcl" if isinstance(found, str) else torch.device("netcl", torch.netcl.current_device())


def wrap(owner: Any, name: str, wrapper: Callable) -> None:
    """Replaces ``owner.name`` by a function that calls ``wrapper(original, *arguments)``."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    setattr(owner, name, replaced)


def _accelerate(module: ModuleType) -> None:
    default = module.PartialState.default_device.fget
    module.PartialState.default_device = property(lambda self: _instead_of_cpu(default(self)), doc=default.__doc__)


def _transformers(module: ModuleType) -> None:
    wrap(module, "is_torch_bf16_gpu_available", lambda original: original() or netcl_is_accelerator())


def _training_arguments(module: ModuleType) -> None:
    find = module.TrainingArguments._setup_devices  # a cached_property

    def setup(original: Callable, self: Any) -> torch.device:
        found, state = original(self), self.distributed_state
        return state.device if found.type == "cpu" and state is not None and state.device.type == "netcl" else found

    wrap(find, "func", setup)


def _sentence_transformers(module: ModuleType) -> None:
    if module.get_device_name.__module__ == module.__name__:  # defined here, not imported
        wrap(module, "get_device_name", lambda original: _instead_of_cpu(original()))


def _stable_baselines3(module: ModuleType) -> None:
    def get_device(original: Callable, device: Any = "auto") -> torch.device:
        found = original(device)
        return _instead_of_cpu(found) if isinstance(device, str) and device == "auto" else found

    wrap(module, "get_device", get_device)


def _fastai(module: ModuleType) -> None:
    def default_device(original: Callable, use: Any = -1) -> torch.device:
        found = original(use)
        # `use` is True, False, or -1 for what was said before; False, now or before, means the CPU.
        return found if use is False or module.defaults.use_cuda is False else _instead_of_cpu(found)

    wrap(module, "default_device", default_device)


def _fastai_fp16(module: ModuleType) -> None:
    def before_fit(original: Callable, self: Any) -> None:
        if torch.device(getattr(self.learn.dls, "device", None) or "cpu").type != "netcl":
            return original(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no CUDA
            original(self)
        dtype = self.autocast.fast_dtype
        self.autocast = torch.autocast("netcl", dtype=dtype)
        self.learn.scaler = torch.amp.GradScaler("netcl", **{"enabled": dtype == torch.float16, **self.kwargs})

    wrap(module.MixedPrecision, "before_fit", before_fit)


def _ultralytics(module: ModuleType) -> None:
    def select_device(original: Callable, device: Any = "", *args: Any, **kwargs: Any) -> torch.device:
        found = original(device, *args, **kwargs)  # a device, or "tpu:0" and the like as they are given
        if device in ("", None, "auto") and found == torch.device("cpu") and netcl_is_accelerator():
            warnings.warn("ultralytics runs on the CPU: its trainer and predictor know no device netcl", stacklevel=3)
        return found

    wrap(module, "select_device", select_device)


def _lightning(module: ModuleType) -> None:
    import_module("torch_netcl._lightning").hook(module)


def _grad_scaler(module: ModuleType) -> None:
    def check(original: Callable, self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        original(self, device, *args, **kwargs)
        enabled = kwargs.get("enabled", args[4] if len(args) > 4 else True)
        if device == "cuda" and enabled and not self._enabled and netcl_is_accelerator():
            text = 'this GradScaler is for CUDA and does nothing: use torch.amp.GradScaler("netcl")'
            warnings.warn(text, stacklevel=3)

    wrap(module.GradScaler, "__init__", check)


#: The hooks: the module after whose import each runs.
HOOKS: dict[str, Callable[[ModuleType], None]] = {
    "accelerate.state": _accelerate,
    "fastai.torch_core": _fastai,
    "fastai.callback.fp16": _fastai_fp16,
    "lightning.fabric.connector": _lightning,
    "lightning.pytorch.trainer.connectors.accelerator_connector": _lightning,
    "lightning_fabric.connector": _lightning,
    "pytorch_lightning.trainer.connectors.accelerator_connector": _lightning,
    "sentence_transformers.util": _sentence_transformers,
    "sentence_transformers.util.environment": _sentence_transformers,
    "stable_baselines3.common.utils": _stable_baselines3,
    "torch.amp.grad_scaler": _grad_scaler,
    "transformers.training_args": _training_arguments,
    "transformers.utils.import_utils": _transformers,
    "ultralytics.utils.torch_utils": _ultralytics,
}


def _run(name: str) -> None:
    try:
        HOOKS[name](sys.modules[name])
    except Exception as error:  # noqa: BLE001 - another version of the library must not fail to import
        library = name.partition(".")[0]
        warnings.warn(f"torch_netcl does not know this {library} ({error!r}): it may run on the CPU", stacklevel=2)


def register() -> None:
    """Waits for the libraries, unless NETCL_LIBRARY_HOOKS is 0."""
    if os.environ.get("NETCL_LIBRARY_HOOKS", "1") != "0":
        for name in HOOKS:
            after_import(name, functools.partial(_run, name))
