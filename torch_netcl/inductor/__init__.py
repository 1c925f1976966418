"""torch.compile's default backend for netcl: Inductor, with kernels in OpenCL C.

Nothing is imported before the first ``torch.compile``: Inductor asks ``torch.netcl`` for its ``Scheduling``, and
``torch_netcl/device_module.py`` calls :func:`register`.
"""

from __future__ import annotations

_registered = False


def register() -> None:
    """Makes the backend known to Inductor. Calling it again does nothing."""
    global _registered
    if _registered:
        return
    from torch._inductor.codegen.common import register_backend_for_device, register_device_op_overrides

    from .device import OpenCLDeviceOps
    from .passes import OpenCLPass
    from .scheduling import OpenCLScheduling
    from .wrapper import NoCppWrapper, OpenCLWrapper

    register_backend_for_device(
        "netcl", OpenCLScheduling, OpenCLWrapper, NoCppWrapper, NoCppWrapper, device_custom_pass=OpenCLPass()
    )
    register_device_op_overrides("netcl", OpenCLDeviceOps())
    _registered = True
