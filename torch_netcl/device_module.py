"""The module ``torch.netcl``: the device API under torch.cuda's names."""

from __future__ import annotations

from typing import Any as _Any

from . import _utils as _utils
from . import amp as amp
from . import device as _device
from . import graphs as graphs
from . import memory as memory
from . import random as random
from . import streams as streams
from ._cuda_names import why_absent as _why_absent
from .amp import get_amp_supported_dtype as get_amp_supported_dtype
from .custom_kernel import compile_kernel as compile_kernel
from .device import *  # noqa: F403
from .device import _is_in_bad_fork as _is_in_bad_fork
from .graphs import *  # noqa: F403
from .memory import *  # noqa: F403
from .random import *  # noqa: F403
from .random import default_generator as _get_generator
from .streams import *  # noqa: F403

__all__ = [
    "amp",
    "compile_kernel",
    "default_generators",  # noqa: F405 (by __getattr__)
    "get_amp_supported_dtype",
    "graphs",
    "memory",
    "random",
    "streams",
    *_device.__all__,
    *graphs.__all__,
    *memory.__all__,
    *random.__all__,
    *streams.__all__,
]


def _lazy_init() -> None:
    """PyTorch calls this once, when something first asks for a netcl device."""
    amp.autocast_mode.set_default_dtype()


def __getattr__(name: str) -> _Any:
    if name == "default_generators":  # created at the first access, since that makes OpenCL look for devices
        return tuple(_get_generator(i) for i in range(device_count()))  # noqa: F405
    if name == "_initialized":  # torch.utils.checkpoint saves the state of generators only if it is true
        return is_initialized()  # noqa: F405
    if name == "Scheduling":  # Inductor looks for a backend here, but gets it through its own functions
        from . import inductor

        inductor.register()
    raise AttributeError(f"module 'torch.netcl' has no attribute {name!r}{_why_absent(name)}")
