"""The dtypes that autocast may use on a device, and ``torch.autocast`` with the device type filled in."""

import functools
import sys
import threading
import warnings
from typing import Any

import torch

from torch_netcl._autocast_dtype import of_thread
from torch_netcl._hidden_frames import hide_from_dynamo


def _device_index(device: Any) -> int:
    """The index of a device that is given as an index, a string, a torch.device, a stream, a queue or None (current).
    """
    if device is None:
        return torch.netcl.current_device()
    if isinstance(device, int) and not isinstance(device, bool):
        if device < 0:
            raise ValueError(f"a device index is 0 or more, not {device}")
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
    """The properties of ``device`` (default: the current one): ``has_fp16``, ``has_fp64``, memory, compute units …"""
    return torch.netcl.get_device_properties(_device_index(device))


def supports_fp16(device: Any = None) -> bool:
    """Whether ``device`` has half arithmetic (``cl_khr_fp16``). Never raises: False if this is unknown."""
    try:
        return bool(device_profile(device).has_fp16)
    except Exception:  # noqa: BLE001 - a probe must not fail
        return False


@functools.cache
def _any_device_has_fp16() -> bool:
    return any(supports_fp16(index) for index in range(torch.netcl.device_count()))


def get_fp16_storage() -> bool:
    """Whether autocast takes float16 on devices without ``cl_khr_fp16`` too (:func:`set_fp16_storage`)."""
    return torch.ops.netcl.fp16_storage()


def set_fp16_storage(enabled: bool = True) -> None:
    """Let autocast take float16 on every device of this process, also on those without ``cl_khr_fp16``.

    float16 tensors need no extension: kernels load and store 16 bits, and compute in float32. With this, float16 is
    autocast's default dtype on every device, as on CUDA. :func:`autocast_dtypes` lists it; :func:`supports_fp16` and
    :func:`get_amp_supported_dtype` still tell what the device advertises. ``NETCL_FP16=storage`` in the environment
    does the same from the start, and for child processes. Call it outside autocast regions and before
    ``torch.compile`` traces one.

    Args:
        enabled: False returns to what the devices advertise.
    """
    if not isinstance(enabled, bool):
        raise TypeError(f"enabled must be a bool, not {enabled!r}")
    torch.ops.netcl.set_fp16_storage(enabled)
    set_default_dtype()


def _casts_to_fp16(device: Any) -> bool:
    """Whether autocast takes float16 on ``device``; False if there is no such device."""
    try:
        return torch.float16 in autocast_dtypes(device)
    except Exception:  # noqa: BLE001 - as supports_fp16
        return False


def _any_device_casts_to_fp16() -> bool:
    return get_fp16_storage() or _any_device_has_fp16()


_thread = threading.local()  # lowered: whether set_default_dtype chose bfloat16 in this thread


def set_default_dtype() -> None:
    """Makes bfloat16 this thread's autocast dtype if autocast takes float16 on no device, and float16 again later.

    It runs at the first use of a device and before the dtype is told. PyTorch starts each thread with float16. If only
    some devices have float16, that default stays: operators then use the 16-bit float of the device that their tensors
    are on (csrc/amp/autocast_mode.cpp).
    """
    nested = torch.autocast_increment_nesting() > 1
    torch.autocast_decrement_nesting()
    if nested or not torch.netcl.device_count():
        return
    dtype = of_thread("netcl")
    if not _any_device_casts_to_fp16():
        if dtype == torch.float16:
            torch.set_autocast_dtype("netcl", torch.bfloat16)
            _thread.lowered = True
    elif getattr(_thread, "lowered", False):
        if dtype == torch.bfloat16:
            torch.set_autocast_dtype("netcl", torch.float16)
        _thread.lowered = False


def autocast_dtypes(device: Any = None) -> list[torch.dtype]:
    """The dtypes that autocast takes on ``device`` (default: the current one), beginning with its default.

    They are those of :func:`get_amp_supported_dtype`, and float16 on every device after :func:`set_fp16_storage`.

    Raises:
        ValueError, RuntimeError: ``device`` is no netcl device.
    """
    fp16 = device_profile(device).has_fp16 or get_fp16_storage()
    return [torch.float16, torch.bfloat16] if fp16 else [torch.bfloat16]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The 16-bit floats that the current device advertises for ``torch.autocast("netcl", dtype)``.

    float16 needs ``cl_khr_fp16``; see :func:`set_fp16_storage` for devices without it. Every device has bfloat16,
    which is stored as such and computed in float32.
    """
    caller = sys._getframe(1)
    if caller.f_code is torch.autocast.__init__.__code__:
        return _supported_by_region(caller.f_locals)
    set_default_dtype()
    return [torch.float16, torch.bfloat16] if supports_fp16() else [torch.bfloat16]


def _supported_by_region(arguments: Any) -> list[torch.dtype]:
    """The dtypes that ``torch.autocast``'s constructor asks for: those of all devices, since an operator's tensors
    decide.

    The constructor has already read the thread's default dtype, and it asks the backend nothing else. So if a
    thread's first region names no dtype, this function corrects it.
    """
    set_default_dtype()
    fp16 = _any_device_casts_to_fp16()
    if arguments["dtype"] is None:
        default = torch.get_autocast_dtype("netcl")
        arguments["self"].fast_dtype = torch.bfloat16 if default == torch.float16 and not fp16 else default
    elif arguments["dtype"] == torch.float16 and arguments["enabled"] and not fp16:
        _say_how_to_get_fp16()
    return [torch.float16, torch.bfloat16] if fp16 else [torch.bfloat16]


# torch.compile calls this and keeps the result. After a graph break torch.autocast's constructor runs as it is, and
# Dynamo would compile what that calls.
get_amp_supported_dtype._dynamo_marked_constant = True
hide_from_dynamo([get_amp_supported_dtype])


@functools.cache  # once; torch.autocast warns that it does nothing each time
def _say_how_to_get_fp16() -> None:
    warnings.warn(
        "no device has fp16 arithmetic (cl_khr_fp16). NETCL_FP16=storage in the environment, or "
        "torch.netcl.amp.set_fp16_storage(), lets autocast take float16 on every device; bfloat16 needs nothing",
        stacklevel=5,
    )


def is_autocast_enabled(device_type: str = "netcl") -> bool:
    """Whether autocast is on for netcl (or for another type of device) in this thread."""
    return torch.is_autocast_enabled(device_type)


def autocast_enabled(profile_supports_fp16: bool) -> bool:
    """``profile_supports_fp16`` as a bool, for ``autocast(enabled=autocast_enabled(device_profile().supports_fp16))``.

    :func:`is_autocast_enabled` tells whether a region is on.
    """
    return bool(profile_supports_fp16)


_HOW = (
    "write torch.netcl.amp.autocast(dtype=torch.bfloat16), torch.netcl.amp.autocast(enabled, device_queue, dtype, "
    'cache_enabled) or, as torch.autocast, torch.netcl.amp.autocast("netcl", dtype, enabled, cache_enabled)'
)


def _torch_style(
    device_type: str = "netcl",
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> torch.autocast:
    if device_type != "netcl":
        raise ValueError(f"torch.netcl.amp.autocast is for netcl, not {device_type!r}; {_HOW}")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, not {dtype!r}; {_HOW}")
    return torch.autocast("netcl", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def _own_style(
    enabled: bool = True,
    device_queue: Any = None,
    dtype: torch.dtype | None = None,
    cache_enabled: bool | None = None,
) -> torch.autocast:
    if isinstance(enabled, torch.dtype) or isinstance(device_queue, torch.dtype):
        raise TypeError(f"a dtype stands where enabled or device_queue belongs; {_HOW}")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, not {dtype!r}; {_HOW}")
    dtype, able = _own_dtype(dtype, device_queue)
    return torch.autocast("netcl", dtype=dtype, enabled=bool(enabled) and able, cache_enabled=cache_enabled)


def _own_dtype(dtype: torch.dtype | None, device_queue: Any) -> tuple[torch.dtype, bool]:
    """The dtype of a region whose arguments have this module's own style, and whether the device supports it."""
    if dtype is None:
        set_default_dtype()
        dtype = torch.get_autocast_dtype("netcl")
        if not torch.is_autocast_enabled("netcl") and not _any_device_casts_to_fp16():
            dtype = torch.float16
    return dtype, dtype != torch.float16 or _casts_to_fp16(device_queue)


# torch.compile treats the result as a constant, since a device does not change.
_own_dtype._dynamo_marked_constant = True


def autocast(*args: Any, **kwargs: Any) -> torch.autocast:
    """``torch.autocast`` for netcl: a context manager and decorator, which ``torch.compile`` accepts as its own.

    Call it as ``autocast(enabled=True, device_queue=None, dtype=None, cache_enabled=None)``. On a device without
    float16, float16 means float32, without a warning, unless :func:`set_fp16_storage` was called. It also takes the
    arguments of ``torch.autocast``, beginning with ``"netcl"`` or with ``device_type=``; then it is
    ``torch.autocast``, with its warnings.

    Args:
        enabled: whether to cast at all.
        device_queue: the device whose dtypes count: an index, a device, a stream or a pyopencl queue; the current
            device by default.
        dtype: float16 (default) or bfloat16; for another dtype it warns and casts nothing, as ``torch.autocast`` does.
        cache_enabled: whether casts of weights are cached.

    Returns:
        A ``torch.autocast``. Its dtype is chosen here, not on entry.

    Raises:
        TypeError, ValueError: the arguments have neither style; the message shows how to write them.
    """
    torchs = "device_type" in kwargs or (len(args) > 0 and isinstance(args[0], str))
    return _torch_style(*args, **kwargs) if torchs else _own_style(*args, **kwargs)


def maybe_cast_tensor(tensor: Any) -> Any:
    """``tensor`` in the autocast dtype of its device, if autocast is on and it is a float32 netcl tensor.

    Any other value is returned unchanged. Differentiable.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.device.type != "netcl" or tensor.dtype != torch.float32:
        return tensor
    if not is_autocast_enabled():
        return tensor
    dtype = torch.get_autocast_dtype("netcl")
    if dtype == torch.float16 and not _casts_to_fp16(tensor.device):
        return tensor.to(torch.bfloat16) if _any_device_casts_to_fp16() else tensor
    return tensor.to(dtype)
