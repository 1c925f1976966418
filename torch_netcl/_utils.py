"""The functions that torch expects in ``torch.netcl._utils``."""

from __future__ import annotations

import torch

from .device import DeviceLike, device_index


def _get_device_index(device: DeviceLike, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of a device, as in torch.cuda: -1 for the CPU if `allow_cpu`, the current device for a device without
    an index if `optional`. Raises ValueError otherwise."""
    if isinstance(device, str):
        device = torch.device(device)
    if allow_cpu and isinstance(device, torch.device) and device.type == "cpu":
        return -1
    if not optional and (device is None or (isinstance(device, torch.device) and device.index is None)):
        raise ValueError(f"Expected a netcl device with a specified index or an integer, but got: {device}")
    return device_index(device)
