"""What autocast may choose on a device, and ``torch.autocast`` with the device type filled in."""

from typing import Any

import torch


def _device_index(device: Any) -> int:
    """The index of a device given as an index, a string, a torch.device, a stream, a queue or None (current)."""
    if device is None:
        return torch.netcl.current_device()
    if isinstance(device, int):
        return device
    if isinstance(device, torch.Stream):
        device = device.device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "netcl":
            raise ValueError(f"expected a netcl device, got {device}")
        return torch.netcl.current_device() if device.index is None else device.index
    # A pyopencl queue or device belongs to the netcl device of the same cl_device_id.
    handle = getattr(getattr(device, "device", device), "int_ptr", None)
    if handle is not None:
        for index in range(torch.netcl.device_count()):
            if getattr(torch.netcl.get_device_properties(index), "cl_device_id", None) == handle:
                return index
    raise ValueError(f"{device!r} is not a netcl device")


def device_profile(device: Any = None) -> Any:
    """The properties of ``device`` (the current one): ``has_fp16``, ``has_fp64``, memory, compute units …"""
    return torch.netcl.get_device_properties(_device_index(device))


def supports_fp16(device: Any = None) -> bool:
    """Whether ``device`` has half arithmetic (``cl_khr_fp16``). Never raises: False where it cannot be told."""
    try:
        return bool(device_profile(device).has_fp16)
    except Exception:  # noqa: BLE001 - a probe must not fail
        return False


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("netcl", dtype)`` may use on the current device.

    float16 needs ``cl_khr_fp16``; bfloat16 is storage with arithmetic in float32, which every device has.
    """
    return [torch.float16, torch.bfloat16] if supports_fp16() else [torch.bfloat16]


def is_autocast_enabled() -> bool:
    """Whether autocast is on for netcl in this thread."""
    return torch.is_autocast_enabled("netcl")


def autocast_enabled(profile_supports_fp16: bool) -> bool:
    """Whether autocast is on and, given whether the device has fp16, has any effect with its current dtype."""
    return is_autocast_enabled() and (profile_supports_fp16 or torch.get_autocast_dtype("netcl") != torch.float16)


class autocast(torch.autocast):
    """``torch.autocast("netcl", ...)``: context manager and decorator.

    Unlike ``torch.autocast``, it runs in float32 without a warning where the device has no fp16.

    Args:
        enabled: whether to cast at all.
        device_queue: the device whose abilities count: an index, a device, a stream or a pyopencl queue; the
            current device by default.
        dtype: float16 (default) or bfloat16.
        cache_enabled: whether casts of weights are cached.
    """

    def __init__(
        self,
        enabled: bool = True,
        device_queue: Any = None,
        dtype: torch.dtype | None = None,
        cache_enabled: bool | None = None,
    ) -> None:
        dtype = torch.get_autocast_dtype("netcl") if dtype is None else dtype
        self._wanted = enabled
        self._device_queue = device_queue
        # The device is asked on entry; the base class would warn here.
        super().__init__("netcl", dtype=dtype, enabled=False, cache_enabled=cache_enabled)

    def __enter__(self):
        self._enabled = self._wanted and (self.fast_dtype != torch.float16 or supports_fp16(self._device_queue))
        return super().__enter__()


def maybe_cast_tensor(tensor: Any) -> Any:
    """``tensor`` in the autocast dtype if autocast is on, the device can, and it is a float32 netcl tensor.

    Anything else comes back as it is. Differentiable.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.device.type != "netcl" or tensor.dtype != torch.float32:
        return tensor
    if not autocast_enabled(supports_fp16(tensor.device)):
        return tensor
    return tensor.to(torch.get_autocast_dtype("netcl"))
