"""Zero-copy exchange with pyopencl: tensors as arrays, arrays as tensors, and netcl's handles as pyopencl objects.

Both sides share memory and, by default, the queue of the current stream, so each side's commands run after
everything that was enqueued before. Work on other queues needs an event or a ``finish()``, as between any two
queues.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from . import _opencl
from .device import DeviceLike, device_count, device_index

if TYPE_CHECKING:
    import pyopencl
    import pyopencl.array

__all__ = ["context", "current_queue", "device", "from_pyopencl", "to_pyopencl"]

_netcl = torch.ops.netcl


@functools.cache
def _module(index: int) -> Any:
    """pyopencl, after a check that it sees the runtime of device `index`."""
    try:
        import pyopencl
        import pyopencl.array
    except ImportError as e:
        raise ImportError("torch_netcl.interop needs pyopencl: pip install pyopencl") from e
    platform = _netcl.device_handles(index)[0]
    try:
        seen = [p.int_ptr for p in pyopencl.get_platforms()]
    except pyopencl.Error:
        seen = []
    if platform not in seen:
        raise RuntimeError(
            f"pyopencl does not see the OpenCL runtime of netcl:{index}: its ICD loader is not the one torch_netcl "
            f"opened ({_opencl.find_loader()}), or reads other .icd files. Set NETCL_OPENCL_LIBRARY to the loader "
            "that pyopencl links, or install a pyopencl built for the system's."
        )
    return pyopencl


def device(device: DeviceLike = None) -> pyopencl.Device:
    """A netcl device (default: the current one) as a pyopencl device."""
    index = device_index(device)
    return _module(index).Device.from_int_ptr(_netcl.device_handles(index)[1], retain=True)


def context(device: DeviceLike = None) -> pyopencl.Context:
    """The context of a netcl device (default: the current one), in which programs and buffers can be created."""
    index = device_index(device)
    return _module(index).Context.from_int_ptr(_netcl.device_handles(index)[2], retain=True)


def current_queue(device: DeviceLike = None) -> pyopencl.CommandQueue:
    """The in-order queue that this thread's operators on a netcl device (default: the current one) use."""
    index = device_index(device)
    return _module(index).CommandQueue.from_int_ptr(_netcl.device_handles(index)[3], retain=True)


def to_pyopencl(tensor: torch.Tensor) -> pyopencl.array.Array:
    """A pyopencl array that shares the memory of a netcl tensor, with the same shape, strides and dtype.

    The array keeps the memory alive. Its queue is the current stream's. ``array.data`` is a sub-buffer that ends
    with the tensor; it exists if the tensor begins at a multiple of the device's alignment (usually 128 bytes).
    Otherwise use ``array.base_data`` and ``array.offset``. Raises ValueError for tensors on other devices,
    RuntimeError for tensors that require grad (detach them) or are lazily conjugated, TypeError for dtypes that
    NumPy lacks (bfloat16: view it as int16).
    """
    if tensor.device.type != "netcl":
        raise ValueError(f"Expected a netcl tensor, but got one on {tensor.device}")
    if tensor.requires_grad:
        raise RuntimeError("to_pyopencl: the tensor requires grad; pass tensor.detach()")
    if tensor.is_conj() or tensor.is_neg():
        raise RuntimeError("to_pyopencl: a lazily conjugated tensor; pass tensor.resolve_conj().resolve_neg()")
    dtype = torch.empty(0, dtype=tensor.dtype).numpy().dtype
    index = tensor.device.index
    cl = _module(index)
    queue = current_queue(index)
    strides = tuple(s * dtype.itemsize for s in tensor.stride())
    if tensor.numel() == 0:
        return cl.array.Array(queue, tuple(tensor.shape), dtype)
    mem, offset = _netcl.tensor_handles(tensor)
    align = max(1, queue.device.mem_base_addr_align // 8)
    begin = offset // align * align
    span = sum((n - 1) * s for n, s in zip(tensor.shape, strides, strict=True)) + dtype.itemsize
    whole = cl.Buffer.from_int_ptr(mem, retain=True)
    data = whole.get_sub_region(begin, offset - begin + span)
    # Slices of the array share its buffer object, so this object must keep the memory alive.
    data.torch_storage = tensor.untyped_storage()
    data.torch_offset = begin - (offset - tensor.storage_offset() * dtype.itemsize)
    tensor.record_stream(torch.accelerator.current_stream(index))
    return cl.array.Array(queue, tuple(tensor.shape), dtype, data=data, offset=offset - begin, strides=strides)


def from_pyopencl(array: pyopencl.array.Array) -> torch.Tensor:
    """A netcl tensor that shares the memory of a pyopencl array, with the same shape, strides and dtype.

    The array must be in netcl's context: create it with :func:`current_queue` or :func:`context`. The tensor keeps
    the array's buffer alive. The current stream waits for the array's events and, if the array has another queue,
    for the commands in that queue. Raises ValueError for arrays of other contexts, in SVM, with negative strides,
    or not aligned to their dtype; TypeError for dtypes that torch lacks.
    """
    index, cl = _device_of(array)
    import numpy as np

    if array.dtype.byteorder not in "=|" or array.dtype.names:
        raise TypeError(f"from_pyopencl: torch has no dtype {array.dtype}")
    dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
    if array.size == 0:
        return torch.empty(array.shape, dtype=dtype, device=torch.device("netcl", index))
    if array.offset % dtype.itemsize or any(s < 0 or s % dtype.itemsize for s in array.strides):
        raise ValueError(
            f"from_pyopencl: offset {array.offset} and strides {array.strides} must be multiples of {dtype.itemsize} "
            "bytes and not negative; pass array.copy()"
        )
    size, stride = list(array.shape), [s // dtype.itemsize for s in array.strides]
    _wait_for(array, index, cl)
    data = array.base_data
    if (storage := getattr(data, "torch_storage", None)) is not None:  # from to_pyopencl: use the tensor's own storage
        at = (data.torch_offset + array.offset) // dtype.itemsize
        return torch.empty(0, dtype=dtype, device=torch.device("netcl", index)).set_(storage, at, size, stride)
    if not isinstance(data, cl.MemoryObjectHolder):
        raise ValueError("from_pyopencl: the array is not in an OpenCL buffer (SVM is not supported)")
    span = (sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1) * dtype.itemsize
    tensor = _netcl.tensor_from_buffer(index, data.int_ptr, array.offset, span, size, stride, dtype)
    # The buffer is retained. Its Python object is kept too, since its destructor may return the memory to a pool.
    tensor.untyped_storage().pyopencl_data = data
    return tensor


def _device_of(array: pyopencl.array.Array) -> tuple[int, Any]:
    """The index of the netcl device whose context holds `array`, and pyopencl."""
    context = array.context
    for index in range(device_count()):
        _, device_id, context_id, _ = _netcl.device_handles(index)
        if context.int_ptr == context_id:
            return index, _module(index)
    raise ValueError(
        "from_pyopencl: the array is in another OpenCL context than netcl's, so that its memory cannot be shared. Make "
        "it with torch_netcl.interop.current_queue() or .context()."
    )


def _wait_for(array: pyopencl.array.Array, index: int, cl: Any) -> None:
    """Make the current stream wait for everything that writes `array`."""
    events = list(array.events)
    queue = array.queue
    if queue is not None and queue.int_ptr != _netcl.device_handles(index)[3]:
        events.append(cl.enqueue_marker(queue))
        queue.flush()
    for event in events:
        _netcl.wait_event(index, event.int_ptr)
