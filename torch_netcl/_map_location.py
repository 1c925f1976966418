"""``torch.load(map_location="netcl")`` of tensors that hold others, such as torchao's.

PyTorch gives such a tensor the device as it was named, while the tensors inside are on "netcl:0". What copies or
detaches it then meets two devices.
"""

from __future__ import annotations

from typing import Any

import torch

from .device import device_index

of_torch = torch._utils._get_restore_location  # PyTorch's own


def _get_restore_location(device: Any) -> Any:
    found = of_torch(device)
    if str(found) != "netcl":
        return found
    return torch.device("netcl", device_index())


def register() -> None:
    """Replaces PyTorch's function."""
    torch._utils._get_restore_location = _get_restore_location
