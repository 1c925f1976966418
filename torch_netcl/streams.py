"""Streams (in-order OpenCL queues) and events. Names and meanings are those of ``torch.cuda``."""

from __future__ import annotations

from typing import Any

import torch

from .device import DeviceLike, device_index

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "is_current_stream_capturing",
    "set_stream",
    "stream",
]


class Stream(torch.Stream):
    """An in-order OpenCL command queue of a device."""

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **kwargs: Any) -> Stream:
        """A stream from the pool of `device` (default: the current one)."""
        if kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, torch.device("netcl", device_index(device)), priority=priority)


def Event(enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
    """A marker in a stream, with record, wait, query and synchronize; elapsed_time is in milliseconds.

    This is a function, since torch.Event.elapsed_time accepts no subclass of torch.Event.
    """
    if interprocess:
        raise NotImplementedError("torch.netcl.Event: OpenCL has no events that processes share (interprocess=True)")
    device = torch.device("netcl", device_index())
    return torch.Event(device, enable_timing=enable_timing, blocking=blocking)


def current_stream(device: DeviceLike = None) -> torch.Stream:
    """The stream that this thread's operators on `device` use."""
    return torch.accelerator.current_stream(device_index(device))


def default_stream(device: DeviceLike = None) -> torch.Stream:
    """The initial stream of a device."""
    return torch.Stream(stream_id=0, device_index=device_index(device), device_type=20)


def set_stream(stream: torch.Stream) -> None:
    """Makes `stream` (and its device) current in this thread."""
    torch.accelerator.set_stream(stream)


class stream:
    """Context manager that makes a stream current and restores the previous one; None does nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> stream:
        # Not by torch.Stream's own `with`, which keeps the previous stream in the stream, that other threads share.
        if self.stream is not None:
            self.before = torch.accelerator.current_stream(device_index())
            self.there = torch.accelerator.current_stream(self.stream.device_index)
            torch.accelerator.set_stream(self.stream)
        return self

    def __exit__(self, *args: object) -> None:
        if self.stream is not None:
            torch.accelerator.set_stream(self.there)
            torch.accelerator.set_stream(self.before)  # its device becomes the current one again


def is_current_stream_capturing() -> bool:
    """Whether a `torch.accelerator.Graph` is being captured on the current device."""
    return torch.ops.netcl.is_capturing()


StreamContext = stream
