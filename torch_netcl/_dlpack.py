"""``Tensor.__dlpack__(stream=...)`` of netcl tensors: PyTorch looks at the stream of CUDA tensors only."""

from __future__ import annotations

import functools
from typing import Any

import torch

of_torch = torch.Tensor.__dlpack__  # PyTorch's own


@functools.wraps(of_torch)
def __dlpack__(self: torch.Tensor, *, stream: Any = -1, **kwargs: Any) -> Any:  # noqa: N807
    capsule = of_torch(self, stream=stream, **kwargs)
    # A subclass with a function of its own has called this function for the tensor that it holds.
    if stream != -1 and self.device.type == "netcl" and not torch.overrides.has_torch_function_unary(self):
        consumer = torch.Stream(stream_id=stream or 0, device_index=self.device.index, device_type=20)
        consumer.wait_stream(torch.accelerator.current_stream(self.device))  # raises if there is no such stream
    return capsule


def register() -> None:
    """Replaces PyTorch's method."""
    torch.Tensor.__dlpack__ = __dlpack__  # type: ignore[method-assign]
