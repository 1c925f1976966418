"""Mixed precision on netcl: the functions that ``torch.amp`` requires of a device, and short forms of its classes.

``torch.autocast("netcl", ...)`` and ``torch.amp.GradScaler("netcl")`` suffice; the classes here fill in the device
type, and the functions tell what a device supports. ``torch.netcl.amp`` is the same module.
``torch.netcl.amp.training`` has a whole training step.
"""

import importlib

import torch

from torch_netcl.amp.autocast_mode import (
    autocast,
    autocast_dtypes,
    autocast_enabled,
    device_profile,
    get_amp_supported_dtype,
    get_fp16_storage,
    is_autocast_enabled,
    maybe_cast_tensor,
    set_fp16_storage,
    supports_fp16,
)
from torch_netcl.amp.blame import Blame, blame
from torch_netcl.amp.detect_overflow import Overflow, detect_overflow
from torch_netcl.amp.explain import Explanation, explain
from torch_netcl.amp.grad_scaler import GradScaler
from torch_netcl.amp.master import MasterParams, master_param
from torch_netcl.amp.transactional import transactional

__all__ = [
    "Blame",
    "Explanation",
    "GradScaler",
    "MasterParams",
    "Overflow",
    "autocast",
    "autocast_dtypes",
    "autocast_enabled",
    "blame",
    "custom_bwd",
    "custom_fwd",
    "detect_overflow",
    "device_profile",
    "explain",
    "get_amp_supported_dtype",
    "get_fp16_storage",
    "is_autocast_enabled",
    "master_param",
    "maybe_cast_tensor",
    "set_fp16_storage",
    "supports_fp16",
    "transactional",
]


def __getattr__(name: str):
    # Imported at its first use, since few programs use it.
    if name == "training":
        return importlib.import_module("torch_netcl.amp.training")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _only_netcl(device_type: str) -> None:
    if device_type != "netcl":
        raise ValueError(f"torch.netcl.amp is for netcl; use torch.amp with device_type={device_type!r}")


def custom_fwd(fwd=None, *, device_type: str = "netcl", cast_inputs: torch.dtype | None = None):
    """``torch.amp.custom_fwd`` with ``device_type="netcl"``: decorates ``forward`` of an autograd function."""
    _only_netcl(device_type)
    return torch.amp.custom_fwd(fwd, device_type="netcl", cast_inputs=cast_inputs)


def custom_bwd(bwd=None, *, device_type: str = "netcl"):
    """``torch.amp.custom_bwd`` with ``device_type="netcl"``: decorates ``backward`` of an autograd function."""
    _only_netcl(device_type)
    return torch.amp.custom_bwd(bwd, device_type="netcl")
