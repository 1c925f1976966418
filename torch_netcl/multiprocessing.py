"""netcl tensors in torch.multiprocessing's queues, pipes and arguments: they are copied through shared host memory.

OpenCL cannot share device memory between processes, so the receiver gets a new tensor on the device with the same
index. Writes on one side are not visible on the other.
"""

from __future__ import annotations

from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

__all__ = ["register"]


def _rebuild(cls: type, host: torch.Tensor, index: int, requires_grad: bool) -> torch.Tensor:
    tensor = host.to(torch.device("netcl", index))
    if issubclass(cls, torch.nn.Parameter):
        return cls(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def _reduce(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.device.type != "netcl":
        return reductions.reduce_tensor(tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "A netcl tensor that requires grad and is no leaf cannot be sent to another process, since autograd does "
            "not cross processes; send tensor.detach()"
        )
    host = tensor.detach().cpu()
    if (child := get_spawning_popen()) is not None:  # the file of the shared memory must be open when the child starts
        vars(child).setdefault("netcl_arguments", []).append(host)
    return _rebuild, (type(tensor), host, tensor.device.index, tensor.requires_grad)


def register() -> None:
    """Register the reduction of netcl tensors with multiprocessing's pickler."""
    for cls in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(cls, _reduce)
