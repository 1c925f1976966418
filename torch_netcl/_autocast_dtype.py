"""``torch.get_autocast_dtype("netcl")``, told right from the first call on.

PyTorch starts each thread with float16 and has no hook for a backend whose devices have none. The dtype is lowered at
the first use of a device (amp/autocast_mode.py), and here before it is told.
"""

from __future__ import annotations

import torch

from ._hidden_frames import hide_from_dynamo

of_thread = torch.get_autocast_dtype  # PyTorch's own


def get_autocast_dtype(device_type: str) -> torch.dtype:
    """``torch.get_autocast_dtype``."""
    if device_type == "netcl":
        torch.netcl.amp.autocast_mode.set_default_dtype()
    return of_thread(device_type)


def register() -> None:
    """Replaces PyTorch's function. torch.compile calls it and keeps the result, as it does with the original."""
    get_autocast_dtype._dynamo_marked_constant = True  # type: ignore[attr-defined]
    hide_from_dynamo([get_autocast_dtype])
    torch.get_autocast_dtype = get_autocast_dtype
