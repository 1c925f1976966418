"""The functions of torch._C that nn.DataParallel and torch.nn.parallel.comm call, for builds of torch without CUDA.

The copies go through the host. One process per device (nn.parallel.DistributedDataParallel) is faster.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors

from .device import current_device


def _at(index: int | None) -> torch.device:
    """The device of an index of torch.nn.parallel: -1 is the CPU, None the current device."""
    if index is None:
        index = current_device()
    return torch.device("cpu") if index < 0 else torch.device("netcl", index)


def _check_devices(tensor: torch.Tensor, devices: Sequence[int]) -> None:
    if not devices:
        raise RuntimeError("Expected at least one device to copy to")
    if tensor.is_netcl and tensor.device != _at(devices[0]):
        raise RuntimeError(
            f"Expected the first device to be that of the tensor, {tensor.device}, got {_at(devices[0])}"
        )


def _broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    _check_devices(tensor, devices)
    return [tensor.to(_at(d), non_blocking=True) for d in devices]


def _broadcast_out(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    for o in out:
        if o.shape != tensor.shape:
            raise RuntimeError(f"Expected all outputs to have the shape {tuple(tensor.shape)}, got {tuple(o.shape)}")
        o.copy_(tensor, non_blocking=True)
    return out


def _broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    for tensor in tensors:
        _check_devices(tensor, devices)
    copies: list[list[torch.Tensor]] = [list(tensors)]
    places = {id(t): i for i, t in enumerate(tensors)}
    for device in map(_at, devices[1:]):
        here: list[torch.Tensor] = [t.to(device) if t.is_sparse else t for t in tensors]
        for chunk in _take_tensors([t for t in tensors if not t.is_sparse], buffer_size):
            flat = _flatten_dense_tensors(chunk).to(device, non_blocking=True)
            for tensor, part in zip(chunk, _unflatten_dense_tensors(flat, chunk), strict=True):
                here[places[id(tensor)]] = part.data  # a new version counter, since parts share no elements
        copies.append(here)
    return copies


def _scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> list[torch.Tensor]:
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    if chunk_sizes is not None and len(chunk_sizes) != len(devices):
        raise RuntimeError(f"Expected as many chunk sizes as devices, got {len(chunk_sizes)} and {len(devices)}")
    chunks = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    out = []
    for i, chunk in enumerate(chunks):
        stream = streams[i] if streams is not None else None
        with torch.netcl.stream(stream):
            out.append(chunk.to(_at(devices[i]), non_blocking=True))
    return out


def _scatter_out(
    tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int, streams: Sequence[torch.Stream | None] | None
) -> Sequence[torch.Tensor]:
    for i, (o, chunk) in enumerate(zip(out, tensor.split([o.size(dim) for o in out], dim), strict=True)):
        with torch.netcl.stream(streams[i] if streams is not None else None):
            o.copy_(chunk, non_blocking=True)
    return out


def _gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None) -> torch.Tensor:
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    return torch.cat([t.to(_at(destination)) for t in tensors], dim)


def _gather_out(tensors: Sequence[torch.Tensor], out: torch.Tensor, dim: int) -> torch.Tensor:
    return out.copy_(torch.cat([t.to(out.device) for t in tensors], dim))


def register() -> None:
    """Puts the functions into torch._C, unless it has its own."""
    names = (
        "_broadcast",
        "_broadcast_out",
        "_broadcast_coalesced",
        "_scatter",
        "_scatter_out",
        "_gather",
        "_gather_out",
    )
    for name in names:
        if not hasattr(torch._C, name):
            setattr(torch._C, name, globals()[name])
