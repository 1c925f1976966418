"""torch_netcl: OpenCL devices for PyTorch, as ``torch.device("netcl")``.

Importing torch is enough (the ``torch.backends`` entry point calls :func:`_autoload`).
"""

from __future__ import annotations

import atexit
import importlib
import sys
import time
from pathlib import Path


# This comes before the import of torch: if this module is imported first, torch calls the function during its own
# import.
def _autoload() -> None:
    """Called by torch through the ``torch.backends`` entry point; importing this module did the work."""


import torch  # noqa: E402

from . import _library, _opencl  # noqa: E402
from ._version import __version__  # noqa: E402

__all__ = ["CompiledKernel", "LocalMemory", "__version__", "compile_kernel", "interop"]

_HERE = Path(__file__).resolve().parent


def _kernel_dir() -> Path:
    """The OpenCL sources: in the package when installed, beside it in a checkout."""
    inside = _HERE / "kernels"
    return inside if inside.is_dir() else _HERE.parent / "kernels"


def _load() -> None:
    library = _library.choose(_HERE, torch.__version__)
    loader = _opencl.configure()
    _library.load(library)
    # Another program that has Python in it may take its own path for the interpreter's.
    python = sys.executable if Path(sys.executable or "").name.startswith("python") else ""
    torch.ops.netcl.initialize(
        loader.library or "", str(_kernel_dir()), str(_opencl.cache_dir()), python, str(_HERE / "_builder.py")
    )
    torch.utils.rename_privateuse1_backend("netcl")
    from . import device_module

    torch._register_device_module("netcl", device_module)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    atexit.register(_shutdown)


def _shutdown() -> None:
    """Stop other threads at their next operator, wait for the streams, and release nothing to the driver any more."""
    # If the interpreter ends while a thread waits for the GIL in C++, the process crashes. So from now on other threads
    # stop at their next operator (csrc/runtime/Shutdown.h).
    torch.ops.netcl.shutdown()
    # Autograd's threads release their last Python objects shortly after backward() has returned; sleeping gives them
    # the GIL.
    time.sleep(0.02)
    # Queued commands may need what exit() destroys, so wait for them; but not forever, since a user's event may never
    # come.
    limit = time.monotonic() + 10
    while not torch.ops.netcl.all_streams_idle() and time.monotonic() < limit:
        time.sleep(0.001)


failure: Exception | None = None  # why the extension was not loaded, if torch or the command line asked for it
try:
    _load()
    # These call operators of the extension.
    from . import (
        _autocast_dtype,
        _dlpack,
        _dtensor,
        _higher_order,
        _library_hooks,
        _map_location,
        _scatter_gather,
        _sync_batch_norm,
        distributed,
        interop,
        multiprocessing,
    )
    from ._after_import import after_import
    from .custom_kernel import CompiledKernel, LocalMemory, compile_kernel

    after_import("torch._dynamo.device_interface", lambda: importlib.import_module("torch_netcl._dynamo"))
    after_import("torch.distributed.tensor", _dtensor.add_rules)
    after_import("torch.distributed.tensor.experimental._context_parallel._attention", _dtensor.add_ring)
    _autocast_dtype.register()
    _dlpack.register()
    _higher_order.register()
    _map_location.register()
    _scatter_gather.register()
    _sync_batch_norm.register()
    distributed.register()
    multiprocessing.register()
    _library_hooks.register()
except Exception as error:
    if not (_library.torch_is_being_imported() or _library.runs_as_program()):
        raise
    failure = error
    _library.give_up(error)


def __getattr__(name: str) -> object:
    if failure is not None and name in __all__:
        raise ImportError(f"torch_netcl.{name}: {failure}") from failure
    raise AttributeError(f"module 'torch_netcl' has no attribute {name!r}")
