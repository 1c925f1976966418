"""Makes netcl a device of torch.compile's front end.

It is imported after ``torch._dynamo.device_interface``, whose import takes seconds, so ``import torch`` does not
wait.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo import device_interface

from . import device as _device
from . import memory, streams

_TYPE = "netcl"


class _Worker:
    """For processes that compile and cannot use a device: they know only the properties that their parent read."""

    @staticmethod
    def set_device(index: int) -> None:
        device_interface.caching_worker_current_devices[_TYPE] = index

    @staticmethod
    def current_device() -> int:
        known = device_interface.caching_worker_current_devices.get(_TYPE)
        return _device.current_device() if known is None else known

    @staticmethod
    def get_device_properties(of: _device.DeviceLike = None) -> _device.DeviceProperties:
        known = device_interface.caching_worker_device_properties
        if _TYPE not in known:
            known[_TYPE] = [_device.get_device_properties(i) for i in range(_device.device_count())]
        index = _Worker.current_device() if of is None else _device.device_index(of)
        return known[_TYPE][index]


class NetclInterface(device_interface.DeviceInterface):
    """The interface that dynamo and inductor require of netcl."""

    device = _device.device  # type: ignore[assignment]
    Event = torch.Event  # type: ignore[assignment]
    Stream = streams.Stream  # type: ignore[assignment]
    Worker = _Worker  # type: ignore[assignment]

    current_device = staticmethod(_device.current_device)
    set_device = staticmethod(_device.set_device)
    device_count = staticmethod(_device.device_count)
    exchange_device = staticmethod(torch._C._accelerator_exchangeDevice)
    maybe_exchange_device = staticmethod(torch._C._accelerator_maybeExchangeDevice)
    get_device_properties = staticmethod(_device.get_device_properties)  # type: ignore[assignment]
    stream = staticmethod(streams.stream)  # type: ignore[assignment]
    current_stream = staticmethod(streams.current_stream)
    set_stream = staticmethod(streams.set_stream)
    synchronize = staticmethod(_device.synchronize)
    memory_allocated = staticmethod(memory.memory_allocated)
    is_bf16_supported = staticmethod(_device.is_bf16_supported)  # type: ignore[assignment]

    @staticmethod
    def is_available() -> bool:
        return _device.is_available()

    @staticmethod
    def get_compute_capability(of: _device.DeviceLike = None) -> int:
        major, minor = _device.get_device_capability(of)
        return major * 10 + minor

    @staticmethod
    def get_raw_stream(index: int) -> Any:
        return streams.current_stream(index).native_handle

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        streams.set_stream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


device_interface.register_interface_for_device(_TYPE, NetclInterface)
