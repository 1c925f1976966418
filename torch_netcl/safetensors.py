"""Loads safetensors files directly to a device. The package's own ``load_file`` refuses devices that are not on its
list."""

from __future__ import annotations

import os

import torch


def load_file(filename: str | os.PathLike[str], device: torch.device | str = "netcl") -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, by name, on `device`.

    It works like ``safetensors.torch.load_file(filename, device=device)``: the file is mapped into memory, and each
    tensor is copied once, from there to the device. Shapes and dtypes are those of the file. Raises ImportError
    without the package safetensors, FileNotFoundError, and ``safetensors.SafetensorError`` for a file in another
    format.
    """
    from safetensors import safe_open

    with safe_open(os.fspath(filename), framework="pt", device="cpu") as file:
        return {name: file.get_tensor(name).to(device) for name in file.keys()}  # noqa: SIM118 (no mapping)
